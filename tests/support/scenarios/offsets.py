"""Scenarios of ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from __future__ import annotations

from typing import Any

from kconsumer.schema.offsets import (
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    ListOffsetsPartition,
    ListOffsetsTopic,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kconsumer.schema.topics import DELETE_RECORDS, DeleteRecordsPartition, DeleteRecordsTopic
from kconsumer.testing.batches import Rec, build_batch
from support.scenarios.scenario import TIMESTAMP, Run, scenarios


def list_offsets(run: Run, version: int, topic: str, timestamp: int, index: int = 0, **fields: Any) -> Any:
    """Record the offset for a timestamp."""
    row = ListOffsetsPartition(partition_index=index, timestamp=timestamp, **fields)
    return run.call(LIST_OFFSETS, version, topics=[ListOffsetsTopic(name=topic, partitions=[row])], timeout_ms=5000)


def delete_records(run: Run, version: int, topic: str, offset: int, index: int = 0) -> Any:
    """Record the response to a request that deletes records before an offset."""
    row = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)])
    return run.call(DELETE_RECORDS, version, topics=[row], timeout_ms=5000)


SPECIAL = {
    "latest": -1,
    "earliest": -2,
    "maximum": -3,
    "local": -4,
    "tiered": -5,
    "pending-upload": -6,
    "unknown": -7,
}


@scenarios(LIST_OFFSETS, cases=SPECIAL)
def special(run: Run, version: int, timestamp: int) -> None:
    """The special timestamps, of which later versions have more."""
    topic = run.topic()
    run.produce_values(topic, b"one", b"two", b"three")
    list_offsets(run, version, topic, timestamp)


@scenarios(LIST_OFFSETS, versions=[7], cases={"some": 3, "all": 5})
def maximum_of_deleted(run: Run, version: int, offset: int) -> None:
    """The record with the largest timestamp is deleted."""
    topic = run.topic()
    for time in (50, 900, 20, 300, 5):
        run.produce(topic, build_batch([b"v"], timestamp=TIMESTAMP + time))
    list_offsets(run, version, topic, -3)
    delete_records(run, 1, topic, offset)
    list_offsets(run, version, topic, -3)


@scenarios(LIST_OFFSETS, versions=[1, 4, 7, 9], cases={"latest": -1, "earliest": -2, "maximum": -3, "time": TIMESTAMP})
def empty_log(run: Run, version: int, timestamp: int) -> None:
    """A log without records."""
    list_offsets(run, version, run.topic(), timestamp)


TIMES = {"before": -1, "first": 0, "between": 500, "second": 1000, "last": 2000, "after": 2001}


@scenarios(LIST_OFFSETS, versions=[1, 3, 4, 9], cases=TIMES)
def by_time(run: Run, version: int, time: int) -> None:
    """The first record with a timestamp or later."""
    topic = run.topic()
    run.produce_values(topic, b"one", b"two", b"three")
    list_offsets(run, version, topic, TIMESTAMP + time)


@scenarios(LIST_OFFSETS, versions=[1, 9], cases={"first": 10, "later": 25, "smaller": 15, "maximum": -3})
def in_a_batch(run: Run, version: int, time: int) -> None:
    """Timestamps that are not in the order of the offsets, within one batch."""
    topic = run.topic()
    times = (10, 30, 20, 30)
    run.produce(topic, build_batch([Rec(b"v", timestamp=TIMESTAMP + at) for at in times], timestamp=TIMESTAMP + 10))
    list_offsets(run, max(7, version) if time < 0 else version, topic, time if time < 0 else TIMESTAMP + time)


@scenarios(LIST_OFFSETS, versions=[1, 7], cases={"time": TIMESTAMP, "earliest": -2, "maximum": -3})
def after_deletion(run: Run, version: int, timestamp: int) -> None:
    """Deleted records are not found."""
    topic = run.topic()
    run.produce_values(topic, b"one", b"two", b"three")
    delete_records(run, 1, topic, 2)
    list_offsets(run, version, topic, timestamp)


@scenarios(LIST_OFFSETS, versions=[1, 4, 6, 9])
def unknown(run: Run, version: int) -> None:
    """A partition and a topic that do not exist."""
    list_offsets(run, version, run.topic(), -1, 3)
    list_offsets(run, version, run.name("none"), -1)


@scenarios(LIST_OFFSETS, versions=[4, 9], cases={"none": -1, "same": 0, "newer": 2})
def epoch_of_list_offsets(run: Run, version: int, epoch: int) -> None:
    """The leader epoch that the client knows."""
    topic = run.topic()
    run.produce_values(topic, b"one")
    list_offsets(run, version, topic, -1, current_leader_epoch=epoch)


@scenarios(LIST_OFFSETS, versions=[2, 4, 9], cases={"latest": -1, "earliest": -2, "time": TIMESTAMP})
def read_committed(run: Run, version: int, timestamp: int) -> None:
    """Without open transactions the last stable offset is the high watermark."""
    topic = run.topic()
    run.produce_values(topic, b"one")
    row = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    run.call(LIST_OFFSETS, version, isolation_level=1, topics=[ListOffsetsTopic(name=topic, partitions=[row])])


@scenarios(LIST_OFFSETS, versions=[1, 4, 6])
def partition_twice(run: Run, version: int) -> None:
    """A partition that a request names twice."""
    topic = run.topic()
    run.produce_values(topic, b"one")
    rows = [ListOffsetsPartition(partition_index=0, timestamp=timestamp) for timestamp in (-1, -2)]
    run.call(LIST_OFFSETS, version, topics=[ListOffsetsTopic(name=topic, partitions=rows)])


@scenarios(OFFSET_FOR_LEADER_EPOCH, cases={"first": 0, "newer": 1, "far": 100, "none": -1, "negative": -5})
def leader_epoch(run: Run, version: int, epoch: int) -> None:
    """The end offset of a leader epoch."""
    topic = run.topic()
    run.produce_values(topic, b"one", b"two")
    row = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
    run.call(OFFSET_FOR_LEADER_EPOCH, version, topics=[OffsetForLeaderTopic(topic=topic, partitions=[row])])


@scenarios(OFFSET_FOR_LEADER_EPOCH, versions=[3, 4], cases={"same": 0, "newer": 1})
def current_epoch(run: Run, version: int, epoch: int) -> None:
    """The leader epoch that the client knows, of an empty log."""
    row = OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=0)
    run.call(OFFSET_FOR_LEADER_EPOCH, version, topics=[OffsetForLeaderTopic(topic=run.topic(), partitions=[row])])


@scenarios(OFFSET_FOR_LEADER_EPOCH, versions=[2, 3, 4])
def unknown_partition(run: Run, version: int) -> None:
    """A partition and a topic that do not exist."""
    topic = run.topic()
    rows = [
        OffsetForLeaderTopic(topic=name, partitions=[OffsetForLeaderPartition(partition=4, leader_epoch=0)])
        for name in (topic, run.name("none"))
    ]
    run.call(OFFSET_FOR_LEADER_EPOCH, version, topics=rows[:1])
    run.call(OFFSET_FOR_LEADER_EPOCH, version, topics=rows[1:])


@scenarios(DELETE_RECORDS, cases={"some": 2, "all": 3, "end": -1, "beyond": 4, "none": 0, "negative": -2})
def delete(run: Run, version: int, offset: int) -> None:
    """Records before an offset, or all, are deleted."""
    topic = run.topic()
    run.produce_values(topic, b"one", b"two", b"three")
    delete_records(run, version, topic, offset)
    list_offsets(run, 4, topic, -2)
    list_offsets(run, 4, topic, -1)


@scenarios(DELETE_RECORDS, versions=[0, 2])
def delete_again(run: Run, version: int) -> None:
    """The log start offset never goes back; unknown partitions are refused."""
    topic = run.topic()
    run.produce_values(topic, b"one", b"two", b"three")
    delete_records(run, version, topic, 2)
    delete_records(run, version, topic, 1)
    delete_records(run, version, topic, 0, 9)
    delete_records(run, version, run.name("none"), 0)
    list_offsets(run, 4, topic, -2)


@scenarios(DELETE_RECORDS, versions=[2])
def delete_compacted(run: Run, version: int) -> None:
    """Records of a compacted topic cannot be deleted so."""
    topic = run.topic(cleanup_policy="compact")
    run.produce(topic, build_batch([(b"k", b"v"), (b"k", b"w")], timestamp=TIMESTAMP))
    delete_records(run, version, topic, 1)
