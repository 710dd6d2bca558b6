"""Handles Fetch responses (Java `AbstractFetch.handleFetchSuccess`).

For each partition of a response, buffers the data or handles the error by the table in `error_actions.py`. `manager.py`
decides when to fetch again.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from kconsumer._common.deferred_calls import get_logger
from kconsumer._common.error_codes import Errors
from kconsumer._core.cycle import Block, InFlightFetch, Memory, RequestedPartition
from kconsumer._core.decode import PartitionFetch, next_fetch_offset
from kconsumer._core.metrics import ResponseTally
from kconsumer._core.wire import Slice
from kconsumer.config.option_groups import FetchConfig
from kconsumer.fetching.brokers import MetadataRequester
from kconsumer.fetching.buffer import CompletedFetch, FetchBuffer
from kconsumer.fetching.error_actions import ACCEPT, ERROR_ACTIONS, NAMES_LEADER, REFRESH, RESET, RETRY, fetch_error
from kconsumer.fetching.read_replicas import Failed, ReadReplicas, is_leader, refusal_of
from kconsumer.fetching.session import LAST_VERSION_WITH_NAMES
from kconsumer.schema.fetch import FetchPartitionData, FetchResponse, LeaderIdAndEpoch, NodeEndpoint
from kconsumer.state.assignment import Assignment
from kconsumer.state.cluster import Cluster
from kconsumer.types import Node, OffsetAndMetadata, TopicPartition

_log = get_logger(__name__)

# The leaders that Fetch responses name in a row are used at once, without a backoff. After this many, the next leader
# comes from metadata, because brokers that name each other would be asked in turn without a pause.
MAX_NAMED_LEADERS = 2


class _ResponseContext:
    """State that is shared by the partitions of one response while the response is handled."""

    __slots__ = ("block", "flight", "memory", "now", "received", "refused", "tally")

    def __init__(self, flight: InFlightFetch, memory: Memory, now: float) -> None:
        self.flight = flight
        self.memory = memory
        self.now = now
        self.tally = ResponseTally()
        self.received = 0  # bytes of memory that the response uses
        self.refused: list[Failed] = []  # partitions of which the preferred replica gave no records
        self.block: Block | None = None  # the block of the partition handled last

    def block_of(self, owner: object) -> Block:
        """Returns the block that counts the memory of `owner`, the object that contains the bytes of the response.

        The first partition of a response creates the block, and the other partitions use it, too.
        """
        if self.block is None or owner is not self.block():
            self.block = self.memory.track(owner)
            self.received += self.block.size
        return self.block


class FetchResponseHandler:
    """Buffers the data of Fetch responses and handles the errors of their partitions."""

    def __init__(
        self,
        config: FetchConfig,
        cluster: Cluster,
        assignment: Assignment,
        metadata: MetadataRequester,
        buffer: FetchBuffer,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._assignment = assignment
        self._metadata = metadata
        self._buffer = buffer
        self.read_replicas = ReadReplicas(config.metadata_max_age_ms, cluster, metadata)

    def handle(self, flight: InFlightFetch, response: FetchResponse, version: int, now: float) -> list[Failed]:
        """Handle a response. Returns the partitions to back off."""
        context = _ResponseContext(flight, self._buffer.memory, now)
        failed: list[Failed] = []
        by_id = version > LAST_VERSION_WITH_NAMES
        for topic in response.responses:
            name = flight.topic_names.get(topic.topic_id) if by_id else topic.topic
            for data in topic.partitions:
                tp = TopicPartition(name or "", data.partition_index)
                requested = flight.requested.get(tp)
                if requested is None:
                    continue
                code = data.error_code
                if by_id and code == 0 and _is_another_topic(requested):
                    _log.warning(
                        "topic %s was deleted and created again: offset %d of %s belongs to the old one",
                        tp.topic,
                        requested.offset,
                        tp,
                    )
                    code = Errors.OFFSET_OUT_OF_RANGE
                reason = self._partition(context, tp, requested, data, code)
                if reason:
                    failed.append(Failed(requested, reason))
                if code in NAMES_LEADER and requested.chain.failures < MAX_NAMED_LEADERS:
                    self._learn_leader(tp, data.current_leader, response.node_endpoints)
        self.read_replicas.give_up(flight.node, context.refused, now)
        if context.received:
            self._buffer.memory.record_response(context.received, flight.max_bytes + flight.max_bytes // 4)
        return failed

    def _partition(
        self,
        context: _ResponseContext,
        tp: TopicPartition,
        requested: RequestedPartition,
        data: FetchPartitionData,
        code: int,
    ) -> str:
        """Handle one partition of a response. Returns the reason why it must be backed off, or ""."""
        chain, offset, action = requested.chain, requested.offset, ERROR_ACTIONS[code]
        state, from_leader = chain.state, is_leader(context.flight.node, requested.leader)
        state.update_offsets(data.high_watermark, data.last_stable_offset, data.log_start_offset)
        size = 0 if data.records is None else len(data.records)
        if size or action is not ACCEPT:
            self._assignment.move_to_end(tp)
        if not from_leader and (refusal := refusal_of(action, requested, data)):
            context.refused.append(Failed(requested, refusal))
            if action in (ACCEPT, RESET):  # a follower may lag behind: fetch from the leader
                return ""
        if action is REFRESH:
            self._metadata.request_update()
            return str(fetch_error(tp, offset, code))
        if action is RETRY:
            return str(fetch_error(tp, offset, code))
        if action is not ACCEPT or _diverges(data):
            return self._buffer_error(context, requested, data, code)
        if data.preferred_read_replica >= 0 and not size:
            reason = self.read_replicas.follow(context.flight.node, requested, data.preferred_read_replica, context.now)
            if reason:
                return reason
        if not from_leader and state.replica.was_refused:
            state.clear_refusal()
        if chain.failures:
            chain.clear_failures()
        if state.out_of_range:
            state.clear_out_of_range()
        if self._buffer.accepts(chain, offset, requested.leader):
            if size:
                self._buffer_records(context, requested, data, size)
            else:
                self._buffer.clear_error(chain)
        return ""

    def _buffer_records(
        self, context: _ResponseContext, requested: RequestedPartition, data: FetchPartitionData, size: int
    ) -> None:
        """Append the records of a partition to its chain. `size` is their number of bytes."""
        offset = requested.offset
        records = data.records if isinstance(data.records, Slice) else Slice(data.records)
        fetch = CompletedFetch(
            requested.chain,
            offset,
            size=size,
            tally=context.tally,
            block=context.block_of(records.owner),
            arrived_at=context.now,
            topic_id=requested.topic_id,
        )
        fetch.attach(
            PartitionFetch(
                requested.chain.topic_partition,
                records,
                offset,
                check_crcs=self._config.check_crcs,
                read_committed=self._config.read_committed,
                aborted_transactions=[(row.producer_id, row.first_offset) for row in data.aborted_transactions or ()],
                on_decompressed=partial(self._buffer.unpack, fetch),
                batch_limit=self._config.decompressed_batch_max_bytes or 0,
            )
        )
        next_offset = next_fetch_offset(records)
        context.tally.expect()
        # If the headers contain an end that is not after the start, they are corrupt. Then the end is unknown until
        # the records are decoded.
        self._buffer.append(fetch, next_offset[0] if next_offset is not None and next_offset[0] > offset else None)

    def _buffer_error(
        self, context: _ResponseContext, requested: RequestedPartition, data: FetchPartitionData, code: int
    ) -> str:
        """Append an error to the partition's chain. Returns the text of the error as the reason for a backoff.

        After the backoff the partition is fetched again, and the next response replaces the error.
        """
        chain, diverging = requested.chain, data.diverging_epoch
        diverging_epoch = None
        if diverging is not None and _diverges(data):
            diverging_epoch = OffsetAndMetadata(diverging.end_offset, "", diverging.epoch)
            reason = "the leader's log diverges from the records already consumed"
        else:
            reason = str(fetch_error(chain.topic_partition, requested.offset, code))
        if self._buffer.accepts(chain, requested.offset, requested.leader):
            fetch = CompletedFetch(
                chain,
                requested.offset,
                error_code=code,
                diverging_epoch=diverging_epoch,
                tally=context.tally,
                arrived_at=context.now,
            )
            fetch.fail(reason, context.now if chain.error is None else chain.error.failed_at)
            context.tally.expect()
            self._buffer.append(fetch, requested.offset)
        return reason

    def _learn_leader(
        self, tp: TopicPartition, leader: LeaderIdAndEpoch | None, endpoints: Iterable[NodeEndpoint]
    ) -> None:
        """Store the new leader, if the response contains one (KIP-951). The next fetch then need not wait for
        metadata."""
        if leader is None or leader.leader_id < 0 or leader.leader_epoch < 0:
            return
        found = (Node(e.node_id, e.host, e.port, e.rack) for e in endpoints if e.node_id == leader.leader_id)
        if self._cluster.update_leader(tp, leader.leader_id, leader.leader_epoch, next(found, None)):
            state = self._assignment.find(tp)
            if state is not None:
                state.maybe_validate(self._cluster.leader(tp))


def _is_another_topic(requested: RequestedPartition) -> bool:
    """Returns True if the position belongs to a deleted topic of the same name.

    The leader has accepted the topic id of the request, so this id is current. The offset may exist in the new topic,
    too. Java continues at that offset, and so skips the earlier records of the new topic.
    """
    chain = requested.chain
    read = chain.fetches[-1].topic_id if chain.fetches else chain.state.topic_id
    return None not in (read, requested.topic_id) and read != requested.topic_id


def _diverges(data: FetchPartitionData) -> bool:
    """Returns True if the leader reports that its log diverges from the records already consumed (KIP-595).

    Today brokers report this only to followers, because a consumer does not send the epoch of its last record.
    """
    diverging = data.diverging_epoch
    return diverging is not None and diverging.end_offset >= 0
