"""Fetch sessions on real brokers: thousands of partitions, more consumers than session slots, and lost sessions."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack

import pytest

from kconsumer import Consumer, TopicPartition
from kconsumer._internal.managers import Reply, UnsentRequest
from kconsumer.fetching.session import FetchSession
from kconsumer.schema.fetch import FETCH, FetchRequest
from support.brokers.kafka import CHOSEN_VERSION, OLD_VERSION, KafkaCluster
from support.harnesses.inside import engine_of, parts_of
from support.harnesses.polling import tps

SLOTS = 8
"""Brokers divide the slots among eight shards: the fewest with which there are sessions at all, one in each."""

Seen = Counter[tuple[int, bytes | None]]


@pytest.fixture(scope="module", params=sorted({CHOSEN_VERSION, OLD_VERSION}))
def small_cache(request: pytest.FixtureRequest, new_cluster: type[KafkaCluster]) -> Iterator[KafkaCluster]:
    """A broker, of the chosen version and of the 3.9 line, with few slots for fetch sessions."""
    properties = {"max.incremental.fetch.session.cache.slots": str(SLOTS), "num.partitions": "1"}
    with new_cluster(request.param, properties=properties) as cluster:
        yield cluster


def produce(cluster: KafkaCluster, topic: str, partitions: Iterable[int], name: str) -> Seen:
    """Write one record for each mention of a partition. Returns the written values."""
    producer = cluster.producer({"linger.ms": 50, "enable.idempotence": True})
    written: Seen = Counter()
    for number, partition in enumerate(partitions):
        value = f"{name}-{number}".encode()
        producer.produce(topic, value, partition=partition)
        written[partition, value] += 1
    assert 0 == producer.flush(200)  # brokers with a slow disk need time to create thousands of logs
    return written


def read(consumer: Consumer, seen: Seen, wanted: Seen, timeout_s: float = 60) -> None:
    """Poll until the expected number of records was returned."""
    deadline = time.monotonic() + timeout_s
    while seen.total() < wanted.total():
        seen.update((record.partition, record.value) for record in consumer.poll(1.0))
        assert time.monotonic() < deadline, f"{seen.total()} of {wanted.total()}; {consumer!r}"


def session(consumer: Consumer) -> FetchSession:
    """Returns the consumer's fetch session with the only broker."""
    (target,) = [target for target in parts_of(consumer).fetch.planner if target.chains]
    return target.session


def make_consumer(cluster: KafkaCluster, partitions: Iterable[TopicPartition]) -> Consumer:
    """Make a consumer that reads these partitions from the start."""
    consumer = Consumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", fetch_max_wait_ms=100
    )
    consumer.assign(partitions)
    return consumer


def end_session(other: Consumer, wanted: FetchSession) -> None:
    """Make the broker remove a session, as when it needs the slot. Any client that has the id may end the session."""
    replies: list[Reply] = []
    message = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, session_id=wanted.id, session_epoch=-1)
    engine = engine_of(other)
    with engine.changing():
        engine.components.dispatcher.submit(
            [UnsentRequest(FETCH, message, replies.append, str(wanted.broker))], engine.components.clock.now()
        )
        deadline = time.monotonic() + 10
        while not replies:
            engine.components.dispatcher.step(100)
            assert time.monotonic() < deadline
    assert replies[0].error is None


@pytest.mark.timeout(400)
def test_two_thousand_partitions(small_cache: KafkaCluster, topic_name: str) -> None:
    """Each record of 2,000 partitions is returned once: all at the start, a few later, with pauses and a lost session
    between. On the broker line that was not chosen, the test has 200 partitions.
    """
    many = 2000 if small_cache.version == CHOSEN_VERSION else 200
    small_cache.create_topic(topic_name, many)
    partitions = tps(topic_name, *range(many))
    wanted = produce(small_cache, topic_name, range(many), "start")
    seen: Seen = Counter()
    with make_consumer(small_cache, partitions) as consumer, make_consumer(small_cache, partitions[:1]) as other:
        read(consumer, seen, wanted)
        assert wanted == seen
        first = session(consumer).id
        assert first > 0
        for number in range(3):
            epoch = session(consumer).epoch
            wanted += produce(small_cache, topic_name, range(number, many, many // 20), f"later-{number}")
            read(consumer, seen, wanted)
            assert session(consumer).epoch > epoch  # an incremental fetch returned these records
        assert first == session(consumer).id
        consumer.pause(*partitions[::2])
        wanted += (odd := produce(small_cache, topic_name, range(1, many, 2 * (many // 80)), "odd"))
        later = produce(small_cache, topic_name, range(0, many, 2 * (many // 80)), "even")
        read(consumer, seen, wanted)
        assert odd == Counter({row: count for row, count in seen.items() if row in odd})
        other.poll(1)
        end_session(other, session(consumer))
        consumer.resume(*partitions[::2])
        wanted += later
        read(consumer, seen, wanted)
        wanted += produce(small_cache, topic_name, range(0, many, many // 10), "end")
        read(consumer, seen, wanted)
        assert first != session(consumer).id
        assert not consumer.poll(0.5)
    assert wanted == seen


def test_more_consumers_than_sessions(small_cache: KafkaCluster, topic_name: str) -> None:
    """Consumers with and without a session, and consumers whose sessions end repeatedly, return each record once."""
    small_cache.create_topic(topic_name, 4)
    partitions = tps(topic_name, *range(4))
    wanted: Seen = Counter()
    with ExitStack() as stack:
        consumers = [stack.enter_context(make_consumer(small_cache, partitions)) for _ in range(SLOTS + 4)]
        seen: list[Seen] = [Counter() for _ in consumers]
        ended: set[int] = set()
        for number in range(6):
            wanted += produce(small_cache, topic_name, [0, 1, 2, 3, 0, 1, 0], str(number))
            for consumer, found in zip(consumers, seen, strict=True):
                read(consumer, found, wanted)
            held = [consumer for consumer in consumers if session(consumer).id]
            assert 0 < len(held) <= SLOTS
            chosen = held[number % len(held)]
            ended.add(session(chosen).id)
            end_session(consumers[number], session(chosen))
        for consumer, found in zip(consumers, seen, strict=True):
            assert not consumer.poll(0.2)
            assert wanted == found
        assert 6 == len(ended)
