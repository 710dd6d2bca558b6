"""What a Fetch response means: data to buffer, errors to react to, and what it tells besides.

Decides what becomes of each partition of a response (the table is in `reactions.py`). It does not decide when to ask
again; `manager.py` does.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from kconsumer._core.fetch import PartitionFetch
from kconsumer._core.headers import next_fetch_offset
from kconsumer._core.wire import Slice
from kconsumer.config.option_groups import FetchConfig
from kconsumer.deferred_calls import get_logger
from kconsumer.error_codes import Errors
from kconsumer.fetching.brokers import MetadataRequester
from kconsumer.fetching.buffer import CompletedFetch, FetchBuffer
from kconsumer.fetching.error_actions import ACCEPT, ERROR_ACTIONS, NAMES_LEADER, REFRESH, RESET, RETRY, fetch_error
from kconsumer.fetching.memory import Block, Memory
from kconsumer.fetching.metrics import ResponseTally
from kconsumer.fetching.request import InFlightFetch
from kconsumer.fetching.session import LAST_VERSION_WITH_NAMES, RequestedPartition
from kconsumer.schema.fetch import FetchPartitionData, FetchResponse, LeaderIdAndEpoch, NodeEndpoint
from kconsumer.state.cluster import Cluster, LeaderAndEpoch
from kconsumer.state.subscription import SubscriptionState
from kconsumer.types import Node, OffsetAndMetadata, TopicPartition

_log = get_logger(__name__)


class Failed(NamedTuple):
    """A partition not to be asked again at once, and why."""

    asked: RequestedPartition
    reason: str


class _ArrivedFetch:
    """A response that is being handled."""

    __slots__ = ("block", "flight", "memory", "now", "received", "tally")

    def __init__(self, flight: InFlightFetch, memory: Memory, now: float) -> None:
        self.flight = flight
        self.memory = memory
        self.now = now
        self.tally = ResponseTally()
        self.received = 0  # bytes of memory that the response takes
        self.block: Block | None = None  # that the partition before this one is in

    def block_of(self, owner: object) -> Block:
        """Return the counted block of this memory, which the partitions of a response share."""
        if self.block is None or owner is not self.block():
            self.block = self.memory.track(owner)
            self.received += self.block.size
        return self.block


class FetchResponseHandler:
    """Takes in Fetch responses."""

    def __init__(
        self,
        config: FetchConfig,
        cluster: Cluster,
        subscription: SubscriptionState,
        metadata: MetadataRequester,
        buffer: FetchBuffer,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._subscription = subscription
        self._metadata = metadata
        self._buffer = buffer

    def handle(self, flight: InFlightFetch, response: FetchResponse, version: int, now: float) -> list[Failed]:
        """Buffer the data of a response. Returns the partitions to back off."""
        arrived = _ArrivedFetch(flight, self._buffer.memory, now)
        failed: list[Failed] = []
        by_id = version > LAST_VERSION_WITH_NAMES
        for topic in response.responses:
            name = flight.topic_names.get(topic.topic_id) if by_id else topic.topic
            for data in topic.partitions:
                tp = TopicPartition(name or "", data.partition_index)
                asked = flight.requested.get(tp)
                if asked is None:
                    continue
                code = data.error_code
                if by_id and code == 0 and _is_another_topic(asked):
                    _log.warning(
                        "topic %s was deleted and created again: offset %d of %s is of the old one",
                        tp.topic,
                        asked.offset,
                        tp,
                    )
                    code = Errors.OFFSET_OUT_OF_RANGE
                reason = self._partition(arrived, tp, asked, data, code)
                if reason:
                    failed.append(Failed(asked, reason))
                if code in NAMES_LEADER:
                    self._learn_leader(tp, data.current_leader, response.node_endpoints)
        if arrived.received:
            self._buffer.memory.received(arrived.received, flight.max_bytes + flight.max_bytes // 4)
        return failed

    def _partition(
        self,
        arrived: _ArrivedFetch,
        tp: TopicPartition,
        asked: RequestedPartition,
        data: FetchPartitionData,
        code: int,
    ) -> str:
        """Handle one partition of a response. Returns why it must be backed off, or ""."""
        chain, offset, reaction = asked.chain, asked.offset, ERROR_ACTIONS[code]
        state = chain.state
        state.update_offsets(data.high_watermark, data.last_stable_offset, data.log_start_offset)
        size = 0 if data.records is None else len(data.records)
        if size or reaction is not ACCEPT:
            self._subscription.move_to_end(tp)
        if reaction is REFRESH:
            self._metadata.request_update()
            state.clear_preferred_replica()
            return str(fetch_error(tp, offset, code))
        if reaction is RETRY:
            return str(fetch_error(tp, offset, code))
        if reaction is RESET and not _is_leader(arrived.flight.node, asked.leader):
            state.clear_preferred_replica()  # a follower may lag behind: ask the leader
            return ""
        if reaction is not ACCEPT or _diverges(data):
            return self._buffer_error(arrived, asked, data, code)
        if chain.failures:
            chain.clear_failures()
        if state.out_of_range:
            state.clear_out_of_range()
        if self._buffer.accepts(chain, offset, asked.leader):
            if size:
                self._buffer_records(arrived, asked, data, size)
            else:
                self._buffer.clear_error(chain)
        if data.preferred_read_replica >= 0:
            return self._set_preferred_replica(tp, asked, data.preferred_read_replica, arrived.now)
        return ""

    def _buffer_records(
        self, arrived: _ArrivedFetch, asked: RequestedPartition, data: FetchPartitionData, size: int
    ) -> None:
        """Append records to the partition's chain."""
        offset = asked.offset
        records = data.records if isinstance(data.records, Slice) else Slice(data.records)
        fetch = CompletedFetch(
            asked.chain,
            offset,
            size=size,
            tally=arrived.tally,
            block=arrived.block_of(records.owner),
            arrived_at=arrived.now,
            topic_id=asked.topic_id,
        )
        fetch.attach(
            PartitionFetch(
                asked.chain.topic_partition,
                records,
                offset,
                check_crcs=self._config.check_crcs,
                read_committed=self._config.read_committed,
                aborted_transactions=[(row.producer_id, row.first_offset) for row in data.aborted_transactions or ()],
                hold=partial(self._buffer.unpack, fetch),
                batch_limit=self._config.decompressed_batch_max_bytes or 0,
            )
        )
        following = next_fetch_offset(records)
        # An end at or before the start means headers that make no sense: only decoding can tell what they are.
        arrived.tally.expect()
        self._buffer.append(fetch, following[0] if following is not None and following[0] > offset else None)

    def _buffer_error(
        self, arrived: _ArrivedFetch, asked: RequestedPartition, data: FetchPartitionData, code: int
    ) -> str:
        """Have what came in place of records wait for its turn, at the end of the partition's chain. It is asked again
        meanwhile: another answer takes its place."""
        chain, diverging = asked.chain, data.diverging_epoch
        diverges = None
        if diverging is not None and _diverges(data):
            diverges = OffsetAndMetadata(diverging.end_offset, "", diverging.epoch)
            reason = "the log of the leader parts from what was read"
        else:
            reason = str(fetch_error(chain.topic_partition, asked.offset, code))
        if self._buffer.accepts(chain, asked.offset, asked.leader):
            fetch = CompletedFetch(
                chain, asked.offset, error_code=code, diverges=diverges, tally=arrived.tally, arrived_at=arrived.now
            )
            fetch.fail(reason, arrived.now if chain.error is None else chain.error.failed_at)
            arrived.tally.expect()
            self._buffer.append(fetch, asked.offset)
        return reason

    def _set_preferred_replica(self, tp: TopicPartition, asked: RequestedPartition, replica: int, now: float) -> str:
        """The leader wants us to fetch from another replica. A reason to wait if that one is not known."""
        if self._cluster.node_if_online(tp, replica) is None:
            self._metadata.request_update()
            return f"the leader names broker {replica} to read from, which is not known or not online"
        asked.chain.state.set_preferred_replica(replica, now + self._config.metadata_max_age_ms)
        return ""

    def _learn_leader(
        self, tp: TopicPartition, hint: LeaderIdAndEpoch | None, endpoints: Iterable[NodeEndpoint]
    ) -> None:
        """Take the new leader from the response, so that the next fetch need not wait for metadata (KIP-951)."""
        if hint is None or hint.leader_id < 0 or hint.leader_epoch < 0:
            return
        found = (Node(e.node_id, e.host, e.port, e.rack) for e in endpoints if e.node_id == hint.leader_id)
        if self._cluster.update_leader(tp, hint.leader_id, hint.leader_epoch, next(found, None)):
            self._subscription.maybe_validate(tp, self._cluster.leader(tp))


def _is_another_topic(asked: RequestedPartition) -> bool:
    """Whether the position was reached in a topic of the same name that was deleted since.

    The leader has answered for the present id, so this is no metadata of a broker that lags behind. The position may be
    within the new log, where it would skip what is before it (Java keeps it).
    """
    chain = asked.chain
    read = chain.fetches[-1].topic_id if chain.fetches else chain.state.topic_id
    return None not in (read, asked.topic_id) and read != asked.topic_id


def _diverges(data: FetchPartitionData) -> bool:
    """Whether the leader says that its log parts from what we read (KIP-595). Only followers are told so today: we do
    not send the epoch of what we fetched last."""
    diverging = data.diverging_epoch
    return diverging is not None and diverging.end_offset >= 0


def _is_leader(node: Node, leader: LeaderAndEpoch) -> bool:
    return leader.leader is not None and leader.leader.id == node.id
