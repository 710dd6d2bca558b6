"""SASL authentication: the mechanisms, their credentials and tokens, and the requests of an authentication."""
