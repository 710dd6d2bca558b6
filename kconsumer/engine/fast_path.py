"""Arms the fast path of fetching, and writes its state back (see `_core/fast_path.pyx`).

Decides when the consumer is in the steady state, in which the fast path may run polls: each broker that has partitions
to fetch has an incremental fetch in flight and nothing else on its connection, nothing is buffered, and no partition or
broker is backed off. The engine's lock settles the fast path before any other code uses the state.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from kconsumer._core.fast_connection import FastConnection, FastPartition
from kconsumer._core.fast_path import FastPath
from kconsumer._core.metric_events import NodeSensors
from kconsumer.clock import Clock
from kconsumer.deferred_signals import SIGNALS
from kconsumer.engine.components import Components
from kconsumer.engine.driver import Driver
from kconsumer.engine.metrics import ConsumerMetrics
from kconsumer.engine.received_records import ReceivedRecords
from kconsumer.fetching.request import InFlightFetch
from kconsumer.managers import FOREVER, UnsentRequest
from kconsumer.net.connection import Connection
from kconsumer.net.node import NodeConnection
from kconsumer.net.transport import Transport
from kconsumer.net.wakeup import Waker
from kconsumer.records import ConsumerRecords
from kconsumer.schema import FETCH
from kconsumer.schema.fetch import FetchRequest
from kconsumer.state.partition import FetchPosition
from kconsumer.types import TopicPartition

FIRST_VERSION = 13
"""The first version of Fetch with topic ids. The fast path knows no other format of its fields."""
RETRY_AFTER_MS = 100.0
"""For how long the fast path is not armed after a response that it could not process."""
EPOLL: Any = getattr(selectors, "EpollSelector", None)
ATTEMPT_INTERVAL_MS = 10.0
"""The time between two attempts to arm the fast path by polls that do not wait."""


class FastPathControl:
    """Arms and settles the fast path of one consumer. `path` is the compiled fast path."""

    def __init__(self, parts: Components, driver: Driver, metrics: ConsumerMetrics) -> None:
        config = parts.config
        self._parts = parts
        self._driver = driver
        self._not_before = 0.0  # ms; the fast path is not armed earlier
        self._next_attempt = 0.0  # ms; polls that do not wait try to arm it from then on
        self._templates: dict[str, _Template] = {}  # by connection id
        self._leases = driver.has_network_thread  # a network thread uses the sockets
        self._leased: list[NodeConnection] = []  # the nodes whose sockets are leased
        # What the event loop must do when the leases end, unless the node has another connection by then.
        self._handed_over: list[tuple[NodeConnection, Connection | None, Callable[[float], object]]] = []
        self._selector: selectors.BaseSelector | None = None  # waits for the leased sockets
        self._waker: Waker | None = None
        self._watched: list[int] = []  # the descriptors of the leased sockets
        self._due = 0.0  # ms; a manager or timer is due then, but not the timeout of a fetch
        self._timeouts: list[tuple[FastConnection, float]] = []  # of the fetches in flight; ms after they were sent
        self._disabled = False
        deserializes = parts.collector.deserializes or parts.collector.deferred
        self._unusable = ""  # why the fast path is never armed; empty if it may be
        network = parts.client.loop.metrics
        self._network = None if network is None else network.events
        #: The records whose deserializers have not run. None: the fast path returns the records that a poll returns.
        self.received = ReceivedRecords(parts, driver) if deserializes else None
        if parts.fetch.events is not None:
            parts.fetch.events.consumed_later = deserializes
        self.path = FastPath(
            parts.lock.inner,
            driver,
            parts.clock.now,
            _interruptible,
            ConsumerRecords.from_runs if self.received is None else self.received.make_batch,
            ConsumerRecords.EMPTY,
            parts.buffer.memory.track,
            metrics.polls,
            check_crcs=config.check_crcs,
            read_committed=config.isolation_level == "read_committed",
            batch_limit=config.decompressed_batch_max_bytes or 0,
            system_clock=type(parts.clock) is Clock,
            delivery=parts.subscription.delivery,
            signals=SIGNALS,
            network=self._network,
            fetches=parts.fetch.events,
        )
        parts.lock.settle_with(self.path, self.settle)
        driver.on_iteration(self.end_leases)

    @property
    def state(self) -> str:
        """Returns "armed", "not armed", or why it is never armed. Takes no lock, because that would disarm it."""
        return self._unusable or ("armed" if self.path.armed else "not armed")

    def describe(self) -> str:
        """Returns the state and the numbers of responses for state dumps. Takes no lock."""
        path = self.path
        text = self.state
        if not self._unusable:
            text += f", {path.responses} responses processed, {path.handed_over} handed over"
            text += f" (last: {path.gave_up})" if path.gave_up else ""
        return text

    # --- arming ------------------------------------------------------------------------------------------------

    def arm(self, now: float) -> bool:
        """Arm the fast path if the consumer is in the steady state. Returns whether it is armed now.

        The caller has checked that no manager has to be polled now. If it is not armed only because the network thread
        is busy, that thread ends the wait of the calling thread when it is not.
        """
        if self._unusable or now < self._not_before:
            return False
        # The network thread must not use or close a socket between the first check and the lease.
        with self._parts.changing(), self._parts.client.loop.lease_lock:
            return self._arm(now)

    def _arm(self, now: float) -> bool:
        parts = self._parts
        room = parts.buffer.memory.room  # first, because it takes freed memory into account
        flights = parts.fetch.steady_fetches()
        loop, buffer = parts.client.loop, parts.buffer
        if not flights or room <= 0 or buffer.has_data() or buffer.has_paused or self._driver.callbacks_due:
            return False
        if loop.selector is None or parts.closed or self._disabled or parts.collector.busy:
            return False
        if self._leases and not self._sockets_free():
            return False
        timers = FOREVER if self._leases else loop.next_timer
        due = min(self._driver.managers_due, timers)  # when the general path must continue, but for fetches
        connections, timeouts = [], []
        for flight in flights:
            node = parts.client.steady_node(str(flight.node.id), now)
            connection = None if node is None else self._connection(node, flight)
            if node is None or node.connection is None or connection is None:
                return False
            entry = node.connection.sole_request
            assert entry is not None
            due = min(due, node.connection.reauth_at)
            if node.connection.next_deadline < entry.deadline:
                due = min(due, node.connection.next_deadline)
            connections.append(connection)
            timeouts.append((connection, entry.timeout_ms))
        self._due, self._timeouts = due, timeouts
        until = self._next_due()
        if now >= until:
            return False
        selector = self._lease(connections, now) if self._leases else loop.selector
        if selector is None:
            return False
        descriptor = descriptor_of(selector) if type(selector) is EPOLL else -1
        self.path.arm(connections, selector.select, descriptor, until, room)
        return True

    def _sockets_free(self) -> bool:
        """Returns whether the sockets can be leased. If not, the network thread notifies the driver when it waits."""
        loop = self._parts.client.loop
        loop.call_before_wait(self._driver.notify)  # before `selecting` is checked, which the network thread sets first
        if self._leased or not self._driver.can_lease():
            return False
        loop.call_before_wait(None)
        return True

    def _next_due(self) -> float:
        """Returns when the general path must continue (ms), at the earliest when a request in flight times out."""
        return min(self._due, *[connection.sent_at + timeout_ms for connection, timeout_ms in self._timeouts])

    def postpone(self, now: float) -> bool:
        """Keep the fast path armed for longer, if it has sent requests that time out later. Returns whether it did."""
        until = self._next_due() if self.path.armed else 0.0
        return until > now and self.path.postpone(until)

    def arm_for_empty_polls(self, now: float) -> None:
        """Arm the fast path after a poll that did not wait and found nothing. If that fails, further calls do nothing
        for a while, because such polls may be frequent."""
        if now >= self._next_attempt and not self.arm(now):
            self._next_attempt = now + ATTEMPT_INTERVAL_MS

    def _lease(self, connections: list[FastConnection], now: float) -> selectors.BaseSelector | None:
        """Take the sockets from the network thread, which waits for them. Returns a selector that waits for them.

        Returns None if the system has no descriptors or memory for this.
        """
        loop = self._parts.client.loop
        try:
            self._open_selector()
            assert self._selector is not None
            for connection in connections:
                self._selector.register(connection.descriptor, selectors.EVENT_READ, connection.node)
                self._watched.append(connection.descriptor)
        except OSError:
            self._stop_watching()
            self._not_before = now + RETRY_AFTER_MS
            return None
        for connection in connections:
            self._leased.append(connection.node)
            loop.lease(connection.node)
        return self._selector

    def _open_selector(self) -> None:
        """Make the selector and the waker for leased sockets at the first call. Then clear the waker."""
        if self._selector is None:
            loop = self._parts.client.loop
            selector, waker = loop.make_selector(), loop.make_waker()
            selector.register(waker.open(), selectors.EVENT_READ, None)
            self._selector, self._waker = selector, waker
        assert self._waker is not None
        self._waker.drain()
        self._waker.clear()

    def _stop_watching(self) -> None:
        if self._selector is not None:
            for descriptor in self._watched:
                self._selector.unregister(descriptor)
        self._watched = []

    def end_leases(self, now: float) -> None:
        """Give the sockets back, and handle what the fast path has received. The network thread calls this, with the
        lock, or no such thread runs."""
        loop = self._parts.client.loop
        leased, self._leased = self._leased, []
        for node in leased:
            loop.end_lease(node, now)
        handed_over, self._handed_over = self._handed_over, []
        for node, connection, call in handed_over:
            if node.connection is connection:
                call(now)

    def _hand_over(self, node: NodeConnection, call: Callable[[float], object]) -> None:
        self._handed_over.append((node, node.connection, call))

    def disable(self, *, end_leases: bool = True) -> None:
        """Never arm the fast path again, because the consumer is being closed.

        `end_leases` is False if the network thread still runs, which then gives the sockets back itself.
        """
        with self._parts.changing():
            self._disabled = True
            if end_leases:
                self.end_leases(self._parts.clock.now())
            if self._selector is not None and self._waker is not None:
                self._selector.close()
                self._waker.close()

    def _connection(self, node: NodeConnection, flight: InFlightFetch) -> FastConnection | None:
        connection, transport, session = node.connection, node.transport, flight.broker.session
        entry = None if connection is None else connection.sole_request
        raw = None if transport is None else transport.raw
        if connection is None or entry is None or transport is None or raw is None:
            return None
        blocked = None if transport.plain else partial(_is_blocked, transport)
        if blocked is not None and blocked():
            return None
        if entry.api is not FETCH or entry.version < FIRST_VERSION or entry.request is None or session.epoch <= 0:
            return None
        assert isinstance(entry.request.tag, UnsentRequest)
        template = self._templates.get(node.id)
        key = connection, entry.version, session.id, flight.max_bytes, entry.request.message.rack_id
        if template is None or template.key != key:
            sensors = None if self._network is None else self._network.sensors(node.id)
            message = entry.request.message
            template = self._templates[node.id] = _template(connection, entry.version, message, sensors, key)
        return FastConnection(
            flight,
            node,
            transport.fileno(),
            connection.frames,
            raw.recv_into,
            raw.send,
            partial(self._find, flight),
            template.head,
            template.tail,
            session.id,
            session.epoch,
            entry.correlation_id,
            entry.sent_at,
            entry.request.tag,
            template.sensors,
            type(raw) is socket.socket,
            blocked,
        )

    def _find(self, flight: InFlightFetch, topic_id: bytes, number: int) -> FastPartition | None:
        """Returns the copy of a partition in the session of `flight`, or None if the general path must handle it."""
        name = flight.topic_names.get(topic_id)
        requested = None if name is None else flight.requested.get(TopicPartition(name, number))
        if requested is None:
            return None
        chain, state, offset = requested.chain, requested.chain.state, requested.offset
        position = state.position
        if (
            position is None
            or not state.fetchable
            or self._parts.buffer.find(chain.topic_partition) is not chain
            or not chain.is_idle_at(offset, position.leader)
            or position.offset != offset
            or state.out_of_range
            or state.topic_id not in (None, topic_id)
        ):
            return None
        return FastPartition(requested, topic_id, position)

    # --- settling ----------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Disarm the fast path and write its state back. The lock is held.

        After an exception, such as MemoryError, the state may be incomplete, so later calls raise StateError.
        """
        try:
            self._settle()
        except BaseException:
            self._parts.step.begin()
            raise

    def _settle(self) -> None:
        parts, path = self._parts, self.path
        path.disarm()
        now = parts.clock.now()
        path.record()
        for connection in path.connections:
            self._settle_connection(connection)
        parts.collector.set_moved(*_moved(path.moved))
        parts.subscription.set_now(now)
        self._restart_poll_interval(now)
        loop = parts.client.loop
        for connection, frames, count in path.pending:
            self._not_before = now + RETRY_AFTER_MS
            self._hand_over(connection.node, partial(loop.accept, connection.node, frames, count))
        for connection in path.connections:
            if connection.error is not None:
                self._hand_over(connection.node, partial(loop.fail, connection.node, connection.error))
            elif connection.request is not None:
                rest = memoryview(connection.request)[connection.sent :]
                self._hand_over(connection.node, partial(loop.write_rest, connection.node, rest))
        for connection in path.connections:
            transport = connection.node.transport
            if transport is not None and not transport.plain and _is_blocked(transport):
                self._hand_over(connection.node, partial(loop.unblock, connection.node))
        if not self._leases or self._disabled:
            self.end_leases(now)
            return
        self._stop_watching()
        if path.waiting:
            self._wake()
        # The network thread ends the leases in its next iteration. If it is the thread that has acquired the lock, the
        # wakeup only costs it another iteration.
        parts.client.wakeup()

    def _restart_poll_interval(self, now: float) -> None:
        group, path = self._parts.group, self.path
        if group is not None:
            # A poll may wait for longer than the interval: the caller is inside it until its last wait has ended.
            group.heartbeat.poll_started(now if path.waiting else max(path.last_poll, path.woken))

    def _wake(self) -> None:
        """End the wait of a poll, which then finds that the fast path is disarmed."""
        assert self._waker is not None
        self._waker.wake()

    def _settle_connection(self, connection: FastConnection) -> None:
        connection.wait_for_any()
        if not connection.responded_at:
            return
        node, flight = connection.node, connection.flight
        advanced: list[tuple[TopicPartition, int]] = []
        for partition in connection.partitions.values():
            requested = partition.requested
            chain, state = requested.chain, requested.chain.state
            state.update_offsets(partition.high_watermark, partition.last_stable_offset, partition.log_start_offset)
            if partition.advanced:
                chain.skip_to(partition.offset)
                state.advance(_position(partition, partition.offset, partition.offset_epoch), requested.topic_id)
                self._parts.subscription.move_to_end(chain.topic_partition)
                advanced.append((chain.topic_partition, partition.offset))
        flight.broker.session.continue_at(connection.epoch, advanced)
        connection.unsent.handle_with(self._parts.fetch.continue_flight(flight, connection.sent_at))
        node.continue_request(connection.correlation_id, connection.sent_at)
        node.note_use(connection.responded_at)


def _interruptible() -> None:
    """Do nothing. When the interpreter calls a Python function, it runs signal handlers, and raises exceptions that
    `_thread.interrupt_main()` or another thread has set."""


def _is_blocked(transport: Transport) -> bool:
    """Returns True if TLS must read bytes that a selector does not report, or waits to write during a read."""
    return transport.pending or transport.crossed


def descriptor_of(selector: selectors.BaseSelector) -> int:
    """Returns the descriptor of a selector, which is readable if anything that the selector watches is ready; or -1."""
    fileno = getattr(selector, "fileno", None)
    return -1 if fileno is None else int(fileno())


class _Template(NamedTuple):
    """The bytes of an incremental Fetch request before and after its topics, and the values it was created for."""

    key: tuple[Any, ...]
    head: bytes
    tail: bytes
    sensors: NodeSensors | None  # of the connection; None without metrics


def _template(
    connection: Connection, version: int, message: FetchRequest, sensors: NodeSensors | None, key: tuple[Any, ...]
) -> _Template:
    empty = FetchRequest(
        max_wait_ms=message.max_wait_ms,
        min_bytes=message.min_bytes,
        max_bytes=message.max_bytes,
        isolation_level=message.isolation_level,
        session_id=message.session_id,
        session_epoch=message.session_epoch,
        rack_id=message.rack_id,
    )
    data = connection.encode(FETCH, version, 0, empty)
    # The topics are followed by the forgotten topics (an empty array), the rack id, and the number of tagged fields.
    rack = message.rack_id.encode()
    tail = len(data) - (len(rack) + _uvarint_size(len(rack) + 1) + 2)
    return _Template(key, data[: tail - 1], data[tail:], sensors)


def _uvarint_size(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)


def _position(partition: FastPartition, offset: int, epoch: int | None) -> FetchPosition:
    return FetchPosition(offset, epoch, partition.requested.leader)


def _moved(
    partitions: Sequence[FastPartition],
) -> tuple[dict[TopicPartition, FetchPosition], dict[TopicPartition, FetchPosition]]:
    """Returns the positions before and after the last poll, for each partition that it has moved."""
    before = {p.topic_partition: _position(p, p.offset_before, p.epoch_before) for p in partitions}
    return before, {p.topic_partition: _position(p, p.offset, p.offset_epoch) for p in partitions}
