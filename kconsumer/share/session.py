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

    __slots__ = ("_wanted", "epoch", "partitions")

    def __init__(self) -> None:
        self.epoch = OPENING_EPOCH  # of the next request
        self.partitions: frozenset[TopicIdPartition] = frozenset()  # those that the broker knows
        self._wanted: Iterable[TopicIdPartition] | None = None  # the collection that they were copied from

    @property
    def open(self) -> bool:
        """True if the broker has the session."""
        return self.epoch != OPENING_EPOCH

    def changes(
        self, wanted: Collection[TopicIdPartition]
    ) -> tuple[Collection[TopicIdPartition], Collection[TopicIdPartition]]:
        """Returns those of the `wanted` partitions that the broker does not know, and those that are not `wanted`.

        Nothing is compared if `wanted` is the very object of the last request. Its partitions must not change.
        """
        if wanted is self._wanted:
            return (), ()
        return set(wanted) - self.partitions, self.partitions.difference(wanted)

    def advance(self, partitions: Iterable[TopicIdPartition] | None = None) -> None:
        """Count a request that succeeded. From now on the broker knows exactly `partitions`; None: the same ones."""
        if partitions is not None and partitions is not self._wanted:
            self.partitions = frozenset(partitions)
            self._wanted = partitions
        self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1

    def reset(self) -> None:
        """Forget the session, so that the next request opens another one."""
        self.epoch = OPENING_EPOCH
        self.partitions = frozenset()
        self._wanted = None

    def __repr__(self) -> str:
        return f"<ShareSession epoch={self.epoch}, {len(self.partitions)} partitions>"
