"""The contents of the bytes fields in JoinGroup and SyncGroup, for classic groups of the protocol type "consumer".

The bytes are an int16 with the version, followed by one of these structs. No version is flexible. v1 of the
subscription adds the partitions that the member still owns (KIP-429), v2 the generation in which it owned them
(KIP-792), v3 the rack (KIP-881). The assignment is the same in all four versions.
"""

from __future__ import annotations

from kconsumer.schema.dsl import BYTES, INT32, STRING, F, array, struct

PROTOCOL_TYPE = "consumer"
HIGHEST_VERSION = 3

TopicPartitions = struct(
    "TopicPartitions",
    F("topic", STRING),
    F("partitions", array(INT32)),
)

ConsumerProtocolSubscription = struct(
    "ConsumerProtocolSubscription",
    F("topics", array(STRING)),
    F("user_data", BYTES, null="0+", default=None),
    F("owned_partitions", array(TopicPartitions), "1+"),
    F("generation_id", INT32, "2+", default=-1),
    F("rack_id", STRING, "3+", null="3+", default=None),
)

ConsumerProtocolAssignment = struct(
    "ConsumerProtocolAssignment",
    F("assigned_partitions", array(TopicPartitions)),
    F("user_data", BYTES, null="0+", default=None),
)
