"""The committed offsets of all groups, and the offsets of open transactions.

Decides which offset wins when a transaction is committed: the one that was written to the offsets topic last. Whether
a member may commit is decided by its group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

Offsets = dict[str, dict[int, "CommittedOffset"]]  # by topic and partition


@dataclass(slots=True, eq=False)
class CommittedOffset:
    """One committed offset."""

    offset: int
    leader_epoch: int  # -1: unknown
    metadata: str
    commit_ms: int  # wall-clock time
    expire_ms: int | None = None  # wall-clock time, from OffsetCommit v2 to v4 only
    sequence: int = 0  # grows with each write to the offsets topic

    def __repr__(self) -> str:
        return f"<CommittedOffset {self.offset}, epoch {self.leader_epoch}, {self.metadata!r}>"


class OffsetStore:
    """The committed offsets of all groups, and for each producer id the offsets in its open transaction."""

    def __init__(self) -> None:
        self._groups: dict[str, Offsets] = {}
        self._pending: dict[int, dict[str, Offsets]] = {}  # by producer id and group
        self._pending_counts: dict[str, dict[tuple[str, int], int]] = {}  # open transactions by group and partition
        self._open: dict[str, set[int]] = {}  # producer ids with an open transaction, by group
        self._sequence = 0

    # --- committed offsets ---

    def of_group(self, group_id: str) -> Offsets:
        """Returns the committed offsets of a group, by topic and partition. The caller must not change them."""
        return self._groups.get(group_id, {})

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """Returns the committed offset of a partition, or None if there is none."""
        return self.of_group(group_id).get(topic, {}).get(partition)

    def put(self, group_id: str, topic: str, partition: int, offset: CommittedOffset) -> None:
        self._sequence += 1
        offset.sequence = self._sequence
        self._groups.setdefault(group_id, {}).setdefault(topic, {})[partition] = offset

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Remove the committed offset of a partition, and those of the partition in open transactions."""
        _remove(self._groups, group_id, topic, partition)
        for producer_id in sorted(self._open.get(group_id, ())):
            if _remove(self._pending.get(producer_id, {}), group_id, topic, partition):
                self._count(group_id, topic, partition, -1)

    def remove_group(self, group_id: str) -> None:
        """Remove all committed offsets of a group, and its offsets in open transactions."""
        partitions = set(_partitions(self.of_group(group_id)))
        partitions.update(self._pending_counts.get(group_id, ()))
        for topic, partition in sorted(partitions):
            self.remove(group_id, topic, partition)

    def remove_topic(self, topic: str) -> None:
        """Remove the committed offsets of all partitions of a topic, in all groups."""
        for group_id in sorted({*self._groups, *self._pending_counts}):
            found = [key for key in self._pending_counts.get(group_id, ()) if key[0] == topic]
            found += [(topic, partition) for partition in self.of_group(group_id).get(topic, ())]
            for _, partition in sorted(set(found)):
                self.remove(group_id, topic, partition)

    # --- open transactions ---

    def stage(self, producer_id: int, group_id: str, topic: str, partition: int, offset: CommittedOffset) -> None:
        """Store an offset in the open transaction of a producer. `complete` commits or drops the offset."""
        self._sequence += 1
        offset.sequence = self._sequence
        self._open.setdefault(group_id, set()).add(producer_id)
        partitions = self._pending.setdefault(producer_id, {}).setdefault(group_id, {}).setdefault(topic, {})
        if partition not in partitions:
            self._count(group_id, topic, partition, 1)
        partitions[partition] = offset

    def complete(self, producer_id: int, *, commit: bool) -> None:
        """End the transaction of a producer: its offsets become the committed ones, or are dropped."""
        for group_id, offsets in self._pending.pop(producer_id, {}).items():
            for topic, partition in _partitions(offsets):
                self._count(group_id, topic, partition, -1)
                if commit:
                    self._merge(group_id, topic, partition, offsets[topic][partition])
        for group_id in [group_id for group_id, open_ids in self._open.items() if producer_id in open_ids]:
            self._open[group_id].discard(producer_id)
            if not self._open[group_id]:
                del self._open[group_id]

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Returns whether an open transaction has an offset of the partition."""
        return (topic, partition) in self._pending_counts.get(group_id, ())

    def has_open_transactions(self, group_id: str) -> bool:
        return group_id in self._open

    def _merge(self, group_id: str, topic: str, partition: int, offset: CommittedOffset) -> None:
        """Store an offset of a committed transaction, unless the present committed offset was written later."""
        present = self.get(group_id, topic, partition)
        if present is None or present.sequence < offset.sequence:
            self._groups.setdefault(group_id, {}).setdefault(topic, {})[partition] = offset

    def _count(self, group_id: str, topic: str, partition: int, change: int) -> None:
        """Add `change` to the number of open transactions with an offset of the partition."""
        counts = self._pending_counts.setdefault(group_id, {})
        count = counts.get((topic, partition), 0) + change
        if count:
            counts[topic, partition] = count
        else:
            del counts[topic, partition]
        if not counts:
            del self._pending_counts[group_id]


def _partitions(offsets: Offsets) -> Iterator[tuple[str, int]]:
    for topic, partitions in offsets.items():
        for partition in partitions:
            yield topic, partition


def _remove(groups: dict[str, Offsets], group_id: str, topic: str, partition: int) -> bool:
    """Remove one offset and the dictionaries that become empty. Returns whether the offset existed."""
    topics = groups.get(group_id, {})
    if topics.get(topic, {}).pop(partition, None) is None:
        return False
    if not topics[topic]:
        del topics[topic]
    if not topics:
        del groups[group_id]
    return True
