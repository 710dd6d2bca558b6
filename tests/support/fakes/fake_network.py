"""Simulated sockets and a simulated selector, on a clock that advances only when nothing is ready."""

from __future__ import annotations

import errno
import os
import random
import selectors
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

from kconsumer._internal.requests import Ended, UnsentRequest
from kconsumer.net.background import BackgroundTask
from kconsumer.net.client import NetworkClient
from kconsumer.net.connector import Connector
from kconsumer.net.transport import WOULD_BLOCK, Address
from kconsumer.schema.metadata import METADATA
from kconsumer.testing.clock import VirtualClock
from support.fakes.scripted_broker import Conversation, Script

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


def config(**changes: Any) -> Any:
    """Returns the options a NetworkClient reads, with Kafka's defaults."""
    options: dict[str, Any] = {
        "client_dns_lookup": "use_all_dns_ips",
        "address_map": None,
        "socks_proxy": None,
        "http_proxy": None,
        "client_id": "test",
        "bootstrap_servers": (("boot", 9092),),
        "bootstrap_resolve_timeout_ms": 0,
        "request_timeout_ms": 30_000,
        "reconnect_backoff_ms": 50,
        "reconnect_backoff_max_ms": 1_000,
        "socket_connection_setup_timeout_ms": 10_000,
        "socket_connection_setup_timeout_max_ms": 30_000,
        "connections_max_idle_ms": 540_000,
        "send_buffer_bytes": -1,
        "receive_buffer_bytes": -1,
        "receive_message_max_bytes": 1 << 30,
        "security_protocol": "PLAINTEXT",
        "metadata_cluster_check_enable": True,
        "metadata_recovery_strategy": "rebootstrap",
        "explicit": frozenset(),
    }
    return SimpleNamespace(**{**options, **changes})


class FakeTransport:
    """One attempt to connect, driven by the test or by a `Script` behind it."""

    plain = False  # there is no descriptor that another thread could receive from
    channel = None
    encryption = ""
    pending = crossed = False

    def __init__(self, net: FakeNetwork, address: Address, fd: int) -> None:
        self.net = net
        self.address = address
        self.fd = fd
        self.connected = False
        self.failure = 0
        self.closed = False
        self.eof = False
        self.room = 1 << 30  # bytes the "kernel" still takes
        self.written = bytearray()
        self.inbox = bytearray()
        self.conversation: Conversation | None = None

    # what a test does

    def accept(self, script: Script | None = None) -> None:
        """Let the peer accept the connection. With a script, the peer is a broker from now on."""
        self.connected = True
        if script is not None:
            self.conversation = Conversation(script)

    def fail(self, code: int) -> None:
        """Let the next use of the socket fail with this errno."""
        self.failure = code

    def deliver(self, data: bytes) -> None:
        """Let bytes arrive from the peer."""
        self.inbox += data

    def close_by_peer(self) -> None:
        """Let the peer close the connection."""
        self.eof = True

    def events(self) -> int:
        """Returns what a selector would report."""
        if self.failure:
            return READ | WRITE
        readable = READ if self.inbox or self.eof else 0
        return readable | (WRITE if self.connected and self.room else 0)

    # what the client does

    def fileno(self) -> int:
        return self.fd

    def finish_connect(self) -> bool:
        self._check()
        return self.connected

    def wants_write(self) -> bool:
        return True

    def set_low_water(self, count: int) -> None:
        """Do nothing, as systems other than Linux."""

    def recv_into(self, view: memoryview) -> int:
        self._check()
        if not self.inbox:
            return 0 if self.eof else WOULD_BLOCK
        count = min(len(view), len(self.inbox))
        view[:count] = self.inbox[:count]
        del self.inbox[:count]
        return count

    def send(self, data: bytes | memoryview) -> int:
        self._check()
        taken = min(len(data), self.room)
        self.room -= taken
        chunk = bytes(data[:taken])
        self.written += chunk
        if self.conversation is not None:
            response, keep = self.conversation.feed(chunk)
            self.inbox += response
            self.eof = self.eof or not keep
        return taken

    def close(self) -> None:
        assert not self.closed, "closed twice"
        self.closed = True

    def _check(self) -> None:
        assert not self.closed, "used after close"
        if self.failure:
            raise OSError(self.failure, os.strerror(self.failure))


class FakeSelector(selectors.BaseSelector):
    """Reports what fake transports are ready for; waiting moves the clock to the next scheduled event."""

    def __init__(self, net: FakeNetwork) -> None:
        self._net = net
        self._keys: dict[int, selectors.SelectorKey] = {}
        self.closed = False
        self.selects = 0

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        assert fileobj not in self._keys
        key = self._keys[fileobj] = selectors.SelectorKey(fileobj, fileobj, events, data)
        return key

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = self._keys[fileobj] = selectors.SelectorKey(fileobj, fileobj, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.selects += 1
        found = self._ready()
        if not found and timeout != 0:
            self._net.wait(timeout)
            found = self._ready()
        return found

    def _ready(self) -> list[tuple[selectors.SelectorKey, int]]:
        found = []
        for key in list(self._keys.values()):
            transport = self._net.by_fd.get(key.fd)
            events = transport.events() & key.events if transport is not None else 0
            if events:
                found.append((key, events))
        return found

    def get_map(self) -> Any:
        return self._keys

    def close(self) -> None:
        self.closed = True


class FakeNetwork:
    """Simulated name resolution, connection attempts and scheduled events.

    `servers` maps an IP to the result of attempts: a Script accepts and responds, and an errno fails the attempt.
    Without an entry the attempt hangs.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.names: dict[str, list[str]] = {}
        self.servers: dict[str, Script | int] = {}
        self.attempts: list[FakeTransport] = []
        self.lookups: list[str] = []
        self.hanging: list[Callable[[], None]] | None = None  # a list: names are resolved when a test runs its entries
        self.certificates: BackgroundTask[Any] | None = None  # what attempts wait for
        self.by_fd: dict[int, FakeTransport] = {}
        self.selectors: list[FakeSelector] = []
        self._scheduled: list[tuple[float, Callable[[], object]]] = []

    def at(self, moment: float, action: Callable[[], object]) -> None:
        """Schedule an action for a time of the clock."""
        self._scheduled.append((moment, action))
        self._scheduled.sort(key=lambda item: item[0])

    def wait(self, timeout_s: float | None) -> None:
        """Advance the clock to the next scheduled event or the end of the timeout."""
        until = float("inf") if timeout_s is None else self.clock.now() + timeout_s * 1000
        if self._scheduled and self._scheduled[0][0] <= until:
            moment, action = self._scheduled.pop(0)
            self.clock.advance(max(0.0, moment - self.clock.now()))
            action()
            return
        assert until < float("inf"), "select would block forever"
        self.clock.advance(until - self.clock.now())

    def selector(self) -> FakeSelector:
        self.selectors.append(FakeSelector(self))
        return self.selectors[-1]

    def resolve(self, host: str, port: int) -> list[Address]:
        self.lookups.append(host)
        if host not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [Address(2, (ip, port)) for ip in self.names[host]]

    def start_thread(self, work: Callable[[], None]) -> None:
        if self.hanging is None:
            work()
        else:
            self.hanging.append(work)

    def refresh(self, _background: Any) -> BackgroundTask[Any] | None:
        return self.certificates

    def connect(self, host: str, address: Address, config: Any) -> FakeTransport:
        transport = FakeTransport(self, address, 1_000_000 + len(self.attempts))  # no real descriptor
        self.attempts.append(transport)
        self.by_fd[transport.fd] = transport
        server = self.servers.get(str(address))
        if isinstance(server, Script):
            transport.accept(server)
        elif server == errno.ENETUNREACH:
            transport.close()  # fails at once, as the kernel does without a route
            raise OSError(server, os.strerror(server))
        elif server is not None:
            transport.fail(server)
        return transport

    def make_client(self, options: Any, metrics: Any = None) -> NetworkClient:
        """Returns a client that uses nothing but this network and its clock."""
        return NetworkClient(
            options,
            self.clock,
            selector_factory=self.selector,
            connector=Connector(self.connect, self.refresh),
            connect_plain=self.connect,
            resolve=self.resolve,
            start_thread=self.start_thread,
            rng=random.Random(7),
            metrics=metrics,
        )

    @property
    def last(self) -> FakeTransport:
        """Returns the newest attempt."""
        return self.attempts[-1]


class Response(NamedTuple):
    """A request that has ended, with its reply, in one object."""

    request: UnsentRequest
    message: Any
    error: Any
    now: float
    version: int
    sent_at: float


def responses_of(ended: list[Ended]) -> list[Response]:
    """Returns what a poll has returned as responses."""
    return [
        Response(request, reply.message, reply.error, reply.now, reply.version, reply.sent_at)
        for request, reply in ended
    ]


def request_to(node: str, api: Any, timeout_ms: float, **fields: Any) -> UnsentRequest:
    """Returns a request whose handler is not used."""
    return UnsentRequest(api, api.request(**fields), lambda _: None, node, timeout_ms)


def send(client: NetworkClient, request: UnsentRequest, now: float) -> None:
    """Send a request over its connection, which is ready."""
    assert request.node is not None
    node = client.ready(request.node, now)
    assert node is not None, f"connection {request.node} is not ready"
    node.send(request, now)


class NetworkHarness:
    """A client, its network and its clock."""

    def __init__(self, metrics: Any = None, **options: Any) -> None:
        self.clock = VirtualClock(now=1_000)
        self.net = FakeNetwork(self.clock)
        self.net.names = {"boot": ["10.0.0.1"]}
        self.broker = Script()
        self.net.servers = {"10.0.0.1": self.broker}
        self.client = self.net.make_client(config(**options), metrics)

    def poll(self, timeout_ms: float = 0) -> list[Response]:
        return responses_of(self.client.poll(timeout_ms, self.clock.now()))

    def ready(self, node: str = "-1") -> bool:
        return self.client.ready(node, self.clock.now()) is not None

    def failed(self, node: str = "-1") -> Any:
        return self.client.connection_failed(node, self.clock.now())

    def delay(self, node: str = "-1") -> float:
        return self.client.delay_ms(node, self.clock.now())

    def connect(self, node: str = "-1") -> None:
        """Connect and negotiate."""
        assert not self.ready(node)
        for _ in range(4):
            self.poll()
        assert self.ready(node)

    def send(self, node: str = "-1", api: Any = METADATA, timeout_ms: float = 30_000, **fields: Any) -> UnsentRequest:
        request = request_to(node, api, timeout_ms, **fields)
        send(self.client, request, self.clock.now())
        return request
