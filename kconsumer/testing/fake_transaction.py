"""A transaction whose records a test produces itself, without a client."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.topic import Partition
from kconsumer.testing.cluster.transactions import Transaction
from kconsumer.testing.produce import (
    Headers,
    ProduceLike,
    Producer,
    RecordMetadata,
    Value,
    as_records,
    check_compression,
)
from kconsumer.testing.record_producer import RecordProducer
from kconsumer.testing.server import Server


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
