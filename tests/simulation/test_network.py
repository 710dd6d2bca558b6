"""Unit tests of the network of simulations: what a client observes at its sockets."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

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
