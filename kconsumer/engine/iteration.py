"""Iterates record by record over the batches that `poll` returns.

`poll` moves the positions past the whole batch that it returns. A loop that stops in the middle has consumed only a
part of the batch, so the rest must be neither committed nor skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import length_hint

from kconsumer._core.decode import ConsumerRecord, RecordIterator
from kconsumer.records import ConsumerRecords
from kconsumer.types import TopicPartition


class Iteration:
    """The batch that `for` loops iterate over, with the number of records that the loops have not reached.

    All loops share one compiled iterator, which is restarted with each new batch. It is compiled because a Python
    function called for every record would cost more time than the record itself.
    """

    __slots__ = ("_left", "records", "started")

    def __init__(self) -> None:
        self.started = False  # a loop has begun; an attribute, because each poll reads it
        self.records: ConsumerRecords | None = None
        self._left = RecordIterator(())

    def start(self, records: ConsumerRecords) -> None:
        """Begin to iterate over a new batch."""
        self.started = True
        self.records = records
        self._left.restart(iter(records))

    def stop(self) -> None:
        """Drop the batch."""
        self.records = None
        self._left.restart(RecordIterator(()))

    @property
    def active(self) -> bool:
        """True if the batch has records that the loop has not reached."""
        return self.records is not None and length_hint(self._left) > 0

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self._left

    def unreached(self) -> list[ConsumerRecord]:
        """Returns the records that the loop has not reached."""
        records = self.records
        left = 0 if records is None else length_hint(self._left)
        return list(records)[len(records) - left :] if records is not None and left else []

    def unseen(self) -> dict[TopicPartition, int]:
        """Returns, for each partition, the offset of its first record that the loop has not reached."""
        records = self.records  # read once, because another thread may call this
        left = 0 if records is None else length_hint(self._left)
        if records is None or not left:
            return {}
        seen = len(records) - left
        first: dict[TopicPartition, int] = {}
        for index, record in enumerate(records):
            if index >= seen:
                first.setdefault(record.topic_partition, record.offset)
        return first
