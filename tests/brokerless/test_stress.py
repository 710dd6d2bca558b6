"""Eight threads use consumers, records, metrics and commits at the same time: nothing is lost, repeated or mixed up.

Four threads poll, each with a consumer of its own. Four others use these consumers as any thread may, and read the same
batches, records and iterators. With the GIL, threads switch every microsecond. Without it, this test finds what lacks a
lock.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kconsumer import Consumer, ConsumerRecord, ConsumerRecords, TopicPartition, decode_batches
from kconsumer.testing import FakeCluster
from kconsumer.testing.batches import Rec, build_batch
from support.harnesses.engines import ENGINES

CODECS = ["none", "gzip", "lz4", "zstd"]
COUNT = int(os.environ.get("KCONSUMER_STRESS_RECORDS", "1500"))
"""Records of each partition. There is one partition for each codec."""
TPS = [TopicPartition("t", number) for number in range(len(CODECS))]
READERS = [*ENGINES.values(), {"engine": "threaded", "isolation_level": "read_committed"}]
BATCH = 100


def rec(partition: int, number: int) -> Rec:
    """Returns a record whose parts all say which one it is."""
    text = b"%d of partition %d" % (number, partition)
    return Rec(text * 5, text if number % 3 else None, [("h", text)] * (number % 3))


def check(record: ConsumerRecord) -> None:
    """Check that all parts of a record are those of `rec`."""
    expected = rec(record.partition, record.offset)
    assert (expected.key, expected.value) == (record.key, record.value)
    assert tuple(expected.headers) == record.headers


@pytest.fixture(autouse=True)
def frequent_switches() -> Iterator[None]:
    """Lets threads switch every microsecond."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster whose topic `t` has one partition for each codec."""
    with FakeCluster() as cluster:
        cluster.create_topic("t", partitions=len(TPS))
        for number, codec in enumerate(CODECS):
            for first in range(0, COUNT, BATCH):
                rows = [rec(number, n) for n in range(first, min(first + BATCH, COUNT))]
                cluster.produce("t", rows, partition=number, compression=codec)
        yield cluster


class Reader:
    """A consumer, and what its thread has read."""

    def __init__(self, number: int, cluster: FakeCluster) -> None:
        self.group = f"stress-{number}"
        self.consumer = Consumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **READERS[number],
        )
        self.last = ConsumerRecords.EMPTY  # the last batch, which other threads read, too
        self.read: dict[TopicPartition, list[int]] = {tp: [] for tp in TPS}
        self.ended = threading.Event()

    def run(self) -> None:
        """Read and commit everything."""
        try:
            while sum(map(len, self.read.values())) < COUNT * len(TPS):
                batch = self.last = self.consumer.poll(20.0, max_records=BATCH)
                for record in batch:
                    check(record)
                    self.read[record.topic_partition].append(record.offset)
                self.consumer.commit_async(batch)
            self.consumer.commit()
        finally:
            self.ended.set()

    def accompany(self) -> None:
        """Use the consumer and its batches while the other thread polls."""
        consumer: Any = self.consumer
        while not self.ended.is_set():
            assert consumer.metrics()
            assigned = consumer.assignment()
            if assigned == set(TPS):
                consumer.pause(*TPS[:2])
                consumer.resume(*TPS[:2])
                consumer.commit_async()
                assert set(TPS) == set(consumer.partition_states())
            for record in self.last:
                check(record)


def in_threads(*tasks: Any) -> None:
    """Run functions at the same time. Raises the first error."""
    with ThreadPoolExecutor(len(tasks)) as executor:
        for future in [executor.submit(task) for task in tasks]:
            future.result(120)


def test_consumers_of_eight_threads(cluster: FakeCluster) -> None:
    """Each consumer returns every record once and in order, and commits all, whatever other threads call meanwhile."""
    readers = [Reader(number, cluster) for number in range(len(READERS))]
    try:
        in_threads(*(reader.run for reader in readers), *(reader.accompany for reader in readers))
        for reader in readers:
            assert {tp: list(range(COUNT)) for tp in TPS} == reader.read
            returned = [v for name, v in reader.consumer.metrics().items() if name.name == "records-consumed-total"]
            assert COUNT * len(TPS) in returned
            committed = reader.consumer.committed(TPS)
            assert dict.fromkeys(TPS, COUNT) == {tp: found.offset for tp, found in committed.items() if found}
    finally:
        for reader in readers:
            reader.consumer.close()


@pytest.mark.parametrize("codec", CODECS)
def test_eight_threads_share_an_iterator_and_records(codec: str) -> None:
    """An iterator that threads share gives each record to one of them. All see the same objects in shared records."""
    data = build_batch([rec(0, number) for number in range(COUNT)], codec=codec)
    shared = list(decode_batches(data))
    left = iter(decode_batches(data))
    barrier = threading.Barrier(8)
    taken: list[list[int]] = []
    seen: list[list[tuple[int, int, int]]] = []

    def read() -> None:
        barrier.wait(20)
        own = []
        for record in left:
            own.append(record.offset)
            assert rec(0, record.offset).value == record.value
        taken.append(own)
        seen.append([(id(r.key), id(r.value), id(r.headers)) for r in shared])
        for record in decode_batches(data):
            assert rec(0, record.offset).value == record.value

    in_threads(*[read] * 8)
    assert Counter(range(COUNT)) == Counter(offset for own in taken for offset in own)
    assert [seen[0]] * 8 == seen
