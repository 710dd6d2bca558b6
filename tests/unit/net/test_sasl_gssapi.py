"""GSSAPI with a fake library: the order of tokens, and brokers and libraries that refuse."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from kconsumer.net.sasl.gssapi import Gssapi
from kconsumer.net.sasl.mechanism import Credentials, MechanismError


class GSSError(Exception):
    """The exception of the library."""


class Library:
    """The part of `gssapi` that is used. `tokens` are the context's; the context is complete when all are used."""

    def __init__(self, *tokens: bytes) -> None:
        self.tokens = list(tokens)
        self.received: list[Any] = []
        self.named: list[tuple[str, str]] = []
        self.stores: list[Any] = []
        self.error: GSSError | None = None
        self.offer = b"\x01\x00\xff\xff"
        self.wrapped: list[tuple[bytes, bool]] = []
        self.exceptions = SimpleNamespace(GSSError=GSSError)
        self.NameType = SimpleNamespace(hostbased_service="service", kerberos_principal="principal")
        self.Name, self.Credentials, self.SecurityContext = self.name, self.credentials, self.context
        self.MechType = SimpleNamespace(kerberos="krb5")

    def name(self, text: str, kind: str) -> Any:
        self.named.append((text, kind))
        return SimpleNamespace(canonicalize=lambda mechanism: f"{text}/{mechanism}")

    def credentials(self, *, name: Any, usage: str, store: Any) -> str:
        self.stores.append(store)
        return "credentials"

    def context(self, **options: Any) -> Any:
        self.received.append(options)
        return self

    @property
    def complete(self) -> bool:
        return not self.tokens

    def step(self, challenge: bytes | None) -> bytes | None:
        if self.error is not None:
            raise self.error
        self.received.append(challenge)
        return self.tokens.pop(0) or None

    def unwrap(self, challenge: bytes) -> Any:
        if self.error is not None:
            raise self.error
        return SimpleNamespace(message=self.offer)

    def wrap(self, message: bytes, encrypt: bool) -> Any:
        self.wrapped.append((message, encrypt))
        return SimpleNamespace(message=b"wrapped")


def started(library: Library, monkeypatch: pytest.MonkeyPatch, **account: Any) -> Gssapi:
    monkeypatch.setitem(sys.modules, "gssapi", library)
    return Gssapi(Credentials(service="kafka", host="b1.example", **account))


def test_the_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client sends the context's tokens, an empty one if there is none, and then selects no security layer."""
    library = Library(b"first", b"")
    mechanism = started(library, monkeypatch)
    assert [("kafka@b1.example", "service")] == library.named
    assert None is library.received[0]["creds"]
    assert b"first" == mechanism.step(None)
    assert b"" == mechanism.step(b"theirs")
    assert [None, b"theirs"] == library.received[1:]
    assert b"wrapped" == mechanism.step(b"offer")
    assert [(b"\x01\x00\x00\x00", False)] == library.wrapped
    assert None is mechanism.step(b"")


def test_a_keytab(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tickets of a keytab are kept in memory, in one cache for all logins; the client sends its principal with the
    choice of the layer.
    """
    library = Library()
    for _ in range(2):
        started(library, monkeypatch, principal="me@R", keytab="/k").step(b"offer")
    assert [{"client_keytab": "/k", "ccache": "MEMORY:kconsumer /k me@R"}] * 2 == library.stores
    assert (b"\x01\x00\x00\x00me@R", False) == library.wrapped[0]


@pytest.mark.parametrize("offer", [b"", b"\x01", b"\x06\x00\x00\x00", b"\x01\x00\x00\x00\x00"])
def test_a_broker_that_wants_a_security_layer(offer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that requires a security layer is refused, because Kafka's frames follow without one."""
    library = Library()
    library.offer = offer
    with pytest.raises(MechanismError, match="insists on a security layer"):
        started(library, monkeypatch).step(b"x")


@pytest.mark.parametrize("tokens", [[b"first"], []])
def test_the_librarys_errors(tokens: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of the library become the error class of all mechanisms, on one line."""
    library = Library(*tokens)
    mechanism = started(library, monkeypatch)
    library.error = GSSError("Major (1):\n  no ticket")
    with pytest.raises(MechanismError, match=r"Major \(1\): no ticket"):
        mechanism.step(b"x")
