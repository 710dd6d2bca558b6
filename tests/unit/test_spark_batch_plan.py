"""Which ranges a batch of the Spark source reads, with a cluster that is a few numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kconsumer.spark.admin import Admin
from kconsumer.spark.batch_plan import plan_batch
from kconsumer.spark.filters import Constraints
from kconsumer.spark.options import parse
from kconsumer.spark.planning import OffsetRange
from kconsumer.types import OffsetAndTimestamp, PartitionInfo, TopicPartition


class Cluster:
    """What a RangeClient is asked: each partition of topic t goes from `first` to `first` + its size; offset = ms."""

    def __init__(self, *sizes: int, first: int = 0) -> None:
        self.first = first
        self.ends = {TopicPartition("t", number): first + size for number, size in enumerate(sizes)}
        self.asked: list[str] = []

    def topics(self, names: Iterable[str] | None = None) -> dict[str, Any]:
        """One topic."""

        class Listing:
            internal = False
            partitions = [PartitionInfo("t", tp.partition, None, (), (), ()) for tp in self.ends]

        return {"t": Listing}

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where they begin."""
        self.asked.append("beginning")
        return dict.fromkeys(partitions, self.first)

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where they end."""
        self.asked.append("end")
        return {tp: self.ends[tp] for tp in partitions}

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Offset and time are one number here."""
        return {
            tp: OffsetAndTimestamp(max(ms, self.first), ms, None) if ms < self.ends[tp] else None
            for tp, ms in times.items()
        }


def tasks(cluster: Cluster, constraints: Constraints | None = None, **options: str) -> list[tuple[OffsetRange, ...]]:
    """The tasks of a batch over the topic."""
    config = parse({"kafka.bootstrap.servers": "b:1", "subscribe": "t", **options}, "batch")
    client: Any = cluster
    return plan_batch(config, Admin(config, client), constraints or Constraints())


def test_default_ends_are_left_to_executors() -> None:
    """A task for each partition, nothing asked about offsets."""
    cluster = Cluster(5, 0)
    assert [(OffsetRange("t", 0, -2, -1),), (OffsetRange("t", 1, -2, -1),)] == tasks(cluster)
    assert [] == cluster.asked


def test_filters_on_offsets_and_partitions() -> None:
    """Filters bind the ends and leave out what they rule out."""
    wanted = Constraints(partitions=(("EqualTo", 1),), start=3, end=8)
    assert [(OffsetRange("t", 1, 3, 8),)] == tasks(Cluster(10, 10, 10), wanted)
    assert [] == tasks(Cluster(10, 10), Constraints(start=10))


def test_filters_on_time() -> None:
    """A lower bound is looked up; an upper one only if timestamps are said to be in order."""
    cluster = Cluster(10, 4)
    bounds = Constraints(from_ms=6, until_ms=8)
    assert [(OffsetRange("t", 0, 6, 10),)] == tasks(cluster, bounds)
    assert [(OffsetRange("t", 0, 6, 8),)] == tasks(cluster, bounds, timestampOrder="monotonic")


def test_thousands_of_small_partitions_share_tasks() -> None:
    """2,000 partitions of ten records are a few dozen tasks, whose ends stay unbound; each partition is read once."""
    found = tasks(Cluster(*[10] * 2000, first=7))
    assert 40 == len(found)
    ranges = [item for task in found for item in task]
    assert [OffsetRange("t", number, -2, -1) for number in range(2000)] == ranges
    assert 2000 == len(tasks(Cluster(*[1000] * 2000)))
    assert 64 == len(tasks(Cluster(*[10] * 64)))
