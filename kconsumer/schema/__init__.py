"""Wire facts as tables; imports nothing of ours. `APIS` maps each key to its API; versions are what Kafka 2.1
to 4.4 brokers may negotiate."""

from kconsumer.schema.admin import CONSUMER_GROUP_DESCRIBE, DESCRIBE_GROUPS, LIST_GROUPS
from kconsumer.schema.classic_group import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from kconsumer.schema.consumer_group import CONSUMER_GROUP_HEARTBEAT
from kconsumer.schema.dsl import ZERO_UUID, Api, Message
from kconsumer.schema.fetch import FETCH
from kconsumer.schema.metadata import API_VERSIONS, FIND_COORDINATOR, METADATA
from kconsumer.schema.offsets import LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH, OFFSET_FOR_LEADER_EPOCH
from kconsumer.schema.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE
from kconsumer.schema.share_group import DESCRIBE_SHARE_GROUP_OFFSETS, SHARE_GROUP_DESCRIBE

APIS: dict[int, Api] = {
    api.key: api
    for api in (
        FETCH,
        LIST_OFFSETS,
        METADATA,
        OFFSET_COMMIT,
        OFFSET_FETCH,
        FIND_COORDINATOR,
        JOIN_GROUP,
        HEARTBEAT,
        LEAVE_GROUP,
        SYNC_GROUP,
        DESCRIBE_GROUPS,
        LIST_GROUPS,
        SASL_HANDSHAKE,
        API_VERSIONS,
        OFFSET_FOR_LEADER_EPOCH,
        SASL_AUTHENTICATE,
        CONSUMER_GROUP_HEARTBEAT,
        CONSUMER_GROUP_DESCRIBE,
        SHARE_GROUP_DESCRIBE,
        DESCRIBE_SHARE_GROUP_OFFSETS,
    )
}

__all__ = [
    "APIS",
    "API_VERSIONS",
    "CONSUMER_GROUP_DESCRIBE",
    "CONSUMER_GROUP_HEARTBEAT",
    "DESCRIBE_GROUPS",
    "DESCRIBE_SHARE_GROUP_OFFSETS",
    "FETCH",
    "FIND_COORDINATOR",
    "HEARTBEAT",
    "JOIN_GROUP",
    "LEAVE_GROUP",
    "LIST_GROUPS",
    "LIST_OFFSETS",
    "METADATA",
    "OFFSET_COMMIT",
    "OFFSET_FETCH",
    "OFFSET_FOR_LEADER_EPOCH",
    "SASL_AUTHENTICATE",
    "SASL_HANDSHAKE",
    "SHARE_GROUP_DESCRIBE",
    "SYNC_GROUP",
    "ZERO_UUID",
    "Api",
    "Message",
]
