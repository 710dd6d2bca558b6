"""Logs that are truncated at random times: at the end the records that the consumer returned are those of the log.

Every leader starts with a prefix of its predecessor's log and appends under a new epoch, as after a series of unclean
elections. Brokers respond as Kafka's do, by leadership and epochs. The consumer learns about a new leader late, by an
error, or by a hint in the error.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from kconsumer._internal.managers import UnsentRequest
from kconsumer.errors import BrokerConnectionError, LogTruncationError
from kconsumer.schema.fetch import FETCH, LeaderIdAndEpoch
from kconsumer.schema.offsets import (
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    EpochEndOffset,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kconsumer.types import TopicPartition
from support.harnesses.fetching import FetchHarness

BROKERS = 3
PARTITIONS = 2
NOT_LEADER, FENCED, UNKNOWN_EPOCH, OUT_OF_RANGE = 6, 74, 75, 1
partitions = st.integers(0, PARTITIONS - 1)


class Cutting(RuleBasedStateMachine):
    """Two logs whose leaders change, and a consumer that reads them.

    `view` has, for each offset of a partition, the epoch of the record that was returned last; a record that is
    returned removes those at later offsets. If the log ends below the end of the view, the position is there.
    `truth` has the epochs of the records in the leader's log, and `FetchHarness` has its batches.
    """

    @initialize(policy=st.sampled_from(["earliest", "latest", "none"]), room=st.sampled_from([1, 200, 1 << 20]))
    def start(self, policy: str, room: int) -> None:
        self.policy = policy
        harness = self.harness = FetchHarness(
            PARTITIONS, BROKERS, auto_offset_reset=policy, max_partition_fetch_bytes=room
        )
        self.offsets = harness.components.offsets
        self.view: dict[TopicPartition, list[int]] = {tp: [] for tp in harness.tps}
        self.truth: dict[TopicPartition, list[int]] = {tp: [] for tp in harness.tps}
        self.leaders = dict(harness.leaders)  # the current leaders; those of the harness are the ones in metadata
        self.epochs = dict(harness.epochs)
        self.in_flight: list[UnsentRequest] = []
        for partition in range(PARTITIONS):
            for count in (3, 1, 4):
                self.write(partition, count)

    # --- the cluster ---------------------------------------------------------------------------------------

    @rule(partition=partitions, count=st.integers(1, 5))
    def write(self, partition: int, count: int) -> None:
        tp = self.harness.tps[partition]
        self.harness.logs[tp].append(count, epoch=self.epochs[partition])
        self.truth[tp] += [self.epochs[partition]] * count

    @rule(partition=partitions, leader=st.integers(0, BROKERS - 1), kept=st.floats(0, 1), written=st.integers(0, 6))
    def elect(self, partition: int, leader: int, kept: float, written: int) -> None:
        """Make a broker the leader, which has some of the batches and appends others."""
        tp = self.harness.tps[partition]
        log = self.harness.logs[tp]
        # If the log has no epoch that was read, the position is reset; the policy `latest` then omits records.
        batches = max(round(kept * len(log.starts)), self.policy == "latest")
        log.end = log.starts[batches] if batches < len(log.starts) else log.end
        del log.starts[batches:], log.batches[batches:], self.truth[tp][log.end :]
        self.leaders[partition] = leader
        self.epochs[partition] += 1
        if written:
            self.write(partition, written)

    @rule()
    def publish_leaders(self) -> None:
        """Let metadata arrive."""
        self.harness.leaders.update(self.leaders)
        self.harness.epochs.update(self.epochs)
        self.harness.update_metadata()

    # --- the network ---------------------------------------------------------------------------------------

    @rule()
    def send(self) -> None:
        self.in_flight += self.offsets.poll(self.harness.now).requests
        self.in_flight += self.harness.poll()

    @rule(data=st.data(), hints=st.booleans())
    def respond(self, data: st.DataObject, hints: bool) -> None:
        if self.in_flight:
            self.respond_to(self.in_flight.pop(data.draw(st.integers(0, len(self.in_flight) - 1))), hints=hints)

    @rule()
    def lose(self) -> None:
        if self.in_flight:
            self.harness.reply(self.in_flight.pop(), error=BrokerConnectionError("gone"))

    def respond_to(self, request: UnsentRequest, *, hints: bool = False) -> None:
        if request.api is FETCH:
            self.harness.respond(request, **self.fetch_errors(request, hints))
        elif request.api is LIST_OFFSETS:
            self.harness.reply(request, self.first_or_last(request))
        else:
            assert request.api is OFFSET_FOR_LEADER_EPOCH
            self.harness.reply(request, self.epoch_ends(request))

    def error(self, request: UnsentRequest, partition: int, epoch: int) -> int:
        """Returns the error of a broker for a request for a partition with this leader epoch."""
        if int((request.node or "").lstrip("*")) != self.leaders[partition]:
            return NOT_LEADER
        known = self.epochs[partition]
        return FENCED if -1 < epoch < known else UNKNOWN_EPOCH if epoch > known else 0

    def fetch_errors(self, request: UnsentRequest, hints: bool) -> dict[str, dict[str, Any]]:
        changes: dict[str, dict[str, Any]] = {}
        for row in (row for topic in request.message.topics for row in topic.partitions):
            error = self.error(request, row.partition, row.current_leader_epoch)
            if not error and row.fetch_offset > self.harness.logs[self.harness.tps[row.partition]].end:
                error = OUT_OF_RANGE
            if error:
                change = changes[f"p{row.partition}"] = {"error_code": error, "records": None}
                if hints and error in (NOT_LEADER, FENCED):
                    leader, epoch = self.leaders[row.partition], self.epochs[row.partition]
                    change["current_leader"] = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        return changes

    def first_or_last(self, request: UnsentRequest) -> ListOffsetsResponse:
        found = []
        for row in (row for topic in request.message.topics for row in topic.partitions):
            error = self.error(request, row.partition_index, row.current_leader_epoch)
            log = self.harness.logs[self.harness.tps[row.partition_index]]
            offset = -1 if error else log.end if row.timestamp == -1 else 0
            found.append(
                ListOffsetsPartitionResponse(partition_index=row.partition_index, error_code=error, offset=offset)
            )
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=found)])

    def epoch_ends(self, request: UnsentRequest) -> OffsetForLeaderEpochResponse:
        """Returns the newest epoch in the log that is not newer than the requested one, and its end offset."""
        found = []
        for row in (row for topic in request.message.topics for row in topic.partitions):
            error = self.error(request, row.partition, row.current_leader_epoch)
            epochs = self.truth[self.harness.tps[row.partition]]
            end = 0 if error else sum(1 for epoch in epochs if epoch <= row.leader_epoch)
            epoch, end = (epochs[end - 1], end) if end else (-1, -1)
            found.append(EpochEndOffset(partition=row.partition, error_code=error, end_offset=end, leader_epoch=epoch))
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="t", partitions=found)])

    # --- the user ------------------------------------------------------------------------------------------

    @rule(limit=st.integers(1, 10))
    def collect(self, limit: int) -> None:
        self.act_on(self.offsets.take_error())
        for record in self.harness.collector.collect(limit):
            tp = record.topic_partition
            assert record.leader_epoch is not None
            self.returned(tp, record.offset, record.leader_epoch)
        self.harness.positions.delivery.open = False  # the poll that returns the records has ended

    def returned(self, tp: TopicPartition, offset: int, epoch: int) -> None:
        view, truth = self.view[tp], self.truth[tp]
        assert offset <= len(view), "a record was omitted"
        if offset < len(view):
            assert truth[offset : offset + 1] != [view[offset]], "a record was returned twice"
            del view[offset:]
        view.append(epoch)

    def act_on(self, error: Any) -> None:
        """Without a policy, seek to the divergent offset if it is known, else to the start."""
        if error is None:
            return
        assert isinstance(error, LogTruncationError)
        for tp in error.offsets:
            parting = error.divergent_offsets.get(tp)
            offset, epoch = (0, None) if parting is None else (parting.offset, parting.leader_epoch)
            self.harness.positions.seek(tp, offset, epoch, self.harness.cluster.leader(tp))

    @rule(ms=st.integers(1, 200))
    def wait(self, ms: int) -> None:
        self.harness.now += ms

    # --- the end -------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Check that the view equals the truth once no more log is truncated."""
        if not hasattr(self, "harness"):
            return
        for _ in range(60):
            self.publish_leaders()
            self.send()
            while self.in_flight:
                self.respond_to(self.in_flight.pop(0))
            self.collect(10)
            self.harness.now += 1_100
        for tp, truth in self.truth.items():
            position = self.harness.assignment.get(tp).position
            assert position is not None
            assert (len(truth), truth) == (position.offset, self.view[tp][: position.offset])


Cutting.TestCase.settings = settings(
    max_examples=60, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
test_random_truncation = Cutting.TestCase


def test_old_records_read_before_a_fetch_from_the_new_leader() -> None:
    """If metadata has a new leader, and all buffered records of the old leader are read before the next fetch, the
    position is still validated against the new leader's log.
    """
    state = Cutting()
    state.start(policy="earliest", room=1)
    state.send()
    state.respond_to(state.in_flight.pop(0))
    state.respond_to(state.in_flight.pop(0))
    state.elect(kept=0.0, leader=0, partition=1, written=0)
    state.publish_leaders()
    state.collect(limit=6)
    state.write(count=3, partition=1)
    state.teardown()
