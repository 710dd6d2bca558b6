"""OAUTHBEARER (RFC 7628): a bearer token from a token provider or token endpoint.

The client's first token, where `key=value` are SASL extensions:

    n,,0x01 auth=Bearer token 0x01 [key=value 0x01]… 0x01

If the broker refuses it, it returns the reason in JSON. The client then sends one byte 0x01, and the broker returns an
error.
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
    """The client's side of one OAUTHBEARER authentication."""

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
        self.token = credentials.token
        self.broker_error = ""

    def step(self, challenge: bytes | None) -> bytes | None:
        """Returns the message with the bearer token in the first call. In the second call, returns the byte 0x01 if the
        broker has refused the token, else None."""
        if challenge is None:
            return self._first
        if not challenge or self.broker_error:
            return None
        self.broker_error = _reason(challenge)
        return b"\x01"


def check_extensions(extensions: Mapping[str, str]) -> None:
    """Check SASL extensions. Raises MechanismError for a name or value that RFC 7628 does not allow."""
    for key, value in extensions.items():
        if not _KEY.fullmatch(key) or key.lower() == "auth":
            raise MechanismError(f"the name of an extension consists of letters and is not auth, unlike {key!r}")
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise MechanismError(f"the value of the extension {key} is empty or not printable ASCII")


def _reason(challenge: bytes) -> str:
    """Returns the reason for a refusal in the broker's JSON, as text for an error."""
    try:
        found = json.loads(challenge)
        fields = ("status", "scope", "openid-configuration")
        reasons = [f"{name} {found[name]}" for name in fields if found.get(name)]
    except (ValueError, AttributeError, RecursionError):
        reasons = []
    text = ", ".join(reasons) or "it gave no reason"
    return "".join(letter if letter.isprintable() else "?" for letter in text[:300])
