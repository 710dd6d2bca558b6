"""The embedded consumer protocol: subscriptions and assignments, which members exchange through the coordinator.

Decides which version is written (the highest) and how other versions are read. The content comes from `leader.py`.
Other members may run any client. So all bytes that cannot be decoded must raise ProtocolError.
"""

from __future__ import annotations

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

M = TypeVar("M", bound=Message)
_VERSION_BYTES = 2


def encode_subscription(message: ConsumerProtocolSubscription, version: int = HIGHEST_VERSION) -> bytes:
    """Encode a subscription. Topics and owned partitions are sorted, as in Java's `ConsumerProtocol`."""
    ordered = ConsumerProtocolSubscription(
        topics=sorted(message.topics),
        user_data=message.user_data,
        owned_partitions=[
            TopicPartitions(topic=owned.topic, partitions=sorted(owned.partitions))
            for owned in sorted(message.owned_partitions, key=lambda owned: owned.topic)
        ],
        generation_id=message.generation_id,
        rack_id=message.rack_id,
    )
    return _encode(ordered, version)


def decode_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Decode a subscription. Raises ProtocolError if the bytes cannot be decoded.

    A negative generation becomes -1, and an empty rack becomes None. These values mean that the field is absent.
    """
    message = _decode(ConsumerProtocolSubscription, data)
    message.generation_id = max(message.generation_id, -1)
    message.rack_id = message.rack_id or None
    return message


def encode_assignment(message: ConsumerProtocolAssignment, version: int = HIGHEST_VERSION) -> bytes:
    """Encode an assignment. The partitions keep their order."""
    return _encode(message, version)


def decode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Decode an assignment. Raises ProtocolError if the bytes cannot be decoded."""
    return _decode(ConsumerProtocolAssignment, data)


def _encode(message: Message, version: int) -> bytes:
    return version.to_bytes(_VERSION_BYTES, "big") + encode(plan(type(message), version, False), message)


def _decode(cls: type[M], data: bytes) -> M:
    """Decode a message. A newer version is read as the highest known one, because it may only add bytes at the end."""
    if len(data) < _VERSION_BYTES:
        raise ProtocolError(f"{cls.__name__}: {len(data)} bytes are too few for a version")
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if version < 0:
        raise ProtocolError(f"{cls.__name__}: version {version} does not exist")
    known = plan(cls, min(version, HIGHEST_VERSION), False)
    message: M = decode(known, data, _VERSION_BYTES, allow_trailing=True)
    return message
