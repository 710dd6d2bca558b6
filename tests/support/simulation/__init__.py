"""Deterministic simulation: whole consumers and a model cluster in one thread and in virtual time."""
