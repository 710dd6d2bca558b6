"""What members of a classic "consumer" group tell each other inside JoinGroup and SyncGroup bytes.

An int16 version, then one of these; never flexible. v1 of the subscription: partitions still owned (KIP-429);
v2: the generation they were owned in (KIP-792); v3: the rack (KIP-881). The assignment is the same in all
four versions.
"""

from __future__ import annotations

from kconsumer.schema.dsl import BYTES, INT32, STRING, F, array, struct

CONSUMER_PROTOCOL_TYPE = "consumer"
LOWEST_VERSION = 0
HIGHEST_VERSION = 3

ConsumerProtocolTopicPartition = struct(
    "ConsumerProtocolTopicPartition",
    F("topic", STRING),
    F("partitions", array(INT32)),
)

ConsumerProtocolSubscriptionData = struct(
    "ConsumerProtocolSubscriptionData",
    F("topics", array(STRING)),
    F("user_data", BYTES, null="0+", default=None),
    F("owned_partitions", array(ConsumerProtocolTopicPartition), "1+"),
    F("generation_id", INT32, "2+", default=-1),
    F("rack_id", STRING, "3+", null="3+", default=None),
)

ConsumerProtocolAssignmentData = struct(
    "ConsumerProtocolAssignmentData",
    F("assigned_partitions", array(ConsumerProtocolTopicPartition)),
    F("user_data", BYTES, null="0+", default=None),
)
