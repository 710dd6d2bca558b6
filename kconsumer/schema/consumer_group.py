"""The consumer group protocol of KIP-848: ConsumerGroupHeartbeat.

A member sends the same request to join the group, to stay in it, to change its subscription and to leave it. Null means
"unchanged" in fields of later requests, and in the assignment of a response. v1 adds regular expressions that the
broker evaluates, and member ids that the client generates (KIP-1082).
"""

from __future__ import annotations

from kconsumer.schema.dsl import INT16, INT32, STRING, UUID, Api, F, Message, array


class ConsumerGroupHeartbeatTopicPartitions(Message):
    topic_id: bytes = F(UUID)
    partitions: list[int] = F(array(INT32))


class ConsumerGroupHeartbeatRequest(Message):
    group_id: str = F(STRING)
    member_id: str = F(STRING)
    member_epoch: int = F(INT32)
    instance_id: str | None = F(STRING, null="0+", default=None)
    rack_id: str | None = F(STRING, null="0+", default=None)
    rebalance_timeout_ms: int = F(INT32, default=-1)
    subscribed_topic_names: list[str] | None = F(array(STRING), null="0+", default=None)
    subscribed_topic_regex: str | None = F(STRING, "1+", null="1+", default=None)
    server_assignor: str | None = F(STRING, null="0+", default=None)
    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] | None = F(
        array(ConsumerGroupHeartbeatTopicPartitions), null="0+", default=None
    )


class ConsumerGroupHeartbeatAssignment(Message):
    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] = F(array(ConsumerGroupHeartbeatTopicPartitions))


class ConsumerGroupHeartbeatResponse(Message):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, null="0+", default=None)
    member_id: str | None = F(STRING, null="0+", default=None)
    member_epoch: int = F(INT32)
    heartbeat_interval_ms: int = F(INT32)
    assignment: ConsumerGroupHeartbeatAssignment | None = F(ConsumerGroupHeartbeatAssignment, null="0+", default=None)


CONSUMER_GROUP_HEARTBEAT = Api(
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, key=68, versions="0-1", flexible=0, throttle=0
)
