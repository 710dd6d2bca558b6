"""Logging in by SASL: mechanisms without I/O, whose credentials they get, and the exchange over a connection."""
