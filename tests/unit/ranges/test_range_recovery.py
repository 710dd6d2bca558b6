"""A range whose position is not in the log continues after deleted records, ends at the end of the log, or raises."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from kconsumer import TopicPartition
from kconsumer.engine.waiting import Operation, run
from kconsumer.errors import LogTruncationError, OffsetOutOfRangeError
from kconsumer.ranges.limits import Limits
from kconsumer.ranges.reader import Gap, RangeReader

T = TypeVar("T")
TP = TopicPartition("t", 0)


class Log:
    """Replaces a client and its consumer: a log from `first` to `last`."""

    read_committed = False

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last
        self.sought: list[int] = []
        self.consumer = self

    def _run(self, operation: Operation[T]) -> T:
        """Runs an operation that does not wait."""
        return run(operation, lambda _: None)

    def _beginning_offsets(self, partitions: Any, _timeout: None) -> Operation[dict[TopicPartition, int]]:
        """Returns the beginning of the log."""
        yield from ()
        return dict.fromkeys(partitions, self.first)

    def _end_offsets(self, partitions: Any, _timeout: None) -> Operation[dict[TopicPartition, int]]:
        """Returns the end of the log."""
        yield from ()
        return dict.fromkeys(partitions, self.last)

    def assign(self, partitions: Any) -> None:
        """Does nothing."""

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Records the position."""
        self.sought.append(offset)

    def resume(self, *partitions: TopicPartition) -> None:
        """Does nothing."""

    def close_range(self, reader: RangeReader) -> None:
        """Does nothing."""

    def start_idle_timer(self) -> None:
        """Does nothing."""


def reader_at(log: Log, at: int, end: int, on_data_loss: Any = "skip") -> RangeReader:
    """Returns a reader of the offsets 0 to `end` that has read up to `at`."""
    reader = RangeReader(log, TP, 0, end, Limits(on_data_loss=on_data_loss))  # type: ignore[arg-type]
    reader.next_offset = at
    log.sought.clear()
    return reader


def recover(reader: RangeReader, error: OffsetOutOfRangeError) -> None:
    """Let the reader recover from an error of a poll."""
    consumer = reader._source.consumer
    run(reader._recover(consumer, error), lambda _: None)


def out_of_range() -> OffsetOutOfRangeError:
    """Returns the error of a broker that does not have the position."""
    return OffsetOutOfRangeError("gone", {TP: 0})


def truncation() -> LogTruncationError:
    """Returns the error of a log that was truncated before the position."""
    return LogTruncationError("cut", {TP: 0}, {})


def test_retention_passes_the_position() -> None:
    """Deleted records are a gap, and reading continues at the new beginning of the log."""
    log = Log(0, 100)
    reader = reader_at(log, 20, 80)
    log.first = 50
    recover(reader, out_of_range())
    assert ((Gap(20, 50, "retention"),), 50, [50]) == (reader.gaps, reader.next_offset, log.sought)
    log.first = 90
    recover(reader, out_of_range())
    assert ((Gap(20, 80, "retention"),), [], 80) == (reader.gaps, list(reader), reader.next_offset)


def test_a_log_cut_before_the_position() -> None:
    """If the log was truncated before the position, the range ends and its rest is reported as truncated."""
    log = Log(0, 100)
    reader = reader_at(log, 60, 80)
    log.last = 40
    recover(reader, truncation())
    assert ([], (Gap(60, 80, "truncated"),), {"truncated": 20}) == (list(reader), reader.gaps, reader.skipped)
    assert [] == log.sought


def test_a_log_cut_behind_the_position() -> None:
    """If the log was truncated after the position, it is read to its new end and the rest is reported as truncated."""
    log = Log(0, 100)
    reader = reader_at(log, 60, 80)
    log.last = 70
    recover(reader, out_of_range())
    assert [60] == log.sought
    reader.next_offset = 70
    assert ([], (Gap(70, 80, "truncated"),)) == (list(reader), reader.gaps)


def test_a_log_that_grew_again() -> None:
    """A truncated log that has new records at the position is read as it is now."""
    log = Log(0, 100)
    reader = reader_at(log, 60, 80)
    recover(reader, truncation())
    assert ([60], ()) == (log.sought, reader.gaps)


def test_strict_readers_raise() -> None:
    """Without permission to skip each of these errors is raised; a position that should exist is always an error."""
    for first, last, error in ((50, 100, out_of_range()), (0, 40, truncation()), (0, 40, out_of_range())):
        log = Log(0, 100)
        reader = reader_at(log, 20, 80, "error")
        log.first, log.last = first, last
        with pytest.raises(OffsetOutOfRangeError):
            recover(reader, error)
    with pytest.raises(OffsetOutOfRangeError, match="gone"):
        recover(reader_at(Log(0, 100), 20, 80), out_of_range())
