"""Appends the records that a test produces to the partitions of the model, without a client, also in transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Self

from kconsumer.testing.arguments import find_partition, find_topic
from kconsumer.testing.batches import build_batch
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.topic import NO_LEADER, Partition
from kconsumer.testing.cluster.transactions import Transaction
from kconsumer.testing.produce import (
    Headers,
    Partitioner,
    ProduceLike,
    Producer,
    RecordMetadata,
    Value,
    as_records,
    check_compression,
    split,
)
from kconsumer.testing.records import Rec
from kconsumer.testing.server import Server

#: Returns the producer of a batch for a partition with a number of records, at a time in ms.
ProducerOf = Callable[[Partition, int, float], Producer]


class RecordProducer:
    """Spreads records over the partitions of a topic, and appends them as batches."""

    def __init__(self, cluster: Cluster, server: Server) -> None:
        self._cluster = cluster
        self._server = server
        self._partitioner = Partitioner()

    def produce(
        self,
        topic: str,
        records: list[Rec],
        partition: int | None,
        timestamp: int | None,
        codec: str,
        producer_of: ProducerOf | None = None,
    ) -> list[RecordMetadata]:
        """Append records. Returns where each of them is.

        `producer_of`: returns the producer of a batch in a transaction. None: no transaction. Raises ValueError for an
        unknown topic or partition, and RuntimeError if a partition has no leader.
        """
        with self._server.change() as now:
            count = len(find_topic(self._cluster, topic).partitions)
            if partition is not None:
                find_partition(self._cluster, topic, partition)
            chosen = [
                self._partitioner.partition(topic, record.key, count) if partition is None else partition
                for record in records
            ]
            by_partition = {index: self._leading(topic, index) for index in sorted(set(chosen))}
            offsets: dict[int, Iterator[int]] = {}
            for index, to in by_partition.items():
                rows = [record for record, at in zip(records, chosen, strict=True) if at == index]
                offsets[index] = iter(self._append(to, rows, timestamp, codec, now, producer_of))
            return [RecordMetadata(topic, index, next(offsets[index])) for index in chosen]

    def _leading(self, topic: str, index: int) -> Partition:
        """Returns a partition. Raises RuntimeError if it has no leader."""
        partition = find_partition(self._cluster, topic, index)
        if partition.leader == NO_LEADER:
            brokers = f"start one of the brokers {partition.replicas}"
            raise RuntimeError(f"partition {topic}-{index} has no leader; {brokers}")
        return partition

    def _append(
        self,
        partition: Partition,
        records: list[Rec],
        timestamp: int | None,
        codec: str,
        now: float,
        producer_of: ProducerOf | None,
    ) -> list[int]:
        first = partition.log.end
        wall_ms = self._cluster.wall_ms(now, self._cluster.brokers[partition.leader])
        at = wall_ms if timestamp is None else timestamp
        for rows in split(records):
            if producer_of is None:
                batch = build_batch(rows, timestamp=at, codec=codec)
            else:
                producer = producer_of(partition, len(rows), now)
                batch = build_batch(
                    rows,
                    timestamp=at,
                    codec=codec,
                    producer_id=producer.id,
                    producer_epoch=producer.epoch,
                    base_sequence=producer.base_sequence,
                    transactional=True,
                )
            partition.append(batch, wall_ms)
        return list(range(first, partition.log.end))


class FakeTransaction:
    """A transaction of a `FakeCluster`. It is committed at the end of the `with` block, or aborted on an exception."""

    def __init__(self, cluster: Cluster, server: Server, producer: RecordProducer, transactional_id: str) -> None:
        self._cluster = cluster
        self._server = server
        self._producer = producer
        self._id = transactional_id
        self._transaction: Transaction | None = None  # None before the block and when the transaction has ended
        self._sequences: dict[Partition, int] = {}

    def __enter__(self) -> Self:
        with self._server.change() as now:
            timeout_ms = self._cluster.settings.transaction_max_timeout_ms
            self._transaction = self._cluster.transactions.init_producer(self._id, timeout_ms, now)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._transaction is not None:
            self._end(commit=error is None)

    def produce(
        self,
        topic: str,
        values: ProduceLike | Iterable[ProduceLike],
        partition: int | None = None,
        key: Value = None,
        headers: Headers = (),
        timestamp: int | None = None,
        compression: str | None = None,
    ) -> list[RecordMetadata]:
        """Append records to the transaction. Arguments and result are those of `FakeCluster.produce`."""
        self._open()
        rows = as_records(values, key, headers)
        codec = check_compression(compression)
        return self._producer.produce(topic, rows, partition, timestamp, codec, self._producer_of)

    def abort(self) -> None:
        """Abort the transaction. The `with` block may continue, but `produce` then raises RuntimeError."""
        self._open()
        self._end(commit=False)

    def _producer_of(self, partition: Partition, count: int, now: float) -> Producer:
        """Add a partition to the transaction. Returns the producer fields of its next batch of `count` records."""
        transaction = self._open()
        self._cluster.transactions.add_partitions(transaction, [partition], now)
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + count
        return Producer(transaction.producer_id, transaction.producer_epoch, sequence)

    def _open(self) -> Transaction:
        """Returns the transaction. Raises RuntimeError if it has ended, or has not begun."""
        if self._transaction is None:
            raise RuntimeError("the transaction is not open: use it in `with cluster.transaction() as transaction:`")
        return self._transaction

    def _end(self, *, commit: bool) -> None:
        """End the transaction: commit or abort its records, if it has any."""
        transaction, self._transaction = self._open(), None
        with self._server.change() as now:
            if transaction.partitions:
                self._cluster.transactions.end(transaction, now, commit=commit)
