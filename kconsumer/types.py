"""Plain values of the public surface: partitions, offsets, nodes, enums. No behaviour beyond checks and
repr."""

from __future__ import annotations

import enum
import struct
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self


class TopicPartition(NamedTuple):
    """A partition of a topic; sorts by topic, then partition (Java `TopicPartition`)."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


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
    """What metadata says of a partition (Java `PartitionInfo`)."""

    topic: str
    partition: int
    leader: Node | None = None
    replicas: tuple[Node, ...] = ()
    in_sync_replicas: tuple[Node, ...] = ()
    offline_replicas: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """An offset to commit or seek to: the next one to read, with a note and the leader epoch when known.

    Raises ValueError for a negative offset (Java `OffsetAndMetadata`).
    """

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None

    def __post_init__(self) -> None:
        if self.offset < 0:
            raise ValueError(f"an offset cannot be negative: {self.offset}")
        if self.metadata is None:
            object.__setattr__(self, "metadata", "")
        if self.leader_epoch is not None and self.leader_epoch < 0:
            object.__setattr__(self, "leader_epoch", None)


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """The first record at or after a time: its offset and timestamp (ms) (Java `OffsetAndTimestamp`)."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


@dataclass(frozen=True, repr=False, eq=False)
class GroupMetadata(bytes):
    """This member's place in its group (Java `ConsumerGroupMetadata`).

    Pass it to a transactional producer, so that the offsets of a member that has lost its partitions are refused:
    `send_offsets_to_transaction` of confluent-kafka and of kafka-python (3.0 and newer) take it as it is. For
    confluent-kafka it is bytes, in librdkafka's form; two of them are equal if all fields are.
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
            """Return kafka-python's class while that is loaded: its producer takes only what isinstance() finds to be
            one. It cannot be a base class: it is a tuple, and confluent-kafka's producer takes only bytes."""
            return getattr(sys.modules.get("kafka.structs"), "ConsumerGroupMetadata", GroupMetadata)


def _librdkafka_form(group_id: str, generation_id: int, member_id: str, instance_id: str | None) -> bytes:
    """Return the bytes that librdkafka's `rd_kafka_consumer_group_metadata_write` makes: a native int, and texts that
    end with NUL. Texts that contain NUL have no such form; librdkafka refuses the bytes returned for them."""
    texts = [text.encode(errors="surrogatepass") for text in (group_id, member_id, instance_id or "")]
    if any(b"\0" in text for text in texts):
        return repr((group_id, generation_id, member_id, instance_id)).encode()
    group, member, instance = texts
    without_instance = b"\1" if instance_id is None else b"\0" + instance + b"\0"
    return b"CGMDv2:" + struct.pack("=i", generation_id) + group + b"\0" + member + b"\0" + without_instance


class IsolationLevel(enum.Enum):
    """Which records of transactions are returned; the value is the option's text."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class TimestampType(enum.IntEnum):
    """Who set a record's timestamp (Java `TimestampType`)."""

    NO_TIMESTAMP = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """Where to start when a partition has no usable position (`auto_offset_reset`, Java
    `AutoOffsetResetStrategy`).

    Use the constants `LATEST`, `EARLIEST`, `NONE`, or `by_duration(ms)` (KIP-1106). `str()` gives `latest`,
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
            raise ValueError("a duration belongs to by_duration, and only to it")
        if self.duration_ms is not None and self.duration_ms < 0:
            raise ValueError(f"a reset duration cannot be negative: {self.duration_ms} ms")

    @classmethod
    def by_duration(cls, duration_ms: int) -> OffsetReset:
        """Start at the first record not older than this many milliseconds."""
        return cls("by_duration", duration_ms)

    def timestamp(self, wall_ms: int) -> int | None:
        """What ListOffsets asks for: -1 latest, -2 earliest, a time (ms) for a duration, None for `NONE`."""
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
    """Why an assigned partition is or is not being fetched; of several that hold, the first is told.

    READY: nothing is in the way, the next `poll` asks. AWAIT_OTHERS: other partitions of its broker have to be read on.
    """

    REVOKING = "revoking"
    AWAIT_CALLBACK = "await_callback"
    FAILED = "failed"
    INITIALIZING = "initializing"
    AWAIT_RESET = "await_reset"
    AWAIT_VALIDATION = "await_validation"
    PAUSED = "paused"
    BUFFERED = "buffered"
    IN_FLIGHT = "in_flight"
    NO_LEADER = "no_leader"
    BACKOFF = "backoff"
    AWAIT_OTHERS = "await_others"
    BUFFER_FULL = "buffer_full"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One row of `Consumer.partition_states()`. `since`: seconds in this state."""

    state: PartitionCondition
    reason: str
    since: float
    position: int | None
    high_watermark: int | None
    lag: int | None
    buffered_bytes: int = 0


@dataclass(frozen=True, slots=True)
class MetricName:
    """A metric's name and group as in the Java client; tags make it unique."""

    name: str
    group: str
    description: str = field(default="", compare=False)
    tags: tuple[tuple[str, str], ...] = ()
