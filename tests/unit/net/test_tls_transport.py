"""The TLS transport: how it handles each result of OpenSSL, the direction it waits for, and its errors."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from kconsumer.config.options import ConsumerConfig
from kconsumer.errors import AuthenticationError
from kconsumer.net.tls.channel import PythonChannel
from kconsumer.net.tls.transport import TlsConnector, TlsTransport
from kconsumer.net.transport import WOULD_BLOCK, Address, HandshakeClosedError

CONFIG = ConsumerConfig(bootstrap_servers="k:1", security_protocol="SSL")
READ, WRITE = ssl.SSLWantReadError(), ssl.SSLWantWriteError()
RESET = ConnectionResetError(errno.ECONNRESET, "reset")
ALERT = ssl.SSLError(1, "[SSL: SSLV3_ALERT_BAD_CERTIFICATE] alert")


class ScriptedTls:
    """Replaces an SSLSocket: each call returns or raises the next result of its kind."""

    def __init__(self, **results: list[Any]) -> None:
        self._results = {name: iter(found) for name, found in results.items()}

    def do_handshake(self) -> None:
        self._next("handshake")

    def recv_into(self, view: memoryview, size: int) -> int:
        return self._next("received")

    def send(self, data: bytes) -> int:
        return self._next("sent")

    def pending(self) -> int:
        return 0

    def _next(self, kind: str) -> int:
        found: int | BaseException = next(self._results[kind])
        if isinstance(found, BaseException):
            raise found
        return found


@pytest.fixture
def sockets() -> Iterator[Any]:
    """Yields a factory of connected transports with a script in place of OpenSSL, and closes them."""
    made: list[TlsTransport] = []

    def make(**results: list[Any]) -> TlsTransport:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = Address(socket.AF_INET, server.getsockname())
            transport = TlsConnector(CONFIG)("k", address, CONFIG)
        assert isinstance(transport, TlsTransport)
        made.append(transport)
        transport._tcp_connected = True
        script: Any = ScriptedTls(**results)
        transport._ssl, transport._channel = script, PythonChannel(script)
        return transport

    yield make
    for transport in made:
        transport.close()


def test_a_handshake_waits_either_way(sockets: Any) -> None:
    """A handshake returns the direction for which it waits."""
    transport = sockets(handshake=[WRITE, READ, None])
    steps = [(transport.finish_connect(), transport.wants_write()) for _ in range(2)]
    assert [(False, True), (False, False)] == steps
    assert transport.finish_connect()


@pytest.mark.parametrize(
    ("failure", "behind", "raised"),
    [
        (RESET, [RESET], HandshakeClosedError),
        (OSError(errno.ENOTCONN, "not connected"), [0], HandshakeClosedError),
        (ssl.SSLEOFError(8, "eof"), [], HandshakeClosedError),
        (RESET, [ALERT], AuthenticationError),
        (ALERT, [], AuthenticationError),
        (OSError(errno.EHOSTUNREACH, "no route"), [], OSError),
    ],
)
def test_a_handshake_fails(sockets: Any, failure: OSError, behind: list[Any], raised: type[Exception]) -> None:
    """An alert behind a reset is reported. Errors distinguish a silent peer, one that refuses, and network failures."""
    with pytest.raises(raised) as caught:
        sockets(handshake=[failure], received=behind).finish_connect()
    assert raised is caught.type


def test_a_read_that_waits_for_writability(sockets: Any) -> None:
    """A read reports that it waits for writability until it continues."""
    transport = sockets(received=[WRITE, 5, READ])
    view = memoryview(bytearray(100))
    assert (WOULD_BLOCK, True, True) == (transport.recv_into(view), transport.crossed, transport.wants_write())
    assert (5, False) == (transport.recv_into(view), transport.crossed)


def test_a_write_that_waits_for_readability(sockets: Any) -> None:
    """A write reports that it waits for readability; waiting for writability is the usual case."""
    transport = sockets(sent=[WRITE, READ, 3])
    assert (0, False) == (transport.send(b"abc"), transport.crossed)
    assert (0, True, False) == (transport.send(b"abc"), transport.crossed, transport.wants_write())
    assert (3, False) == (transport.send(b"abc"), transport.crossed)


@pytest.mark.parametrize(
    ("end", "message"),
    [(RESET, "reset"), (0, ""), (ALERT, "client certificate"), (ssl.SSLError(1, "x"), "TLS ended with x")],
)
def test_bytes_come_before_the_end_behind_them(sockets: Any, end: Any, message: str) -> None:
    """Bytes are returned before the end or the error behind them; `pending` is True meanwhile, because a selector would
    not report these.
    """
    transport = sockets(received=[7, end])
    view = memoryview(bytearray(100))
    assert (7, True) == (transport.recv_into(view), transport.pending)
    if end == 0:
        assert [0, 0] == [transport.recv_into(view) for _ in range(2)]
        return
    with pytest.raises((OSError, AuthenticationError), match=message):
        transport.recv_into(view)


@pytest.mark.parametrize(("behind", "raised"), [([ALERT], AuthenticationError), ([3, 0], OSError), ([READ], OSError)])
def test_a_write_fails(sockets: Any, behind: list[Any], raised: type[Exception]) -> None:
    """If a write fails, an alert with the reason is read if there is one."""
    with pytest.raises(raised) as caught:
        sockets(sent=[RESET], received=behind).send(b"abc")
    assert raised is AuthenticationError or caught.value is RESET


@pytest.mark.parametrize("host", ["a" * 64, "." + "a"])
def test_names_that_tls_cannot_say(host: str) -> None:
    """A host name that TLS cannot encode is an address that does not work, not a crash."""
    with pytest.raises(OSError, match="cannot be the name of a TLS host"):
        TlsConnector(CONFIG)(host, Address(socket.AF_INET, ("127.0.0.1", 1)), CONFIG)


@pytest.mark.parametrize(
    ("adopted", "description", "logged"),
    [(True, "TLS through OpenSSL", []), (False, "TLS through Python's ssl", ["TLS is decrypted through Python's ssl"])],
)
def test_which_openssl_is_in_use(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    adopted: bool,
    description: str,
    logged: list[str],
) -> None:
    """If OpenSSL cannot be called directly, the transport uses Python's `ssl`, and its `repr` and the log say so."""
    if not adopted:
        monkeypatch.setattr("kconsumer._core.net.adopt_connection", lambda _fd: None)
    with caplog.at_level("INFO", "kconsumer"), socket.create_server(("127.0.0.1", 0)) as server:
        address = Address(socket.AF_INET, server.getsockname())
        transport = TlsConnector(CONFIG)("k", address, CONFIG)
        assert description == transport.encryption
        assert description in repr(transport)
        assert adopted == (transport.channel is not None)
        transport.close()
    assert logged == [message.partition(":")[0] for message in caplog.messages]
