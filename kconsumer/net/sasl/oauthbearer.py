"""OAUTHBEARER (RFC 7628): a token that somebody else has issued.

first     n,,0x01 auth=Bearer token 0x01 [key=value 0x01]… 0x01
refused   the broker says why in JSON; one byte 0x01 answers, and the broker ends the login
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from kconsumer.net.sasl.mechanism import Credentials, Mechanism, MechanismError

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")


class OAuthBearer(Mechanism):
    """One exchange."""

    hint = (
        "check that the broker trusts who issued the token, its audience and its expiry (sasl_oauth_token_provider or "
        "the sasl_oauthbearer options)"
    )

    def __init__(self, account: Credentials) -> None:
        if not _TOKEN.fullmatch(account.token):
            raise MechanismError("the token has characters that a bearer token cannot have, or is empty")
        check_extensions(account.extensions)
        pairs = {"auth": f"Bearer {account.token}", **account.extensions}
        self._first = ("n,,\x01" + "".join(f"{key}={value}\x01" for key, value in pairs.items()) + "\x01").encode()
        self.broker_error = ""

    def step(self, challenge: bytes | None) -> bytes | None:
        """See the exchange above."""
        if challenge is None:
            return self._first
        if not challenge or self.broker_error:
            return None
        self.broker_error = _reason(challenge)
        return b"\x01"


def check_extensions(extensions: Mapping[str, str]) -> None:
    """MechanismError for what the broker could not read."""
    for key, value in extensions.items():
        if not _KEY.fullmatch(key) or key.lower() == "auth":
            raise MechanismError(f"an extension's name is of letters alone and not auth, unlike {key!r}")
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise MechanismError(f"the value of the extension {key} is empty or not printable ASCII")


def _reason(challenge: bytes) -> str:
    """The broker's JSON in words."""
    try:
        found = json.loads(challenge)
        fields = ("status", "scope", "openid-configuration")
        told = [f"{name} {found[name]}" for name in fields if found.get(name)]
    except (ValueError, AttributeError, RecursionError):
        told = []
    text = ", ".join(told) or "it gave no reason"
    return "".join(letter if letter.isprintable() else "?" for letter in text[:300])
