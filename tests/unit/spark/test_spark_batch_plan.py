"""The ranges that a batch of the Spark source reads, with a fake cluster."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from kconsumer.errors import ConfigError
from kconsumer.spark.admin import Admin
from kconsumer.spark.batch_plan import plan_batch
from kconsumer.spark.filters import Constraints
from kconsumer.spark.options import parse
from kconsumer.spark.planning import OffsetRange
from kconsumer.types import OffsetAndTimestamp, PartitionInfo, TopicPartition


class Cluster:
    """Replaces a RangeClient: each partition of topic t has the offsets from `first` to `first` + its size; the
    timestamp of a record equals its offset.
    """

    def __init__(self, *sizes: int, first: int = 0) -> None:
        self.first = first
        self.ends = {TopicPartition("t", number): first + size for number, size in enumerate(sizes)}
        self.asked: list[str] = []

    def topics(self, names: Iterable[str] | None = None) -> dict[str, Any]:
        """Returns topic t."""

        class Listing:
            internal = False
            partitions = [PartitionInfo("t", tp.partition, None, (), (), ()) for tp in self.ends]

        return {"t": Listing}

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the beginning offsets."""
        self.asked.append("beginning")
        return dict.fromkeys(partitions, self.first)

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the end offsets."""
        self.asked.append("end")
        return {tp: self.ends[tp] for tp in partitions}

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns each time as its offset."""
        return {
            tp: OffsetAndTimestamp(max(ms, self.first), ms, None) if ms < self.ends[tp] else None
            for tp, ms in times.items()
        }


def tasks(cluster: Cluster, constraints: Constraints | None = None, **options: str) -> list[tuple[OffsetRange, ...]]:
    """Returns the tasks of a batch over the topic."""
    config = parse({"kafka.bootstrap.servers": "b:1", "subscribe": "t", **options}, "batch")
    client: Any = cluster
    return plan_batch(config, Admin(config, client), constraints or Constraints())


def test_default_ends_are_left_to_executors() -> None:
    """Each partition is one task, and no offsets are requested."""
    cluster = Cluster(5, 0)
    assert [(OffsetRange("t", 0, -2, -1),), (OffsetRange("t", 1, -2, -1),)] == tasks(cluster)
    assert [] == cluster.asked


def each(*offsets: int) -> str:
    """Returns offsets of all partitions of the topic."""
    return json.dumps({"t": {str(number): offset for number, offset in enumerate(offsets)}})


@pytest.mark.parametrize("cutting", [{}, {"minPartitions": "5"}, {"maxRecordsPerPartition": "3"}, {"planner": "even"}])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": each(12, 7), "endingOffsets": each(11, 9)}, "specified start offset 12 .* end offset 11"),
        ({"startingOffsets": each(21, 7)}, "resolved start offset 21 .* resolved end offset 20"),
        ({"startingOffsets": each(21, 7), "endingOffsets": each(-1, 9)}, "resolved start offset 21 .* end offset 20"),
        ({"endingOffsets": each(6, 9)}, "resolved start offset 7 .* resolved end offset 6"),
        ({"startingTimestamp": "12", "endingTimestamp": "11"}, "resolved start offset 12 .* resolved end offset 11"),
        ({"startingTimestamp": "12", "endingOffsets": each(11, -1)}, "resolved start offset 12 .* end offset 11"),
        ({"startingOffsets": each(12, 7), "endingTimestamp": "11"}, "resolved start offset 12 .* end offset 11"),
        (
            {"startingOffsetsByTimestamp": each(12, 7), "endingOffsetsByTimestamp": each(11, 9)},
            "specified start timestamp 12 .* end timestamp 11",
        ),
    ],
)
@pytest.mark.parametrize("tolerates", ["true", "false"])
def test_a_start_beyond_the_end_is_an_error(
    options: dict[str, str], words: str, cutting: dict[str, str], tolerates: str
) -> None:
    """The error has topic, partition and both offsets, in place of a result that lacks the partition's rows."""
    cluster = Cluster(13, 13, first=7)
    settings = {"failOnDataLoss": tolerates, "fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "0"}
    with pytest.raises(ConfigError, match=f"{words} for topic t partition 0"):
        tasks(cluster, **options, **cutting, **settings)


def test_a_start_at_the_end_reads_nothing() -> None:
    """A start at the end is an empty range, and a partition without records is not an error."""
    cluster = Cluster(13, 0, first=7)
    assert [] == tasks(cluster, startingOffsets=each(12, 7), endingOffsets=each(12, 7))
    assert [] == tasks(cluster, startingOffsets=each(20, 7), minPartitions="4")
    assert [] == tasks(cluster, endingOffsets=each(7, 7), minPartitions="4")


def test_filters_do_not_make_a_start_beyond_the_end() -> None:
    """A filter that excludes a whole range is not an error of the options."""
    wanted = Constraints(start=11, end=9)
    assert [] == tasks(Cluster(20), wanted, startingOffsets=each(5), endingOffsets=each(15))


def test_filters_on_time() -> None:
    """A lower bound of the timestamp is looked up; an upper one only if the option states that timestamps
    are in order.
    """
    cluster = Cluster(10, 4)
    bounds = Constraints(from_ms=6, until_ms=8)
    assert [(OffsetRange("t", 0, 6, 10),)] == tasks(cluster, bounds)
    assert [(OffsetRange("t", 0, 6, 8),)] == tasks(cluster, bounds, timestampOrder="monotonic")


def test_thousands_of_small_partitions_share_tasks() -> None:
    """2,000 partitions of ten records become a few dozen tasks without bound ends, and each partition is read once."""
    found = tasks(Cluster(*[10] * 2000, first=7))
    assert 40 == len(found)
    ranges = [item for task in found for item in task]
    assert [OffsetRange("t", number, -2, -1) for number in range(2000)] == ranges
    assert 1000 == len(tasks(Cluster(*[1000] * 2000)))
    assert 2000 == len(tasks(Cluster(*[100_000] * 2000)))
    assert 64 == len(tasks(Cluster(*[10] * 64)))
