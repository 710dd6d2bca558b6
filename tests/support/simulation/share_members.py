"""The processes of a share group: each runs one share consumer after the other, with random calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from kconsumer import AcknowledgeType, ShareConsumer, ShareRecord, TopicPartition
from kconsumer.errors import KafkaError, StateError
from support.simulation.scheduler import Process
from support.simulation.settings import CALL_TIMEOUT_S, CLOSE_TIMEOUT_S, ERROR_PAUSE_MS, GROUP
from support.simulation.share_journal import Key, ShareJournal
from support.simulation.share_parallel import process_in_parallel
from support.simulation.share_scenario import CATCH_UP_MS, LOCK_MS, ShareMember, ShareScenario
from support.simulation.simulation import Simulation

T = TypeVar("T")
MAX_POLL_S = 20.0
UNSUBSCRIBE_S = 60.0
A = AcknowledgeType


class ShareMemberProcess:
    """One member of the scenario. A crash ends its process; `start` begins another one."""

    def __init__(
        self, simulation: Simulation, journal: ShareJournal, scenario: ShareScenario, plan: ShareMember, name: str
    ) -> None:
        self.plan = plan
        self.name = name
        self.process = Process(name)
        self.alive = False
        self.simulation = simulation
        self.journal = journal
        self._scenario = scenario
        self.ends_ms = scenario.duration_ms  # when the member closes its last consumer
        self.consumer: ShareConsumer | None = None
        self._starts = 0
        self._topics: list[str] = []  # the subscription
        self._undecided: list[Key] = []  # received and not acknowledged; in implicit mode

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
        self.journal.drop_member(self.name)

    def suspend(self, ms: float) -> None:
        """Do not run the process for a while."""
        now = self.simulation.now
        self.process.suspend(now, now + ms)
        self.journal.disturb(self.name, now + ms + 1_000.0)
        self.simulation.record(self.name, f"suspended for {ms:.0f} ms")

    @property
    def _catching_up(self) -> bool:
        """True at the end of the run, when members accept each record at once."""
        return self.simulation.now > self._scenario.duration_ms - CATCH_UP_MS

    def main(self) -> None:
        """Run one consumer after the other until the member's end."""
        while self.simulation.now < self.ends_ms:
            self._run_consumer()
        self.alive = False

    def _run_consumer(self) -> None:
        plan = self.plan
        consumer = self.consumer = self.simulation.share_consumer(
            self.process,
            group_id=GROUP,
            client_id=self.name,
            share_acknowledgement_mode="explicit" if plan.explicit else "implicit",
            share_acquire_mode="record_limit" if plan.record_limit else "batch_optimized",
            max_poll_records=plan.max_poll_records,
            fetch_max_wait_ms=self._scenario.fetch_max_wait_ms,
            consumer_timeout_ms=int(MAX_POLL_S * 1000),
            on_acknowledge=self._on_acknowledge,
        )
        self._undecided = []
        self._subscribe(consumer, self._scenario.base.topic_names)
        while self.simulation.now < self.ends_ms:
            if plan.workers:
                process_in_parallel(self, consumer)
            else:
                self._step(consumer)
            if self.happens(plan.reopens):
                break
        self.journal.drop_holds(self.name)
        self._undecided = []
        self.call("close", CLOSE_TIMEOUT_S, lambda: consumer.close(CLOSE_TIMEOUT_S))
        self.consumer = None

    # --- what a member does ---

    def _step(self, consumer: ShareConsumer) -> None:
        """Receive and process one batch, or change the subscription."""
        plan = self.plan
        if self.happens(plan.resubscribes):
            self._resubscribe(consumer)
        if self._catching_up and len(self._topics) < len(self._scenario.base.topic_names):
            self._subscribe(consumer, self._scenario.base.topic_names)
        self._decide_all()
        if self.happens(plan.iterates):
            self._iterate(consumer)
        else:
            timeout_s = MAX_POLL_S if self._catching_up else self.draw(0.1, MAX_POLL_S)
            records = self.call("poll", timeout_s, lambda: consumer.poll(timeout_s)) or ()
            found = [record for record in records if isinstance(record, ShareRecord)]
            self._receive(consumer, found)
            self._process(consumer, found)
        if self.happens(plan.commits):
            self._commit(consumer)
            if self.happens(plan.slow):
                self.simulation.sleep(self.draw(0, 1.5 * LOCK_MS))

    def _iterate(self, consumer: ShareConsumer) -> None:
        """Process some records of a batch in a `for` loop. The next poll releases those that it has not reached."""
        iterator = iter(consumer)
        first = self.call("iterate", MAX_POLL_S, lambda: next(iterator, None))
        if first is None:
            return
        rest = [record for record in consumer._iteration.unreached() if isinstance(record, ShareRecord)]
        self._receive(consumer, [first, *rest])
        count = self.simulation.random.randint(0, len(rest))
        reached = [first, *(next(iterator) for _ in range(count))]
        self._process(consumer, reached)
        for record in rest[count:]:
            self.journal.decide(self.name, _key(record), A.RELEASE)
            if not self.plan.explicit:
                self._undecided.remove(_key(record))

    def _receive(self, consumer: ShareConsumer, records: Iterable[ShareRecord]) -> None:
        """Compare what a poll has returned with what the leaders know."""
        for record in records:
            self.receive_one(consumer, record)

    def receive_one(self, consumer: ShareConsumer, record: ShareRecord) -> None:
        """Compare a record that the application has received with what the leader knows."""
        member_id, (tp, offset) = consumer._engine.components.member.member_id, _key(record)
        self.journal.now = self.simulation.now
        self.simulation.record(self.name, f"got {tp}@{offset}, delivery {record.delivery_count}")
        self.journal.check_subscribed(self.name, (tp, offset), self._topics)
        state = self.simulation.share_state(GROUP, tp, offset)
        self.journal.receive(self.name, member_id, (tp, offset), record.delivery_count, state)
        if not self.plan.explicit:
            self._undecided.append((tp, offset))

    def _process(self, consumer: ShareConsumer, records: list[ShareRecord]) -> None:
        """Process records. In explicit mode, acknowledge each of them."""
        if not records:
            return
        if self.happens(self.plan.slow):
            self.simulation.sleep(self.draw(0, 1.5 * LOCK_MS))
        elif self.happens(0.5):
            self.simulation.sleep(self.draw(0, 500))
        for record in records if self.plan.explicit else ():
            kind = self._kind()
            self.simulation.record(self.name, f"{kind.name} {record.topic_partition}@{record.offset}")
            self.journal.decide(self.name, _key(record), kind)
            consumer.acknowledge(record, kind)
            if self.happens(0.02):
                self.simulation.sleep(self.draw(0, 2_000))

    def _kind(self) -> AcknowledgeType:
        plan = self.plan
        for kind, share in ((A.RELEASE, plan.releases), (A.REJECT, plan.rejects), (A.RENEW, plan.renews)):
            if self.happens(share):
                return kind
        return A.ACCEPT

    def _decide_all(self) -> None:
        """In implicit mode, the next poll or commit accepts what was received."""
        for key in self._undecided:
            self.journal.decide(self.name, key, A.ACCEPT)
        self._undecided = []

    def _commit(self, consumer: ShareConsumer) -> None:
        self._decide_all()
        if self.happens(0.5):
            self.call("commit_async", 0.0, lambda: consumer.commit_async() or True)
        else:
            self.call("commit", CALL_TIMEOUT_S, lambda: consumer.commit(CALL_TIMEOUT_S) or True)

    # --- subscriptions ---

    def _resubscribe(self, consumer: ShareConsumer) -> None:
        topics = self._scenario.base.topic_names
        if self.happens(0.5):
            self.journal.drop_holds(self.name)
            self._undecided = []
            self.call("unsubscribe", UNSUBSCRIBE_S, lambda: consumer.unsubscribe() or True)
            if self.happens(0.5):
                self.simulation.sleep(self.draw(0, 20_000))
        random = self.simulation.random
        self._subscribe(consumer, random.sample(topics, random.randint(1, len(topics))))

    def _subscribe(self, consumer: ShareConsumer, topics: Iterable[str]) -> None:
        self._topics = list(topics)
        self.simulation.record(self.name, f"subscribes to {' '.join(self._topics)}")
        self.call("subscribe", 0.0, lambda: consumer.subscribe(self._topics) or True)

    # --- calls ---

    def call(self, what: str, timeout_s: float, call: Callable[[], T]) -> T | None:
        """Make a call. Returns its result, or None if it raised an error that faults explain."""
        simulation, journal = self.simulation, self.journal
        began, result = simulation.now, None
        try:
            result = call()
        except KafkaError as error:
            text = f"{type(error).__name__}: {error}"
            simulation.record(self.name, f"{what} raised {text}")
            journal.now = simulation.now
            if isinstance(error, StateError) or "internal error" in text:
                journal.violation(f"internal error: {self.name}: {what} raised {text}")
        journal.now = now = simulation.now
        took_ms = now - began - self.process.suspended_ms(began, now)
        journal.check_call(self.name, what, took_ms, timeout_s * 1000)
        if result is None:
            simulation.sleep(ERROR_PAUSE_MS)
        return result

    def _on_acknowledge(self, offsets: dict[TopicPartition, frozenset[int]], error: KafkaError | None) -> None:
        self.journal.now = self.simulation.now
        for tp, found in offsets.items():
            for offset in sorted(found):
                if error is None:
                    self.journal.confirm(self.name, (tp, offset))
                else:
                    self.simulation.record(self.name, f"refused {tp}@{offset}: {error}")
                    self.journal.refuse(self.name, (tp, offset), str(error))

    def happens(self, probability: float) -> bool:
        """Returns True with this probability. What disturbs the end of a run does not happen then."""
        return self.simulation.random.random() < probability and not self._catching_up

    def draw(self, low: float, high: float) -> float:
        return self.simulation.random.uniform(low, high)


def _key(record: ShareRecord) -> Key:
    return record.topic_partition, record.offset
