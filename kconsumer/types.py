"""Plain values of the public interface: partitions, offsets, nodes, enums.

They only check their fields and have a readable `repr`.
"""

from __future__ import annotations

import enum
import struct
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

if TYPE_CHECKING:
    from datetime import datetime

    from typing_extensions import TypeVar

    K = TypeVar("K", covariant=True, default=Any)  # the type of the keys of records
    V = TypeVar("V", covariant=True, default=Any)
else:  # TypeVars have no defaults before Python 3.13, and only checkers read them
    from typing import TypeVar

    K, V = TypeVar("K", covariant=True), TypeVar("V", covariant=True)


class TopicPartition(NamedTuple):
    """A partition of a topic (Java `TopicPartition`). Partitions are sorted by topic, then by number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def _new_topic_partition(cls: Any, topic: str, partition: int, *more: Any, offset: Any = None) -> Any:
    if more or offset is not None:
        raise TypeError("a TopicPartition has no offset: write seek(tp, offset), or commit({tp: offset})")
    return tuple.__new__(cls, (topic, partition))


# Assigned, and not a method, so that type checkers still know a TopicPartition as a tuple of two.
TopicPartition.__new__ = _new_topic_partition  # type: ignore[method-assign,assignment]


class Node(NamedTuple):
    """A broker (Java `Node`)."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id {self.id})"


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """The metadata of one partition (Java `PartitionInfo`)."""

    topic: str
    partition: int
    leader: Node | None = None
    replicas: tuple[Node, ...] = ()
    in_sync_replicas: tuple[Node, ...] = ()
    offline_replicas: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """An offset to commit or to seek to (Java `OffsetAndMetadata`). Raises ValueError for a negative offset."""

    offset: int  # the offset of the next record to read
    metadata: str = ""  # any text of the application
    leader_epoch: int | None = None  # the leader epoch of the last record that was read, if known

    def __post_init__(self) -> None:
        if self.offset < 0:
            raise ValueError(f"an offset cannot be negative: {self.offset}")
        if self.metadata is None:
            object.__setattr__(self, "metadata", "")
        if self.leader_epoch is not None and self.leader_epoch < 0:
            object.__setattr__(self, "leader_epoch", None)


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """The offset and timestamp (ms) of the first record at or after a given time (Java `OffsetAndTimestamp`)."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


@dataclass(frozen=True, repr=False, eq=False)
class GroupMetadata(bytes):
    """The membership of a consumer in its group (Java `ConsumerGroupMetadata`).

    Pass it to `send_offsets_to_transaction` of a transactional producer of confluent-kafka or kafka-python (3.0 and
    newer). The coordinator then rejects the offsets of a member that has lost its partitions. The class is a subclass
    of `bytes` because confluent-kafka expects bytes in librdkafka's format. Two objects with equal fields are equal.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None

    def __new__(
        cls, group_id: str, generation_id: int = -1, member_id: str = "", group_instance_id: str | None = None
    ) -> Self:
        return bytes.__new__(cls, _librdkafka_form(group_id, generation_id, member_id, group_instance_id))

    def __reduce__(self) -> tuple[type[GroupMetadata], tuple[str, int, str, str | None]]:
        return GroupMetadata, (self.group_id, self.generation_id, self.member_id, self.group_instance_id)

    def __repr__(self) -> str:
        return (
            f"GroupMetadata(group_id={self.group_id!r}, generation_id={self.generation_id}, "
            f"member_id={self.member_id!r}, group_instance_id={self.group_instance_id!r})"
        )

    __str__ = __repr__

    if not TYPE_CHECKING:

        @property
        def __class__(self) -> type:
            """Returns kafka-python's `ConsumerGroupMetadata` if that is loaded, otherwise this class.

            The producer of kafka-python checks its argument with isinstance(). A common base class is not possible,
            because kafka-python's class is a tuple, and confluent-kafka needs bytes.
            """
            return getattr(sys.modules.get("kafka.structs"), "ConsumerGroupMetadata", GroupMetadata)


def _librdkafka_form(group_id: str, generation_id: int, member_id: str, instance_id: str | None) -> bytes:
    """Returns the bytes that librdkafka's `rd_kafka_consumer_group_metadata_write` would write.

    The format consists of a native int, and texts that end with NUL. A text that contains NUL cannot be written. For
    such a text, this returns bytes that librdkafka rejects.
    """
    texts = [text.encode(errors="surrogatepass") for text in (group_id, member_id, instance_id or "")]
    if any(b"\0" in text for text in texts):
        return repr((group_id, generation_id, member_id, instance_id)).encode()
    group, member, instance = texts
    without_instance = b"\1" if instance_id is None else b"\0" + instance + b"\0"
    return b"CGMDv2:" + struct.pack("=i", generation_id) + group + b"\0" + member + b"\0" + without_instance


class IsolationLevel(enum.Enum):
    """The values of the option `isolation_level`.

    Only READ_UNCOMMITTED returns records of open and aborted transactions.
    """

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class TimestampType(enum.IntEnum):
    """The source of a record's timestamp: none, the producer, or the broker (Java `TimestampType`)."""

    NO_TIMESTAMP = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """The start of a partition without a usable position (`auto_offset_reset`, Java `AutoOffsetResetStrategy`).

    Use the constants `LATEST`, `EARLIEST`, `NONE`, or `by_duration(ms)` (KIP-1106). `str()` returns `latest`,
    `earliest`, `none` or `by_duration:<ms>ms`.
    """

    kind: str
    duration_ms: int | None = None

    LATEST: ClassVar[OffsetReset]
    EARLIEST: ClassVar[OffsetReset]
    NONE: ClassVar[OffsetReset]

    def __post_init__(self) -> None:
        if self.kind not in ("latest", "earliest", "none", "by_duration"):
            raise ValueError(f"unknown offset reset: {self.kind!r}")
        if (self.kind == "by_duration") != (self.duration_ms is not None):
            raise ValueError("by_duration needs a duration, and no other kind of reset has one")
        if self.duration_ms is not None and self.duration_ms < 0:
            raise ValueError(f"a reset duration cannot be negative: {self.duration_ms} ms")

    @classmethod
    def by_duration(cls, duration_ms: int) -> OffsetReset:
        """Returns a reset to the first record that is at most `duration_ms` old."""
        return cls("by_duration", duration_ms)

    def timestamp(self, wall_ms: int) -> int | None:
        """Returns the timestamp for ListOffsets: -1 for latest, -2 for earliest, a time (ms) for a duration.

        Returns None for `NONE`. `wall_ms` is the current time (ms since 1970).
        """
        if self.duration_ms is not None:
            return max(0, wall_ms - self.duration_ms)
        return {"latest": -1, "earliest": -2}.get(self.kind)

    def __str__(self) -> str:
        return self.kind if self.duration_ms is None else f"{self.kind}:{self.duration_ms}ms"


OffsetReset.LATEST = OffsetReset("latest")
OffsetReset.EARLIEST = OffsetReset("earliest")
OffsetReset.NONE = OffsetReset("none")


@dataclass(frozen=True, slots=True)
class SubscriptionPattern:
    """A regular expression in RE2 syntax that the broker evaluates (KIP-848)."""

    pattern: str

    def __post_init__(self) -> None:
        if not self.pattern:
            raise ValueError("a subscription pattern cannot be empty")


class PartitionCondition(enum.Enum):
    """The reason why an assigned partition is or is not fetched.

    If several reasons apply, the one that is declared first is reported.
    """

    REVOKING = "revoking"  # the partition will be revoked, or is no longer subscribed
    AWAIT_CALLBACK = "await_callback"  # `on_assign` has not returned yet
    FAILED = "failed"  # each poll raises its error until the application acts
    INITIALIZING = "initializing"  # its committed offset is being looked up
    AWAIT_RESET = "await_reset"  # an offset is being looked up by `auto_offset_reset`
    AWAIT_VALIDATION = "await_validation"  # its position is being compared with the log of a new leader
    PAUSED = "paused"  # the application has paused it
    BUFFERED = "buffered"  # records are waiting for `poll`
    IN_FLIGHT = "in_flight"  # a fetch was sent
    NO_LEADER = "no_leader"  # metadata has no leader for it
    BACKOFF = "backoff"  # a fetch failed, or its broker cannot be reached
    BROKER_BLOCKED = "broker_blocked"  # its broker gets no fetch until `poll` has taken more of another partition
    BUFFER_FULL = "buffer_full"  # `buffer_memory` has no room for a fetch
    READY = "ready"  # the next `poll` fetches it


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One row of `Consumer.partition_states()`."""

    state: PartitionCondition
    reason: str
    since: float  # how long the state has lasted (s)
    position: int | None
    high_watermark: int | None
    lag: int | None
    buffered_bytes: int = 0


@dataclass(frozen=True, slots=True)
class MetricName:
    """The name and group of a metric, as in the Java client. Tags make it unique."""

    name: str
    group: str
    description: str = field(default="", compare=False)
    tags: tuple[tuple[str, str], ...] = ()


class MetricValues(dict[MetricName, float]):
    """The values of metrics by their names. `values["records-lag-max"]` finds a metric by its plain name.

    If several metrics have this name, that with the fewest tags is the one of the whole consumer. Raises KeyError if
    there is no such metric, or more than one.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        def __getitem__(self, name: MetricName | str) -> float: ...

    def __missing__(self, name: object) -> float:
        found = [metric for metric in self if metric.name == name]
        fewest = min((len(metric.tags) for metric in found), default=0)
        chosen = [metric for metric in found if len(metric.tags) == fewest]
        if len(chosen) == 1:
            return self[chosen[0]]
        if chosen:
            raise KeyError(f"{name} is the name of {len(chosen)} metrics; give a MetricName, such as {chosen[0]!r}")
        raise KeyError(name)

    def get(self, name: Any, default: Any = None) -> Any:
        """Returns the value of a metric, found as `values[name]` does, or `default`."""
        try:
            return self[name]
        except KeyError:
            return default


def _utc_datetime(timestamp_ms: int) -> datetime:
    """Returns a timestamp (ms since 1970) as a datetime in UTC. Raises OverflowError after the year 9999."""
    from datetime import UTC, datetime, timedelta  # imported when used

    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)
