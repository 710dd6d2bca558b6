"""The metrics of fetched data, whichever way a consumer reads: the values of Java's consumer for the same records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from math import isnan
from typing import Any, cast

import pytest

from kconsumer import Consumer, ConsumerRecords, TopicPartition
from kconsumer.aio import AsyncConsumer
from kconsumer.testing import FakeCluster
from support.aio.blocking import BlockingConsumer, ThreadRunners

TOPIC = "t"
RECORDS = 20_000
LIMIT_S = 20.0
NUMBERS = count()  # of topics

ENGINES: dict[str, dict[str, Any]] = {
    "classic": {},
    "threaded": {"engine": "threaded"},
    "consumer protocol": {"group_protocol": "consumer"},
    "asyncio": {"asyncio": True},
}


def poll(consumer: Consumer) -> int:
    """Returns the number of records of a poll."""
    return len(consumer.poll(LIMIT_S))


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    """A cluster with a topic of RECORDS small records in large batches."""
    with FakeCluster(group_initial_rebalance_delay_ms=0) as started:
        started.create_topic(TOPIC, 1)
        for _ in range(RECORDS // 1000):
            started.produce(TOPIC, [b"x" * 10] * 1000)
        yield started


@pytest.fixture(params=ENGINES)
def new_consumer(request: pytest.FixtureRequest, cluster: FakeCluster) -> Iterator[Callable[..., Consumer]]:
    """Returns a function that creates a consumer of each kind, which reads partition 0 of a topic."""
    made: list[Consumer] = []
    runners = ThreadRunners()

    def create(topic: str, **options: Any) -> Consumer:
        options = {"auto_offset_reset": "earliest", "bootstrap_servers": cluster.bootstrap_servers, **options}
        options |= ENGINES[request.param]
        if options.pop("asyncio", False):
            made.append(cast("Consumer", BlockingConsumer(runners, create=AsyncConsumer, **options)))
        else:
            made.append(Consumer(**options))
        made[-1].assign([(topic, 0)])
        return made[-1]

    yield create
    for consumer in made:
        consumer.close()
    runners.close()


def values(consumer: Consumer, *names: str, **tags: str) -> list[float]:
    """Returns the values of metrics with these tags."""
    found = {m.name: v for m, v in consumer.metrics().items() if dict(m.tags).keys() - {"client-id"} == tags.keys()}
    return [found[name] for name in names]


def test_the_age_of_the_last_record(cluster: FakeCluster, new_consumer: Callable[..., Consumer]) -> None:
    """While there is a lag, `records-lag-seconds` is the age of the last record returned; then it is 0. It has no value
    before a record was returned."""
    topic, hour_ms = f"aged-{next(NUMBERS)}", 3_600_000
    cluster.create_topic(topic, 1)
    for hours in (9, 7, 5):
        cluster.produce(topic, [b"v"], timestamp=int(time.time() * 1000) - hours * hour_ms)
    consumer = new_consumer(topic, max_poll_records=1)
    of_partition = {"topic": topic, "partition": "0"}

    def ages() -> list[int]:
        found = values(consumer, "records-lag-seconds", **of_partition) + values(consumer, "records-lag-seconds-max")
        return [round(age / 360) for age in found]

    assert isnan(values(consumer, "records-lag-seconds-max")[0])
    for expected in (90, 70, 0):
        assert poll(consumer) == 1
        assert [expected] * 2 == ages()
    consumer.seek(TopicPartition(topic, 0), 0)
    assert [50, 50] == ages()


class Halving:
    """An interceptor that drops records with odd offsets, and copies the others into a new batch."""

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        return ConsumerRecords([record for record in records if record.offset % 2 == 0])


@pytest.mark.parametrize("interceptors", [[], [Halving()]])
def test_records_that_a_loop_does_not_reach(new_consumer: Callable[..., Consumer], interceptors: list[object]) -> None:
    """Records that a `for` loop drops, because another call follows, are counted when they are taken again, also those
    that an interceptor has dropped."""
    consumer = new_consumer(TOPIC, interceptors=interceptors)
    names = "records-consumed-total", "bytes-consumed-total"
    step = 1 + len(interceptors)
    for reached in range(step, 4, step):
        assert next(iter(consumer)).offset == reached - step
        consumer.seek(TopicPartition(TOPIC, 0), reached)
        assert [reached, reached * 17] == values(consumer, *names)


def test_single_records(cluster: FakeCluster, new_consumer: Callable[..., Consumer]) -> None:
    """Records that are read one by one, as they are written, have the same metrics."""
    topic = f"single-{next(NUMBERS)}"
    cluster.create_topic(topic, 1)
    consumer = new_consumer(topic)
    for number in range(30):
        cluster.produce(topic, [b"x" * number], compression="gzip" if number % 3 else None)
        assert poll(consumer) == 1
    names = "records-consumed-total", "bytes-consumed-total", "records-lag-max"
    assert [30, sum(7 + number for number in range(30)), 0] == values(consumer, *names)
    of_partition = {"topic": topic, "partition": "0"}
    assert [0, 0, 1] == values(consumer, "records-lag-max", "records-lag-avg", "records-lead-min", **of_partition)
