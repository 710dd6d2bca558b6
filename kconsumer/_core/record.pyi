from collections.abc import Iterable
from typing import Any

from typing_extensions import disjoint_base

from kconsumer.types import TimestampType, TopicPartition

@disjoint_base
class ConsumerRecord:
    """One record of a partition (Java `ConsumerRecord`). Immutable.

    `timestamp`: milliseconds since the Unix epoch; -1: none.
    `timestamp_type`: whether the producer or the broker set the timestamp.
    `key` and `value`: bytes, or the result of the deserializer; None for null.
    `headers`: a tuple of (str, bytes | None).
    `leader_epoch`: the leader epoch of the record's batch; None if the batch has none.
    `serialized_key_size` and `serialized_value_size`: in bytes; -1 for null.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int = -1,
        timestamp_type: TimestampType | int = ...,
        key: Any = None,
        value: Any = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        leader_epoch: int | None = None,
        serialized_key_size: int | None = None,
        serialized_value_size: int | None = None,
    ) -> None: ...
    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def timestamp_type(self) -> TimestampType: ...
    @property
    def key(self) -> Any: ...
    @property
    def value(self) -> Any: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...
    @property
    def leader_epoch(self) -> int | None: ...
    @property
    def serialized_key_size(self) -> int: ...
    @property
    def serialized_value_size(self) -> int: ...
    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
