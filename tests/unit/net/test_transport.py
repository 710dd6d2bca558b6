"""The TCP transport over loopback sockets that respond at once: without waiting and threads."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator

import pytest

from kconsumer.config.options import ConsumerConfig
from kconsumer.net.describe import broker_name, os_reason
from kconsumer.net.transport import WOULD_BLOCK, Address, TcpTransport, connect_tcp


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def pair(listener: socket.socket) -> Iterator[tuple[TcpTransport, socket.socket]]:
    """Yields a connected transport and its peer."""
    transport = TcpTransport(Address(socket.AF_INET, listener.getsockname()))
    select.select([], [transport.fileno()], [], 10)
    assert transport.finish_connect()
    peer, _ = listener.accept()
    with peer:
        yield transport, peer
    transport.close()


def test_bytes_flow_both_ways(pair: tuple[TcpTransport, socket.socket]) -> None:
    """send and recv_into transfer bytes; an empty socket would block, and a closed peer gives 0."""
    transport, peer = pair
    view = memoryview(bytearray(8))
    assert WOULD_BLOCK == transport.recv_into(view)
    assert 5 == transport.send(b"hello")
    assert b"hello" == peer.recv(5)
    peer.sendall(b"abc")
    select.select([transport.fileno()], [], [], 10)
    assert (3, b"abc") == (transport.recv_into(view), bytes(view[:3]))
    peer.close()
    select.select([transport.fileno()], [], [], 10)
    assert 0 == transport.recv_into(view)


def test_a_full_socket_takes_nothing(pair: tuple[TcpTransport, socket.socket]) -> None:
    """A send to a full socket reports 0 bytes."""
    transport, _ = pair
    chunk = bytes(1 << 20)
    for _ in range(100):
        if transport.send(chunk) == 0:
            break
    assert 0 == transport.send(b"x")


def test_socket_options(listener: socket.socket) -> None:
    """TCP_NODELAY, keep-alive and the configured buffer sizes are set; -1 keeps the system's size."""
    address = Address(socket.AF_INET, listener.getsockname())
    transport = TcpTransport(address, 20_000, 30_000)
    default = TcpTransport(address, -1, -1)
    sock, untouched = transport._sock, default._sock
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= 30_000
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        assert sock.getsockopt(socket.SOL_SOCKET, option) != untouched.getsockopt(socket.SOL_SOCKET, option)
    assert not sock.getblocking()
    transport.close()
    default.close()
    assert "<TcpTransport fd=-1>" == repr(transport)


def test_receive_buffer_is_left_to_the_system_unless_set(listener: socket.socket) -> None:
    """receive_buffer_bytes is set on the socket only if the user gave it; otherwise the kernel tunes the size."""
    family, address = listener.family, listener.getsockname()
    with socket.socket(family) as untouched:
        tuned = untouched.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    found = []
    for options in ({}, {"receive_buffer_bytes": 30_000}):
        config = ConsumerConfig(bootstrap_servers="x:1", **options)
        transport = connect_tcp("x", Address(family, address), config)
        assert isinstance(transport, TcpTransport)
        with socket.socket(fileno=os.dup(transport.fileno())) as same:
            found.append(same.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
        transport.close()
    assert [tuned, 2 * 30_000] == found  # Linux doubles the requested size


def test_a_refused_connection(listener: socket.socket) -> None:
    """finish_connect raises the error of the attempt."""
    address = Address(socket.AF_INET, listener.getsockname())
    listener.close()
    transport = TcpTransport(address)
    select.select([], [transport.fileno()], [], 10)
    with pytest.raises(ConnectionRefusedError) as raised:
        transport.finish_connect()
    assert "connection refused (is a broker listening there?)" == os_reason(raised.value)
    transport.close()


def test_an_attempt_that_fails_at_once() -> None:
    """An unusable address raises from the constructor and leaks no descriptor."""
    with pytest.raises(OSError, match=r".+"):
        TcpTransport(Address(socket.AF_INET, ("255.255.255.255", 9)))


def test_ipv6_addresses_in_brackets() -> None:
    """IPv6 addresses are in brackets, so that the port is distinct."""
    assert "broker 3 at [::1]:9092" == broker_name("3", "::1", 9092)
