"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): the client does not send the password, and the broker proves
that it has the user's credentials.

    client-first   n,,n=user,r=nonce[,tokenauth=true]
    server-first   r=nonce+theirs,s=salt,i=iterations
    client-final   c=biws,r=nonce+theirs,p=proof
    server-final   v=signature, or e=error

Like other Kafka clients, this one sends user names and passwords unchanged, without the normalization SASLprep.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from typing import ClassVar

from kconsumer.net.sasl.mechanism import USER_HINT, Credentials, Mechanism, MechanismError

MIN_ITERATIONS = 4096
"""The minimum of RFC 7677. With fewer, a server that poses as the broker could cheaply guess the password."""

MAX_ITERATIONS = 1 << 18
"""16 times Kafka's own maximum. This takes a fifth of a second. A hostile server could demand hours of computing."""

_NONCE = re.compile(r"[\x21-\x2b\x2d-\x7e]+")  # printable, no comma
_GS2_HEADER = "n,,"  # no channel binding, no other identity


class _Scram(Mechanism):
    """The client's side of one SCRAM authentication. Tests pass a fixed `nonce`."""

    algorithm: ClassVar[str]
    hint = USER_HINT

    def __init__(self, credentials: Credentials, nonce: str | None = None) -> None:
        if not credentials.user:
            raise MechanismError("the user name is empty")
        self.broker_error = ""
        self._password = credentials.password.encode()
        self._nonce = nonce or secrets.token_urlsafe(24)
        name = credentials.user.replace("=", "=3D").replace(",", "=2C")
        extension = ",tokenauth=true" if credentials.tokenauth else ""
        self._first = f"n={name},r={self._nonce}{extension}"
        self._signature: bytes | None = None  # what the broker must send in server-final
        self._verified = False

    def step(self, challenge: bytes | None) -> bytes | None:
        """Returns client-first in the first call, and client-final in the second, whose challenge is server-first. The
        third call checks server-final and returns None. Raises MechanismError for a wrong message of the broker."""
        if challenge is None:
            return (_GS2_HEADER + self._first).encode()
        if self._signature is None:
            return self._client_final(challenge)
        if not self._verified:
            self._verify(challenge)
        return None

    def _client_final(self, challenge: bytes) -> bytes:
        """Returns client-final, with the proof for the broker's server-first message."""
        found = _attributes(challenge)
        if "e" in found:
            raise MechanismError(f"the broker refused: {_shown(found['e'])}")
        if list(found)[:3] != ["r", "s", "i"]:  # a mandatory extension ("m") would come first
            raise MechanismError("the broker's first message is not r=…,s=…,i=…")
        nonce, salt, iterations = found["r"], _decoded(found["s"], "salt"), _iterations(found["i"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce or not _NONCE.fullmatch(nonce):
            raise MechanismError("the broker's nonce does not begin with the client's (is a proxy in between?)")
        salted = hashlib.pbkdf2_hmac(self.algorithm, self._password, salt, iterations)
        self._password = b""
        without_proof = f"c={base64.b64encode(_GS2_HEADER.encode()).decode()},r={nonce}"
        message = ",".join((self._first, challenge.decode(), without_proof)).encode()
        client_key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self.algorithm, client_key).digest(), message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _verify(self, challenge: bytes) -> None:
        """Check the signature in server-final. Raises MechanismError unless the broker has the user's credentials."""
        found = _attributes(challenge)
        if "e" in found:
            raise MechanismError(f"the broker refused: {_shown(found['e'])}")
        assert self._signature is not None
        if not hmac.compare_digest(_decoded(found.get("v", ""), "signature"), self._signature):
            raise MechanismError(
                "the broker's signature is wrong: it does not know this user's password (an impostor?)"
            )
        self._verified = True

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self.algorithm)


class ScramSha256(_Scram):
    """SCRAM with SHA-256."""

    algorithm = "sha256"


class ScramSha512(_Scram):
    """SCRAM with SHA-512."""

    algorithm = "sha512"


def _attributes(message: bytes) -> dict[str, str]:
    """Returns the attributes in a message such as `a=value,b=value`, in their order. A value may contain "="."""
    try:
        parts = message.decode("utf-8").split(",")
    except UnicodeDecodeError:
        raise MechanismError("the broker's message is not UTF-8") from None
    found: dict[str, str] = {}
    for part in parts:
        name, separator, value = part.partition("=")
        if not separator or len(name) != 1 or name in found:
            raise MechanismError("the broker's message is not of the form a=value,b=value")
        found[name] = value
    return found


def _decoded(text: str, what: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        data = b""
    if not data:
        raise MechanismError(f"the broker's {what} is not base 64")
    return data


def _iterations(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,9}", text):
        raise MechanismError("the broker's number of iterations is not a number")
    count = int(text)
    if not MIN_ITERATIONS <= count <= MAX_ITERATIONS:
        raise MechanismError(
            f"the broker requires {count} iterations, {MIN_ITERATIONS} to {MAX_ITERATIONS} are accepted"
        )
    return count


def _shown(text: str) -> str:
    """Returns a broker's text for an error: at most 200 characters, with "?" for those that are not printable."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:200])
