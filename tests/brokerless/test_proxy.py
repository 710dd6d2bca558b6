"""The proxy that injects faults in chaos runs: each kind of fault has its effect."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.brokers.kafka_admin import wait_until
from support.brokers.proxy import HOST, STALLED, Conditions, Proxy

WAIT_S = 20


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that sends back the bytes it receives."""
    with socket.create_server((HOST, 0)) as server:

        def serve(client: socket.socket) -> None:
            with client:
                try:
                    while data := client.recv(65_536):
                        client.sendall(data)
                except OSError:
                    pass

        def accept() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(client,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield int(server.getsockname()[1])
        server.shutdown(socket.SHUT_RDWR)


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    """Make a client connection to the proxy."""
    with socket.create_connection((HOST, port), WAIT_S) as client:
        yield client


def receive(client: socket.socket, size: int) -> bytes:
    """Returns exactly `count` bytes."""
    data = b""
    while len(data) < size:
        chunk = client.recv(size - len(data))
        assert chunk, f"the connection ended after {len(data)} of {size} bytes"
        data += chunk
    return data


def test_carries_bytes_both_ways(echo: int) -> None:
    """Without faults a megabyte is returned as it was sent."""
    sent = bytes(range(256)) * 4096
    with Proxy() as proxy, connected(proxy.listen_for(echo)) as client:
        writer = threading.Thread(target=client.sendall, args=(sent,))
        writer.start()
        assert sent == receive(client, len(sent))
        writer.join()


def test_a_cut_link_is_reset(echo: int) -> None:
    """When a link is cut, its client gets a reset, and the link is removed."""
    with Proxy() as proxy, connected(proxy.listen_for(echo)) as client:
        wait_until(proxy.links, WAIT_S, "the link")
        proxy.cut(*proxy.links())
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        wait_until(lambda: not proxy.links(), WAIT_S, "end of the link")


def test_a_stalled_link_whose_client_closes_delivers_nothing(echo: int) -> None:
    """A request that its client has given up does not arrive later: it would be executed after newer requests."""
    with Proxy() as proxy:
        with connected(proxy.listen_for(echo)) as client:
            wait_until(proxy.links, WAIT_S, "the link")
            proxy.set_climate(STALLED)
            client.sendall(b"request")
        wait_until(lambda: not proxy.links(), WAIT_S, "end of the link")


def test_a_trickling_link_delivers_few_bytes_at_a_time(echo: int) -> None:
    """With trickle=3 no read returns many bytes, and all bytes arrive in the end."""
    sent = b"0123456789" * 3
    with Proxy() as proxy:
        port = proxy.listen_for(echo)
        proxy.set_climate(Conditions(trickle=3), echo)
        with connected(port) as client:
            client.sendall(sent)
            first = client.recv(100)
            assert len(first) < len(sent)
            assert sent == first + receive(client, len(sent) - len(first))
