"""ShareSession: the partitions that a broker remembers between the requests of a share consumer.

Decides the epoch of the next request, and which partitions it must name. As with fetch sessions (KIP-227), a request
names only the partitions that were added or dropped since the last one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

OPENING_EPOCH = 0
CLOSING_EPOCH = -1
MAX_EPOCH = (1 << 31) - 1


class TopicIdPartition(NamedTuple):
    """A partition of the topic with an id."""

    topic_id: bytes
    partition: int


class ShareSession:
    """The share session of one member at one broker (Java `ShareSessionHandler`)."""

    __slots__ = ("epoch", "partitions")

    def __init__(self) -> None:
        self.epoch = OPENING_EPOCH  # of the next request
        self.partitions: frozenset[TopicIdPartition] = frozenset()  # those that the broker knows

    @property
    def open(self) -> bool:
        """True if the broker has the session."""
        return self.epoch != OPENING_EPOCH

    def added(self, wanted: Collection[TopicIdPartition]) -> list[TopicIdPartition]:
        """Returns those of the `wanted` partitions that the broker does not know yet, sorted."""
        return sorted(set(wanted) - self.partitions)

    def forgotten(self, wanted: Iterable[TopicIdPartition]) -> list[TopicIdPartition]:
        """Returns the partitions that the broker knows and that are not `wanted`, sorted."""
        return sorted(self.partitions.difference(wanted))

    def advance(self, partitions: Iterable[TopicIdPartition] | None = None) -> None:
        """Count a request that succeeded. From now on the broker knows exactly `partitions`; None: the same ones."""
        if partitions is not None:
            self.partitions = frozenset(partitions)
        self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1

    def reset(self) -> None:
        """Forget the session, so that the next request opens another one."""
        self.epoch = OPENING_EPOCH
        self.partitions = frozenset()

    def __repr__(self) -> str:
        return f"<ShareSession epoch={self.epoch}, {len(self.partitions)} partitions>"
