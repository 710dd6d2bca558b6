"""A scripted broker with one topic that also coordinates a group of one member, in either protocol.

The member gets every partition. Commits are kept and looked up again, so that a second consumer of the group continues
where the first one stopped. The broker requests no metrics of clients.
"""

from __future__ import annotations

from typing import Any

from kconsumer.coordinator.classic_protocol.embedded import encode_assignment
from kconsumer.schema import (
    API_VERSIONS,
    CONSUMER_GROUP_HEARTBEAT,
    FIND_COORDINATOR,
    GET_TELEMETRY_SUBSCRIPTIONS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_OFFSETS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
)
from kconsumer.schema.classic_group import JoinGroupResponseMember
from kconsumer.schema.consumer_group import ConsumerGroupHeartbeatAssignment, ConsumerGroupHeartbeatTopicPartitions
from kconsumer.schema.embedded import ConsumerProtocolAssignment, TopicPartitions
from kconsumer.schema.metadata import Coordinator
from kconsumer.schema.offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsTopicResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from support.fakes.log_broker import LogBroker
from support.fakes.scripted_broker import Received, api_versions
from support.harnesses.fetching import TOPIC_ID

EARLIEST = -2
INTERVAL_MS = 100
UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS = 25, 27
NO_METRICS = {"client_instance_id": bytes(range(16)), "push_interval_ms": 300_000, "telemetry_max_bytes": 1 << 20}


class GroupBroker(LogBroker):
    """Broker 0: leader of all partitions of topic `t`, coordinator of every group. A context manager."""

    def __init__(self, partitions: int = 2) -> None:
        super().__init__(partitions)
        self.committed: dict[int, int] = {}
        self.commits: list[dict[int, int]] = []
        self.generation = 0
        self.heartbeats = 0
        self.on(FIND_COORDINATOR, self._find)
        self.on(JOIN_GROUP, self._join)
        self.on(SYNC_GROUP, self._sync)
        self.on(HEARTBEAT, self._heartbeat)
        self.on(LEAVE_GROUP, lambda _: LEAVE_GROUP.response(members=[]))
        self.on(CONSUMER_GROUP_HEARTBEAT, self._group_heartbeat)
        self.on(OFFSET_COMMIT, self._commit)
        self.on(OFFSET_FETCH, self._fetch_offsets)
        self.on(LIST_OFFSETS, self._list_offsets)
        self.on(API_VERSIONS, api_versions(GetTelemetrySubscriptions=(0, 0), PushTelemetry=(0, 0)))
        self.on(GET_TELEMETRY_SUBSCRIPTIONS, GET_TELEMETRY_SUBSCRIPTIONS.response(**NO_METRICS))

    def _find(self, request: Received) -> Any:
        key = request.message.coordinator_keys[0] if request.version >= 4 else request.message.key
        found = Coordinator(key=key, node_id=0, host=self.host, port=self.port)
        return FIND_COORDINATOR.response(node_id=0, host=self.host, port=self.port, coordinators=[found])

    # --- the classic protocol ---

    def _join(self, request: Received) -> Any:
        self.generation += 1
        member = request.message.member_id or "me"
        protocol = request.message.protocols[0]
        return JOIN_GROUP.response(
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=protocol.name,
            leader=member,
            member_id=member,
            members=[JoinGroupResponseMember(member_id=member, metadata=protocol.metadata)],
        )

    def _sync(self, request: Received) -> Any:
        everything = TopicPartitions(topic="t", partitions=list(range(len(self.logs))))
        data = encode_assignment(ConsumerProtocolAssignment(assigned_partitions=[everything]))
        name = request.message.protocol_name
        return SYNC_GROUP.response(protocol_type="consumer", protocol_name=name, assignment=data)

    def _heartbeat(self, _: Received) -> Any:
        self.heartbeats += 1
        return HEARTBEAT.response()

    # --- the consumer protocol ---

    def _group_heartbeat(self, request: Received) -> Any:
        message = request.message
        self.heartbeats += 1
        if message.member_epoch < 0:
            return CONSUMER_GROUP_HEARTBEAT.response(member_id=message.member_id, member_epoch=message.member_epoch)
        assignment = None
        if message.member_epoch == 0:
            self.generation += 1
            everything = ConsumerGroupHeartbeatTopicPartitions(
                topic_id=TOPIC_ID, partitions=list(range(len(self.logs)))
            )
            assignment = ConsumerGroupHeartbeatAssignment(topic_partitions=[everything])
        return CONSUMER_GROUP_HEARTBEAT.response(
            member_id=message.member_id or "me",
            member_epoch=self.generation,
            heartbeat_interval_ms=INTERVAL_MS,
            assignment=assignment,
        )

    # --- offsets ---

    def _commit(self, request: Received) -> Any:
        new = {p.partition_index: p.committed_offset for topic in request.message.topics for p in topic.partitions}
        self.commits.append(new)
        self.committed.update(new)
        topics = [
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[OffsetCommitResponsePartition(partition_index=p.partition_index) for p in topic.partitions],
            )
            for topic in request.message.topics
        ]
        return OFFSET_COMMIT.response(topics=topics)

    def _fetch_offsets(self, request: Received) -> Any:
        (group,) = request.message.groups
        topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=p, committed_offset=self.committed.get(p, -1), metadata=""
                    )
                    for p in topic.partition_indexes
                ],
            )
            for topic in group.topics
        ]
        return OFFSET_FETCH.response(groups=[OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)])

    def _list_offsets(self, request: Received) -> Any:
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=p.partition_index,
                        timestamp=-1,
                        offset=0 if p.timestamp == EARLIEST else self.logs[p.partition_index].end,
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.message.topics
        ]
        return LIST_OFFSETS.response(topics=topics)
