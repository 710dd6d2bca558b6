"""A token provider that options of Spark name."""

from __future__ import annotations

from support.brokers.sasl import unsecured_token


def token() -> str:
    """Returns a token of the user `spark`."""
    return unsecured_token("spark")
