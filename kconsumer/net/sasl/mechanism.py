"""The interface of the SASL mechanisms.

A mechanism creates the tokens that are sent to the broker, and checks those that the broker returns. The sequence of
these tokens in one authentication is called the exchange. `authenticator.py` sends the tokens.

A mechanism does no I/O and reads no clock. GSSAPI is the exception: its library calls the key distribution centre, and
therefore runs in the background.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar


class MechanismError(Exception):
    """The authentication has failed, or cannot start. The text gives the reason and contains no secret."""


class Credentials:
    """The credentials of one authentication. The `repr` shows none of them."""

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
        """Store the credentials. Only those that the mechanism uses are passed.

        PLAIN uses `user` and `password`. SCRAM does too, and `tokenauth` means that they belong to a delegation token.
        OAUTHBEARER uses `token` and `extensions`. GSSAPI uses `service`, `host`, `principal` and `keytab`.
        """
        self.user, self.password, self.tokenauth = user, password, tokenauth
        self.token, self.extensions = token, dict(extensions or {})
        self.service, self.host, self.principal, self.keytab = service, host, principal, keytab

    def __repr__(self) -> str:
        return "<Credentials>"


class Mechanism(ABC):
    """The client's side of one authentication. The constructor raises MechanismError for credentials that cannot be
    sent."""

    blocking: ClassVar[bool] = False
    """True if the constructor or `step` may block."""

    hint: ClassVar[str]
    """The hint for users if the broker refuses the credentials: what they may have to change."""

    token = ""
    """The bearer token that is sent to the broker; empty if the mechanism sends none."""

    broker_error = ""
    """The reason for a refusal that the broker has sent as a token; empty without one."""

    @abstractmethod
    def __init__(self, credentials: Credentials) -> None: ...

    @abstractmethod
    def step(self, challenge: bytes | None) -> bytes | None:
        """Returns the next token to send, or None at the end of the exchange. `challenge` is the broker's last token,
        None at the start. Raises MechanismError if the authentication has failed."""


USER_HINT = "check sasl_plain_username, sasl_plain_password and sasl_mechanism"
