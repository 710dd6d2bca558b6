"""The driver's side of a stream, called in the order of Spark's calls, with kills and restarts in between."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from kconsumer.errors import ConfigError
from kconsumer.spark.loss import DataLossError
from kconsumer.spark.offsets import Limit, Named, Specific
from kconsumer.spark.options import parse
from kconsumer.spark.planning import OffsetRange
from kconsumer.spark.stream_offsets import StreamProgress
from kconsumer.types import TopicPartition

Offsets = dict[TopicPartition, int]


def tps(*offsets: int) -> Offsets:
    """Returns offsets of partitions 0, 1, …"""
    return {TopicPartition("t", number): offset for number, offset in enumerate(offsets)}


class Log:
    """A fake cluster: where each partition begins and ends."""

    def __init__(self, *ends: int) -> None:
        self.begins: Offsets = dict.fromkeys(tps(*ends), 0)
        self.ends = tps(*ends)
        self.sampled: list[Offsets] = []

    def partitions(self) -> set[TopicPartition]:
        """Returns the partitions."""
        return set(self.ends)

    def earliest(self, partitions: set[TopicPartition]) -> Offsets:
        """Returns the beginning offsets."""
        return {tp: self.begins[tp] for tp in partitions}

    def latest(self, partitions: set[TopicPartition], known: Mapping[TopicPartition, int] | None = None) -> Offsets:
        """Returns the end offsets."""
        return {tp: self.ends[tp] for tp in partitions if tp in self.ends}

    def resolve(self, limit: Limit, partitions: set[TopicPartition]) -> Offsets:
        """Returns the offsets of a point, for the two kinds that these tests use."""
        if isinstance(limit, Specific):
            return dict(limit.offsets)
        assert isinstance(limit, Named)
        return self.earliest(partitions) if limit.sentinel == -2 else self.latest(partitions)

    def bytes_per_offset(self, start: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
        """Returns ten bytes per offset for each partition."""
        self.sampled.append(dict(start))
        return dict.fromkeys(start, 10.0)


def stream(log: Log, **options: Any) -> StreamProgress:
    """Returns the progress of a query over a log."""
    chosen = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "startingOffsets": "earliest", **options}
    return StreamProgress(parse(chosen, "stream"), log)


def test_a_query_from_earliest() -> None:
    """The query plans start, end and tasks of a micro-batch, and the next one starts at the end of the first."""
    log = Log(5, 7)
    query = stream(log)
    start = query.initial()
    end = query.latest(start, now=0)
    assert (tps(0, 0), tps(5, 7)) == (start, end)
    assert [OffsetRange("t", 0, 0, 5), OffsetRange("t", 1, 0, 7)] == query.plan(start, end)
    log.ends = tps(5, 9)
    assert tps(5, 9) == query.latest(end, now=1) == query.newest
    assert [OffsetRange("t", 1, 7, 9)] == query.plan(end, tps(5, 9))
    assert tps(5, 9) == query.latest(tps(5, 9), now=2)


def test_initial_offsets_do_not_move() -> None:
    """Spark calls `initial` twice; the end offsets may have changed in between, but the result stays the same."""
    log = Log(5)
    query = stream(log, startingOffsets="latest")
    start = query.initial()
    log.ends = tps(9)
    assert tps(5) == start == query.initial()


def test_latest_begins_with_an_empty_batch() -> None:
    """The first micro-batch is empty and stores where the query started; the second one has the records since then."""
    log = Log(5)
    query = stream(log, startingOffsets="latest", minOffsetsPerTrigger="1")
    start = query.initial()
    log.ends = tps(9)
    assert start == query.latest(start, now=0)
    assert [] == query.plan(start, start)
    assert tps(9) == query.latest(start, now=1)


def test_available_now_from_latest_is_not_ended_by_an_empty_batch() -> None:
    """With AvailableNow an empty micro-batch would end the query before it read anything."""
    log = Log(5)
    query = stream(log, startingOffsets="latest")
    query.prepare_available_now()
    start = query.initial()
    log.ends = tps(9)
    assert tps(9) == query.latest(start, now=0)


def test_restart_of_a_first_batch_planned_before_a_later_latest() -> None:
    """If the query was killed during batch 0, its logged end is before the new start: the batch is empty and no record
    is lost.
    """
    log = Log(180)
    query = stream(log, startingOffsets="latest")
    assert tps(180) == query.initial()
    assert [] == query.plan(tps(180), tps(100))
    assert tps(180) == query.latest(tps(100), now=0)
    assert [OffsetRange("t", 0, 100, 180)] == query.plan(tps(100), tps(180))


def test_caps() -> None:
    """maxOffsetsPerTrigger is divided in proportion; Trigger.Once ignores it."""
    log = Log(90, 10)
    query = stream(log, maxOffsetsPerTrigger="10")
    assert tps(9, 1) == query.latest(query.initial(), now=0)
    assert tps(90, 10) == query.latest(query.initial(), now=0, everything=True)


def test_cap_by_bytes_samples_once() -> None:
    """Sizes are sampled once for many micro-batches, and only of partitions with records to read."""
    log = Log(100, 0)
    query = stream(log, maxBytesPerTrigger="500")
    assert tps(50, 0) == query.latest(tps(0, 0), now=0)
    assert tps(100, 0) == query.latest(tps(50, 0), now=1)
    assert [{TopicPartition("t", 0): 0}] == log.sampled


def test_min_offsets_holds_back() -> None:
    """A trigger with too few new offsets returns its start as its end; with AvailableNow this ends the query."""
    log = Log(5)
    query = stream(log, minOffsetsPerTrigger="10", maxTriggerDelay="1s")
    assert tps(5) == query.latest(tps(0), now=0)
    log.ends = tps(9)
    assert tps(5) == query.latest(tps(5), now=10)
    assert tps(9) == query.latest(tps(5), now=1000)
    log.ends = tps(10)
    query.prepare_available_now()
    assert tps(9) == query.latest(tps(9), now=1001)


def test_available_now_stops_at_the_ends_of_its_start() -> None:
    """Records and partitions that are added during the run are left for the next run."""
    log = Log(100)
    query = stream(log, maxOffsetsPerTrigger="60")
    query.prepare_available_now()
    assert tps(60) == query.latest(query.initial(), now=0)
    log.begins, log.ends = tps(0, 0), tps(500, 3)
    assert tps(100) == query.latest(tps(60), now=1)
    assert tps(100) == query.latest(tps(100), now=2)
    assert tps(500, 3) == query.newest


def test_new_partitions_start_at_their_earliest() -> None:
    """A partition that is added later is read from its beginning, whatever startingOffsets is."""
    log = Log(5)
    query = stream(log, startingOffsets="latest")
    assert tps(5) == query.latest(query.initial(), now=0)
    log.begins, log.ends = tps(0, 0), tps(5, 4)
    end = query.latest(tps(5), now=1)
    assert [OffsetRange("t", 1, 0, 4)] == query.plan(tps(5), end)


def lose(log: Log) -> tuple[Offsets, Offsets]:
    """Delete a partition."""
    log.ends = tps(5)
    log.begins = tps(0)
    return tps(5, 5), tps(5)


def gain(log: Log) -> tuple[Offsets, Offsets]:
    """Add a partition that does not begin at 0."""
    log.begins, log.ends = tps(0, 3), tps(5, 5)
    return tps(5), tps(5, 5)


def shrink(log: Log) -> tuple[Offsets, Offsets]:
    """Re-create the topic, so that it ends before the last offset that was read."""
    log.ends = tps(2)
    log.begins = tps(0)
    return tps(5), tps(2)


def vanish(log: Log) -> tuple[Offsets, Offsets]:
    """Delete a new partition before it is read."""
    log.ends, log.begins = tps(5), tps(0)
    return tps(5), tps(5, 3)


LOSSES = [
    (lose, "PARTITIONS_DELETED", "t-1 are gone", []),
    (gain, "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO", "t-1 starts from 3", [OffsetRange("t", 1, 3, 5)]),
    (shrink, "PARTITION_OFFSET_CHANGED", "t-0's offset was changed from 5 to 2", []),
    (vanish, "INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS", "t-1", []),
]


@pytest.mark.parametrize(("happen", "case", "words", "tasks"), LOSSES, ids=[case for _, case, *_ in LOSSES])
def test_losses_that_the_driver_finds(
    happen: Any, case: str, words: str, tasks: list[OffsetRange], caplog: pytest.LogCaptureFixture
) -> None:
    """Each loss fails the query; with failOnDataLoss=false it is logged and the rest is read."""
    log = Log(5, 5)
    start, end = happen(log)
    with pytest.raises(DataLossError, match=rf"\[KAFKA_DATA_LOSS.{case}\].*{words}.*failOnDataLoss"):
        stream(log).plan(start, end)
    tolerant = stream(log, failOnDataLoss="false")
    assert tasks == tolerant.plan(start, end)
    assert [case] == re.findall(r"KAFKA_DATA_LOSS\.(\w+)", caplog.text)


def test_planner_of_the_query() -> None:
    """The query uses its minPartitions and its planner."""
    assert 4 == len(stream(Log(8), minPartitions="4").plan(tps(0), tps(8)))
    with pytest.raises(ConfigError, match="planner 'huh' does not exist"):
        stream(Log(8), planner="huh").plan(tps(0), tps(8))
