"""Batches through Spark's own Kafka source and ours have the same rows, schema and tasks for every option."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from support.brokers.kafka import Kafka
from support.harnesses.polling import numbered
from support.spark.recorded_source import Parity
from support.spark.spark_parity import Outcome, read_batch

T0 = 1_700_000_000_000  # the time of the first record
# Begins the names of the topics, in each process that runs tests of this module.
NAME = f"parity-{uuid.uuid4().hex[:8]}"
KEEP = {"retention.ms": "-1"}  # without this the broker would delete records of that age


class Topics:
    """The topics that all cases read."""

    def __init__(self, kafka: Kafka) -> None:
        self.kafka = kafka
        self.servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
        self._plain()
        self._transactions()
        kafka.create_topic(f"{NAME}-empty", 2)
        kafka.create_topic(f"{NAME}-cut", 1)
        kafka.produce(f"{NAME}-cut", numbered(50))
        kafka.delete_records(f"{NAME}-cut", {0: 20})

    def _plain(self) -> None:
        """Write partitions of 60, 30 and no records at intervals of a second, in small batches, with every codec, keys,
        nulls and headers.
        """
        kafka = self.kafka
        kafka.create_topic(f"{NAME}-a", 3, config=KEEP)
        kafka.create_topic(f"{NAME}-b", 1, config=KEEP)
        at = T0
        for number, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd", "none"]):
            for partition, count in ((0, 10), (1, 5)):
                kafka.produce(
                    f"{NAME}-a",
                    [None if i == 3 else b"value %d" % i for i in range(count)],
                    partition=partition,
                    keys=[None if i == 2 else b"key %d" % i for i in range(count)],
                    headers=[("first", b"1"), ("first", b"2"), ("none", None)] if number % 2 else None,
                    timestamps=[at + 1000 * i for i in range(count)],
                    compression=codec,
                    config={"batch.num.messages": 4},
                )
            at += 10_000
        kafka.produce(f"{NAME}-b", numbered(7), timestamps=[T0 + i for i in range(7)])

    def _transactions(self) -> None:
        """Write committed, aborted and non-transactional records."""
        kafka = self.kafka
        kafka.create_topic(f"{NAME}-tx", 1)
        kafka.produce(f"{NAME}-tx", numbered(3))
        kafka.produce_transaction(f"{NAME}-tx", numbered(4), commit=False)
        kafka.produce_transaction(f"{NAME}-tx", numbered(5))
        kafka.produce(f"{NAME}-tx", numbered(2))


@pytest.fixture(scope="module")
def topics(kafka: Kafka) -> Topics:
    """Topics with all kinds of records."""
    return Topics(kafka)


def each(a0: int, a1: int, a2: int) -> str:
    """Returns offsets or times for the three partitions of the topic `a`."""
    return json.dumps({f"{NAME}-a": {"0": a0, "1": a1, "2": a2}})


A = {"subscribe": f"{NAME}-a"}
CASES: dict[str, dict[str, str]] = {
    "defaults": A,
    "headers": {**A, "includeHeaders": "true"},
    "two topics": {"subscribe": f"{NAME}-a,{NAME}-b"},
    "a topic named twice": {"subscribe": f"{NAME}-b,{NAME}-b, {NAME}-b"},
    "pattern": {"subscribePattern": f"{NAME}-[ab]"},
    "pattern finds": {"subscribePattern": "ity-b"},
    "assign": {"assign": json.dumps({f"{NAME}-a": [0], f"{NAME}-b": [0]})},
    "assign what is not there": {"assign": json.dumps({f"{NAME}-b": [0, 7]})},
    "earliest in words": {**A, "startingOffsets": "earliest", "endingOffsets": "latest"},
    "words in capitals": {**A, "startingOffsets": "EARLIEST", "endingOffsets": "Latest"},
    "starting offsets": {**A, "startingOffsets": each(7, 29, 0)},
    "starting offsets, earliest for some": {**A, "startingOffsets": each(7, -2, -2)},
    "ending offsets": {**A, "endingOffsets": each(7, 1, 0)},
    "ending offsets, latest for some": {**A, "endingOffsets": each(-1, 1, -1)},
    "both ends": {**A, "startingOffsets": each(3, 5, 0), "endingOffsets": each(41, 17, 0)},
    "both ends at one place": {**A, "startingOffsets": each(3, 5, 0), "endingOffsets": each(3, 5, 0)},
    "starting timestamp": {**A, "startingTimestamp": str(T0 + 12_500), "startingOffsetsByTimestampStrategy": "latest"},
    "starting timestamps": {
        **A,
        "startingOffsetsByTimestamp": each(T0 + 5000, T0, T0),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "starting later than all": {
        **A,
        "startingTimestamp": str(T0 + 10**9),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "ending timestamp": {**A, "endingTimestamp": str(T0 + 22_000)},
    "ending timestamps": {**A, "endingOffsetsByTimestamp": each(T0 + 5000, T0 + 1, T0)},
    "timestamp before offsets": {
        **A,
        "startingTimestamp": str(T0 + 30_000),
        "startingOffsetsByTimestampStrategy": "latest",
        "startingOffsets": each(0, 0, 0),
    },
    "more tasks": {**A, "minPartitions": "7"},
    "more tasks than records": {"subscribe": f"{NAME}-b", "minPartitions": "20"},
    "fewer tasks than partitions": {**A, "minPartitions": "2"},
    "records per task": {
        **A,
        "maxRecordsPerPartition": "8",
        "startingOffsets": each(0, 0, 0),
        "endingOffsets": each(60, 30, 0),
    },
    "records per task, ends not known": {**A, "maxRecordsPerPartition": "8"},
    "tasks and records": {
        **A,
        "maxRecordsPerPartition": "25",
        "minPartitions": "11",
        "startingOffsets": each(0, 0, 0),
        "endingOffsets": each(60, 30, 0),
    },
    "uncommitted": {"subscribe": f"{NAME}-tx"},
    "committed": {"subscribe": f"{NAME}-tx", "kafka.isolation.level": "read_committed"},
    "committed, in tasks": {"subscribe": f"{NAME}-tx", "kafka.isolation.level": "read_committed", "minPartitions": "5"},
    "nothing there": {"subscribe": f"{NAME}-empty"},
    "nothing there, tasks": {"subscribe": f"{NAME}-empty", "minPartitions": "5"},
    "limits of streams": {**A, "maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "3"},
    "retention passed, earliest": {"subscribe": f"{NAME}-cut"},
    "retention passed, tolerated": {
        "subscribe": f"{NAME}-cut",
        "startingOffsets": json.dumps({f"{NAME}-cut": {"0": 5}}),
        "failOnDataLoss": "false",
    },
    "retention passed, all of it, tolerated": {
        "subscribe": f"{NAME}-cut",
        "startingOffsets": json.dumps({f"{NAME}-cut": {"0": 5}}),
        "endingOffsets": json.dumps({f"{NAME}-cut": {"0": 9}}),
        "failOnDataLoss": "false",
    },
    "client options": {**A, "kafka.max.partition.fetch.bytes": "200", "kafka.fetch.max.wait.ms": "50"},
    "group id": {**A, "kafka.group.id": "parity-group", "groupIdPrefix": "x"},
    "names in any case": {"SUBSCRIBE": f"{NAME}-b", "STARTINGOFFSETS": "earliest", "MINPARTITIONS": "2"},
}


@pytest.mark.parity
@pytest.mark.parametrize("name", CASES)
def test_same_rows(spark: Any, topics: Topics, parity: Parity, name: str) -> None:
    """The same options give the same rows with the same schema in equally many tasks."""
    options = {**topics.servers, **CASES[name]}
    theirs, ours = parity.outcomes([read_batch(spark, source, options) for source in parity.sources])
    assert theirs.schema == ours.schema
    assert theirs.rows == ours.rows
    if {"minPartitions", "maxRecordsPerPartition"} & CASES[name].keys():
        assert tasks(theirs) == tasks(ours)
    else:
        assert tasks(theirs) >= tasks(ours)  # our source makes no task for an empty range


def tasks(outcome: Outcome) -> int:
    """Returns the number of tasks; Spark runs an empty task for a Python source without any."""
    return outcome.tasks if outcome.rows[0][0] else 1


def test_cases_read_something() -> None:
    """Most cases have rows: a comparison of empty results would prove nothing."""
    assert len(CASES) >= 35
