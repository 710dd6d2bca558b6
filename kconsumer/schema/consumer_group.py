"""The consumer group protocol of KIP-848: ConsumerGroupHeartbeat.

A member sends the same request to join the group, to stay in it, to change its subscription and to leave it. Null means
"unchanged" in fields of later requests, and in the assignment of a response. v1 adds regular expressions that the
broker evaluates, and member ids that the client generates (KIP-1082).
"""

from __future__ import annotations

from kconsumer.schema.dsl import INT16, INT32, STRING, UUID, F, api, array, struct

ConsumerGroupHeartbeatTopicPartitions = struct(
    "ConsumerGroupHeartbeatTopicPartitions",
    F("topic_id", UUID),
    F("partitions", array(INT32)),
)

ConsumerGroupHeartbeatRequest = struct(
    "ConsumerGroupHeartbeatRequest",
    F("group_id", STRING),
    F("member_id", STRING),
    F("member_epoch", INT32),
    F("instance_id", STRING, null="0+", default=None),
    F("rack_id", STRING, null="0+", default=None),
    F("rebalance_timeout_ms", INT32, default=-1),
    F("subscribed_topic_names", array(STRING), null="0+", default=None),
    F("subscribed_topic_regex", STRING, "1+", null="1+", default=None),
    F("server_assignor", STRING, null="0+", default=None),
    F("topic_partitions", array(ConsumerGroupHeartbeatTopicPartitions), null="0+", default=None),
)

ConsumerGroupHeartbeatAssignment = struct(
    "ConsumerGroupHeartbeatAssignment",
    F("topic_partitions", array(ConsumerGroupHeartbeatTopicPartitions)),
)

ConsumerGroupHeartbeatResponse = struct(
    "ConsumerGroupHeartbeatResponse",
    F("throttle_time_ms", INT32),
    F("error_code", INT16),
    F("error_message", STRING, null="0+", default=None),
    F("member_id", STRING, null="0+", default=None),
    F("member_epoch", INT32),
    F("heartbeat_interval_ms", INT32),
    F("assignment", ConsumerGroupHeartbeatAssignment, null="0+", default=None),
)

CONSUMER_GROUP_HEARTBEAT = api(
    "ConsumerGroupHeartbeat",
    key=68,
    versions="0-1",
    flexible=0,
    throttle=0,
    request=ConsumerGroupHeartbeatRequest,
    response=ConsumerGroupHeartbeatResponse,
)
