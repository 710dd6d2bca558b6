"""A range whose position is not in the log continues behind what is gone, ends where the log ends, or raises."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer import TopicPartition
from kconsumer.errors import LogTruncationError, OffsetOutOfRangeError
from kconsumer.ranges.reader import Gap, Limits, RangeReader

TP = TopicPartition("t", 0)


class Log:
    """Stands in for a client and its consumer: a log from `first` to `last`."""

    read_committed = False

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last
        self.sought: list[int] = []
        self.consumer = self

    def beginning_offsets(self, partitions: Any) -> dict[TopicPartition, int]:
        """Where it begins."""
        return dict.fromkeys(partitions, self.first)

    def end_offsets(self, partitions: Any) -> dict[TopicPartition, int]:
        """Where it ends."""
        return dict.fromkeys(partitions, self.last)

    def assign(self, partitions: Any) -> None:
        """Nothing to do."""

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Note it."""
        self.sought.append(offset)

    def resume(self, *partitions: TopicPartition) -> None:
        """Nothing to do."""

    def close_range(self, reader: RangeReader) -> None:
        """Nothing to do."""

    def start_idle_timer(self) -> None:
        """Nothing to do."""


def reader_at(log: Log, at: int, end: int, on_data_loss: Any = "skip") -> RangeReader:
    """A reader of 0 to `end` that has read up to `at`."""
    reader = RangeReader(log, TP, 0, end, Limits(on_data_loss=on_data_loss))  # type: ignore[arg-type]
    reader.next_offset = at
    log.sought.clear()
    return reader


def out_of_range() -> OffsetOutOfRangeError:
    """The broker does not have the position."""
    return OffsetOutOfRangeError("gone", {TP: 0})


def truncation() -> LogTruncationError:
    """The log was cut before the position."""
    return LogTruncationError("cut", {TP: 0}, {})


def test_retention_passes_the_position() -> None:
    """What was deleted is a gap, reading continues at the new start of the log."""
    log = Log(0, 100)
    reader = reader_at(log, 20, 80)
    log.first = 50
    reader._recover(out_of_range())
    assert ((Gap(20, 50, "retention"),), 50, [50]) == (reader.gaps, reader.next_offset, log.sought)
    log.first = 90
    reader._recover(out_of_range())
    assert ((Gap(20, 80, "retention"),), [], 80) == (reader.gaps, list(reader), reader.next_offset)


def test_a_log_cut_before_the_position() -> None:
    """Nothing is left to read: the rest of the range is truncated."""
    log = Log(0, 100)
    reader = reader_at(log, 60, 80)
    log.last = 40
    reader._recover(truncation())
    assert ([], (Gap(60, 80, "truncated"),), {"truncated": 20}) == (list(reader), reader.gaps, reader.skipped)
    assert [] == log.sought


def test_a_log_cut_behind_the_position() -> None:
    """It is read to its new end, what lay behind is truncated."""
    log = Log(0, 100)
    reader = reader_at(log, 60, 80)
    log.last = 70
    reader._recover(out_of_range())
    assert [60] == log.sought
    reader.next_offset = 70
    assert ([], (Gap(70, 80, "truncated"),)) == (list(reader), reader.gaps)


def test_a_log_that_grew_again() -> None:
    """A truncated log with records at the position is read as it is now."""
    log = Log(0, 100)
    reader = reader_at(log, 60, 80)
    reader._recover(truncation())
    assert ([60], ()) == (log.sought, reader.gaps)


def test_strict_readers_raise() -> None:
    """Without leave to skip, each of these is an error; so is, for all, a position that ought to be there."""
    for first, last, error in ((50, 100, out_of_range()), (0, 40, truncation()), (0, 40, out_of_range())):
        log = Log(0, 100)
        reader = reader_at(log, 20, 80, "error")
        log.first, log.last = first, last
        with pytest.raises(OffsetOutOfRangeError):
            reader._recover(error)
    with pytest.raises(OffsetOutOfRangeError, match="gone"):
        reader_at(Log(0, 100), 20, 80)._recover(out_of_range())
