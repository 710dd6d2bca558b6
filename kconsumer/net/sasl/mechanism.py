"""The interface of the SASL mechanisms: credentials go in, tokens go to the broker and come back.

A mechanism decides what the tokens contain. It does no I/O and reads no clock. GSSAPI is the exception: its library
calls the key distribution centre, and therefore runs in the background. `authenticator.py` decides which request
carries a token.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar


class MechanismError(Exception):
    """The exchange has failed. The text says why, and contains no secret."""


class Credentials:
    """The credentials of one authentication, read again for each. They are never shown nor kept."""

    __slots__ = ("extensions", "host", "keytab", "password", "principal", "service", "token", "tokenauth", "user")

    def __init__(
        self,
        user: str = "",
        password: str = "",
        *,
        tokenauth: bool = False,
        token: str = "",
        extensions: Mapping[str, str] | None = None,
        service: str = "",
        host: str = "",
        principal: str | None = None,
        keytab: str | None = None,
    ) -> None:
        """`tokenauth` means that user and password are those of a delegation token. `service`, `host`, `principal` and
        `keytab` are for Kerberos."""
        self.user, self.password, self.tokenauth = user, password, tokenauth
        self.token, self.extensions = token, dict(extensions or {})
        self.service, self.host, self.principal, self.keytab = service, host, principal, keytab

    def __repr__(self) -> str:
        return "<Credentials>"


class Mechanism(ABC):
    """The client's side of one authentication. Raises MechanismError for credentials that it cannot send."""

    blocking: ClassVar[bool] = False
    """Whether the constructor and `step` may block."""

    hint: ClassVar[str]
    """What the user may change when the broker refuses."""

    broker_error = ""
    """The reason that the broker gave inside the exchange before it refused; empty without one."""

    @abstractmethod
    def __init__(self, credentials: Credentials) -> None: ...

    @abstractmethod
    def step(self, challenge: bytes | None) -> bytes | None:
        """Returns the token to send after the broker's `challenge` (None at the start), or None at the end of the
        exchange. Raises MechanismError."""


USER_HINT = "check sasl_plain_username, sasl_plain_password and sasl_mechanism"
