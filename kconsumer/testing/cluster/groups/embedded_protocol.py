"""Decodes and encodes the subscriptions and assignments that consumers send in JoinGroup and SyncGroup.

The coordinator needs this only for members that use the classic protocol in a group of the consumer protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TypeVar

from kconsumer._core.codec import decode, encode
from kconsumer.errors import ProtocolError
from kconsumer.schema.dsl import Message, plan
from kconsumer.schema.embedded import (
    HIGHEST_VERSION,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
)
from kconsumer.testing.cluster.groups.server_assignors import Partitions
from kconsumer.testing.cluster.topic import Topic

M = TypeVar("M", bound=Message)
VERSION = struct.Struct(">h")


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Returns the subscription in the metadata of a member. Raises ProtocolError if it cannot be decoded."""
    return _read(ConsumerProtocolSubscription, metadata)


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Returns the decoded assignment of a member. No bytes mean no partitions.

    Raises ProtocolError if `data` cannot be decoded.
    """
    return _read(ConsumerProtocolAssignment, data) if data else ConsumerProtocolAssignment(assigned_partitions=[])


def write_assignment(partitions: Partitions, metadata: bytes, topics: Mapping[bytes, Topic]) -> bytes:
    """Returns an encoded assignment, in the version of the member's subscription.

    `metadata`: the encoded subscription. `topics`: all topics by id. Partitions of other topics are left out.
    """
    (version,) = VERSION.unpack_from(metadata)
    rows = [
        TopicPartitions(topic=topics[topic_id].name, partitions=sorted(found))
        for topic_id, found in partitions.items()
        if topic_id in topics
    ]
    message = ConsumerProtocolAssignment(assigned_partitions=rows)
    return VERSION.pack(version) + encode(plan(type(message), min(version, HIGHEST_VERSION), False), message)


def partitions_by_id(rows: list[TopicPartitions], topics: Mapping[str, Topic]) -> dict[bytes, list[int]]:
    """Returns the partitions in `rows` by topic id. `topics`: all topics by name. Other topics are left out."""
    return {topics[row.topic].id: list(row.partitions) for row in rows if row.topic in topics}


def _read(cls: type[M], data: bytes) -> M:
    if len(data) < VERSION.size:
        raise ProtocolError(f"{cls.__name__} has no version")
    (version,) = VERSION.unpack_from(data)
    known = plan(cls, min(max(version, 0), HIGHEST_VERSION), False)
    message: M = decode(known, data, VERSION.size, allow_trailing=True)
    return message
