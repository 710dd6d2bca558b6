"""What a `MockConsumer` reads from and commits to: the records of each partition, and the group's offsets.

Decides which offsets a partition has. A test adds the records. The engine of the consumer decides what is read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from operator import attrgetter

from kconsumer._core.decode import ConsumerRecord
from kconsumer.types import Node, OffsetAndMetadata, OffsetAndTimestamp, PartitionInfo, TopicPartition

NODE = Node(1, "mock", 9092)
LATEST, EARLIEST = -1, -2  # the timestamps that stand for the end and the beginning of a log
OFFSET = attrgetter("offset")


class MockLog:
    """The records of one partition, in offset order. Offsets may be missing, as in a compacted topic."""

    def __init__(self, tp: TopicPartition) -> None:
        self.topic_partition = tp
        self.beginning = 0
        self.end = 0
        self._records: list[ConsumerRecord] = []

    def add(self, item: object) -> None:
        """Append `item`: a record, or any other object, which becomes the value of a record at the end offset.

        Raises ValueError for a record of another partition, and for an offset below the end.
        """
        tp = self.topic_partition
        record = item if isinstance(item, ConsumerRecord) else ConsumerRecord(*tp, self.end, value=item)
        if record.topic_partition != tp:
            raise ValueError(f"a record of {record.topic_partition} cannot be added to {tp}: {record!r}")
        if record.offset < self.end:
            raise ValueError(f"{tp} ends at offset {self.end}, so no record with offset {record.offset} can be added")
        self._records.append(record)
        self.end = record.offset + 1

    def set_beginning(self, offset: int) -> None:
        """Delete the records below an offset, which becomes the first offset."""
        self.beginning = offset
        self.end = max(self.end, offset)
        del self._records[: bisect_left(self._records, offset, key=OFFSET)]

    def set_end(self, offset: int) -> None:
        """Set the end offset. Deletes the records at or above it."""
        self.end = offset
        self.beginning = min(self.beginning, offset)
        del self._records[bisect_left(self._records, offset, key=OFFSET) :]

    def read(self, offset: int, max_records: int, max_bytes: float) -> list[ConsumerRecord]:
        """Returns at most `max_records` records from an offset on.

        Stops after the record with which the size of the records (see `record_size`) reaches `max_bytes`.
        """
        start = bisect_left(self._records, offset, key=OFFSET)
        taken: list[ConsumerRecord] = []
        for record in self._records[start : start + max_records]:
            if max_bytes <= 0:
                break
            taken.append(record)
            max_bytes -= record_size(record)
        return taken

    def find(self, timestamp: int) -> OffsetAndTimestamp | None:
        """Returns the offset of the first record at or after a time (ms), or None if there is none.

        For LATEST, returns the end offset; for EARLIEST, the beginning.
        """
        if timestamp in (LATEST, EARLIEST):
            return OffsetAndTimestamp(self.end if timestamp == LATEST else self.beginning, -1)
        found = next((record for record in self._records if record.timestamp >= timestamp), None)
        return None if found is None else OffsetAndTimestamp(found.offset, found.timestamp, found.leader_epoch)


class MockBroker:
    """All partitions, by topic and partition, and the committed offsets of one group."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._logs: dict[TopicPartition, MockLog] = {}

    def log(self, tp: TopicPartition) -> MockLog:
        """Returns the log of a partition, which is created if it does not exist."""
        if tp not in self._logs:
            self._logs[tp] = MockLog(tp)
        return self._logs[tp]

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.committed.update(offsets)

    def list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns the offset for each partition's timestamp. An unknown partition counts as empty."""
        return {tp: self._logs.get(tp, MockLog(tp)).find(timestamp) for tp, timestamp in timestamps.items()}

    def topics(self) -> frozenset[str]:
        """Returns the topics that have partitions."""
        return frozenset(tp.topic for tp in self._logs)

    def partitions(self, topics: Iterable[str]) -> dict[str, tuple[PartitionInfo, ...]]:
        """Returns the partitions of these topics. Topics without partitions are left out."""
        wanted = set(topics)
        found: dict[str, list[PartitionInfo]] = {}
        for topic, partition in sorted(self._logs):
            if topic in wanted:
                info = PartitionInfo(topic, partition, NODE, (NODE,), (NODE,))
                found.setdefault(topic, []).append(info)
        return {topic: tuple(infos) for topic, infos in found.items()}


def record_size(record: ConsumerRecord) -> int:
    """Returns the serialized size of key and value in bytes. An unknown size counts as 0."""
    return max(0, record.serialized_key_size) + max(0, record.serialized_value_size)
