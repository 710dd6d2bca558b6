"""The results of `consumer.status()` and `health()`: the group, the connections and the partitions of a consumer at one
moment, and whether it makes progress.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kconsumer.errors import KafkaError
from kconsumer.types import Node, PartitionStatus, TopicPartition

Cells = Sequence[object]


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The membership of a consumer group or a share group."""

    group_id: str
    state: str
    """The state of the member, such as "joining" or "stable"."""
    protocol: str
    """"classic", "consumer" or "share"."""
    coordinator: Node | None
    """The broker that coordinates the group. None while it is unknown."""
    generation: int
    """The generation of the group in the classic protocol, else the member epoch. -1 or 0: the member has not joined.
    """
    member_id: str
    waiting_for: str = ""
    """What the member waits for, such as "the coordinator". Empty if it waits for nothing."""
    since: float = 0.0
    """How long it has waited (s)."""
    last_error: KafkaError | None = None
    """The error of the last attempt while it waits. None if it waits for nothing, or if nothing has failed yet."""

    def __str__(self) -> str:
        coordinator = "the coordinator is unknown" if self.coordinator is None else f"coordinator {self.coordinator}"
        return (
            f"group {self.group_id!r}: {self.state}, {self.protocol} protocol, generation {self.generation}, "
            f"member {self.member_id or None!r}, {coordinator}"
        )


@dataclass(frozen=True, slots=True)
class ConnectionStatus:
    """One connection to a broker, or the attempt to connect."""

    node: str
    """The broker and what the connection is for, such as "broker 1" or "group coordinator 1"."""
    address: str
    """Host and port."""
    state: str
    """Such as "ready", "connecting" or "not connected"."""
    since: float
    """How long the state has lasted (s)."""
    last_error: KafkaError | None
    """Why the connection is not ready. None if it is ready, or if it was closed because it was not used."""
    in_flight: int = 0
    """The number of requests without a response."""


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    """The status of a consumer at one moment. `str(status)` is the text for a bug report."""

    client: str
    """The consumer, and the versions of kconsumer, Python and the system."""
    group: GroupStatus | None
    """The membership. None for a consumer without a group."""
    waits: tuple[str, ...]
    """What the consumer waits for, one line each with the duration and the last error. Empty if it makes progress."""
    connections: tuple[ConnectionStatus, ...]
    partitions: dict[TopicPartition, PartitionStatus]
    """The result of `partition_states()`. A partition of a share consumer has neither `since` nor a position."""

    def __str__(self) -> str:
        blocks = [self.client, str(self.group or "no group"), *self.waits]
        connections: list[Cells] = [
            (c.node, c.address, c.state, f"{c.since:.1f}s", c.in_flight, c.last_error) for c in self.connections
        ]
        partitions: list[Cells] = [
            (tp, s.state.value, f"{s.since:.1f}s", s.position, s.high_watermark, s.lag, s.buffered_bytes, s.reason)
            for tp, s in self.partitions.items()
        ]
        blocks += table(CONNECTION_HEAD, connections) if connections else ["no connections"]
        blocks += table(PARTITION_HEAD, partitions) if partitions else ["no partitions"]
        return "\n".join(blocks)


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a consumer is healthy."""

    ok: bool
    """True if it makes progress, or has no reason not to."""
    reasons: tuple[str, ...]
    """Why it is not healthy: sentences for a log. Empty if it is."""
    live: bool = field(default=True, compare=False)
    """False if only a restart of the process helps: no poll within `max_poll_interval_ms`, or a fatal error. It stays
    True while brokers cannot be reached."""


CONNECTION_HEAD = ("CONNECTION", "ADDRESS", "STATE", "SINCE", "IN FLIGHT", "ERROR")
PARTITION_HEAD = ("PARTITION", "STATE", "SINCE", "POSITION", "END", "LAG", "BUFFERED", "REASON")


def table(head: Cells, rows: Sequence[Cells]) -> list[str]:
    """Returns the lines of a table with aligned columns. None and empty cells become a dash."""
    cells = [["-" if cell is None or cell == "" else str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
