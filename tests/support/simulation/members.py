"""The processes of a scenario: each runs one consumer after the other, with one of the programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from kconsumer import Consumer, ConsumerRecord, ConsumerRecords, TopicPartition
from kconsumer.error_codes import Errors
from kconsumer.errors import BrokerError, KafkaError, StateError
from kconsumer.listener import RebalanceListener
from support.simulation.journal import GRACE_MS, Journal, named
from support.simulation.programs import STEPS
from support.simulation.scenario import Member, Program, Scenario
from support.simulation.scheduler import Process
from support.simulation.settings import (
    CALL_TIMEOUT_S,
    CLOSE_TIMEOUT_S,
    ERROR_PAUSE_MS,
    GROUP,
    HEARTBEAT_INTERVAL_MS,
    LAST_APPEND_MS,
    MAX_POLL_INTERVAL_MS,
    POLL_TIMEOUT_S,
    RESTART_PAUSE_MS,
    TOPIC,
)
from support.simulation.simulation import SimulatedConsumer, Simulation

T = TypeVar("T")
# Errors of a static member that every further call raises, too: the consumer has to be closed.
INSTANCE_ERRORS = (Errors.FENCED_INSTANCE_ID, Errors.UNRELEASED_INSTANCE_ID)


class CallbackError(Exception):
    """The exception of a rebalance callback."""


class MemberProcess:
    """One member of the scenario. A crash ends its process; `start` begins another one."""

    def __init__(self, simulation: Simulation, journal: Journal, scenario: Scenario, index: int) -> None:
        self.plan: Member = scenario.members[index]
        self.name = f"m{index}"
        self.process = Process(self.name)
        self.alive = False
        self.simulation = simulation
        self.journal = journal
        self.scenario = scenario
        self._consumer: SimulatedConsumer | None = None
        self.listener = Listener(self)
        self.unprocessed: list[tuple[TopicPartition, int]] = []  # what the last poll returned
        self._closed = False  # a callback has closed the consumer, or an error that repeats ends the application
        self._calling = ""  # the present call
        self._poll_began = 0.0
        self._busy_since = 0.0  # the begin of the last poll before the program was busy
        self._busy_until = 0.0
        self._callback_ms = 0.0  # the time spent in callbacks during the present call
        self._starts = 0
        self._consumers = 0

    # --- the process ---

    def start(self) -> None:
        """Start the process."""
        self._starts += 1
        self.process = Process(self.name)
        self.alive = True
        self.simulation.record(self.name, "start")
        self.simulation.spawn(self.process, f"main-{self._starts}", self._main)

    def crash(self) -> None:
        """End the process without closing its consumer. The brokers see that its connections are reset."""
        self.process.crashed = True
        self.alive = False
        self.simulation.record(self.name, "crash")
        self.simulation.network.reset(self.process)
        self.journal.end(self.name)

    def suspend(self, ms: float) -> None:
        """Do not run the process for a while."""
        self.process.suspend(self.simulation.now, self.simulation.now + ms)
        self.simulation.record(self.name, f"suspended for {ms:.0f} ms")

    @property
    def _ends_ms(self) -> float:
        return self.plan.stop_ms or self.scenario.duration_ms

    @property
    def catching_up(self) -> bool:
        """True at the end of the run, when programs do nothing that keeps them from processing the last records."""
        return self.simulation.now > self.scenario.duration_ms - LAST_APPEND_MS

    def _main(self) -> None:
        """Run one consumer after the other until the member's end."""
        while self.simulation.now < self._ends_ms:
            lifetime_ms = self._ends_ms
            if self.plan.program in (Program.REOPEN, Program.CHANGE_PROTOCOL) and not self.catching_up:
                lifetime_ms = min(lifetime_ms, self.simulation.now + self.draw(1_000, 600_000))
            self._run_consumer(lifetime_ms)
        self.alive = False

    def _run_consumer(self, until: float) -> None:
        self._consumers += 1
        consumer = self._consumer = self.simulation.consumer(self.process, **self._options())
        self.unprocessed = []
        self.call("subscribe", 0.0, lambda: consumer.subscribe([TOPIC], listener=self.listener))
        step = STEPS[self.plan.program]
        self._closed = False
        while self.simulation.now < until and not self._closed:
            step(self, consumer)
        self.finish_batch()  # close() commits what the last poll returned
        self.call("close", CLOSE_TIMEOUT_S, lambda: consumer.close(CLOSE_TIMEOUT_S))
        self.journal.end(self.name)
        self._consumer = None

    def _options(self) -> dict[str, Any]:
        plan, scenario = self.plan, self.scenario
        manual = plan.program in (Program.COMMIT, Program.COMMIT_ASYNC, Program.COMMIT_IN_CALLBACK)
        protocol = plan.protocol
        if plan.program is Program.CHANGE_PROTOCOL and self._consumers % 2 == 0:
            protocol = "consumer" if protocol == "classic" else "classic"
        options: dict[str, Any] = {
            "group_id": GROUP,
            "client_id": self.name,
            "group_protocol": protocol,
            "auto_offset_reset": "earliest",
            "fetch_max_wait_ms": scenario.fetch_max_wait_ms,
            "max_poll_interval_ms": MAX_POLL_INTERVAL_MS,
            "max_poll_records": 7,
            "enable_auto_commit": not manual,
            "consumer_timeout_ms": int(POLL_TIMEOUT_S * 1000),
        }
        if scenario.transactions:
            options["isolation_level"] = "read_committed"
        if plan.program is Program.SLOW_DESERIALIZER:
            options["value_deserializer"] = self.deserialize
        if plan.program is Program.CLOSE_IN_CALLBACK:
            options["on_commit"] = self.on_commit
        if plan.static:
            options["group_instance_id"] = f"instance-{self.name}"
        if protocol == "classic":
            options |= {
                "engine": plan.engine,
                "assignors": [plan.assignor],
                "session_timeout_ms": scenario.session_timeout_ms,
                "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS,
            }
        return options

    # --- calls ---

    def call(self, what: str, timeout_s: float, call: Callable[[], T]) -> T | None:
        """Make a call. Returns its result, or None if it raised an error that faults explain."""
        simulation, began = self.simulation, self.simulation.now
        outer_ms, self._callback_ms = self._callback_ms, 0.0
        pause_ms = ERROR_PAUSE_MS
        self._calling = what
        try:
            result = call()
        except CallbackError:
            simulation.record(self.name, f"{what} raised the error of a callback")
            result = None
        except KafkaError as error:
            text = f"{type(error).__name__}: {error}"
            simulation.record(self.name, f"{what} raised {text}")
            if isinstance(error, StateError) or "internal error" in text:
                self.journal.violation(f"internal error: {self.name}: {what} raised {text}")
            if isinstance(error, BrokerError) and error.code in INSTANCE_ERRORS:
                self._closed = True
                pause_ms = RESTART_PAUSE_MS
            result = None
        took = simulation.now - began - self._callback_ms - self.process.suspended_ms(began, simulation.now)
        if took > timeout_s * 1000 + GRACE_MS:
            self.journal.violation(f"late call: {self.name}: {what} took {took:.0f} ms of {timeout_s * 1000:.0f}")
        if result is None:
            simulation.sleep(pause_ms)
        self._callback_ms = outer_ms + simulation.now - began  # of the call whose callback has made this one
        return result

    def draw(self, low: float, high: float) -> float:
        return self.simulation.random.uniform(low, high)

    def chance(self, probability: float) -> bool:
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
            tp = TopicPartition(record.topic, record.partition)
            self.simulation.record(self.name, f"got {tp}@{record.offset}")
            self.journal.deliver(self.name, tp, record.offset)
            self.unprocessed.append((tp, record.offset))

    def poll_once(self, consumer: Consumer) -> ConsumerRecords | None:
        self.finish_batch()
        self._poll_began = self.simulation.now
        records = self.call("poll", POLL_TIMEOUT_S, lambda: consumer.poll(POLL_TIMEOUT_S))
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
        if lost and self._calling == "poll":
            self.journal.lose(self.name, partitions)
        if self.plan.program is Program.COMMIT_IN_CALLBACK and not lost and self._consumer is not None:
            self.finish_batch()
            consumer = self._consumer
            self.call("commit", CALL_TIMEOUT_S, lambda: consumer.commit(timeout=CALL_TIMEOUT_S) or True)
        try:
            self._in_callback()
        finally:
            self.journal.take_away(self.name, partitions)

    def deserialize(self, value: bytes) -> bytes:
        """Returns the value of a record, after some time."""
        if self.chance(0.02) and not self.catching_up:
            ms = self.draw(0, 2 * self.scenario.session_timeout_ms)
            if self._callback_ms + ms < MAX_POLL_INTERVAL_MS / 2:  # else the member may leave the group
                self.be_busy(ms)
                self._callback_ms += ms
        return value

    def on_commit(self, *_: object) -> None:
        """An auto-commit has ended."""
        consumer = self._consumer
        if consumer is not None and self.chance(0.2):
            began = self.simulation.now
            self._closed = True
            self._calling = "close"
            consumer.close(CLOSE_TIMEOUT_S)
            self._callback_ms += self.simulation.now - began

    def _in_callback(self) -> None:
        began = self.simulation.now
        if self.chance(0.3):
            self.simulation.sleep(self.draw(0, 2_000))
        self._callback_ms += self.simulation.now - began
        if self.plan.program is Program.RAISE_IN_CALLBACK and self.chance(0.5):
            raise CallbackError


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
