"""OAUTHBEARER (RFC 7628): a bearer token from a token provider or token endpoint.

first     n,,0x01 auth=Bearer token 0x01 [key=value 0x01]… 0x01
refused   the broker sends the reason in JSON, the client one byte 0x01, and the broker ends the authentication
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

    def __init__(self, credentials: Credentials) -> None:
        if not _TOKEN.fullmatch(credentials.token):
            raise MechanismError("the token has characters that a bearer token cannot have, or is empty")
        check_extensions(credentials.extensions)
        pairs = {"auth": f"Bearer {credentials.token}", **credentials.extensions}
        self._first = ("n,,\x01" + "".join(f"{key}={value}\x01" for key, value in pairs.items()) + "\x01").encode()
        self.broker_error = ""

    def step(self, challenge: bytes | None) -> bytes | None:
        """Returns the token, or the acknowledgement of a refusal."""
        if challenge is None:
            return self._first
        if not challenge or self.broker_error:
            return None
        self.broker_error = _reason(challenge)
        return b"\x01"


def check_extensions(extensions: Mapping[str, str]) -> None:
    """Raise MechanismError for SASL extensions that the broker could not parse."""
    for key, value in extensions.items():
        if not _KEY.fullmatch(key) or key.lower() == "auth":
            raise MechanismError(f"the name of an extension consists of letters and is not auth, unlike {key!r}")
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise MechanismError(f"the value of the extension {key} is empty or not printable ASCII")


def _reason(challenge: bytes) -> str:
    """Returns the broker's JSON in words."""
    try:
        found = json.loads(challenge)
        fields = ("status", "scope", "openid-configuration")
        reasons = [f"{name} {found[name]}" for name in fields if found.get(name)]
    except (ValueError, AttributeError, RecursionError):
        reasons = []
    text = ", ".join(reasons) or "it gave no reason"
    return "".join(letter if letter.isprintable() else "?" for letter in text[:300])
