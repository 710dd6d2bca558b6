"""Reads several partitions between two points: which offsets they have, and the steps that read them.

The steps are operations (see `engine/waiting.py`). While they wait, `kconsumer.ranges` blocks, and `kconsumer.aio`
awaits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from kconsumer._core.lock import Clock
from kconsumer.arrow import RecordBatch, SparkBatch
from kconsumer.ranges import offset_bounds
from kconsumer.ranges.client_base import RangeClientBase, listed_topics
from kconsumer.ranges.limits import Limits
from kconsumer.ranges.offset_bounds import Point
from kconsumer.ranges.progress import ProgressLine
from kconsumer.ranges.reader_base import polled
from kconsumer.types import TopicPartition

if TYPE_CHECKING:
    from kconsumer.engine.waiting import Operation

Ranges = dict[TopicPartition, tuple[int, int]]
Progress = Callable[[int, int], object] | bool | None
Step: TypeAlias = tuple[RecordBatch | None, int]  # a batch (None without records), and the number of offsets read


def topic_names(topic: str | Iterable[str]) -> tuple[str, ...]:
    """Returns the names of the topics to read, each once. Raises ValueError if there are none."""
    names = (topic,) if isinstance(topic, str) else tuple(dict.fromkeys(topic))
    if not names:
        raise ValueError("there is no topic to read: give the name of one, or a list of names")
    return names


def progress_callback(progress: Progress, topics: tuple[str, ...]) -> Callable[[int, int], object] | None:
    """Returns the function to call with the number of read offsets and the number of all offsets.

    Returns None if no progress should be shown. `read_topic` explains the values of `progress`.
    """
    if callable(progress):
        return progress
    wanted = sys.stderr is not None and sys.stderr.isatty() if progress is None else progress
    return ProgressLine(", ".join(topics), sys.stderr, Clock()) if wanted else None


def find_ranges(client: RangeClientBase, topics: tuple[str, ...], start: Point, end: Point) -> Operation[Ranges]:
    """Returns the start and end offset of each partition of the topics. The end is never before the start.

    Raises ValueError if a topic does not exist.
    """
    consumer = client.consumer
    found = yield from listed_topics(consumer, list(topics))
    for topic in topics:
        if found.get(topic) is None:
            raise ValueError(f"topic {topic!r} does not exist on {client.options['bootstrap_servers']}")
    partitions = sorted(TopicPartition(topic, info.partition) for topic in topics for info in found[topic].partitions)
    first = yield from consumer._beginning_offsets(partitions, None)
    last = yield from consumer._end_offsets(partitions, None)
    starts = yield from offset_bounds.resolve(consumer, start, first, last)
    ends = yield from offset_bounds.resolve(consumer, end, first, last)
    clipped = {tp: min(max(starts[tp], first[tp]), last[tp]) for tp in partitions}
    return {tp: (clipped[tp], max(clipped[tp], min(ends[tp], last[tp]))) for tp in partitions}


class RangesInTurn:
    """Reads the ranges of several partitions with one consumer. Each step returns records of any of them."""

    def __init__(self, client: RangeClientBase, ranges: Ranges, limits: Limits) -> None:
        self.left = {tp: at for tp, (at, after) in ranges.items() if at < after}  # where reading continues
        self._ends = {tp: after for tp, (_, after) in ranges.items()}
        self._consumer = client.consumer
        self._timeout_ms = client.timeout_ms
        self._limits = limits
        if self.left:
            self._consumer.assign(self.left)
        for tp, at in self.left.items():
            self._consumer.seek(tp, at)

    def read(self) -> Operation[Step]:
        """Poll once. Returns a batch, or None if the offsets that were read have no records, and their number."""
        limits, ends = self._limits, self._ends
        records = yield from polled(self._consumer, limits, self._timeout_ms, self._where)
        batch = records.to_arrow(limits.names, ends=ends)
        moved = {tp: min(found.offset, ends[tp]) for tp, found in records.next_offsets().items() if tp in self.left}
        offsets = sum(moved.values()) - sum(self.left[tp] for tp in moved)
        self.left |= moved
        for tp in [tp for tp, at in moved.items() if at == ends[tp]]:
            del self.left[tp]
            self._consumer.pause(tp)
        return (SparkBatch(batch) if batch and limits.schema == "spark" else batch or None), offsets

    def _where(self) -> str:
        return ", ".join(f"{tp} at offset {at}" for tp, at in self.left.items())
