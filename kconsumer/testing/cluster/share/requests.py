"""Handles ShareAcknowledge, and has what ShareFetch shares with it: the checks of a request, its acknowledgements, and
sessions that end.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from kconsumer._common.error_codes import Errors
from kconsumer.schema.share_group import (
    SHARE_ACKNOWLEDGE,
    ShareAcknowledgePartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
    ShareLeaderIdAndEpoch,
    ShareNodeEndpoint,
)
from kconsumer.testing.cluster.connection import Connection
from kconsumer.testing.cluster.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH
from kconsumer.testing.cluster.requests import GroupError, Request, handles
from kconsumer.testing.cluster.share.acknowledgement import RENEW, AckBatch, Acknowledgement
from kconsumer.testing.cluster.share.partitions import SharePartitions
from kconsumer.testing.cluster.share.sessions import SessionKey, ShareSession, ShareSessionCache
from kconsumer.testing.cluster.share_states import TopicIdPartition
from kconsumer.testing.cluster.state import ClusterState
from kconsumer.testing.cluster.topic import NO_LEADER

MAX_MEMBER_ID_LENGTH = 36

#: The error codes and messages of acknowledgements by partition.
AckResults = dict[TopicIdPartition, tuple[int, str | None]]


def session_key(message: Any) -> SessionKey:
    """Returns the group and the member of a request. Raises GroupError with INVALID_REQUEST if one is not valid."""
    if message.group_id is None or not 0 < len(message.member_id or "") <= MAX_MEMBER_ID_LENGTH:
        raise GroupError(Errors.INVALID_REQUEST)
    return message.group_id, message.member_id


def partition_rows(message: Any) -> Iterator[tuple[TopicIdPartition, Any]]:
    """Yields the key and the row of each partition in a request."""
    for topic in message.topics:
        for row in topic.partitions:
            yield (topic.topic_id, row.partition_index), row


class ShareRequests:
    """Handles ShareAcknowledge, and what is common to the requests of members of share groups."""

    def __init__(self, cluster: ClusterState, partitions: SharePartitions) -> None:
        self._cluster, self._partitions = cluster, partitions
        slots = cluster.settings.group_share_max_share_sessions
        self.sessions = {node: ShareSessionCache(slots) for node in cluster.brokers}  # by broker

    @handles(SHARE_ACKNOWLEDGE)
    def _share_acknowledge(self, request: Request, now: float) -> ShareAcknowledgeResponse:
        """Acknowledge records without fetching others."""
        message = request.message
        try:
            member = session_key(message)
            if message.share_session_epoch == INITIAL_EPOCH:
                raise GroupError(Errors.INVALID_SHARE_SESSION_EPOCH)
            session = self.sessions[request.broker.id].advance(member, message.share_session_epoch)
        except GroupError as error:
            return ShareAcknowledgeResponse(error_code=error.error)
        results = self.acknowledge(request, now)
        if message.share_session_epoch == FINAL_EPOCH:
            self.end_session(session, now)
        topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
        leaders = []
        for key, (code, text) in results.items():
            row = ShareAcknowledgePartitionData(partition_index=key[1], error_code=code, error_message=text)
            if code == Errors.NOT_LEADER_OR_FOLLOWER:
                row.current_leader = self.leader_of(key)
                leaders.append(row.current_leader)
            topics.setdefault(key[0], ShareAcknowledgeTopicResponse(topic_id=key[0])).partitions.append(row)
        return ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=self.lock_ms(message.group_id),
            responses=list(topics.values()),
            node_endpoints=self.endpoints(leaders),
        )

    def lock_ms(self, group_id: str) -> int:
        """Returns how long acquisition locks of a group last."""
        return self._cluster.group_configs.value(group_id, "share.record.lock.duration.ms")

    def topic_error(self, request: Request, key: TopicIdPartition) -> int:
        """Returns the error code of a partition that does not exist or must not be read, or NONE."""
        topic = self._cluster.topics_by_id.get(key[0])
        if topic is None:
            return Errors.UNKNOWN_TOPIC_ID
        if not self._cluster.acls.allowed(request, "READ", "topic", topic.name):
            return Errors.TOPIC_AUTHORIZATION_FAILED
        known = 0 <= key[1] < len(topic.partitions)
        return Errors.NONE if known else Errors.UNKNOWN_TOPIC_OR_PARTITION

    # --- acknowledgements ---

    def acknowledge(self, request: Request, now: float) -> AckResults:
        """Acknowledge the records that a request names. Returns the result for each partition."""
        results: AckResults = {}
        for key, row in partition_rows(request.message):
            if row.acknowledgement_batches:
                results[key] = self._acknowledge(request, key, row.acknowledgement_batches, now)
        return results

    def _acknowledge(
        self, request: Request, key: TopicIdPartition, rows: list[Any], now: float
    ) -> tuple[int, str | None]:
        message = request.message
        error = self.topic_error(request, key)
        if error:
            return error, None
        renews = request.version >= 2 and message.is_renew_ack
        batches = [AckBatch(row.first_offset, row.last_offset, row.acknowledge_types) for row in rows]
        if not _are_valid(batches, RENEW if renews else RENEW - 1):
            return Errors.INVALID_REQUEST, None
        share = self._partitions.get(request.broker, message.group_id, *key)
        if share is None:
            return Errors.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        try:
            Acknowledgement(share, message.member_id, now).run(batches)
        except GroupError as refused:
            return refused.error, refused.message
        return Errors.NONE, None

    # --- sessions ---

    def end_session(self, session: ShareSession, now: float) -> None:
        """End a session, and release the records that its member has acquired."""
        broker = session.connection.broker
        sessions = self.sessions[broker.id].sessions
        if sessions.get(session.key) is session:
            del sessions[session.key]
        group_id, member_id = session.key
        for key in session.partitions:
            share = self._partitions.get(broker, group_id, *key)
            if share is not None:
                Acknowledgement(share, member_id, now).release()

    def on_disconnect(self, connection: Connection) -> None:
        """End the sessions of a connection that was closed, when the timers run next."""
        for session in self.sessions[connection.broker.id].of_connection(connection):
            self._cluster.timers.soon(partial(self.end_session, session))

    # --- leaders ---

    def leader_of(self, key: TopicIdPartition) -> ShareLeaderIdAndEpoch:
        """Returns the leader of a partition in the form of a response."""
        partition = self._cluster.topics_by_id[key[0]].partitions[key[1]]
        return ShareLeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.leader_epoch)

    def endpoints(self, leaders: list[ShareLeaderIdAndEpoch]) -> list[ShareNodeEndpoint]:
        """Returns the addresses of leaders."""
        nodes = {
            leader.leader_id: self._cluster.brokers[leader.leader_id]
            for leader in leaders
            if leader.leader_id != NO_LEADER
        }
        return [ShareNodeEndpoint(node_id=b.id, host=b.host, port=b.port, rack=b.rack) for b in nodes.values()]


def _are_valid(batches: list[AckBatch], last_type: int) -> bool:
    """Returns whether the offsets and types of acknowledgements are valid, and ordered by offset."""
    previous = -1
    for batch in batches:
        size = batch.last - batch.first + 1
        if size < 1 or batch.first < previous or len(batch.types) not in (1, size):
            return False
        if not all(0 <= ack_type <= last_type for ack_type in batch.types):
            return False
        previous = batch.last
    return True
