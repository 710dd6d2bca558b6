"""read_topic: all partitions of a topic between two points, side by side, as one table in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kconsumer.arrow import RecordBatch, Table
from kconsumer.clock import Clock, Timer
from kconsumer.errors import TimeoutError
from kconsumer.ranges import points
from kconsumer.ranges.client import RangeClient
from kconsumer.ranges.points import EARLIEST, LATEST, Point
from kconsumer.ranges.reader import LONGEST_POLL_S, Limits
from kconsumer.types import TopicPartition


def read_topic(
    topic: str,
    *,
    bootstrap_servers: str | Sequence[str],
    start: Point = EARLIEST,
    end: Point = LATEST,
    columns: Iterable[str] | None = None,
    progress: Callable[[int, int], object] | None = None,
    isolation_level: str = "read_uncommitted",
    max_bytes: int = 16 << 20,
    max_rows: int = 200_000,
    **options: Any,
) -> Table:
    """All records of a topic's partitions between two points, as a table in memory.

    `start` and `end` are `earliest`, `latest` (as of now), an offset (clipped to what each partition holds) or a
    `datetime` with a time zone: the first record of that time or later. `progress(done, total)` is called with offsets
    after each batch. `options` are those of `Consumer`. Records of one partition come in order.

    Raises OffsetOutOfRangeError if records are deleted while they are being read, TimeoutError if nothing comes for
    `default_api_timeout_ms`, ValueError if there is no such topic.
    """
    limits = Limits(columns, max_rows=max_rows, max_bytes=max_bytes)
    for point in (start, end):
        points.check(point)
    client = RangeClient(bootstrap_servers=bootstrap_servers, isolation_level=isolation_level, **options)
    with client, client.in_use():
        consumer = client.consumer
        ranges = _ranges(client, topic, start, end)
        total = sum(after - at for at, after in ranges.values())
        left = {tp: found for tp, found in ranges.items() if found[0] < found[1]}
        ends = {tp: after for tp, (_, after) in ranges.items()}
        if left:
            consumer.assign(left)
        for tp, (at, _) in left.items():
            consumer.seek(tp, at)
        parts: list[RecordBatch] = []
        timer = Timer(Clock(), client.patience_ms)
        while left:
            records = consumer._poll(LONGEST_POLL_S, limits.max_rows, limits.max_bytes)
            moved = records.next_offsets()
            if not moved and timer.expired:
                where = ", ".join(f"{tp} at offset {at} of {after}" for tp, (at, after) in left.items())
                raise TimeoutError(f"nothing came for {client.patience_ms / 1000:g} s while reading {where}")
            if not moved:
                continue
            timer = Timer(Clock(), client.patience_ms)
            batch = records.to_arrow(limits.names, ends=ends)
            if batch:
                parts.append(batch)
            for tp, found in moved.items():
                if tp in left:
                    left[tp] = (found.offset, ends[tp])
                    if found.offset >= ends[tp]:
                        del left[tp]
                        consumer.pause(tp)
            if progress is not None:
                progress(total - sum(after - at for at, after in left.values()), total)
        return Table(limits.names, parts)


def _ranges(client: RangeClient, topic: str, start: Point, end: Point) -> dict[TopicPartition, tuple[int, int]]:
    """The offsets to read of each partition; never the end before the start."""
    consumer = client.consumer
    found = client.topics([topic]).get(topic)
    if found is None:
        raise ValueError(f"there is no topic {topic!r} on {client.options['bootstrap_servers']}")
    partitions = sorted(TopicPartition(topic, info.partition) for info in found.partitions)
    first, last = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    starts = points.resolve(consumer, start, first, last)
    ends = points.resolve(consumer, end, first, last)
    clipped = {tp: min(max(starts[tp], first[tp]), last[tp]) for tp in partitions}
    return {tp: (clipped[tp], max(clipped[tp], min(ends[tp], last[tp]))) for tp in partitions}
