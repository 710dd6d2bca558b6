"""The proxy that injects faults in chaos runs: each kind of fault has its effect."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.brokers.kafka_admin import wait_until
from support.brokers.processes import local_ports
from support.brokers.proxy import CALM, HOST, STALLED, Conditions, Proxy

WAIT_S = 20
SOON_S = 0.3


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


@pytest.mark.parametrize("conditions", [STALLED, Conditions(up_stalled=True), Conditions(down_stalled=True)], ids=str)
def test_a_stalled_link_withholds_bytes_until_it_calms(echo: int, conditions: Conditions) -> None:
    """No bytes arrive while a link is stalled, though it stays open; all arrive afterwards."""
    with Proxy() as proxy, connected(proxy.listen_for(echo)) as client:
        client.sendall(b"before")
        assert b"before" == receive(client, 6)
        (link,) = proxy.links(echo)
        proxy.set_conditions(conditions, link)
        client.sendall(b"after")
        client.settimeout(SOON_S)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(WAIT_S)
        proxy.set_conditions(CALM, link)
        assert b"after" == receive(client, 5)


def test_calm_may_leave_some_links_silent(echo: int) -> None:
    """When the faults end, a link that is excepted stays stalled; new links work."""
    with Proxy() as proxy, connected(proxy.listen_for(echo)) as silent, connected(proxy.listen_for(echo)) as other:
        for client in (silent, other):
            client.sendall(b"x")
            assert b"x" == receive(client, 1)
        proxy.set_climate(STALLED, echo)
        kept = next(link for link in proxy.links() if link.client_port == silent.getsockname()[1])
        proxy.calm(but=[kept])
        for client in (silent, other):
            client.sendall(b"y")
        assert b"y" == receive(other, 1)
        silent.settimeout(SOON_S)
        with pytest.raises(TimeoutError):
            silent.recv(1)
        with connected(proxy.listen_for(echo)) as new:
            new.sendall(b"z")
            assert b"z" == receive(new, 1)


def test_a_cut_link_is_reset(echo: int) -> None:
    """When a link is cut, its client gets a reset, and the link is removed."""
    with Proxy() as proxy, connected(proxy.listen_for(echo)) as client:
        wait_until(proxy.links, WAIT_S, "the link")
        proxy.cut(*proxy.links())
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        wait_until(lambda: not proxy.links(), WAIT_S, "end of the link")


def test_a_link_is_cut_in_the_middle_of_a_response(echo: int) -> None:
    """`cut_after` lets this many bytes pass to the client and then resets the link."""
    with Proxy() as proxy, connected(proxy.listen_for(echo)) as client:
        client.sendall(b"x")
        assert b"x" == receive(client, 1)
        (link,) = proxy.links(echo)
        proxy.set_conditions(Conditions(trickle=2, cut_after=5), link)
        client.sendall(b"0123456789")
        with pytest.raises(ConnectionResetError):
            receive(client, 10)


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


def test_a_refusing_listener_resets_who_connects(echo: int) -> None:
    """While a listener refuses, new connections are reset at once; afterwards they work again."""
    with Proxy() as proxy:
        port = proxy.listen_for(echo)
        proxy.set_climate(CALM, echo, refuses=True)
        with pytest.raises(ConnectionResetError), connected(port) as client:  # at connecting or at the first read
            client.recv(1)
        proxy.calm()
        with connected(port) as client:
            client.sendall(b"x")
            assert b"x" == receive(client, 1)


def test_a_server_that_is_down_resets_its_clients(echo: int) -> None:
    """A link to a port without a listener ends with a reset."""
    with socket.create_server((HOST, 0)) as unused:
        port = int(unused.getsockname()[1])
    with Proxy() as proxy, pytest.raises(ConnectionResetError), connected(proxy.listen_for(port)) as client:
        client.recv(1)


def test_a_connection_is_known_by_its_process(echo: int) -> None:
    """The client port of a link is among its process's ports as long as the process has the connection."""
    with Proxy() as proxy:
        with connected(proxy.listen_for(echo)) as client:
            client.sendall(b"x")
            assert b"x" == receive(client, 1)
            (link,) = proxy.links()
            assert link.client_port in local_ports(os.getpid())
            assert link.client_port not in local_ports(os.getppid())
        assert link.client_port not in local_ports(os.getpid())
    assert set() == local_ports(0)
