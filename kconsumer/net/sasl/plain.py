"""PLAIN (RFC 4616): user and password in one message, in clear text unless TLS encrypts it."""

from __future__ import annotations

from kconsumer.net.sasl.mechanism import USER_HINT, Credentials, Mechanism, MechanismError


class Plain(Mechanism):
    """The client's side of one PLAIN authentication. Its token is: (empty authorization identity) NUL user NUL
    password."""

    hint = USER_HINT

    def __init__(self, credentials: Credentials) -> None:
        for what, text in (("user name", credentials.user), ("password", credentials.password)):
            if not text:
                raise MechanismError(f"the {what} is empty")
            if "\0" in text:
                raise MechanismError(f"the {what} has a NUL character, which PLAIN cannot carry")
        self._message = f"\0{credentials.user}\0{credentials.password}".encode()

    def step(self, challenge: bytes | None) -> bytes | None:
        """Returns the token in the first call, then None. The broker's token is empty."""
        return self._message if challenge is None else None
