"""DeadLetters with the producers of other clients: what is written, and that nothing is committed that was not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kconsumer import Consumer, ConsumerRecord
from kconsumer.aio import AsyncConsumer
from kconsumer.errors import ConfigError, TimeoutError
from kconsumer.parallel import DeadLetters, Retry, Summary, process, stop
from kconsumer.testing import FakeCluster
from support.harnesses.parallel_runs import options

RETRY = Retry(attempts=2, backoff_s=0)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with a topic of three records, of which the handlers refuse the second one."""
    with FakeCluster() as cluster:
        cluster.create_topic("orders", 1)
        cluster.create_topic("dead", 1)
        cluster.produce("orders", [("a", "1")])
        cluster.produce(
            "orders", [b"bad"], key=b"b", headers=[("h", b"x"), ("null", None)], timestamp=1_700_000_000_000
        )
        cluster.produce("orders", [("c", "3")])
        yield cluster


def refuse(record: ConsumerRecord) -> None:
    """Fail for the second record, and stop the run after the third."""
    if record.value == b"3":
        stop()
    if record.value == b"bad":
        raise ValueError("no such customer")


def check(cluster: FakeCluster, null: bytes | None = None) -> None:
    """Check the dead letter, whose header without a value has the value `null`, and that all records are committed."""
    with Consumer("dead", **options(cluster, group_id="check")) as consumer:
        record = next(iter(consumer))
    assert (b"b", b"bad", 1_700_000_000_000) == (record.key, record.value, record.timestamp)
    headers = dict(record.headers)
    assert (("h", b"x"), ("null", null)) == record.headers[:2]
    assert b"orders" == headers["kafka_dlt-original-topic"]
    assert [0, 1, 2] == [
        int.from_bytes(headers[name] or b"", "big")
        for name in ("kafka_dlt-original-partition", "kafka_dlt-original-offset", "kafka_deliveryAttempt")
    ]
    assert b"g" == headers["kafka_dlt-original-consumer-group"]
    assert b"builtins.ValueError" == headers["kafka_dlt-exception-fqcn"]
    assert b"no such customer" == headers["kafka_dlt-exception-message"]
    assert [3] == [committed.offset for committed in cluster.committed("g").values()]


def confluent(cluster: FakeCluster) -> Any:
    """Returns a producer of confluent-kafka."""
    from confluent_kafka import Producer

    return Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})


def kafka_python(cluster: FakeCluster) -> Any:
    """Returns a producer of kafka-python."""
    from kafka import KafkaProducer

    return KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all", enable_idempotence=False)


# The import of kafka-python uses what Python 3.11 and later deprecate.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("create", [confluent, kafka_python])
def test_dead_letters_of_threads(cluster: FakeCluster, create: Callable[[FakeCluster], Any]) -> None:
    """The record is written as it was, with headers that say where it is from and why it failed."""
    producer = create(cluster)
    with Consumer("orders", **options(cluster)) as consumer:
        summary = process(consumer, refuse, retry=RETRY, on_failure=DeadLetters(producer, "dead"))
    if hasattr(producer, "close"):
        producer.close()
    assert (2, 1) == (summary.processed, summary.failed)
    check(cluster, None if create is confluent else b"")


def test_dead_letters_of_coroutines(cluster: FakeCluster) -> None:
    """With aiokafka, the producer is awaited."""
    from aiokafka import AIOKafkaProducer

    async def handle(record: ConsumerRecord) -> None:
        refuse(record)

    async def run() -> Summary:
        async with (
            AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer,
            AsyncConsumer("orders", **options(cluster)) as consumer,
        ):
            dead_letters = DeadLetters(producer, "dead")
            with Consumer("orders", **options(cluster)) as other, pytest.raises(TypeError, match="executor='asyncio'"):
                process(other, refuse, on_failure=dead_letters)
            return await process(consumer, handle, executor="asyncio", retry=RETRY, on_failure=dead_letters)

    summary = asyncio.run(run())
    assert (2, 1) == (summary.processed, summary.failed)
    check(cluster)


class Undelivered:
    """A producer like that of confluent-kafka which delivers nothing, or reports an error."""

    def __init__(self, error: str | None) -> None:
        self._error = error

    def produce(self, topic: str, on_delivery: Callable[[object, object], None], **record: Any) -> None:
        """Report the error, if there is one."""
        if self._error is not None:
            on_delivery(self._error, None)

    def poll(self, timeout: float) -> None:
        """Do nothing."""


@pytest.mark.parametrize(("error", "expected"), [(None, TimeoutError), ("the topic is gone", RuntimeError)])
def test_what_is_not_delivered_is_not_committed(
    cluster: FakeCluster, error: str | None, expected: type[Exception]
) -> None:
    """The run ends with the error, and the next one begins with the record."""
    dead_letters = DeadLetters(Undelivered(error), "dead", timeout_s=0.1)
    with Consumer("orders", **options(cluster)) as consumer, pytest.raises(expected, match="dead letter was not deliv"):
        process(consumer, refuse, retry=None, on_failure=dead_letters)
    assert [1] == [committed.offset for committed in cluster.committed("g").values()]


def test_objects_are_refused(cluster: FakeCluster) -> None:
    """A value that a deserializer has made is not written as something else."""
    dead_letters = DeadLetters(Undelivered(None), "dead", timeout_s=0.1)
    chosen = options(cluster, value_deserializer=lambda data: {"text": data})
    with Consumer("orders", **chosen) as consumer, pytest.raises(TypeError, match="deserialize in the handler"):
        process(consumer, lambda record: 1 / 0, retry=None, on_failure=dead_letters)
    with pytest.raises(ConfigError, match="takes a producer of"):
        DeadLetters(object(), "dead")
