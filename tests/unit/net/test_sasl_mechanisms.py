"""SASL mechanisms as functions of bytes: the examples of their RFCs, and malicious brokers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kconsumer.net.sasl.credentials import MECHANISMS
from kconsumer.net.sasl.gssapi import Gssapi
from kconsumer.net.sasl.mechanism import Credentials, Mechanism, MechanismError
from kconsumer.net.sasl.oauthbearer import OAuthBearer
from kconsumer.net.sasl.plain import Plain
from kconsumer.net.sasl.scram import MAX_ITERATIONS, ScramSha256, ScramSha512, _Scram

PENCIL = Credentials("user", "pencil")


class ScramSha1(_Scram):
    """The mechanism of RFC 5802, for the example of the RFC."""

    algorithm = "sha1"


# --- PLAIN ---


@pytest.mark.parametrize(
    ("account", "why"),
    [
        (Credentials("", "p"), "user name is empty"),
        (Credentials("u", ""), "password is empty"),
        (Credentials("u\0x", "p"), "user name has a NUL"),
        (Credentials("u", "p\0x"), "password has a NUL"),
    ],
)
def test_plain_refuses_what_it_cannot_carry(account: Credentials, why: str) -> None:
    """A user or password with a NUL, which separates the two, is refused; the error shows neither."""
    with pytest.raises(MechanismError, match=why):
        Plain(account)


# --- SCRAM ---

VECTORS = [
    (
        ScramSha1,  # RFC 5802, section 5
        "fyko+d2lbbFgONRv9qkxdawL",
        b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
        b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    ),
    (
        ScramSha256,  # RFC 7677, section 3
        "rOprNGfwEbeRWgbNEkqO",
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
]


@pytest.mark.parametrize(("kind", "nonce", "server_first", "client_final", "server_final"), VECTORS)
def test_scram_as_in_its_rfc(
    kind: type[_Scram], nonce: str, server_first: bytes, client_final: bytes, server_final: bytes
) -> None:
    """The exchange equals the example of the RFC."""
    mechanism = kind(PENCIL, nonce)
    assert f"n,,n=user,r={nonce}".encode() == mechanism.step(None)
    assert client_final == mechanism.step(server_first)
    assert None is mechanism.step(server_final)


class Server:
    """The server of SCRAM, written from the RFC."""

    def __init__(self, algorithm: str, password: bytes, iterations: int = 4096) -> None:
        self.algorithm, self.iterations, self.salt = algorithm, iterations, b"NaCl" * 4
        self.salted = hashlib.pbkdf2_hmac(algorithm, password, self.salt, iterations)

    def hash(self, key: bytes, text: bytes) -> bytes:
        return hmac.new(key, text, self.algorithm).digest()

    def first(self, client_first: bytes) -> bytes:
        self.client_first = client_first[3:]
        nonce = self.client_first.split(b",")[1][2:]
        salt = base64.b64encode(self.salt)
        self.server_first = b"r=" + nonce + b"theirs,s=" + salt + b",i=%d" % self.iterations
        return self.server_first

    def final(self, client_final: bytes) -> bytes | None:
        bare, _, proof = client_final.rpartition(b",p=")
        message = b",".join((self.client_first, self.server_first, bare))
        stored = hashlib.new(self.algorithm, self.hash(self.salted, b"Client Key")).digest()
        key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), self.hash(stored, message), strict=True))
        if hashlib.new(self.algorithm, key).digest() != stored:
            return None
        return b"v=" + base64.b64encode(self.hash(self.hash(self.salted, b"Server Key"), message))


@pytest.mark.parametrize(("kind", "algorithm"), [(ScramSha256, "sha256"), (ScramSha512, "sha512")])
@pytest.mark.parametrize(("password", "believed"), [("pâss=,wörd", True), ("other", False)])
def test_scram_against_a_server(kind: type[_Scram], algorithm: str, password: str, believed: bool) -> None:
    """A server accepts the proof only if it has the same password; each exchange has a nonce of its own."""
    server = Server(algorithm, "pâss=,wörd".encode())
    mechanism = kind(Credentials("user", password))
    first = mechanism.step(None)
    assert first != kind(Credentials("user", password)).step(None)
    final = mechanism.step(server.first(first or b""))
    server_final = server.final(final or b"")
    assert believed is (server_final is not None)
    if server_final is not None:
        assert None is mechanism.step(server_final)


def test_scram_escapes_names_and_announces_tokens() -> None:
    """`=` and `,` in a name are escaped; a delegation token is marked as one."""
    mechanism = ScramSha256(Credentials("a=b,c", "p", tokenauth=True), "N")
    assert b"n,,n=a=3Db=2Cc,r=N,tokenauth=true" == mechanism.step(None)


GOOD = b"r=NONCEx,s=c2FsdA==,i=4096"


@pytest.mark.parametrize(
    ("server_first", "why"),
    [
        (b"", "not of the form"),
        (b"\xff\xfe", "not UTF-8"),
        (b"hello", "not of the form"),
        (b"r=NONCEx,r=NONCEx,s=c2FsdA==", "not of the form"),
        (b"e=other-error", "refused: other-error"),
        (b"m=must,r=NONCEx,s=c2FsdA==,i=4096", "not r="),
        (b"s=c2FsdA==,i=4096", "not r="),
        (b"r=NONCE,s=c2FsdA==,i=4096", "does not begin with the client's"),
        (b"r=OTHERx,s=c2FsdA==,i=4096", "does not begin with the client's"),
        (b"r=NONCE\x7f,s=c2FsdA==,i=4096", "does not begin with the client's"),
        (b"r=NONCEx,s=,i=4096", "salt is not base 64"),
        (b"r=NONCEx,s=!!!!,i=4096", "salt is not base 64"),
        (b"r=NONCEx,s=c2FsdA==,i=4095", "requires 4095 iterations"),
        (b"r=NONCEx,s=c2FsdA==,i=%d" % (MAX_ITERATIONS + 1), "iterations, 4096 to"),
        (b"r=NONCEx,s=c2FsdA==,i=99999999999", "is not a number"),
        (b"r=NONCEx,s=c2FsdA==,i=-4096", "is not a number"),
        (b"r=NONCEx,s=c2FsdA==,i=0x1000", "is not a number"),
    ],
)
def test_scram_refuses_a_bad_challenge(server_first: bytes, why: str) -> None:
    """No proof is sent to a broker that violates the protocol, because it could be used to guess the password."""
    mechanism = ScramSha256(PENCIL, "NONCE")
    mechanism.step(None)
    with pytest.raises(MechanismError, match=why):
        mechanism.step(server_first)


@pytest.mark.parametrize(
    ("server_final", "why"),
    [
        (b"v=" + base64.b64encode(b"\0" * 32), "signature is wrong"),
        (b"v=AAAA", "signature is wrong"),
        (b"v=", "not base 64"),
        (b"x=1", "not base 64"),
        (b"", "not of the form"),
        (b"e=invalid-proof", "refused: invalid-proof"),
    ],
)
def test_scram_wants_the_broker_to_know_the_password(server_final: bytes, why: str) -> None:
    """A wrong server signature fails the login, although the broker would continue."""
    mechanism = ScramSha256(PENCIL, "NONCE")
    mechanism.step(None)
    mechanism.step(GOOD)
    with pytest.raises(MechanismError, match=why):
        mechanism.step(server_final)


@given(st.binary(max_size=60) | st.from_regex(rb"r=NONCE.{0,5},s=[A-Za-z=]{0,9},i=[0-9]{1,4}", fullmatch=True))
def test_any_challenge_ends_in_a_token_or_the_one_error(challenge: bytes) -> None:
    """Hostile bytes lead to a token or to the one error class, in every mechanism that needs no library."""
    mechanisms: list[Mechanism] = [ScramSha256(PENCIL, "NONCE"), Plain(PENCIL), OAuthBearer(Credentials(token="t"))]
    for mechanism in mechanisms:
        mechanism.step(None)
        for _ in range(2):
            try:
                mechanism.step(challenge)
            except MechanismError:
                break


# --- OAUTHBEARER ---


def test_oauthbearer_as_in_its_rfc() -> None:
    """The client sends the token, then the extensions; an empty response is success."""
    mechanism = OAuthBearer(Credentials(token="vF9dft4qmTc2==", extensions={"logicalCluster": "lkc-1", "a": "b c"}))
    assert b"n,,\x01auth=Bearer vF9dft4qmTc2==\x01logicalCluster=lkc-1\x01a=b c\x01\x01" == mechanism.step(None)
    assert None is mechanism.step(b"")
    assert "" == mechanism.broker_error


@pytest.mark.parametrize(
    ("challenge", "complaint"),
    [
        (b'{"status":"invalid_token","scope":"kafka"}', "status invalid_token, scope kafka"),
        (b'{"status":"a\\u001b[2Jb"}', "status a?[2Jb"),
        (b"nonsense", "it gave no reason"),
        (b"[1]", "it gave no reason"),
        (b"[" * 100_000, "it gave no reason"),
    ],
)
def test_oauthbearer_refused(challenge: bytes, complaint: str) -> None:
    """After the broker's reason the client sends one byte, as the RFC requires, and the error contains the reason."""
    mechanism = OAuthBearer(Credentials(token="t"))
    mechanism.step(None)
    assert b"\x01" == mechanism.step(challenge)
    assert complaint == mechanism.broker_error
    assert None is mechanism.step(challenge)


@pytest.mark.parametrize(
    ("account", "why"),
    [
        (Credentials(token=""), "is empty"),
        (Credentials(token="a\x01auth=x"), "cannot have"),
        (Credentials(token="t", extensions={"auth": "x"}), "not auth"),
        (Credentials(token="t", extensions={"Auth": "x"}), "not auth"),
        (Credentials(token="t", extensions={"a1": "x"}), "consists of letters"),
        (Credentials(token="t", extensions={"a": "x\x01"}), "not printable"),
        (Credentials(token="t", extensions={"a": ""}), "empty"),
    ],
)
def test_oauthbearer_refuses_what_it_cannot_carry(account: Credentials, why: str) -> None:
    """A token or an extension that contains a separator is refused."""
    with pytest.raises(MechanismError, match=why):
        OAuthBearer(account)


# --- GSSAPI, and all mechanisms ---


def test_gssapi_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the package to install."""
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(MechanismError, match="needs the package gssapi: pip install gssapi"):
        Gssapi(Credentials(service="kafka", host="b1"))


def test_every_mechanism_says_what_to_change() -> None:
    """Each error contains advice, and the repr of an account shows no secret."""
    assert all(kind.hint for kind in MECHANISMS.values())
    assert "<Credentials>" == repr(Credentials("u", "hunter2", token="t"))
