"""Converts points that users give ("earliest", "latest", an offset or a time) to offsets of partitions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from kconsumer._client.consumer_base import ConsumerBase
from kconsumer.types import TopicPartition

if TYPE_CHECKING:
    from kconsumer.engine.waiting import Operation

EARLIEST = "earliest"
LATEST = "latest"

Point = str | int | datetime
Offsets = Mapping[TopicPartition, int]


def check(point: Point) -> None:
    """Raise ValueError unless the point is EARLIEST, LATEST, an offset or a datetime with a time zone."""
    if isinstance(point, datetime):
        if point.tzinfo is None:
            raise ValueError(f"{point!r} has no time zone")
    elif isinstance(point, int):
        if point < 0:
            raise ValueError(f"not an offset: {point}")
    elif point not in (EARLIEST, LATEST):
        raise ValueError(f"{point!r} is neither earliest, latest, an offset nor a datetime")


def resolve(
    consumer: ConsumerBase, point: Point, first: Offsets, last: Offsets
) -> Operation[dict[TopicPartition, int]]:
    """Returns the offset of a point in each partition.

    `first` and `last` contain the first and the end offset of each partition. A datetime is converted to the offset of
    the first record of that time or later, or to the end offset if there is no such record. An offset is returned
    unchanged, even if the partition does not contain it.
    """
    if isinstance(point, datetime):
        times = dict.fromkeys(first, int(point.timestamp() * 1000))
        found = yield from consumer._offsets_for_times(times, None)
        return {tp: last[tp] if at is None else at.offset for tp, at in found.items()}
    if isinstance(point, int):
        return dict.fromkeys(first, point)
    return dict(first if point == EARLIEST else last)
