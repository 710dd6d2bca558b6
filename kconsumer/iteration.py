"""Iterating record by record over what `poll` returns in batches.

`poll` moves positions past its whole batch. A loop that stops in the middle has seen only a part, so the rest must
count as not consumed: it is neither committed nor skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from kconsumer._core.record import ConsumerRecord
from kconsumer.records import ConsumerRecords
from kconsumer.types import TopicPartition


class Iteration:
    """The batch a `for` loop is going through, and how many of its records the loop has not come to."""

    __slots__ = ("_left", "_left_count", "_records")

    def __init__(self) -> None:
        self.stop()

    def start(self, records: ConsumerRecords) -> None:
        """Go through a new batch."""
        self._records: ConsumerRecords | None = records
        self._left: Iterator[ConsumerRecord] = iter(records)
        self._left_count = len(records)

    def stop(self) -> None:
        """Forget the batch."""
        self._records = None
        self._left = iter(())
        self._left_count = 0

    @property
    def active(self) -> bool:
        """Whether there are records that the loop has not come to."""
        return self._left_count > 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        record = next(self._left)
        self._left_count -= 1
        return record

    def unseen(self) -> dict[TopicPartition, int]:
        """The first offset of each partition that the loop has not come to."""
        if self._records is None or not self._left_count:
            return {}
        seen = len(self._records) - self._left_count
        first: dict[TopicPartition, int] = {}
        for index, record in enumerate(self._records):
            if index >= seen:
                first.setdefault(record.topic_partition, record.offset)
        return first
