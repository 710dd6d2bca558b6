"""The processes of a scenario: each runs one consumer after the other, with one of the programs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar, cast

from kconsumer import Consumer, ConsumerRecord, ConsumerRecords, SubscriptionPattern, TopicPartition
from kconsumer._common.error_codes import Errors
from kconsumer.errors import (
    AuthenticationError,
    BrokerError,
    InvalidOffsetError,
    KafkaError,
    RecordDeserializationError,
    StateError,
    WakeupError,
)
from kconsumer.listener import RebalanceListener
from support.aio.blocking import BlockingConsumer
from support.simulation import interventions
from support.simulation.consumer_options import MANUAL, consumer_options, upgrade_ends_ms
from support.simulation.interventions import Interruption
from support.simulation.journal import GRACE_MS, Journal, named
from support.simulation.programs import STEPS, Pattern, assign_all
from support.simulation.scenario import MINUTE_MS, Member, Program, Scenario
from support.simulation.scheduler import FOREVER, Process
from support.simulation.settings import (
    CALL_TIMEOUT_S,
    CLOSE_TIMEOUT_S,
    ERROR_PAUSE_MS,
    LAST_APPEND_MS,
    MAX_FAILURES,
    MAX_POLL_INTERVAL_MS,
    MAX_RAISING_MS,
    POLL_TIMEOUT_S,
)
from support.simulation.simulation import Simulation

T = TypeVar("T")
# Errors of a static member that every further call raises, too: the consumer has to be closed.
INSTANCE_ERRORS = (Errors.FENCED_INSTANCE_ID, Errors.UNRELEASED_INSTANCE_ID)


class CallbackError(Exception):
    """The exception of a rebalance callback or an interceptor."""


class MemberProcess:
    """One member of the scenario. A crash ends its process; `start` begins another one."""

    def __init__(
        self, simulation: Simulation, journal: Journal, scenario: Scenario, plan: Member, name: str, instance: str
    ) -> None:
        self.plan = plan
        self.name = name
        self.instance = instance  # the group_instance_id of a static member
        self.subscribed: frozenset[str] = frozenset()  # the topics
        self._pattern: Pattern | None = None  # the pattern that matches the topics
        self.consumers = 0  # how many consumers it has opened
        self.process = Process(self.name)
        self.alive = False
        self.simulation = simulation
        self.journal = journal
        self.scenario = scenario
        self.consumer: Consumer | None = None
        self.listener = Listener(self)
        self.interceptor = RaisingInterceptor(self)
        self.unprocessed: list[tuple[TopicPartition, int]] = []  # what the last poll returned
        self._closed_at: float | None = None  # when a callback or the handler of a signal had closed the consumer
        self._closed = False  # a callback has closed the consumer, or an error that repeats ends the application
        self.calling = ""  # the present call
        self._poll_began = 0.0
        self._busy_since = 0.0  # the begin of the last poll before the program was busy
        self._busy_until = 0.0
        self.callbacks_ms = 0.0  # the time spent in rebalance callbacks
        self._callback_ms = 0.0  # the time spent in callbacks during the present call
        self._failures = 0  # calls in a row that have raised errors that cannot be retried
        self._fenced = False  # another process has, or had, the group_instance_id
        self._starts = 0
        self._twins = 0
        self._raises_until = 0.0  # callbacks raise exceptions until then
        self.wakeups = 0  # calls of `wakeup` that have not raised WakeupError yet

    # --- the process ---

    def start(self) -> None:
        """Start the process."""
        self._starts += 1
        self.process = Process(self.name)
        self.alive = True
        self.simulation.record(self.name, "start")
        self.simulation.spawn(self.process, f"main-{self._starts}", self.main)

    def crash(self) -> None:
        """End the process without closing its consumer. The brokers see that its connections are reset."""
        self.process.crashed = True
        self.alive = False
        self.simulation.record(self.name, "crash")
        self.simulation.network.reset(self.process)
        self.journal.end(self.name, crashed=True)

    def twin(self, until: float) -> MemberProcess:
        """Returns another process with the same group_instance_id, which ends at `until` (ms)."""
        self._twins += 1
        plan = replace(self.plan, program=Program.AUTO_COMMIT, stop_ms=until)
        name = f"{self.name}x{self._twins}"
        return MemberProcess(self.simulation, self.journal, self.scenario, plan, name, self.instance)

    def suspend(self, ms: float) -> None:
        """Do not run the process for a while."""
        self.process.suspend(self.simulation.now, self.simulation.now + ms)
        self.simulation.record(self.name, f"suspended for {ms:.0f} ms")

    @property
    def ends_ms(self) -> float:
        """When the member closes its last consumer."""
        return self.plan.stop_ms or self.scenario.duration_ms

    @property
    def stays(self) -> bool:
        """True if the member processes records of its group until the end of the run."""
        return self.plan.stop_ms is None and self.plan.program is not Program.READ_ALONE

    @property
    def catching_up(self) -> bool:
        """True at the end of the run, when programs do nothing that keeps them from processing the last records."""
        return self.simulation.now > self.scenario.duration_ms - LAST_APPEND_MS

    def main(self) -> None:
        """Run one consumer after the other until the member's end."""
        while self.simulation.now < self.ends_ms:
            self._run_consumer(min(self.ends_ms, self._lifetime_ends_ms()))
            if self._fenced:
                self._pause_after_fencing()
            elif self._failures:
                self.simulation.sleep(self.draw(1_000, 10_000))
        self.alive = False

    def _lifetime_ends_ms(self) -> float:
        """Returns when the next consumer is closed, and another one opened."""
        now, program = self.simulation.now, self.plan.program
        if program is Program.UPGRADE:
            return upgrade_ends_ms(now, self.scenario) + self.draw(0, MINUTE_MS)
        if program in (Program.REOPEN, Program.CHANGE_PROTOCOL) and not self.catching_up:
            return now + self.draw(1_000, 600_000)
        return FOREVER

    def _pause_after_fencing(self) -> None:
        """Wait before the next consumer takes the group_instance_id from another process."""
        if self.plan.stop_ms is None:
            self.simulation.sleep(self.draw(1_000, 20_000))
            self.journal.disturb_all(self.simulation.now + 2 * self.scenario.session_timeout_ms)
        else:
            self.simulation.sleep(max(0.0, self.plan.stop_ms - self.simulation.now))

    def _run_consumer(self, until: float) -> None:
        self.consumers += 1
        consumer = self.consumer = self.simulation.consumer(
            self.process, asyncio=self.plan.engine == "asyncio", **consumer_options(self)
        )
        self.unprocessed = []
        self._closed, self._fenced, self._failures = False, False, 0
        self._closed_at = None
        self.subscribed, self._pattern = frozenset(), None
        self.wakeups = 0
        self.simulation.signals.drop(self.process)
        interventions.schedule(self, consumer)
        if self.plan.program is Program.READ_ALONE:
            assign_all(self, consumer)
        else:
            self.subscribe(consumer, self.scenario.topic_names)
        step = STEPS[self.plan.program]
        while self._continues(until):
            step(self, consumer)
        if self.plan.program is not Program.STORE:
            self.finish_batch()  # close() commits what the last poll returned
        self.call("close", CLOSE_TIMEOUT_S, lambda: consumer.close(CLOSE_TIMEOUT_S))
        self.journal.end(self.name)
        self.consumer = None

    def _continues(self, until: float) -> bool:
        """Returns whether the program continues with its consumer."""
        ended = self._closed or self._fenced or self._failures >= MAX_FAILURES
        return not ended and self.simulation.now < min(until, self.ends_ms)

    # --- calls ---

    def call(self, what: str, timeout_s: float, call: Callable[[], T]) -> T | None:
        """Make a call. Returns its result, or None if it raised an error that faults explain."""
        simulation, began = self.simulation, self.simulation.now
        outer_ms, self._callback_ms = self._callback_ms, 0.0
        outer, self.calling = self.calling, what
        try:
            result = call()
        except CallbackError:
            simulation.record(self.name, f"{what} raised the error of a callback")
            result = None
        except Interruption:
            simulation.record(self.name, f"{what} was interrupted")
            result = None
        except asyncio.CancelledError:
            simulation.record(self.name, f"{what} was cancelled")
            result = None
        except WakeupError:
            simulation.record(self.name, f"{what} was woken up")
            self.wakeups -= 1
            if self.wakeups < 0:
                self.journal.violation(f"extra wakeup: {self.name}: {what} raised WakeupError once more")
            result = None
        except KafkaError as error:
            self._failed(what, error)
            result = None
        else:
            self._failures = 0
        self.calling = outer
        simulation.signals.drop(self.process)
        now, journal = simulation.now, self.journal
        took_ms = now - began - self._callback_ms - self.process.suspended_ms(began, now)
        journal.check_call(self.name, what, took_ms, timeout_s * 1000)
        if self._closed_at is not None and what != "close":
            journal.check_call_after_close(self.name, what, now - self._closed_at)
        if result is None:
            simulation.sleep(ERROR_PAUSE_MS)
        self._callback_ms = outer_ms + simulation.now - began  # of the call whose callback has made this one
        return result

    def _failed(self, what: str, error: KafkaError) -> None:
        """Record an error of a call, and check that it is none of the library itself."""
        text = f"{type(error).__name__}: {error}"
        self.simulation.record(self.name, f"{what} raised {text}")
        if isinstance(error, StateError) and self._closed and self.plan.program is Program.CLOSE_IN_HANDLER:
            return
        if isinstance(error, AuthenticationError) and not self.scenario.has_wrong_password(self.simulation.now):
            self.journal.violation(f"unexpected error: {self.name}: {what} raised {text}")
        if isinstance(error, StateError) or "internal error" in text:
            self.journal.violation(f"internal error: {self.name}: {what} raised {text}")
        if isinstance(error, InvalidOffsetError) and self.consumer is not None:  # as an application without a policy
            self.consumer.seek_to_beginning(*error.partitions)
            self.journal.handlers.forget_commits(self.name)
        elif not error.retriable and not isinstance(error, RecordDeserializationError):
            self._failures += 1
        self._fenced |= isinstance(error, BrokerError) and error.code in INSTANCE_ERRORS

    def draw(self, low: float, high: float) -> float:
        """Returns a random number."""
        return self.simulation.random.uniform(low, high)

    def chance(self, probability: float) -> bool:
        """Returns True with this probability."""
        return self.simulation.random.random() < probability

    # --- what programs do ---

    def finish_batch(self) -> None:
        """The application has processed what the last poll returned."""
        for partition, offset in self.unprocessed:
            self.journal.process(partition, offset)
        self.unprocessed = []

    def take(self, records: Iterable[ConsumerRecord]) -> None:
        """The application has received records."""
        for record in records:
            self._take(TopicPartition(record.topic, record.partition), record.offset)

    def take_offsets(self, offsets: Iterable[tuple[TopicPartition, int]]) -> None:
        """The application has received columns with these records."""
        for tp, offset in offsets:
            self._take(tp, offset)

    def _take(self, tp: TopicPartition, offset: int) -> None:
        self.simulation.record(self.name, f"got {tp}@{offset}")
        if self.plan.program is Program.READ_ALONE:
            self.journal.read_alone(self.name, tp, offset)
            return
        # Only the coordinator knows which topics match a SubscriptionPattern.
        if tp.topic not in self.subscribed and not isinstance(self._pattern, SubscriptionPattern):
            self.journal.violation(f"not subscribed: {self.name} returned {tp}@{offset}")
        self.journal.deliver(self.name, tp, offset)
        self.unprocessed.append((tp, offset))

    def subscribe(self, consumer: Consumer, topics: Iterable[str], pattern: Pattern | None = None) -> None:
        """Subscribe to topics, or to a pattern that matches these topics."""
        if self.subscribed and type(self._pattern) is not type(pattern):
            self.call("unsubscribe", CALL_TIMEOUT_S, lambda: consumer.unsubscribe())
            self.journal.end(self.name)
        self._pattern = pattern
        self.subscribed = frozenset(topics)
        self.simulation.record(self.name, f"subscribes to {' '.join(sorted(self.subscribed))}")
        chosen = sorted(self.subscribed) if pattern is None else pattern
        self.call("subscribe", 0.0, lambda: consumer.subscribe(chosen, listener=self.listener) or True)

    def poll_once(
        self, consumer: Consumer, timeout_s: float = POLL_TIMEOUT_S, max_records: int | None = None
    ) -> ConsumerRecords | None:
        """Poll, and process what the last poll returned before. Returns the records, or None after an error."""
        self.finish_batch()
        self._poll_began = self.simulation.now
        records = self.call("poll", timeout_s, lambda: consumer.poll(timeout_s, max_records))
        if records:
            self.take(records)
            if self.chance(0.5):
                self.simulation.sleep(self.draw(0, 500))
        return records

    def be_busy(self, ms: float) -> None:
        """Take some time. If this is too long, the group removes the member, which learns this in the next poll.

        One short poll may return buffered records before it has sent a JoinGroup. A rebalance then still waits for the
        member, so the time before that poll counts, too.
        """
        now = self.simulation.now
        if now > self._busy_until + GRACE_MS:
            self._busy_since = self._poll_began
        self._busy_until = now + ms
        if self._busy_until > self._busy_since + MAX_POLL_INTERVAL_MS - GRACE_MS:
            self.journal.disturb(self.name, self._busy_until + 2 * GRACE_MS)
        self.simulation.sleep(ms)

    # --- callbacks ---

    def on_assign(self, partitions: tuple[TopicPartition, ...]) -> None:
        """The consumer was notified that it owns partitions."""
        self.simulation.record(self.name, f"assigned {named(partitions)}")
        self.journal.assign(self.name, partitions)
        self._in_callback()

    def on_revoke(self, partitions: tuple[TopicPartition, ...], *, lost: bool) -> None:
        """The consumer was notified that partitions are or will be revoked."""
        self.simulation.record(self.name, f"{'lost' if lost else 'revoked'} {named(partitions)}")
        if lost and self.calling in ("poll", "run"):
            busy = self.simulation.now <= self._busy_until + GRACE_MS
            self.journal.lose(self.name, partitions, self._busy_since if busy else None)
        if not lost and self.calling in ("poll", "close") and self.plan.program not in (*MANUAL, Program.STORE):
            self.journal.revoke(self.name, partitions)
        if self.plan.program is Program.COMMIT_IN_CALLBACK and not lost and self.consumer is not None:
            self.finish_batch()
            consumer = self.consumer
            self.call("commit", CALL_TIMEOUT_S, lambda: consumer.commit(timeout=CALL_TIMEOUT_S) or True)
        try:
            self._in_callback()
        finally:
            self.journal.take_away(self.name, partitions, lost=lost)

    def deserialize(self, value: bytes) -> bytes:
        """Returns the value of a record, after some time, or raises an exception."""
        unusual = self.chance(0.02) and not self.catching_up
        if unusual and self.plan.program is Program.RAISE_IN_PLUGIN:
            raise ValueError(value)
        if unusual and self.plan.program is Program.INTERRUPT:
            raise Interruption
        if unusual and self.plan.program is Program.SLOW_DESERIALIZER:
            ms = self.draw(0, 2 * self.scenario.session_timeout_ms)
            if self._callback_ms + ms < MAX_POLL_INTERVAL_MS / 2:  # else the member may leave the group
                self.be_busy(ms)
                self._callback_ms += ms
        return value

    async def deserialize_later(self, value: bytes) -> bytes:
        """Returns the value of a record, sometimes after some time."""
        if self.chance(0.05):
            began = self.simulation.now
            await asyncio.sleep(self.draw(0, 1.0))
            self._callback_ms += self.simulation.now - began
        return value

    def on_commit(self, *_: object) -> None:
        """An auto-commit has ended."""
        if self.consumer is not None and self.chance(0.2):
            self.close_in_call(self.consumer)

    def close_in_call(self, consumer: Consumer) -> None:
        """Close the consumer in a callback or in the handler of a signal, inside another call."""
        began = self.simulation.now
        self._closed = True
        self.calling = "close"
        consumer.close(CLOSE_TIMEOUT_S)
        self._closed_at = self.simulation.now
        self._callback_ms += self.simulation.now - began

    def _in_callback(self) -> None:
        began = self.simulation.now
        if self.chance(0.3):
            ms = self.draw(0, min(self.scenario.max_callback_ms, self.scenario.session_timeout_ms / 2))
            if self.plan.program is Program.CANCEL:
                self._sleep_cancellably(ms)
            else:
                self.simulation.sleep(ms)
        self.callbacks_ms += self.simulation.now - began
        self._callback_ms += self.simulation.now - began
        if self.plan.program is Program.RAISE_IN_CALLBACK and self._raises():
            raise CallbackError
        if self.plan.program is Program.INTERRUPT and self.chance(0.1):
            raise Interruption

    def _raises(self) -> bool:
        """Returns whether a callback raises an exception, which it then does for some seconds."""
        now = self.simulation.now
        if now < self._raises_until:
            return True
        began, self._raises_until = self._raises_until, 0.0
        if not began and self.chance(0.5):
            self._raises_until = now + self.draw(0, MAX_RAISING_MS)
            return True
        return False

    def _sleep_cancellably(self, ms: float) -> None:
        """Sleep in a task of the event loop. No task of a callback is cancelled."""
        consumer = cast("BlockingConsumer", self.consumer)
        try:
            consumer.sleep(ms / 1000)
        except asyncio.CancelledError:
            self.journal.violation(f"callback cancelled: {self.name}")
            raise


class RaisingInterceptor:
    """An interceptor that sometimes raises an exception."""

    def __init__(self, member: MemberProcess) -> None:
        self._member = member

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        """Returns the records, or raises an exception."""
        if self._member.chance(0.05):
            raise CallbackError
        return records


class Listener(RebalanceListener):
    """The rebalance listener of a member."""

    def __init__(self, member: MemberProcess) -> None:
        self._member = member

    def on_partitions_assigned(self, _: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        """Partitions were assigned."""
        self._member.on_assign(partitions)

    def on_partitions_revoked(self, _: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        """Partitions will be revoked."""
        self._member.on_revoke(partitions, lost=False)

    def on_partitions_lost(self, _: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        """Partitions were lost."""
        self._member.on_revoke(partitions, lost=True)
