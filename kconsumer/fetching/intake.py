"""What a Fetch response means: data to buffer, errors to react to, and what it tells besides.

Decides what becomes of each partition of a response (the table is in `reactions.py`). It does not decide when to ask
again; `manager.py` does.
"""

from __future__ import annotations

from collections.abc import Iterable

from kconsumer._core.fetch import PartitionFetch
from kconsumer._core.headers import next_fetch_offset
from kconsumer.config import ConsumerConfig
from kconsumer.fetching.buffer import CompletedFetch, FetchBuffer
from kconsumer.fetching.metrics import ResponseTally
from kconsumer.fetching.reactions import ACCEPT, NAMES_LEADER, REFRESH, RESET, RETRY, reaction_to
from kconsumer.fetching.request import Flight
from kconsumer.fetching.session import LAST_VERSION_WITH_NAMES, Asked
from kconsumer.fetching.targets import AsksForMetadata
from kconsumer.schema.fetch import FetchPartitionData, FetchResponse, LeaderIdAndEpoch, NodeEndpoint
from kconsumer.state.cluster import Cluster, LeaderAndEpoch
from kconsumer.state.partition import PartitionState
from kconsumer.state.subscription import SubscriptionState
from kconsumer.types import Node, TopicPartition


class Intake:
    """Takes in Fetch responses."""

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        subscription: SubscriptionState,
        metadata: AsksForMetadata,
        buffer: FetchBuffer,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._subscription = subscription
        self._metadata = metadata
        self._buffer = buffer

    def take_in(self, flight: Flight, response: FetchResponse, version: int, now: float) -> list[TopicPartition]:
        """Buffer what came. Returns the partitions to leave alone for a while before asking again."""
        tally = ResponseTally()
        failed: list[TopicPartition] = []
        by_id = version > LAST_VERSION_WITH_NAMES
        for topic in response.responses:
            name = flight.topic_names.get(topic.topic_id) if by_id else topic.topic
            for data in topic.partitions:
                tp = TopicPartition(name or "", data.partition_index)
                asked = flight.asked.get(tp)
                if asked is None:
                    continue
                if not self._partition(flight, tp, asked, data, tally, now):
                    failed.append(tp)
                if data.error_code in NAMES_LEADER:
                    self._learn_leader(tp, data.current_leader, response.node_endpoints)
        return failed

    def _partition(
        self,
        flight: Flight,
        tp: TopicPartition,
        asked: Asked,
        data: FetchPartitionData,
        tally: ResponseTally,
        now: float,
    ) -> bool:
        """One partition of a response. False if it is not to be asked again at once."""
        chain, reaction = asked.chain, reaction_to(data.error_code)
        self._note(chain.state, data)
        size = 0 if data.records is None else len(data.records)
        if size or reaction is not ACCEPT:
            self._subscription.move_to_end(tp)
        if reaction is REFRESH:
            self._metadata.request_update()
            chain.state.clear_preferred_replica()
            return False
        if reaction is RETRY:
            return False
        if reaction is RESET and not _is_leader(flight.node, asked.leader):
            chain.state.clear_preferred_replica()  # a follower may lag behind: ask the leader
            return True
        if reaction is ACCEPT and data.preferred_read_replica >= 0:
            return self._prefer(tp, asked, data.preferred_read_replica, now)
        if (size or reaction is not ACCEPT) and self._buffer.expects(chain, asked.offset):
            tally.unread += 1
            self._keep(asked, data, size, tally)
        return True

    def _keep(self, asked: Asked, data: FetchPartitionData, size: int, tally: ResponseTally) -> None:
        """Append what came, records or an error that waits for its turn, to the partition's chain."""
        fetch = CompletedFetch(asked.chain, asked.offset, size=size, error_code=data.error_code, tally=tally)
        following = None
        if not data.error_code:
            fetch.data = PartitionFetch(
                asked.chain.topic_partition,
                data.records,
                asked.offset,
                check_crcs=self._config.check_crcs,
                read_committed=self._config.read_committed,
                aborted_transactions=[(row.producer_id, row.first_offset) for row in data.aborted_transactions or ()],
            )
            following = next_fetch_offset(data.records)
        # An end at or before the start means headers that make no sense: only decoding can tell what they are.
        ahead = following[0] if following is not None and following[0] > asked.offset else None
        self._buffer.append(fetch, ahead)

    def _prefer(self, tp: TopicPartition, asked: Asked, replica: int, now: float) -> bool:
        """The leader wants us to fetch from another replica, and sent nothing. False if that is not known."""
        if self._cluster.node_if_online(tp, replica) is None:
            self._metadata.request_update()
            return False
        asked.chain.state.set_preferred_replica(replica, now + self._config.metadata_max_age_ms)
        return True

    @staticmethod
    def _note(state: PartitionState, data: FetchPartitionData) -> None:
        """Keep what the broker tells of the partition's log."""
        if data.high_watermark >= 0:
            state.high_watermark = data.high_watermark
        if data.last_stable_offset >= 0:
            state.last_stable_offset = data.last_stable_offset
        if data.log_start_offset >= 0:
            state.log_start_offset = data.log_start_offset

    def _learn_leader(
        self, tp: TopicPartition, hint: LeaderIdAndEpoch | None, endpoints: Iterable[NodeEndpoint]
    ) -> None:
        """Take the new leader from the response, so that the next fetch need not wait for metadata (KIP-951)."""
        if hint is None or hint.leader_id < 0 or hint.leader_epoch < 0:
            return
        found = (Node(e.node_id, e.host, e.port, e.rack) for e in endpoints if e.node_id == hint.leader_id)
        if self._cluster.update_leader(tp, hint.leader_id, hint.leader_epoch, next(found, None)):
            self._subscription.maybe_validate(tp, self._cluster.leader(tp))


def _is_leader(node: Node, leader: LeaderAndEpoch) -> bool:
    return leader.leader is not None and leader.leader.id == node.id
