"""The broker's side of the SASL mechanisms PLAIN and SCRAM-SHA-256 and -512 (RFC 4616, RFC 5802)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import random
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Protocol

ITERATIONS = 4096
SALT_BYTES = NONCE_BYTES = 16
OTHER_IDENTITY = "Authentication failed: Client requested an authorization id that is different from username"
INVALID_TOKEN = "Invalid SASL/PLAIN response: expected 3 tokens, got {}"

Users = Mapping[str, str]  # the passwords, by user name


class SaslError(Exception):
    """Raised if an authentication fails.

    The client gets the message of the exception. If the message is empty, the client gets a general one, which does not
    reveal whether the user exists.
    """


class SaslServer(Protocol):
    """The broker's side of one authentication."""

    user: str | None  # who is authenticated; None before

    def step(self, token: bytes) -> bytes:
        """Returns the broker's token for a token of the client. Raises SaslError if the authentication fails."""


class PlainServer:
    """PLAIN: the client sends user name and password."""

    def __init__(self, users: Users) -> None:
        self.user: str | None = None
        self._users = users

    def step(self, token: bytes) -> bytes:
        """Returns the empty token of a successful authentication. Raises SaslError if the authentication fails."""
        parts = token.decode(errors="replace").split("\0")
        if len(parts) != 3:
            raise SaslError(INVALID_TOKEN.format(min(len(parts), 4)))
        identity, user, password = parts
        if not user or not password:
            raise SaslError(f"Authentication failed: {'password' if user else 'username'} not specified")
        if self._users.get(user) != password:
            raise SaslError("Authentication failed: Invalid username or password")
        if identity not in ("", user):
            raise SaslError(OTHER_IDENTITY)
        self.user = user
        return b""


class ScramServer:
    """SCRAM: the client proves that it has the password."""

    def __init__(self, algorithm: str, users: Users, rng: random.Random) -> None:
        self.user: str | None = None
        self._algorithm = algorithm
        self._users = users
        self._random = rng
        self._name = ""
        self._messages = ""  # client-first without its header, and server-first; empty before client-first
        self._header = ""
        self._nonce = ""

    def step(self, token: bytes) -> bytes:
        """Returns the server-first message for the client-first message, and server-final for client-final.

        Raises SaslError if the authentication fails.
        """
        try:
            text = token.decode()
            return (self._final(text) if self._messages else self._first(text)).encode()
        except (UnicodeDecodeError, binascii.Error, ValueError, KeyError):
            raise SaslError from None

    def _first(self, text: str) -> str:
        channel, identity, first = text.split(",", 2)
        fields = _fields(first)
        self._name = fields["n"].replace("=2C", ",").replace("=3D", "=")
        if channel != "n" or self._name not in self._users:
            raise SaslError
        if identity.removeprefix("a=") not in ("", self._name):
            raise SaslError(OTHER_IDENTITY)
        self._header = f"{channel},{identity},"
        self._nonce = fields["r"] + self._random.randbytes(NONCE_BYTES).hex()
        salt = base64.b64encode(self._salt()).decode()
        server_first = f"r={self._nonce},s={salt},i={ITERATIONS}"
        self._messages = f"{first},{server_first}"
        return server_first

    def _final(self, text: str) -> str:
        without_proof, _, proof = text.rpartition(",p=")
        fields = _fields(without_proof)
        if fields["r"] != self._nonce or base64.b64decode(fields["c"]).decode() != self._header:
            raise SaslError
        message = f"{self._messages},{without_proof}".encode()
        salted = _salted(self._algorithm, self._users[self._name], self._salt())
        stored = hashlib.new(self._algorithm, self._hmac(salted, b"Client Key")).digest()
        signature = self._hmac(stored, message)
        client_key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._algorithm, client_key).digest(), stored):
            raise SaslError
        self.user = self._name
        return f"v={base64.b64encode(self._hmac(self._hmac(salted, b'Server Key'), message)).decode()}"

    def _salt(self) -> bytes:
        """Returns the salt of a user. It is the same in each authentication, as if it were stored."""
        return hashlib.sha256(f"salt of {self._name}".encode()).digest()[:SALT_BYTES]

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._algorithm)


@lru_cache(256)
def _salted(algorithm: str, password: str, salt: bytes) -> bytes:
    """Returns the salted password. It is cached, because its computation takes some ms."""
    return hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, ITERATIONS)


def _fields(message: str) -> dict[str, str]:
    """Returns the attributes of a message such as `n=user,r=nonce`."""
    parts = (part.partition("=") for part in message.split(","))
    return {name: value for name, _, value in parts}


#: Creates the broker's side of a mechanism.
MECHANISMS: dict[str, Callable[[Users, random.Random], SaslServer]] = {
    "PLAIN": lambda users, _: PlainServer(users),
    "SCRAM-SHA-256": lambda users, rng: ScramServer("sha256", users, rng),
    "SCRAM-SHA-512": lambda users, rng: ScramServer("sha512", users, rng),
}
