"""How a topic's partitions are distributed to threads, and the contents of the progress line."""

from __future__ import annotations

import io

from kconsumer import TopicPartition
from kconsumer.ranges.progress import ProgressLine
from kconsumer.ranges.topic import split_ranges
from kconsumer.testing.clock import VirtualClock


def ranges(*sizes: int) -> dict[TopicPartition, tuple[int, int]]:
    """Returns ranges of this many offsets, from 10 on, of partitions 0, 1, …"""
    return {TopicPartition("t", number): (10, 10 + size) for number, size in enumerate(sizes)}


def test_threads_get_about_the_same() -> None:
    """The largest ranges are assigned first, each to the thread with the fewest offsets; empty ranges are omitted."""
    by_thread = split_ranges(ranges(5, 100, 0, 60, 50), 2)
    assert [[1, 0], [3, 4]] == [[tp.partition for tp in part] for part in by_thread]
    assert [{TopicPartition("t", 1): (10, 110), TopicPartition("t", 0): (10, 15)}] == by_thread[:1]


def test_no_more_threads_than_partitions() -> None:
    """No thread is planned without a range to read."""
    assert 2 == len(split_ranges(ranges(1, 1), 8))
    assert [] == split_ranges(ranges(0, 0), 3)
    assert [] == split_ranges({}, 3)


def test_progress_line() -> None:
    """The line is drawn at most ten times a second and at the end, which adds a line feed."""
    stream, clock = io.StringIO(), VirtualClock()
    line = ProgressLine("orders", stream, clock)
    clock.advance(1_000)
    line(500, 2_000)
    clock.advance(50)
    line(600, 2_000)
    clock.advance(950)
    line(2_000, 2_000)
    first, last = stream.getvalue().removeprefix("\r").split("\r")
    assert f"orders {'█' * 6}{'░' * 18}  25%  500 of 2,000 offsets  500/s  3 s left" == first
    assert f"orders {'█' * 24} 100%  2,000 of 2,000 offsets  1,000/s  in 2.0 s" == last.rstrip()
    assert last.endswith("\n")


def test_progress_line_that_stops() -> None:
    """A line that is stopped is ended once; one that was never drawn writes nothing."""
    stream = io.StringIO()
    line = ProgressLine("orders", stream, VirtualClock())
    line.end()
    assert "" == stream.getvalue()
    line(0, 5)
    line.end()
    line.end()
    assert 1 == stream.getvalue().count("\n")
