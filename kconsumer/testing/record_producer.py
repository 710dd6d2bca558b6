"""Appends the records that a test produces to the partitions of the model, without a client."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kconsumer.testing.arguments import find_partition, find_topic
from kconsumer.testing.batches import build_batch
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.topic import NO_LEADER, Partition
from kconsumer.testing.produce import Partitioner, Producer, RecordMetadata, split
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
