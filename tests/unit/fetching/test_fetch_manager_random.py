"""Fetching with random events: no record is lost, repeated, stale, out of order or stuck, memory is accounted for, and
`partition_states()` is right.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kconsumer._internal.managers import UnsentRequest
from kconsumer.errors import BrokerConnectionError
from kconsumer.records import ConsumerRecords
from kconsumer.testing.batches import Rec, build_batch
from kconsumer.types import OffsetReset, PartitionCondition, TopicPartition
from support.harnesses.fetching import TOPIC_ID, FetchHarness

PARTITIONS = 4
partitions = st.integers(0, PARTITIONS - 1)


class Fetching(RuleBasedStateMachine):
    """`expected` is the next offset that each partition has to return; only returned records and seeks change it."""

    @initialize(
        brokers=st.integers(1, 3),
        partition_bytes=st.sampled_from([1, 300, 1 << 20]),
        memory=st.sampled_from([1000, 1 << 20]),
        sessions=st.integers(0, 2),
    )
    def start(self, brokers: int, partition_bytes: int, memory: int, sessions: int) -> None:
        options = {"max_partition_fetch_bytes": partition_bytes, "buffer_memory": memory}
        self.harness = FetchHarness(PARTITIONS, brokers, sessions=sessions, **options)
        self.expected = dict.fromkeys(self.harness.tps, 0)
        self.exists: dict[TopicPartition, list[int]] = {tp: [] for tp in self.harness.tps}
        self.in_flight: list[UnsentRequest] = []
        self.kept: list[ConsumerRecords] = []
        self.resets: dict[TopicPartition, int] = {}
        for round_ in range(6):
            for partition in range(PARTITIONS):
                self.produce(partition, count=1 + (round_ + partition) % 5, gap=(round_ * partition) % 3)

    @rule(partition=partitions, count=st.integers(1, 8), gap=st.integers(0, 3), codec=st.sampled_from(["none", "zstd"]))
    def produce(self, partition: int, count: int, gap: int, codec: str = "none") -> None:
        """Append a batch, of which compaction has removed the last `gap` offsets."""
        tp = self.harness.tps[partition]
        log = self.harness.logs[tp]
        found = list(range(log.end, log.end + count))
        records = [Rec(b"%d" % offset, offset=offset) for offset in found]
        last = count + gap - 1
        batch = build_batch(records, base_offset=log.end, last_offset_delta=last, leader_epoch=0, codec=codec)
        log.add(batch, log.end + last + 1)
        self.exists[tp] += found

    @rule()
    def send(self) -> None:
        self.in_flight += self.harness.poll()

    @rule(data=st.data())
    def respond(self, data: st.DataObject) -> None:
        if self.in_flight:
            self.harness.respond(self.in_flight.pop(data.draw(st.integers(0, len(self.in_flight) - 1))))

    @rule()
    def fetch(self) -> None:
        """Send every fetch that may be sent, and respond to all in flight."""
        self.send()
        while self.in_flight:
            self.harness.respond(self.in_flight.pop(0))

    @rule(partition=partitions, code=st.sampled_from([-1, 3, 6, 75]))
    def respond_with_error(self, partition: int, code: int) -> None:
        if self.in_flight:
            changes = {f"p{partition}": {"error_code": code, "records": None}}
            self.harness.respond(self.in_flight.pop(0), **changes)

    @rule()
    def lose_connection(self) -> None:
        if self.in_flight:
            self.harness.reply(self.in_flight.pop(), error=BrokerConnectionError("gone"))

    @rule()
    def lose_response(self) -> None:
        """Let the broker read a request and lose its response."""
        if self.in_flight:
            request = self.in_flight.pop()
            self.harness.process(request)
            self.harness.reply(request, error=BrokerConnectionError("gone"))

    @rule()
    def evict_sessions(self) -> None:
        for cache in self.harness.caches.values():
            cache.sessions.clear()

    @rule(known=st.booleans())
    def learn_or_lose_topic_ids(self, known: bool) -> None:
        self.harness.topic_id = TOPIC_ID if known else None
        self.harness.update_metadata()

    @rule(limit=st.integers(1, 30))
    def collect(self, limit: int) -> None:
        before = {tp for tp in self.harness.tps if self.harness.assignment.is_fetchable(tp)}
        got = self.harness.collect(limit)
        assert set(got) <= before
        assert sum(map(len, got.values())) <= limit
        for tp, found in got.items():
            owed = [offset for offset in self.exists[tp] if offset >= self.expected[tp]]
            assert owed[: len(found)] == found
            self.expected[tp] = found[-1] + 1

    @rule(limit=st.integers(1, 30))
    def collect_and_undo(self, limit: int) -> None:
        """Undo a poll, as after Ctrl-C: its records are still expected."""
        self.harness.collector.collect(limit)
        self.harness.collector.rollback()

    @rule(limit=st.integers(1, 10))
    def collect_and_keep(self, limit: int) -> None:
        """Keep a batch, to check later that it did not change."""
        records = self.harness.collector.collect(limit)
        self.kept.append(records)
        for record in records:
            tp = record.topic_partition
            assert next(offset for offset in self.exists[tp] if offset >= self.expected[tp]) == record.offset
            self.expected[tp] = record.offset + 1

    @rule()
    def let_go(self) -> None:
        """Check that a kept batch is unchanged, and release it."""
        for records in self.kept:
            assert all(b"%d" % record.offset == record.value for record in records)
        self.kept.clear()

    @rule(partition=partitions, data=st.data())
    def reset(self, partition: int, data: st.DataObject) -> None:
        """Drop the position; an offset is found later."""
        tp = self.harness.tps[partition]
        if self.harness.assignment.is_assigned(tp):
            self.harness.positions.request_reset(tp, OffsetReset.EARLIEST)
            self.resets[tp] = data.draw(st.integers(0, self.harness.logs[tp].end))

    @rule()
    def find_offsets(self) -> None:
        for tp, offset in self.resets.items():
            leader = self.harness.cluster.leader(tp)
            if self.harness.positions.maybe_seek_after_reset(tp, offset, OffsetReset.EARLIEST, leader):
                self.expected[tp] = offset
        self.resets.clear()

    @rule(partition=partitions, data=st.data())
    def seek(self, partition: int, data: st.DataObject) -> None:
        tp = self.harness.tps[partition]
        if self.harness.assignment.is_assigned(tp):
            self.expected[tp] = data.draw(st.integers(0, self.harness.logs[tp].end))
            self.harness.seek(tp, self.expected[tp])

    @rule(partition=partitions, data=st.data())
    def fetch_and_seek(self, partition: int, data: st.DataObject) -> None:
        """Seek while responses to the old position are in flight, which arrive before the next poll of the manager."""
        self.fetch()
        self.send()
        self.seek(partition, data)

    @rule(partition=partitions, paused=st.booleans())
    def pause_or_resume(self, partition: int, paused: bool) -> None:
        tp = self.harness.tps[partition]
        if self.harness.assignment.is_assigned(tp):
            (self.harness.assignment.pause if paused else self.harness.assignment.resume)(tp)

    @rule(chosen=st.sets(partitions), awaiting=st.booleans(), moved=st.booleans())
    def reassign(self, chosen: set[int], awaiting: bool = False, moved: bool = False) -> None:
        """Change the assignment. Kept partitions keep their position; new ones continue where this or another member
        stopped, once on_assign has returned.
        """
        harness = self.harness
        before = set(harness.assignment.assigned())
        harness.subscription.assign({harness.tps[p] for p in chosen})
        for tp in set(harness.assignment.assigned()) - before:
            if moved:
                self.expected[tp] = harness.logs[tp].end // 2
            harness.seek(tp, self.expected[tp])
            harness.assignment.mark_awaiting_callback([tp], awaiting)

    @rule(partition=partitions)
    def begin_revoking(self, partition: int) -> None:
        """Begin to revoke a partition, whose records may not be returned from then on."""
        if self.harness.assignment.is_assigned(self.harness.tps[partition]):
            self.harness.assignment.mark_pending_revocation([self.harness.tps[partition]])

    @rule()
    def callbacks_return(self) -> None:
        self.harness.assignment.mark_awaiting_callback(self.harness.tps, False)

    @rule(chosen=st.sets(partitions))
    def unsubscribe_and_come_back(self, chosen: set[int]) -> None:
        """Unsubscribe as `Consumer.unsubscribe` does, while fetches are in flight, and assign again."""
        self.send()
        self.harness.subscription.unsubscribe()
        self.harness.buffer.clear()
        self.reassign(chosen, moved=True)

    @rule(partition=partitions, data=st.data())
    def move_leader(self, partition: int, data: st.DataObject) -> None:
        self.harness.leaders[partition] = data.draw(st.integers(0, self.harness.brokers - 1))
        self.harness.epochs[partition] += 1
        self.harness.update_metadata()

    @rule()
    def validate(self) -> None:
        """Let the validation of positions succeed after a change of the leader."""
        self.harness.validate()

    @rule(ms=st.integers(1, 200))
    def wait(self, ms: int) -> None:
        self.harness.wait(ms)

    @invariant()
    def accounts_are_right(self) -> None:
        if not hasattr(self, "harness"):
            return
        buffer, memory = self.harness.buffer, self.harness.buffer.memory
        chains = [chain for tp in self.harness.tps if (chain := buffer.find(tp)) is not None]
        fetches = [fetch for chain in chains for fetch in chain.fetches]
        held = (block for fetch in fetches for block in (fetch.block, fetch.decompressed_block) if block is not None)
        blocks = {id(block): block for block in held}.values()  # weak references of equal bytes are equal
        alive = memory.total
        assert sum(fetch.size for fetch in fetches) == buffer.waiting_bytes
        assert sum(block.size for block in blocks if block.uses) == alive - memory.held_by_caller
        assert 0 == memory.held_by_caller or (memory.held_by_caller > 0 and any(self.kept)), (
            "only what was kept is the caller's"
        )
        manager = self.harness.manager
        flights = [*manager.in_flight.values(), *manager._expedited.values()]
        assert memory.reserved == sum(flight.reserved for flight in flights)

    @invariant()
    def every_status_has_a_reason(self) -> None:
        if not hasattr(self, "harness"):
            return
        asked = {str(request.node).lstrip("*") for request in self.in_flight}  # "*": expedited
        for tp in self.harness.assignment.assigned():
            status = self.harness.status(tp)
            assert (True, True) == (status.since >= 0, bool(status.reason)), status
            if status.state is PartitionCondition.IN_FLIGHT:
                assert str(self.harness.manager.planner.broker_for(tp).node.id) in asked  # type: ignore[union-attr]  # it has one
            if status.state is PartitionCondition.BUFFERED:
                assert status.buffered_bytes > 0

    def teardown(self) -> None:
        """Check that all expected records arrive once everything is assigned and resumed."""
        if not hasattr(self, "harness"):
            return
        harness = self.harness
        self.let_go()
        self.reassign(set())
        self.reassign(set(range(PARTITIONS)))
        for tp in harness.tps:
            harness.assignment.resume(tp)
        for _ in range(1000):
            self.validate()
            self.fetch()
            self.collect(30)
            harness.now += 50
            if all(harness.assignment.get(tp).position[0] == harness.logs[tp].end for tp in harness.tps):  # type: ignore[index]  # all have one
                break
        for tp in harness.tps:
            assert [] == [offset for offset in self.exists[tp] if offset >= self.expected[tp]]


Fetching.TestCase.settings = settings(
    max_examples=40, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)
test_random_fetching = Fetching.TestCase
