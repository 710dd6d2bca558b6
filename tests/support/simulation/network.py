"""The network of a simulation: connections between processes and the brokers of the model, selectors and wakers.

Bytes arrive in order after a random latency. Faults hold them back, reset connections, or refuse connections. What an
application can observe at a socket is the same as with TCP.
"""

from __future__ import annotations

import errno
import os
import selectors
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kconsumer.config.options import ConsumerConfig
from kconsumer.net.transport import WOULD_BLOCK, Address, HandshakeClosedError
from kconsumer.net.wakeup import Waker
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.connection import Connection
from support.simulation.scheduler import FOREVER, Process, Scheduler, Task

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
MIN_LATENCY_MS, MAX_LATENCY_MS = 0.1, 1.5
PARTIAL_WRITE_CHANCE = 0.03
FETCH_KEY = (1).to_bytes(2, "big")  # the API key, which follows the size of a request
MAX_TIMEOUT_S = 2_147_483  # of a selector, which passes milliseconds to the system as an int
HOST = "simulated"


class Descriptor(ABC):
    """A socket or waker that a selector watches."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self.network = network
        self.number = network.add(self)
        self.watchers: list[SimulatedSelector] = []

    @abstractmethod
    def events(self) -> int:
        """Returns the events (readable, writable) that are true now."""

    def changed(self) -> None:
        """Wake the selectors that watch this descriptor."""
        for selector in self.watchers:
            selector.notify(self)


class SimulatedSocket(Descriptor):
    """The client's end of a connection to a broker: a `Transport` (see kconsumer.net.transport)."""

    plain = pending = crossed = False
    channel = None
    encryption = ""

    def __init__(self, network: SimulatedNetwork, process: Process, broker_id: int, *, tls: bool = False) -> None:
        super().__init__(network)
        self.tls = tls
        self.process = process
        self.broker_id = broker_id
        self.connection: Connection | None = None  # the broker's end, once connected
        self.error = 0  # an errno, after the connection was refused or reset
        self.closed = False
        self.fetches = False  # Fetch requests were sent
        self._sent_in_part = False  # the next call of `send` gets the rest of a request
        self._connected = False
        self._handshake_sent = False  # the client has sent its part of the TLS handshake
        self._handshake_received = False  # the broker's part of the TLS handshake has arrived
        self._secured = not tls  # the TLS handshake has ended
        self._input = bytearray()
        self._low_water = 1
        self._backlog = bytearray()  # what the broker sends when the client has read
        self._unread = 0  # bytes that the broker has sent, and the client has not read
        self._ends = False  # the broker closes the connection after the backlog
        self._ended = False  # the broker has closed the connection
        self._requests = Direction(self)
        self._responses = Direction(self)
        network.deliver(self._requests, self._arrive_at_broker)

    # --- the client's side ---

    def fileno(self) -> int:
        """Returns the number of the descriptor."""
        return self.number

    def events(self) -> int:
        """Returns the events that are true now. An error makes the socket readable and writable."""
        if self.error:
            return READ | WRITE
        if not self._connected:
            return 0
        if not self._secured:
            waits = self._handshake_sent and not self._handshake_received and not self._ended
            return 0 if waits else READ | WRITE
        full = bool(self.network.window_bytes) and len(self._input) >= self.network.window_bytes
        return WRITE | (READ if len(self._input) >= self._low_water or full or self._ended else 0)

    def finish_connect(self) -> bool:
        """Returns True, but False during the TLS handshake. Raises OSError if the connection was refused or closed."""
        self._check()
        if self._ended and not self._secured:
            raise HandshakeClosedError("the broker closed the connection during the TLS handshake")
        if not self._secured and not self._handshake_sent:
            self._handshake_sent = True
            self.network.deliver(self._requests, self._handshake_at_broker)
        self._secured = self._secured or self._handshake_received
        return self._secured

    def wants_write(self) -> bool:
        """Returns True until the socket is connected, and False during the TLS handshake."""
        return not self._handshake_sent

    def set_low_water(self, count: int) -> None:
        """Report the socket as readable once it has `count` bytes."""
        self._low_water = count

    def recv_into(self, view: memoryview) -> int:
        """Receive into `view`. Returns the number of bytes, 0 at the end, or WOULD_BLOCK."""
        self._check()
        if not self._input:
            return 0 if self._ended else WOULD_BLOCK
        size = min(len(view), len(self._input))
        view[:size] = self._input[:size]
        del self._input[:size]
        self._unread -= size
        self._send_backlog()
        return size

    def send(self, data: bytes | memoryview) -> int:
        """Send bytes. Returns their number, which may be smaller than the size of `data`."""
        self._check()
        size = len(data)
        self.fetches |= not self._sent_in_part and bytes(data[4:6]) == FETCH_KEY
        if size > 1 and self.network.scheduler.random.random() < PARTIAL_WRITE_CHANCE:
            size = self.network.scheduler.random.randrange(1, size)
        self._sent_in_part = size < len(data)
        sent = bytes(data[:size])
        self.network.deliver(self._requests, lambda: self._received_by_broker(sent))
        return size

    def close(self) -> None:
        """Close the socket."""
        if not self.closed:
            self.closed = True
            if self._unread:
                self.network.on_discarded(self)
            self.network.remove(self)
            self.network.deliver(self._requests, self._closed_by_client)

    def _check(self) -> None:
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        if self.closed:
            raise OSError(errno.EBADF, "closed")

    # --- the network ---

    def reset(self) -> None:
        """Reset the connection: both sides see an error at once."""
        self.error = self.error or errno.ECONNRESET
        self.network.sockets.pop(self, None)
        if self.connection is not None:
            self.connection.close()
            self.network.pump()
        self.changed()

    def respond(self, data: bytes) -> None:
        """Send bytes of the broker to the client, as soon as the client has read enough."""
        self._backlog += data
        self._send_backlog()

    def end(self) -> None:
        """Let the client see that the broker has closed the connection."""
        self._ends = True
        self._send_backlog()

    def _send_backlog(self) -> None:
        """Send as many bytes as the client has room for, and then the end."""
        room = self.network.window_bytes - self._unread if self.network.window_bytes else len(self._backlog)
        data = bytes(self._backlog[: max(room, 0)])
        if data:
            del self._backlog[: len(data)]
            self._unread += len(data)
            self.network.deliver(self._responses, lambda: self._received_by_client(data))
        if self._ends and not self._backlog:
            self._ends = False
            self.network.deliver(self._responses, self._ended_by_broker)

    def _arrive_at_broker(self) -> None:
        """The client's first packet: the broker accepts the connection, or refuses it."""
        if self.closed or self.error:
            return
        self.connection = self.network.cluster.connect(self.broker_id)
        if self.connection is None:
            self.error = errno.ECONNREFUSED
            self.changed()
            return
        self.network.sockets[self] = None
        self.network.by_connection[self.connection] = self
        self.network.deliver(self._responses, self._accepted)

    def _accepted(self) -> None:
        self._connected = True
        self.changed()

    def _handshake_at_broker(self) -> None:
        if not self.network.closes_handshakes:
            self.network.deliver(self._responses, self._handshake_at_client)
        elif self.connection is not None:
            self.connection.close()
            self.network.pump()

    def _handshake_at_client(self) -> None:
        self._handshake_received = True
        self.changed()

    def _received_by_broker(self, data: bytes) -> None:
        if self.network.tls and not self.tls and self.connection is not None:  # no TLS handshake: not understood
            self.connection.close()
            self.network.pump()
        elif self.connection is not None and not self.error:
            self.connection.receive(data, self.network.scheduler.now)
            self.network.pump()

    def _received_by_client(self, data: bytes) -> None:
        if not self.closed:
            self._input += data
            self.changed()

    def _ended_by_broker(self) -> None:
        self._ended = True
        self.changed()

    def _closed_by_client(self) -> None:
        self.network.sockets.pop(self, None)
        if self.connection is not None:
            self.connection.close()
            self.network.pump()


class Direction:
    """One direction of a connection. What is sent first arrives first."""

    def __init__(self, socket: SimulatedSocket) -> None:
        self.socket = socket
        self.last_arrival = 0.0  # ms
        self.held: list[Any] = []  # what waits for the end of a fault, in order

    def __repr__(self) -> str:
        return f"<Direction {self.socket.process.name} {self.socket.broker_id}>"


class SimulatedWaker(Waker):
    """Ends the select of a task (see `Waker`)."""

    __slots__ = ("_descriptor", "_network")

    def __init__(self, network: SimulatedNetwork) -> None:
        super().__init__()
        self._network = network
        self._descriptor: _WakerDescriptor | None = None

    def open(self) -> int:
        """Returns the number of the descriptor to select on."""
        if self._descriptor is None:
            self._descriptor = _WakerDescriptor(self._network)
        return self._descriptor.number

    def wake(self) -> None:
        """End the current select, or else the next one."""
        self.is_set = True
        self.wake_nowait()

    def wake_nowait(self) -> None:
        """End the current select without setting `is_set`."""
        if self._descriptor is not None:
            self._descriptor.written = True
            self._descriptor.changed()

    def drain(self) -> None:
        """Discard the wakeups that select has reported."""
        if self._descriptor is not None:
            self._descriptor.written = False

    def clear(self) -> None:
        """Clear `is_set`."""
        self.is_set = False

    def close(self) -> None:
        """Close the descriptor."""
        if self._descriptor is not None:
            self._network.remove(self._descriptor)
            self._descriptor = None


class _WakerDescriptor(Descriptor):
    """The descriptor of a waker, readable after a wakeup."""

    def __init__(self, network: SimulatedNetwork) -> None:
        super().__init__(network)
        self.written = False

    def events(self) -> int:
        return READ if self.written else 0


class SimulatedSelector(selectors.BaseSelector):
    """A selector whose waits are waits of the running task."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self._network = network
        self._keys: dict[int, selectors.SelectorKey] = {}
        self._waiting: Task | None = None
        self.on_ready: Callable[[], object] = bool  # an event loop watches the selector

    @property
    def ready(self) -> bool:
        """Returns whether `select` would return at once."""
        return bool(self._found())

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Watch a descriptor."""
        key = self._keys[fileobj] = selectors.SelectorKey(fileobj, fileobj, events, data)
        self._network.descriptors[fileobj].watchers.append(self)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Stop watching a descriptor."""
        descriptor = self._network.descriptors.get(fileobj)
        if descriptor is not None:
            descriptor.watchers.remove(self)
        return self._keys.pop(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Change the events of a descriptor."""
        key = self._keys[fileobj] = selectors.SelectorKey(fileobj, fileobj, events, data)
        return key

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """Returns the watched descriptors, by their numbers."""
        return self._keys

    def close(self) -> None:
        """Stop watching all descriptors."""
        for number in list(self._keys):
            self.unregister(number)

    def notify(self, descriptor: Descriptor) -> None:
        """End the wait of the task in `select`, if it waits for an event of this descriptor."""
        key = self._keys.get(descriptor.number)
        if key is None or not key.events & descriptor.events():
            return
        self.on_ready()
        if self._waiting is not None:
            self._network.scheduler.wake(self._waiting)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait up to `timeout` seconds for events. Returns the keys with their events, in a random order.

        Raises OverflowError if `timeout` is longer than a selector can wait.
        """
        if timeout is not None and timeout > MAX_TIMEOUT_S:
            raise OverflowError("timeout is too large")
        scheduler = self._network.scheduler
        found = self._found()
        if not found and (timeout is None or timeout > 0):
            self._waiting = scheduler.current
            try:
                scheduler.park(FOREVER if timeout is None else scheduler.now + timeout * 1000)
            finally:
                self._waiting = None
            found = self._found()
        if len(found) > 1:
            scheduler.random.shuffle(found)
        return found

    def _found(self) -> list[tuple[selectors.SelectorKey, int]]:
        found = []
        for key in self._keys.values():
            descriptor = self._network.descriptors.get(key.fd)
            events = key.events & descriptor.events() if descriptor is not None else 0
            if events:
                found.append((key, events))
        return found


class SimulatedNetwork:
    """All connections of a simulation. The driver of the model: passes bytes to it and runs its timers."""

    def __init__(self, scheduler: Scheduler, cluster: Cluster) -> None:
        self.scheduler = scheduler
        self.cluster = cluster
        self.descriptors: dict[int, Descriptor] = {}
        self.sockets: dict[SimulatedSocket, None] = {}  # those that are connected
        self.by_connection: dict[Connection, SimulatedSocket] = {}
        self.extra_latency_ms = 0.0
        self.tls = False  # the listeners of the brokers use TLS
        self.window_bytes = 0  # a broker sends this many bytes before the client must read some; 0: no limit
        #: Called when a client closes a connection and has not read everything that a broker has sent.
        self.on_discarded: Callable[[SimulatedSocket], None] = lambda _: None
        self.closes_handshakes = False  # a fault: connections are closed during the TLS handshake
        self._blocked: dict[tuple[str, int], None] = {}  # (process, broker) whose packets are held back
        self._numbers = 1000
        self._timer_at = FOREVER
        self._ports = {broker.port: broker.id for broker in cluster.brokers.values()}
        for broker in cluster.brokers.values():
            broker.host = HOST

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers."""
        return ",".join(f"{HOST}:{port}" for port in self._ports)

    def resolve(self, _host: str, port: int) -> list[Address]:
        """Returns the address of a broker."""
        return [Address(0, (HOST, port))]

    def connect(self, process: Process, _host: str, address: Address, config: ConsumerConfig) -> SimulatedSocket:
        """Start to connect a process to a broker, with TLS if the client is configured so. Returns the socket."""
        tls = config.security_protocol.endswith("SSL")
        return SimulatedSocket(self, process, self._ports[address.sockaddr[1]], tls=tls)

    def connect_plain(self, process: Process, address: Address) -> SimulatedSocket:
        """Start to connect a process to a broker without TLS. Returns the socket."""
        return SimulatedSocket(self, process, self._ports[address.sockaddr[1]])

    def add(self, descriptor: Descriptor) -> int:
        """Returns a number for a new descriptor."""
        self._numbers += 1
        self.descriptors[self._numbers] = descriptor
        return self._numbers

    def remove(self, descriptor: Descriptor) -> None:
        """Forget a closed descriptor."""
        self.descriptors.pop(descriptor.number, None)

    # --- delivery ---

    def deliver(self, direction: Direction, function: Any) -> None:
        """Call a function when a packet that is sent now in this direction arrives."""
        socket = direction.socket
        if direction.held or (socket.process.name, socket.broker_id) in self._blocked:
            direction.held.append(function)
            return
        scheduler = self.scheduler
        latency = scheduler.random.uniform(MIN_LATENCY_MS, MAX_LATENCY_MS) + self.extra_latency_ms
        arrival = max(scheduler.now + latency, direction.last_arrival)
        direction.last_arrival = arrival
        scheduler.call_at(arrival, function)

    def block(self, process: Process, broker_id: int) -> None:
        """Hold back all packets between a process and a broker."""
        self._blocked[process.name, broker_id] = None

    def unblock(self, process: Process, broker_id: int) -> None:
        """Deliver the packets that were held back, and hold back no more."""
        self._blocked.pop((process.name, broker_id), None)
        for direction in self._directions(process, broker_id):
            held, direction.held = direction.held, []
            for function in held:
                self.deliver(direction, function)

    def reset(self, process: Process) -> None:
        """Reset all connections of a process."""
        for socket in self._all_sockets():
            if socket.process is process:
                socket.reset()

    def _directions(self, process: Process, broker_id: int) -> list[Direction]:
        return [
            direction
            for socket in self._all_sockets()
            if socket.process is process and socket.broker_id == broker_id
            for direction in (socket._requests, socket._responses)
        ]

    def _all_sockets(self) -> list[SimulatedSocket]:
        opened = [entry for entry in self.descriptors.values() if isinstance(entry, SimulatedSocket)]
        return list(dict.fromkeys([*opened, *self.sockets]))

    # --- the model ---

    def pump(self) -> None:
        """Send the output of the model, and set the timer of its next deadline. Called after each change of it."""
        writable = self.cluster.writable
        while writable:
            connection = next(iter(writable))
            del writable[connection]
            socket = self.by_connection.get(connection)
            if socket is None:
                continue
            if not connection.closed and (data := connection.take_output()):
                socket.respond(data)
            if connection.closed:
                del self.by_connection[connection]
                socket.end()
        deadline = self.cluster.next_deadline()
        if deadline is not None and deadline < self._timer_at:
            self._timer_at = max(deadline, self.scheduler.now)
            self.scheduler.call_at(self._timer_at, partial(self._run_timers, self._timer_at))

    def _run_timers(self, time: float) -> None:
        # An earlier deadline has replaced this timer. Without the check, it would set another timer, and the number of
        # timers would grow.
        if time != self._timer_at:
            return
        self._timer_at = FOREVER
        self.cluster.run_timers(self.scheduler.now)
        self.pump()
