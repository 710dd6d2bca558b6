"""The operations of a `MockConsumer`, which end at once, and a driver that never waits for a network."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from kconsumer._core.lock import Timer
from kconsumer._internal.deferred_signals import SIGNALS
from kconsumer._internal.managers import RequestManager, UnsentRequest
from kconsumer._internal.status import ConsumerStatus
from kconsumer.coordinator.rebalance_steps import CallbackKind, RebalanceCallback
from kconsumer.engine.callbacks import Callbacks, CommitCallback, log_failed_commit
from kconsumer.engine.classic import ClassicDriver
from kconsumer.engine.components import Components
from kconsumer.engine.driver import Driver
from kconsumer.engine.metrics import ConsumerMetrics
from kconsumer.engine.operations import TELEMETRY_DISABLED, Offsets, Operations
from kconsumer.engine.status import StatusView
from kconsumer.engine.waiting import Operation, Wait
from kconsumer.errors import NoOffsetForPartitionError, StateError
from kconsumer.fetching.partition_status import FetchContext
from kconsumer.metadata.topic_requests import TopicTable
from kconsumer.state.cluster import LeaderAndEpoch
from kconsumer.state.partition import PartitionState
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.mock_broker import NODE, MockBroker
from kconsumer.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

CLIENT_INSTANCE_ID = "AAAAAAAAAAAAAAAAAAAAAQ"  # Java's Uuid with the value 1


class MockDriver(Driver):
    """A driver without network. A wait only advances the virtual clock to the deadline of the wait."""

    def wait(self, wait: Wait) -> None:
        """Advance the clock to the deadline of `wait`. Runs the handlers of signals that have arrived.

        Raises StateError if a callback or a handler has closed the consumer.
        """
        SIGNALS.run_noted()
        self._check_open()
        left = wait.deadline - self._clock.now()
        if isinstance(self._clock, VirtualClock) and 0 < left < math.inf:
            self._clock.advance(left)

    def wakeup(self) -> None:
        self.wakeup_requested = True

    def _step(self, wait: Wait, timeout_ms: float) -> None:
        """Do nothing: there are no managers to poll."""

    def wait_for_activity(self, timeout_ms: float) -> bool:
        """Returns False, because there is no network."""
        return False

    def idle(self) -> bool:
        """Returns True, because nothing arrives."""
        return True

    def yield_to_network(self, timeout_ms: float) -> None:
        """Do nothing: there is no network."""

    def flush_managers(self, *managers: RequestManager) -> None:
        """Do nothing: managers have no requests."""

    def submit(self, requests: Iterable[UnsentRequest], now: float) -> None:
        """Do nothing: there are no requests."""

    def submit_if_connected(self, requests: Iterable[UnsentRequest], now: float) -> None:
        """Do nothing: there are no requests."""

    def release_to_caller(self, timeout_s: float) -> ClassicDriver | None:
        """Returns None, because there is no network to release."""
        return None

    def keep_alive(self) -> None:
        """Do nothing: there are no heartbeats."""

    def stop(self) -> None:
        """Do nothing: there are no threads."""


class MockStatus(StatusView):
    """Explains the state of partitions whose leader is always known, in the generation that `rebalance` simulates."""

    def __init__(self, parts: Components, generation: Callable[[], int]) -> None:
        super().__init__(parts)
        self._generation = generation

    def consumer_status(self, name: str) -> ConsumerStatus:
        found = super().consumer_status(name)
        if found.group is None:
            return found
        return replace(found, group=replace(found.group, generation=self._generation()))

    def _context(self, tp: TopicPartition, state: PartitionState, now: float) -> FetchContext:
        return FetchContext(now, state, self._components.buffer.memory, LeaderAndEpoch(NODE, 0))


class MockOperations(Operations):
    """The operations of one `MockConsumer`.

    `commit` and other operations are generators, as in the library. They end at once.
    """

    def __init__(
        self,
        parts: Components,
        callbacks: Callbacks,
        metrics: ConsumerMetrics,
        driver: Driver,
        broker: MockBroker,
        find_positions: Callable[[], None],
        *,
        on_commit: Callable[[Offsets], None],
        on_leave: Callable[[], None],
    ) -> None:
        super().__init__(parts, callbacks, metrics, driver)
        self._broker = broker
        self._find_positions = find_positions
        self._on_commit = on_commit
        self._on_leave = on_leave

    def store(self, offsets: Offsets) -> Offsets:
        """Store offsets as committed. Returns a copy of them."""
        chosen = dict(offsets)
        self._broker.commit(chosen)
        if chosen:
            self._on_commit(chosen)
        return chosen

    def commit(self, offsets: Offsets | None, timer: Timer, *, automatic: bool = False) -> Operation[None]:
        """Commit `offsets`, or all positions if it is None. Then runs the callbacks of earlier commits."""
        self.group()
        self.driver.raise_wakeup()
        self.store(self._components.positions.all_consumed() if offsets is None else offsets)
        yield from self._callbacks.run_commits()

    def commit_async(self, offsets: Offsets | None, callback: CommitCallback | None) -> None:
        """Commit at once. `callback(offsets, error)` runs during a later call of a method of the consumer."""
        self.group()
        chosen = self.store(self._components.positions.all_consumed() if offsets is None else offsets)
        choice = (callback, self._components.config.on_commit, log_failed_commit)
        notify = next(candidate for candidate in choice if candidate is not None)
        self._callbacks.commit_finished(notify, chosen, None)

    def committed(
        self, partitions: Collection[TopicPartition], timer: Timer
    ) -> Operation[dict[TopicPartition, OffsetAndMetadata | None]]:
        self.group()
        self.driver.raise_wakeup()
        yield from ()
        return {tp: self._broker.committed.get(tp) for tp in partitions}

    def position(self, tp: TopicPartition, timer: Timer) -> Operation[int]:
        """Returns the position of a partition. If it has none, sets it first, as `MockReads.find_positions` does."""
        state = self._components.assignment.get(tp)
        if not state.has_valid_position:
            self.driver.raise_wakeup()
            try:
                self._find_positions()
            except NoOffsetForPartitionError:
                if not state.has_valid_position:
                    raise
        yield from ()
        assert state.position is not None, "find_positions has set it"
        return state.position.offset

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], timer: Timer, what: str
    ) -> Operation[dict[TopicPartition, OffsetAndTimestamp | None]]:
        if timestamps:
            self.driver.raise_wakeup()
        yield from ()
        return self._broker.list_offsets(timestamps)

    def topics(self, names: Collection[str] | None, timer: Timer, *, fresh: bool = False) -> Operation[TopicTable]:
        self.driver.raise_wakeup()
        yield from ()
        return TopicTable(self._broker.partitions(self._broker.topics() if names is None else names))

    def client_instance_id(self, timer: Timer) -> Operation[str]:
        """Returns an id that is the same for all instances of MockConsumer. Raises StateError if telemetry is off."""
        if not self._components.config.enable_metrics_push:
            raise StateError(TELEMETRY_DISABLED)
        self.driver.raise_wakeup()
        yield from ()
        return CLIENT_INSTANCE_ID

    def leave(self, reason: str, leave_group: bool | None, *, closing: bool = False) -> Operation[None]:
        parts = self._components
        self._membership_ended = True
        if parts.group is None or not parts.subscription.is_group_managed:
            return
        owned = tuple(sorted(parts.assignment.assigned()))
        error: Exception | None = None
        try:
            if owned and not self._callbacks.revoking:
                error = self._callbacks.run(parts.group, RebalanceCallback(CallbackKind.REVOKED, owned))
        finally:
            with parts.changing():
                if parts.subscription.is_group_managed:
                    parts.subscription.assign_from_group(())
            self._on_leave()
        yield from ()
        if error is not None:
            raise error
