"""Unit tests of the network of simulations: what a client observes at its sockets."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable

import pytest

from kconsumer.net.transport import WOULD_BLOCK
from kconsumer.testing.cluster.cluster import Cluster
from support.simulation.network import READ, WRITE, SimulatedNetwork, SimulatedSelector, SimulatedSocket, SimulatedWaker
from support.simulation.scheduler import Process, Scheduler

PROCESS = Process("p")
# ApiVersions v0 with correlation id 7 and no client id.
REQUEST = struct.pack(">ihhih", 10, 18, 0, 7, -1)


class Client:
    """A client of a cluster with two brokers. Everything happens outside of tasks, in events."""

    def __init__(self, seed: int) -> None:
        self.scheduler = Scheduler(seed)
        self.cluster = Cluster(2, seed=seed)
        self.network = SimulatedNetwork(self.scheduler, self.cluster)

    def socket(self, broker: int = 1) -> SimulatedSocket:
        """Returns a new socket."""
        return SimulatedSocket(self.network, PROCESS, broker)

    def run(self, ms: float) -> None:
        """Let virtual time pass."""
        self.scheduler.run(self.scheduler.now + ms)

    def send(self, socket: SimulatedSocket, data: bytes) -> list[int]:
        """Send all bytes. Returns the sizes of the writes."""
        sizes = []
        while data:
            sizes.append(socket.send(data))
            data = data[sizes[-1] :]
        return sizes


@pytest.fixture(params=range(3))
def client(request: pytest.FixtureRequest) -> Client:
    """A client, with each of three seeds."""
    return Client(request.param)


def received(socket: SimulatedSocket, size: int = 100_000) -> bytes:
    """Receive once. Returns the bytes."""
    buffer = bytearray(size)
    count = socket.recv_into(memoryview(buffer))
    return bytes(buffer[: max(count, 0)])


def correlation_ids(data: bytes) -> list[int]:
    """Returns the correlation ids of the responses in received bytes."""
    ids = []
    while data:
        size, correlation_id = struct.unpack_from(">ii", data)
        ids.append(correlation_id)
        data = data[4 + size :]
    return ids


def test_connect(client: Client) -> None:
    """A socket is neither readable nor writable until the broker has accepted the connection."""
    socket = client.socket()
    assert 0 == socket.events()
    client.run(5)
    assert WRITE == socket.events()
    assert socket.finish_connect()
    assert WOULD_BLOCK == socket.recv_into(memoryview(bytearray(10)))


def test_bytes_in_order(client: Client) -> None:
    """Requests arrive in order whatever the latency of each packet and the sizes of the writes; so do responses."""
    socket = client.socket()
    client.run(5)
    requests = [struct.pack(">ihhih", 10, 18, 0, number, -1) for number in range(200)]
    sizes = [size for request in requests for size in client.send(socket, request)]
    client.run(50)
    assert READ | WRITE == socket.events()
    assert list(range(200)) == correlation_ids(received(socket, 10_000_000))
    assert len(sizes) > 200, "some writes are partial"


def test_partial_reads(client: Client) -> None:
    """A read returns at most what its buffer has room for, and the rest later."""
    socket = client.socket()
    client.run(5)
    client.send(socket, REQUEST)
    client.run(5)
    first = received(socket, 5)
    assert 5 == len(first)
    assert [7] == correlation_ids(first + received(socket))


def test_refused(client: Client) -> None:
    """A connection to a stopped broker is refused."""
    client.cluster.kill(1)
    socket = client.socket()
    client.run(5)
    assert READ | WRITE == socket.events()
    with pytest.raises(ConnectionRefusedError):
        socket.finish_connect()


def test_killed(client: Client) -> None:
    """When a broker stops, its clients see the end of the connection."""
    socket, other = client.socket(1), client.socket(2)
    client.run(5)
    client.cluster.kill(1)
    client.network.pump()
    client.run(5)
    assert (READ | WRITE, WRITE) == (socket.events(), other.events())
    assert 0 == socket.recv_into(memoryview(bytearray(10)))


def test_reset(client: Client) -> None:
    """A reset shows at once as an error at the client, and the broker closes its end."""
    socket = client.socket()
    client.run(5)
    connection = socket.connection
    client.network.reset(PROCESS)
    assert connection is not None
    assert connection.closed
    for call in (lambda: socket.send(b"x"), lambda: received(socket)):
        with pytest.raises(ConnectionResetError):
            call()
    assert not client.network.sockets


def test_closed_by_client(client: Client) -> None:
    """The broker learns that a client closed its socket; the socket cannot be used any more."""
    socket = client.socket()
    client.run(5)
    connection = socket.connection
    socket.close()
    assert connection is not None
    assert not connection.closed
    client.run(5)
    assert connection.closed
    with pytest.raises(OSError, match="closed") as caught:
        socket.send(b"x")
    assert errno.EBADF == caught.value.errno


def test_blocked(client: Client) -> None:
    """Blocked packets wait, and arrive in order when the block ends. Other brokers are not concerned."""
    blocked, other = client.socket(1), client.socket(2)
    client.run(5)
    client.network.block(PROCESS, 1)
    for number in range(50):
        client.send(blocked, struct.pack(">ihhih", 10, 18, 0, number, -1))
    client.send(other, REQUEST)
    client.run(60_000)
    assert (WRITE, READ | WRITE) == (blocked.events(), other.events())
    client.network.unblock(PROCESS, 1)
    client.run(50)
    assert list(range(50)) == correlation_ids(received(blocked, 10_000_000))


def test_blocked_connect(client: Client) -> None:
    """A connect during a block succeeds when the block ends."""
    client.network.block(PROCESS, 1)
    socket = client.socket()
    client.run(10_000)
    assert 0 == socket.events()
    client.network.unblock(PROCESS, 1)
    client.run(10)
    assert WRITE == socket.events()


def test_select(client: Client) -> None:
    """A task waits in `select` until a socket has an event, a waker is used, or the timeout ends."""
    scheduler, network, results = client.scheduler, client.network, []
    socket, waker, selector = client.socket(), SimulatedWaker(network), SimulatedSelector(network)
    selector.register(socket.fileno(), WRITE, "socket")
    selector.register(waker.open(), READ, "waker")

    def select(timeout: float | None) -> None:
        events = selector.select(timeout)
        results.append((sorted((key.data, mask) for key, mask in events), round(scheduler.now, -2)))

    def work() -> None:
        select(None)  # ends with the connect
        selector.modify(socket.fileno(), READ, "socket")
        select(1.0)
        scheduler.call_at(1_500.0, waker.wake)
        select(None)
        waker.drain()
        select(0)

    scheduler.spawn("t", PROCESS, work)
    scheduler.run(10_000)
    assert [([("socket", WRITE)], 0), ([], 1_000), ([("waker", READ)], 1_500), ([], 1_500)] == results


def test_one_timer_of_the_model() -> None:
    """However often the model's next deadline changes, only one timer is set again when timers end."""
    client = Client(1)
    calls: list[float] = []
    run_timers: Callable[[float], None] = client.cluster.run_timers
    client.cluster.run_timers = lambda now: (calls.append(now), run_timers(now))[0]
    for ms in range(1_000, 0, -1):
        client.cluster.timers.add(float(ms), lambda now: None)
        client.network.pump()
    client.run(2_000)
    assert 1_000 == len(calls)
