"""The contents of the bytes fields in JoinGroup and SyncGroup, for classic groups of the protocol type "consumer".

The bytes are an int16 with the version, followed by one of these structs. No version is flexible. v1 of the
subscription adds the partitions that the member still owns (KIP-429), v2 the generation in which it owned them
(KIP-792), v3 the rack (KIP-881). The assignment is the same in all four versions.
"""

from __future__ import annotations

from kconsumer.schema.dsl import BYTES, INT32, STRING, F, Message, array

PROTOCOL_TYPE = "consumer"
HIGHEST_VERSION = 3


class TopicPartitions(Message):
    topic: str = F(STRING)
    partitions: list[int] = F(array(INT32))


class ConsumerProtocolSubscription(Message):
    topics: list[str] = F(array(STRING))
    user_data: bytes | None = F(BYTES, null="0+", default=None)
    owned_partitions: list[TopicPartitions] = F(array(TopicPartitions), "1+")
    generation_id: int = F(INT32, "2+", default=-1)
    rack_id: str | None = F(STRING, "3+", null="3+", default=None)


class ConsumerProtocolAssignment(Message):
    assigned_partitions: list[TopicPartitions] = F(array(TopicPartitions))
    user_data: bytes | None = F(BYTES, null="0+", default=None)
