"""The stored state of share partitions, as the share coordinator keeps it in the topic `__share_group_state`.

The leader of a partition writes to it when records are acknowledged or released, or when their locks expire, but not
when records are acquired. A new leader begins with what is stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

UNINITIALIZED = -1  # the start offset of a partition from which no leader has stored anything yet

#: A partition: topic id and index.
TopicIdPartition = tuple[bytes, int]


class StateBatch(NamedTuple):
    """The stored state of consecutive records."""

    first: int
    last: int
    state: int
    delivery_count: int


@dataclass
class StoredState:
    """The stored state of one share partition."""

    start_offset: int = UNINITIALIZED
    #: How many records from the start offset on are acknowledged or archived.
    complete: int = 0
    #: State and delivery count by offset.
    records: dict[int, tuple[int, int]] = field(default_factory=dict)

    def write(self, start_offset: int, complete: int, batches: list[StateBatch]) -> None:
        """Store a start offset and the state of records. Forgets records before the start offset."""
        self.start_offset, self.complete = start_offset, complete
        for batch in batches:
            for offset in range(batch.first, batch.last + 1):
                self.records[offset] = batch.state, batch.delivery_count
        self.records = {offset: found for offset, found in sorted(self.records.items()) if offset >= start_offset}

    def batches(self) -> list[StateBatch]:
        """Returns the stored state. Consecutive records in the same state form one batch."""
        found: list[StateBatch] = []
        for offset, (state, count) in self.records.items():
            last = found[-1] if found else None
            if last is not None and (last.last + 1, last.state, last.delivery_count) == (offset, state, count):
                found[-1] = last._replace(last=offset)
            else:
                found.append(StateBatch(offset, offset, state, count))
        return found


class StateStore:
    """The stored state of all share partitions."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicIdPartition, StoredState]] = {}

    def get(self, group_id: str, topic_id: bytes, index: int) -> StoredState | None:
        """Returns the state of a partition, or None if it was not initialized."""
        return self._groups.get(group_id, {}).get((topic_id, index))

    def of_group(self, group_id: str) -> dict[TopicIdPartition, StoredState]:
        return self._groups.get(group_id, {})

    def topics_of(self, group_id: str) -> dict[bytes, set[int]]:
        """Returns the partitions of a group that were initialized, by topic id."""
        found: dict[bytes, set[int]] = {}
        for topic_id, index in self.of_group(group_id):
            found.setdefault(topic_id, set()).add(index)
        return found

    def initialize(self, group_id: str, topic_id: bytes, index: int, start_offset: int = UNINITIALIZED) -> None:
        """Create the state of a partition, in place of a state that it has."""
        self._groups.setdefault(group_id, {})[topic_id, index] = StoredState(start_offset)

    def remove_topic(self, group_id: str, topic_id: bytes) -> None:
        group = self._groups.get(group_id, {})
        for key in [key for key in group if key[0] == topic_id]:
            del group[key]

    def remove_group(self, group_id: str) -> None:
        self._groups.pop(group_id, None)

    def on_topic_deleted(self, topic_id: bytes) -> None:
        """Remove the states of a deleted topic from all groups."""
        for group_id in self._groups:
            self.remove_topic(group_id, topic_id)
