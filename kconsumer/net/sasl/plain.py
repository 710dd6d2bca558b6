"""PLAIN (RFC 4616): user and password in one message, readable by everybody on the way unless TLS carries it."""

from __future__ import annotations

from kconsumer.net.sasl.mechanism import USER_HINT, Credentials, Mechanism, MechanismError


class Plain(Mechanism):
    """authorization identity (empty) NUL user NUL password."""

    hint = USER_HINT

    def __init__(self, account: Credentials) -> None:
        for what, text in (("user name", account.user), ("password", account.password)):
            if not text:
                raise MechanismError(f"the {what} is empty")
            if "\0" in text:
                raise MechanismError(f"the {what} has a NUL character, which PLAIN cannot carry")
        self._message = f"\0{account.user}\0{account.password}".encode()

    def step(self, challenge: bytes | None) -> bytes | None:
        """The one message; what the broker answers to it has no meaning."""
        return self._message if challenge is None else None
