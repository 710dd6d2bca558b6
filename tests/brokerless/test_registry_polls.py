"""Deserializers and decoders of a registry, and types, in consumers of a model cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from kconsumer import Consumer, TopicPartition
from kconsumer.aio import AsyncConsumer
from kconsumer.errors import RecordDeserializationError
from kconsumer.registry import AvroColumns, AvroDeserializer
from kconsumer.testing import FakeCluster
from support.registry import values

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A registry in memory."""
    with SchemaRegistryClient.new_client({"url": "mock://"}) as found:
        yield found


@pytest.fixture(scope="module")
def cluster(client: Any) -> Iterator[FakeCluster]:
    """A topic with numbers as Avro. In partition 0, the value at offset 2 is not Avro."""
    with FakeCluster() as found:
        found.create_topic("orders", partitions=2)
        for partition, numbers in ((0, range(5)), (1, range(10, 13))):
            data: list[bytes | None] = [values.avro(client, values.OLD, {"number": number}) for number in numbers]
            if partition == 0:
                data[2] = b"bad"
            found.produce("orders", data, partition=partition)
        found.create_topic("headers")
        for number in range(4):
            value, headers = values.in_header(client, values.OLD, {"number": number})
            found.produce("headers", [value if number != 2 else b"\2\2"], headers=headers)
        found.create_topic("typed")
        found.produce("typed", [b'{"number": 1}', None, b'{"number": "x"}', b'{"number": 2}'])
        yield found


def numbers(batch: Any) -> list[int]:
    """Returns the numbers of a decoded batch."""
    return [row["number"] for row in batch.to_pyarrow().column("value").to_pylist()]


def options(cluster: FakeCluster) -> dict[str, Any]:
    """Returns the options of a consumer without a group."""
    return {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest"}


def test_columns_stop_before_a_value_that_cannot_be_decoded(cluster: FakeCluster, client: Any) -> None:
    """Rows before it are returned, then the error is raised as often as its position is polled; seek() skips it."""
    column = AvroColumns(client, values.NEW)
    with Consumer(**options(cluster)) as consumer:
        consumer.assign([A])
        assert [0, 1] == numbers(consumer.poll_arrow(10, decode=column))
        assert 2 == consumer.position(A)
        for _ in range(2):
            with pytest.raises(RecordDeserializationError, match="has no Confluent header") as caught:
                consumer.poll_arrow(10, decode={"value": column})
            assert (A, 2, b"bad") == (caught.value.topic_partition, caught.value.offset, caught.value.value)
            assert 2 == consumer.position(A)
        consumer.seek(A, 3)
        batch = consumer.poll_arrow(10, decode=column)
        assert [3, 4] == numbers(batch)
        assert 5 == batch.next_offsets()[A].offset


def test_rows_behind_it_are_counted_once(cluster: FakeCluster, client: Any) -> None:
    """`records-consumed-total` counts the rows behind a value that cannot be decoded when a later batch has them."""
    column = AvroColumns(client, values.NEW)
    with Consumer(**options(cluster)) as consumer:
        consumer.assign([A])
        for start, total in (0, 2), (3, 4):
            consumer.seek(A, start)
            assert 2 == consumer.poll_arrow(10, decode=column).num_rows
            assert total == consumer.metrics()["records-consumed-total"]


def test_nothing_of_other_partitions_is_lost(cluster: FakeCluster, client: Any) -> None:
    """With two partitions, each good record is returned once, whatever the order of the partitions."""
    column = AvroColumns(client, values.NEW)
    found: list[int] = []
    failures = 0
    with Consumer(**options(cluster)) as consumer:
        consumer.assign([A, B])
        while len(found) < 7:
            try:
                found += numbers(consumer.poll_arrow(10, decode=column))
            except RecordDeserializationError as error:
                failures += 1
                consumer.seek(error.topic_partition, error.offset + 1)
    assert ([0, 1, 3, 4, 10, 11, 12], 1) == (sorted(found), failures)


def test_the_offsets_before_it_can_be_committed(cluster: FakeCluster, client: Any) -> None:
    """next_offsets() of the rows before the bad value ends at this value."""
    with Consumer(**options(cluster)) as consumer:
        consumer.assign([A])
        batch = consumer.poll_arrow(10, columns=["value"], decode=AvroColumns(client, values.OLD))
    assert (2, 2) == (batch.num_rows, batch.next_offsets()[A].offset)


class Failing:
    """A decoder that fails as if the registry could not be reached, once."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.failed = False

    def decode(self, column: Any) -> Any:
        if not self.failed:
            self.failed = True
            raise ConnectionError("refused")
        return self._inner.decode(column)


def test_errors_of_the_registry_skip_nothing(cluster: FakeCluster, client: Any) -> None:
    """If the client raises, the next poll returns the same records."""
    column = Failing(AvroColumns(client, values.OLD))
    with Consumer(**options(cluster)) as consumer:
        consumer.assign([B])
        with pytest.raises(ConnectionError, match="refused"):
            consumer.poll_arrow(10, decode=column)
        assert [10, 11, 12] == numbers(consumer.poll_arrow(10, decode=column))


def test_columns_with_asyncio(cluster: FakeCluster, client: Any) -> None:
    """AsyncConsumer returns the same rows, and raises at the same record."""
    column = AvroColumns(client, values.NEW)

    async def read() -> tuple[list[int], int]:
        async with AsyncConsumer(**options(cluster)) as consumer:
            consumer.assign([A])
            first = numbers(await consumer.poll_arrow(10, decode=column))
            with pytest.raises(RecordDeserializationError) as caught:
                await consumer.poll_arrow(10, decode=column)
            return first, caught.value.offset

    assert ([0, 1], 2) == asyncio.run(read())


def test_objects(cluster: FakeCluster, client: Any) -> None:
    """The deserializer is an option of the consumer; a value that it rejects raises RecordDeserializationError."""
    with Consumer(**options(cluster), value_deserializer=AvroDeserializer(client)) as consumer:
        consumer.assign([A])
        assert [{"number": 0}, {"number": 1}] == [record.value for record in consumer.poll(10)]
        with pytest.raises(RecordDeserializationError, match="has no Confluent header"):
            consumer.poll(10)
