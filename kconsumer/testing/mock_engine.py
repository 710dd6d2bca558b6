"""The engine of a `MockConsumer`: the engine of a consumer, with a `MockBroker` in place of managers and network.

Decides what a poll does and what a rebalance calls, with the state, the callbacks and the auto-commit of the library.
Nothing waits. A poll that finds no record advances the consumer's virtual clock by its timeout. There is one exception:
a loop over the consumer that has nothing left, and that nothing will end, must not use the whole processor.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from kconsumer._common.deferred_calls import get_logger
from kconsumer._core.lock import Clock, Timer
from kconsumer._internal.deferred_signals import SIGNALS, HandlersRunning
from kconsumer._internal.managers import Promise, RequestManager, UnsentRequest
from kconsumer._internal.status import ConsumerStatus
from kconsumer.assignors import Assignor, RebalanceProtocol
from kconsumer.config.option_groups import CommitConfig
from kconsumer.config.options import ConsumerConfig
from kconsumer.coordinator.auto_commit import AutoCommit
from kconsumer.coordinator.classic_protocol.manager import ClassicMembership
from kconsumer.coordinator.pending_offsets import Offsets
from kconsumer.coordinator.rebalance_steps import CallbackKind, RebalanceCallback
from kconsumer.engine.base import Engine
from kconsumer.engine.callbacks import Callbacks, CommitCallback, log_failed_commit
from kconsumer.engine.classic import ClassicDriver
from kconsumer.engine.components import Components
from kconsumer.engine.driver import Driver
from kconsumer.engine.environment import Environment
from kconsumer.engine.metrics import ConsumerMetrics
from kconsumer.engine.operations import TELEMETRY_DISABLED, Operations
from kconsumer.engine.status import StatusView
from kconsumer.engine.waiting import AT_ONCE, Operation, Wait
from kconsumer.errors import NoOffsetForPartitionError, StateError
from kconsumer.fetching.partition_status import FetchContext
from kconsumer.listener import RebalanceListener
from kconsumer.metadata.topic_requests import TopicTable
from kconsumer.records import ConsumerRecords
from kconsumer.state.cluster import LeaderAndEpoch
from kconsumer.state.partition import PartitionState
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.mock_broker import NODE, MockBroker
from kconsumer.testing.mock_reads import MockReads
from kconsumer.types import GroupMetadata, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

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


log = get_logger(__name__)

NO_GENERATION = -1
MEMBER_ID = "mock-member"
ENDLESS_LOOP_WAIT_S = 0.05


class MockEngine(Engine):
    """The engine of one `MockConsumer`."""

    def __init__(self, config: ConsumerConfig, assignors: Sequence[Assignor]) -> None:
        environment = Environment(VirtualClock(wall_ms=Clock().wall_ms()))
        super().__init__(config, environment, assignors, MockDriver)
        self.broker = MockBroker()
        self.scheduled: deque[Callable[[], object]] = deque()
        self.errors: deque[BaseException] = deque()
        self.generation = NO_GENERATION
        self._in_endless_loop = False  # the poll belongs to a loop over the consumer that only an exception ends
        self.reads = MockReads(self.components, self.broker)
        self.status = MockStatus(self.components, lambda: self.generation)
        self.operations = self._mock_operations = MockOperations(
            self.components,
            self.callbacks,
            self._metrics,
            self.driver,
            self.broker,
            self.reads.find_positions,
            on_commit=self._committed,
            on_leave=self._left,
        )
        self._rejoin = False
        self._warned = False  # that no partitions are assigned
        self._auto_commit = AutoCommit(
            config.select(CommitConfig), config.group_id or "", self.components.positions, self._commit_automatically
        )

    # --- poll ------------------------------------------------------------------------------------------------------

    def _poll_full(self, timer: Timer, max_records: int, max_bytes: int | None) -> Operation[ConsumerRecords]:
        self._begin_poll()
        self._run_scheduled()
        yield Wait(AT_ONCE)  # raises if the scheduled call has closed the consumer
        if not self._ready_to_poll:
            return ConsumerRecords.EMPTY
        self.driver.raise_wakeup()
        if self.errors:
            raise self.errors.popleft()
        if self._rejoin and self.components.subscription.is_group_managed:
            self.rebalance(self.components.assignment.assigned())
        self._commit_if_due()
        yield from self.callbacks.run_commits()
        if not self._ready_to_poll:
            return ConsumerRecords.EMPTY
        records = self.reads.take(max_records, math.inf if max_bytes is None else max_bytes)
        if not records:
            self._warn_if_not_assigned()
            yield Wait(timer.deadline)
            if self._in_endless_loop and not self.scheduled and not self.errors:
                self.components.environment.event().wait(ENDLESS_LOOP_WAIT_S)
        elif self.interceptors is not None:
            records = self.interceptors.consumed(records)
        self.polls.wait_ended(self._clock.now())
        return records

    def _warn_if_not_assigned(self) -> None:
        """Log once that a poll returns no records because the test has not assigned partitions."""
        waits = self.components.subscription.is_group_managed and self.generation == NO_GENERATION
        if waits and not self._warned and self.broker.topics():
            self._warned = True
            log.warning("poll() returns nothing: call rebalance([…]), because a MockConsumer joins no group")

    @contextmanager
    def looping(self, *, endless: bool) -> Iterator[None]:
        """Mark the polls inside the block as those of a loop. Those of an `endless` one wait if nothing is left."""
        self._in_endless_loop = endless
        try:
            yield
        finally:
            self._in_endless_loop = False

    def _run_scheduled(self) -> None:
        if self.scheduled:
            call = self.scheduled.popleft()
            with HandlersRunning():
                call()

    # --- commits ---------------------------------------------------------------------------------------------------

    def _committed(self, offsets: Offsets) -> None:
        if self.interceptors is not None:
            self.callbacks.committed(self.interceptors.committed, offsets)

    def _commit_automatically(
        self,
        offsets: Offsets,
        deadline: float | None = None,
        *,
        automatic: bool = False,
        before_rebalance: bool = False,
    ) -> Promise[Offsets]:
        self._mock_operations.store(offsets)
        promise: Promise[Offsets] = Promise()
        promise.set_result(offsets)
        return promise

    def _commit_if_due(self) -> None:
        on_commit = self._config.on_commit
        notify = None if on_commit is None else partial(self.callbacks.commit_finished, on_commit)
        if self.components.group is not None:
            with self.changing():
                self._auto_commit.start_if_due(self._clock.now(), notify)

    def _commit_first(self) -> None:
        """Commit all positions if auto-commit is enabled, before partitions are revoked or the consumer closes."""
        if self._auto_commit.enabled and self.components.group is not None:
            with self.changing():
                self._auto_commit.before_rebalance(self._clock.now())

    # --- group -----------------------------------------------------------------------------------------------------

    def subscription_changed(self, listener: RebalanceListener | None) -> None:
        """Set the listener, and match the topics of a pattern."""
        super().subscription_changed(listener)
        self.match_pattern()

    def match_pattern(self) -> None:
        """Subscribe to the existing topics that match the pattern. Does nothing without a pattern."""
        subscription = self.components.subscription
        if subscription.has_pattern:
            subscription.subscribe_matched(filter(subscription.matches_subscription, self.broker.topics()))

    def rebalance(self, partitions: Collection[TopicPartition], *, lost: bool = False) -> None:
        """Assign `partitions`, and call the listener as the rebalance protocol demands.

        With `lost`, all partitions of the old assignment are lost first. If the listener raises an exception, the
        remaining steps are done, and the first exception is raised at the end. Raises StateError without a
        subscription, and ValueError for a topic that is not subscribed.
        """
        group, subscription = self.operations.group(), self.components.subscription
        self._rejoin = False
        if not subscription.is_group_managed:
            raise StateError("only a subscription takes part in a group: subscribe() before rebalance()")
        stray = sorted(tp for tp in partitions if not subscription.matches_subscription(tp.topic))
        if stray:
            raise ValueError(f"the group cannot assign {stray[0]}: the consumer is not subscribed to {stray[0].topic}")
        target, owned = frozenset(partitions), frozenset(self.components.assignment.assigned())
        for tp in sorted(target):
            self.broker.log(tp)
        eager = (
            isinstance(group.membership, ClassicMembership)
            and group.membership.rebalance_protocol is RebalanceProtocol.EAGER
        )
        joined = self.generation != NO_GENERATION
        gone = owned if eager or lost else owned - target
        if not (isinstance(group.membership, ClassicMembership) or lost) and joined and target == owned:
            return  # a member of the consumer protocol reconciles only a changed assignment
        errors: list[Exception | None] = []
        if lost:
            errors.append(self._revoke(gone, CallbackKind.LOST) if gone else None)
        else:
            self._commit_first()
            errors.append(self._revoke(gone, CallbackKind.REVOKED) if gone or (eager and joined) else None)
        if not subscription.is_group_managed:  # the listener has unsubscribed
            return
        errors.append(self._assign(target))
        for error in filter(None, errors):
            raise error

    def _revoke(self, gone: Collection[TopicPartition], kind: CallbackKind) -> Exception | None:
        """Call the listener with the partitions in `gone`, and remove them from the assignment.

        Returns the exception that the listener has raised, or None.
        """
        parts = self.components
        with parts.changing():
            parts.assignment.mark_pending_revocation(gone)
        error = self.callbacks.run(self.operations.group(), RebalanceCallback(kind, tuple(sorted(gone))))
        with parts.changing():
            if parts.subscription.is_group_managed:
                parts.subscription.assign_from_group([tp for tp in parts.assignment.assigned() if tp not in gone])
        return error

    def _assign(self, target: Collection[TopicPartition]) -> Exception | None:
        """Set the assignment to `target`, and call the listener with the partitions that are added.

        Returns the exception that the listener has raised, or None.
        """
        parts = self.components
        with parts.changing():
            added = tuple(sorted(set(target) - set(parts.assignment.assigned())))
            parts.subscription.assign_from_group(target)
            parts.assignment.mark_awaiting_callback(added)
            self.generation = max(self.generation, 0) + 1
            self._auto_commit.restart_interval(self._clock.now())
        error = self.callbacks.run(self.operations.group(), RebalanceCallback(CallbackKind.ASSIGNED, added))
        with parts.changing():
            parts.assignment.mark_awaiting_callback(added, awaiting=False)
        return error

    def enforce_rebalance(self, reason: str) -> None:
        """Make the next poll rebalance with the same partitions. Raises StateError without a group."""
        self.operations.group()
        self._rejoin = True
        log.info("the next poll rebalances: %s", reason)

    def _left(self) -> None:
        self.generation = NO_GENERATION
        self._rejoin = False

    def group_metadata(self) -> GroupMetadata:
        group_id = self.operations.group().member.group_id
        member_id = MEMBER_ID if self.generation != NO_GENERATION else ""
        return GroupMetadata(group_id, self.generation, member_id, self._config.group_instance_id)

    # --- ending ----------------------------------------------------------------------------------------------------

    def close(self, timer: Timer, leave_group: bool | None, *, auto_commit: bool) -> None:
        """Commit if `auto_commit` is True, run the callbacks, leave the group, and end.

        All steps run even if one fails. Then the first error is raised.
        """
        self._closing = True
        self.driver.disable_wakeup()
        first_error: Exception | None = None
        steps: list[Callable[[], object]] = [
            *([self._commit_first] if auto_commit else []),
            lambda: self.run(self.callbacks.run_commits()),
            lambda: self.run(self.operations.leave("the consumer closed", leave_group)),
        ]
        try:
            for step in steps:
                try:
                    step()
                except Exception as error:  # callbacks may raise anything, and the remaining steps must run
                    first_error = first_error or error
        finally:
            with self.changing():
                self.components.subscription.unsubscribe()
            self.abandon()
            self.ended()
        if first_error is not None:
            raise first_error
