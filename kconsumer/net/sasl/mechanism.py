"""What the mechanisms have in common: an account goes in, tokens go to the broker and come back.

A mechanism is pure: it opens nothing and reads no clock. (GSSAPI's library asks the key distribution centre; it runs
beside the event loop for that reason.) Which request carries the tokens is `login.py`'s.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar


class MechanismError(Exception):
    """The exchange cannot go on; the text says why, without a secret."""


class Credentials:
    """Who logs in, as read anew for each login. Mechanisms take what they need of it; never shown, never kept."""

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
        """`tokenauth`: user and password are a delegation token's; `service`, `principal`, `keytab`: Kerberos."""
        self.user, self.password, self.tokenauth = user, password, tokenauth
        self.token, self.extensions = token, dict(extensions or {})
        self.service, self.host, self.principal, self.keytab = service, host, principal, keytab

    def __repr__(self) -> str:
        return "<Credentials>"


class Mechanism(ABC):
    """One login, from this client's side. Raises MechanismError for an account that it cannot carry."""

    blocking: ClassVar[bool] = False
    """Whether making one and `step` may wait for others than the broker."""

    hint: ClassVar[str]
    """What a user may change when the broker refuses."""

    broker_error = ""
    """What the broker said inside the exchange before it refused; empty if nothing."""

    @abstractmethod
    def __init__(self, account: Credentials) -> None: ...

    @abstractmethod
    def step(self, challenge: bytes | None) -> bytes | None:
        """The token that answers the broker's (None: the first one); None when nothing is left to say.

        Raises MechanismError.
        """


USER_HINT = "check sasl_plain_username, sasl_plain_password and sasl_mechanism"
