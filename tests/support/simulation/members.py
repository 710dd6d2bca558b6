"""The processes of a scenario: each runs one consumer after the other, with one of the programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from kconsumer import Consumer, ConsumerRecord, ConsumerRecords, TopicPartition
from kconsumer.errors import KafkaError, StateError
from kconsumer.listener import RebalanceListener
from support.simulation.journal import GRACE_MS, Journal
from support.simulation.scenario import MINUTE_MS, Member, Program, Scenario
from support.simulation.scheduler import FOREVER, Process
from support.simulation.simulation import SimulatedConsumer, Simulation

T = TypeVar("T")
TOPIC = "t"
GROUP = "g"
POLL_TIMEOUT_S = 20.0
CALL_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 30.0
MAX_POLL_INTERVAL_MS = 120_000
LAST_APPEND_MS = 8 * MINUTE_MS  # no record is written in the last minutes of a run, so that slow members catch up
ERROR_PAUSE_MS = 100.0  # a program pauses after an error, as applications should
HEARTBEAT_INTERVAL_MS = 3_000


class CallbackError(Exception):
    """The exception of a rebalance callback."""


class MemberProcess:
    """One member of the scenario. A crash ends its process; `start` begins another one."""

    def __init__(self, simulation: Simulation, journal: Journal, scenario: Scenario, index: int) -> None:
        self.plan: Member = scenario.members[index]
        self.name = f"m{index}"
        self.process = Process(self.name)
        self.alive = False
        self._simulation = simulation
        self._journal = journal
        self._scenario = scenario
        self._consumer: SimulatedConsumer | None = None
        self._unprocessed: list[tuple[int, int]] = []  # what the last poll returned
        self._closed = False  # a callback has closed the consumer
        self._calling = ""  # the present call
        self._callback_ms = 0.0  # the time spent in callbacks during the present call
        self._starts = 0
        self._consumers = 0

    # --- the process ---

    def start(self) -> None:
        """Start the process."""
        self._starts += 1
        self.process = Process(self.name)
        self.alive = True
        self._simulation.record(self.name, "start")
        self._simulation.spawn(self.process, f"main-{self._starts}", self._main)

    def crash(self) -> None:
        """End the process without closing its consumer. The brokers see that its connections are reset."""
        self.process.crashed = True
        self.alive = False
        self._simulation.record(self.name, "crash")
        self._simulation.network.reset(self.process)
        self._journal.end(self.name)

    def suspend(self, ms: float) -> None:
        """Do not run the process for a while."""
        self.process.suspend(self._simulation.now, self._simulation.now + ms)
        self._simulation.record(self.name, f"suspended for {ms:.0f} ms")

    @property
    def _ends_ms(self) -> float:
        return self.plan.stop_ms or self._scenario.duration_ms

    @property
    def _catching_up(self) -> bool:
        """True at the end of the run, when programs do nothing that keeps them from processing the last records."""
        return self._simulation.now > self._scenario.duration_ms - LAST_APPEND_MS

    def _main(self) -> None:
        """Run one consumer after the other until the member's end."""
        while self._simulation.now < self._ends_ms:
            lifetime_ms = self._ends_ms
            if self.plan.program in (Program.REOPEN, Program.CHANGE_PROTOCOL) and not self._catching_up:
                lifetime_ms = min(lifetime_ms, self._simulation.now + self._draw(1_000, 600_000))
            self._run_consumer(lifetime_ms)
        self.alive = False

    def _run_consumer(self, until: float) -> None:
        self._consumers += 1
        consumer = self._consumer = self._simulation.consumer(self.process, **self._options())
        self._unprocessed = []
        listener = Listener(self)
        self._call("subscribe", 0.0, lambda: consumer.subscribe([TOPIC], listener=listener))
        step = STEPS[self.plan.program]
        self._closed = False
        while self._simulation.now < until and not self._closed:
            step(self, consumer)
        self._finish_batch()  # close() commits what the last poll returned
        self._call("close", CLOSE_TIMEOUT_S, lambda: consumer.close(CLOSE_TIMEOUT_S))
        self._journal.end(self.name)
        self._consumer = None

    def _options(self) -> dict[str, Any]:
        plan, scenario = self.plan, self._scenario
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

    def _call(self, what: str, timeout_s: float, call: Callable[[], T]) -> T | None:
        """Make a call. Returns its result, or None if it raised an error that faults explain."""
        simulation, began = self._simulation, self._simulation.now
        outer_ms, self._callback_ms = self._callback_ms, 0.0
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
                self._journal.violation(f"internal error: {self.name}: {what} raised {text}")
            result = None
        took = simulation.now - began - self._callback_ms - self.process.suspended_ms(began, simulation.now)
        if took > timeout_s * 1000 + GRACE_MS:
            self._journal.violation(f"late call: {self.name}: {what} took {took:.0f} ms of {timeout_s * 1000:.0f}")
        if result is None:
            simulation.sleep(ERROR_PAUSE_MS)
        self._callback_ms = outer_ms + simulation.now - began  # of the call whose callback has made this one
        return result

    def _draw(self, low: float, high: float) -> float:
        return self._simulation.random.uniform(low, high)

    def _chance(self, probability: float) -> bool:
        return self._simulation.random.random() < probability

    # --- steps of programs ---

    def _finish_batch(self) -> None:
        """The application has processed what the last poll returned."""
        for partition, offset in self._unprocessed:
            self._journal.process(partition, offset)
        self._unprocessed = []

    def _take(self, records: Iterable[ConsumerRecord]) -> None:
        """The application has received records."""
        for record in records:
            self._simulation.record(self.name, f"got {record.partition}@{record.offset}")
            self._journal.deliver(self.name, record.partition, record.offset)
            self._unprocessed.append((record.partition, record.offset))

    def _poll(self, consumer: Consumer) -> ConsumerRecords | None:
        self._finish_batch()
        records = self._call("poll", POLL_TIMEOUT_S, lambda: consumer.poll(POLL_TIMEOUT_S))
        if records:
            self._take(records)
            if self._chance(0.5):
                self._simulation.sleep(self._draw(0, 500))
        return records

    def poll(self, consumer: Consumer) -> None:
        """Poll once."""
        self._poll(consumer)

    def poll_slowly(self, consumer: Consumer) -> None:
        """Poll once, and sometimes take long afterwards."""
        if self._poll(consumer) and self._chance(0.02) and not self._catching_up:
            ms = self._draw(0, 1.5 * MAX_POLL_INTERVAL_MS)
            if ms > MAX_POLL_INTERVAL_MS - GRACE_MS:
                self._journal.disturb(self.name, self._simulation.now + ms + 2 * GRACE_MS)
            self._simulation.sleep(ms)

    def poll_and_commit(self, consumer: Consumer) -> None:
        """Poll once, process, and commit."""
        if self._poll(consumer):
            batch = self._unprocessed
            self._finish_batch()
            if self._call("commit", CALL_TIMEOUT_S, lambda: consumer.commit(timeout=CALL_TIMEOUT_S) or True):
                for partition, offset in batch:
                    self._journal.acknowledge(self.name, partition, offset + 1)

    def poll_and_commit_async(self, consumer: Consumer) -> None:
        """Poll once, process, and commit without waiting."""
        if self._poll(consumer):
            self._finish_batch()
            self._call("commit_async", 0.0, lambda: consumer.commit_async() or True)

    def poll_and_seek(self, consumer: Consumer) -> None:
        """Poll once, and sometimes seek back to the first record of the batch, as after a failed batch."""
        records = self._poll(consumer)
        if records and self._chance(0.2) and not self._catching_up:
            first = {tp: min(r.offset for r in records.records(tp)) for tp in records.partitions()}
            self._unprocessed = []
            for tp, offset in first.items():
                if tp in consumer.assignment():
                    self._journal.sought(self.name, tp.partition, offset)
                    self._call("seek", 0.0, partial(seek, consumer, tp, offset))

    def poll_and_pause(self, consumer: Consumer) -> None:
        """Poll once; sometimes pause partitions before and resume them later."""
        if self._chance(0.2) and not self._catching_up:
            paused = [tp for tp in sorted(consumer.assignment()) if self._chance(0.5)]
            consumer.pause(*paused)
        elif self._chance(0.5) or self._catching_up:
            consumer.resume(*consumer.paused())
        self._poll(consumer)

    def poll_and_resubscribe(self, consumer: Consumer) -> None:
        """Poll once; now and then unsubscribe, and subscribe again."""
        self._poll(consumer)
        if self._chance(0.01):
            self._finish_batch()
            self._call("unsubscribe", CALL_TIMEOUT_S, lambda: consumer.unsubscribe() or True)
            self._journal.end(self.name)
            self._simulation.sleep(self._draw(0, 60_000))
            consumer.subscribe([TOPIC], listener=Listener(self))

    def iterate(self, consumer: Consumer) -> None:
        """Iterate over some records, one at a time."""
        self._call("iterate", FOREVER, lambda: self._iterate(consumer))

    def _iterate(self, consumer: Consumer) -> bool:
        for record in consumer:
            self._take([record])
            self._finish_batch()  # before the loop asks for the next record
            if self._chance(0.1):
                break
        return True

    # --- callbacks ---

    def on_assign(self, partitions: tuple[TopicPartition, ...]) -> None:
        """The consumer was notified that it owns partitions."""
        self._simulation.record(self.name, f"assigned {[tp.partition for tp in partitions]}")
        self._journal.assign(self.name, partitions)
        self._in_callback()

    def on_revoke(self, partitions: tuple[TopicPartition, ...], *, lost: bool) -> None:
        """The consumer was notified that partitions are or will be revoked."""
        self._simulation.record(self.name, f"{'lost' if lost else 'revoked'} {[tp.partition for tp in partitions]}")
        if lost and self._calling == "poll":
            self._journal.lose(self.name, partitions)
        if self.plan.program is Program.COMMIT_IN_CALLBACK and not lost and self._consumer is not None:
            self._finish_batch()
            consumer = self._consumer
            self._call("commit", CALL_TIMEOUT_S, lambda: consumer.commit(timeout=CALL_TIMEOUT_S) or True)
        try:
            self._in_callback()
        finally:
            self._journal.take_away(self.name, partitions)

    def deserialize(self, value: bytes) -> bytes:
        """Returns the value of a record, after some time."""
        if self._chance(0.02) and not self._catching_up:
            ms = self._draw(0, 2 * self._scenario.session_timeout_ms)
            self._simulation.sleep(ms)
            self._callback_ms += ms
        return value

    def on_commit(self, *_: object) -> None:
        """An auto-commit has ended."""
        consumer = self._consumer
        if consumer is not None and self._chance(0.2):
            began = self._simulation.now
            self._closed = True
            consumer.close(CLOSE_TIMEOUT_S)
            self._callback_ms += self._simulation.now - began

    def _in_callback(self) -> None:
        began = self._simulation.now
        if self._chance(0.3):
            self._simulation.sleep(self._draw(0, 2_000))
        self._callback_ms += self._simulation.now - began
        if self.plan.program is Program.RAISE_IN_CALLBACK and self._chance(0.5):
            raise CallbackError


def seek(consumer: Consumer, tp: TopicPartition, offset: int) -> bool:
    """Seek, and return True."""
    consumer.seek(tp, offset)
    return True


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


STEPS: dict[Program, Callable[[MemberProcess, Consumer], None]] = {
    Program.AUTO_COMMIT: MemberProcess.poll,
    Program.SLOW: MemberProcess.poll_slowly,
    Program.COMMIT: MemberProcess.poll_and_commit,
    Program.COMMIT_ASYNC: MemberProcess.poll_and_commit_async,
    Program.COMMIT_IN_CALLBACK: MemberProcess.poll,
    Program.SEEK_BACK: MemberProcess.poll_and_seek,
    Program.PAUSE: MemberProcess.poll_and_pause,
    Program.RAISE_IN_CALLBACK: MemberProcess.poll,
    Program.REOPEN: MemberProcess.poll,
    Program.CHANGE_PROTOCOL: MemberProcess.poll,
    Program.RESUBSCRIBE: MemberProcess.poll_and_resubscribe,
    Program.ITERATE: MemberProcess.iterate,
    Program.CLOSE_IN_CALLBACK: MemberProcess.poll,
    Program.SLOW_DESERIALIZER: MemberProcess.poll,
}
