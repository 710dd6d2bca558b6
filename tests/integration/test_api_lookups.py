"""Look-ups: offsets by time, ends of partitions, lag, topics, metrics and partition states."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from kconsumer import Consumer, OffsetAndTimestamp, TopicPartition
from kconsumer.errors import InvalidTopicError, StateError, TimeoutError
from kconsumer.types import PartitionCondition
from support.brokers.kafka import Kafka, KafkaCluster
from support.harnesses.polling import await_assignment, numbered, poll_until, read, tps, values
from support.harnesses.stopwatch import Stopwatch

New = Callable[..., Consumer]


# --- offsets ---


def test_offsets_for_times(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """offsets_for_times() returns the first record at or after each time, or None past the last one, also for
    partitions that are not assigned (Java testOffsetsForTimes).
    """
    kafka.create_topic(topic_name, 3)
    base = 1_700_000_000_000
    for partition in (0, 1):
        stamps = [base + n * 10 for n in range(100)]
        kafka.produce(topic_name, numbered(100), partition=partition, timestamps=stamps)
    zero, one, two = tps(topic_name, 0, 1, 2)
    consumer = new_consumer()
    assert {zero: OffsetAndTimestamp(0, base, 0), one: OffsetAndTimestamp(20, base + 200, 0), two: None} == (
        consumer.offsets_for_times({zero: 0, one: base + 195, two: 0})
    )
    assert {zero: None} == consumer.offsets_for_times({zero: base + 1000})
    assert {} == consumer.offsets_for_times({})
    with pytest.raises(ValueError, match="negative"):
        consumer.offsets_for_times({zero: -1})


def test_seek_to_time(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """seek_to_time() sets positions to the first records at or after a time, and to the end where there are none."""
    kafka.create_topic(topic_name, 2)
    base = 1_700_000_000_000
    kafka.produce(topic_name, numbered(100), partition=0, timestamps=[base + n * 10 for n in range(100)])
    kafka.produce(topic_name, numbered(5), partition=1, timestamps=[base] * 5)
    zero, one = tps(topic_name, 0, 1)
    consumer = new_consumer()
    with pytest.raises(StateError, match="is not assigned to this consumer; poll"):
        consumer.seek_to_time(base, zero)
    consumer.assign([zero, one])
    consumer.seek_to_time(datetime.fromtimestamp((base + 195) / 1000, UTC))
    assert (20, 5) == (consumer.position(zero), consumer.position(one))
    assert 20 == next(iter(consumer.poll(20))).offset
    consumer.seek_to_time(base, one)
    assert (0, True) == (consumer.position(one), consumer.position(zero) > 20)
    with pytest.raises(ValueError, match="no time zone"):
        consumer.seek_to_time(datetime(2026, 1, 1))
    consumer.assign([])
    consumer.seek_to_time(base)


def test_beginning_and_end_offsets(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """Beginning and end offsets are correct for assigned and other partitions, before and after records are deleted.
    The look-ups change no position.
    """
    kafka.create_topic(topic_name, 2)
    kafka.produce(topic_name, numbered(10), partition=1)
    zero, one = tps(topic_name, 0, 1)
    consumer = new_consumer()
    assert {zero: 0, one: 0} == consumer.beginning_offsets([zero, one])
    assert {zero: 0, one: 10} == consumer.end_offsets([zero, one])
    consumer.assign([one])
    consumer.seek(one, 2)
    kafka.delete_records(topic_name, {1: 4})
    assert ({one: 4}, {one: 10}) == (consumer.beginning_offsets([one]), consumer.end_offsets([one]))
    assert 2 == consumer.position(one)
    assert ({}, {}) == (consumer.beginning_offsets([]), consumer.end_offsets([]))


def test_current_lag(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """current_lag() returns None at first, then the end offset minus the position, without a fetch, also for a paused
    partition.
    """
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(10))
    (tp,) = tps(topic_name, 0)
    consumer = new_consumer()
    consumer.assign([tp])
    assert consumer.current_lag(tp) is None
    consumer.pause(tp)
    consumer.seek(tp, 3)
    poll_until(consumer, lambda: consumer.current_lag(tp) == 7)
    consumer.resume(tp)
    read(consumer, 7)
    assert 0 == consumer.current_lag(tp)
    consumer.seek(tp, 4)
    assert 6 == consumer.current_lag(tp)


# --- topics ---


def test_partitions_for(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """partitions_for() returns the partitions with leader and replicas of a topic that the consumer has not used
    before.
    """
    kafka.create_topic(topic_name, 3)
    consumer = new_consumer()
    infos = consumer.partitions_for(topic_name)
    assert [(topic_name, 0), (topic_name, 1), (topic_name, 2)] == [(i.topic, i.partition) for i in infos]
    for info in infos:
        assert info.leader is not None
        assert (info.leader,) == info.replicas == info.in_sync_replicas
        assert f"{info.leader.host}:{info.leader.port}" == kafka.bootstrap_servers
    assert infos == consumer.partitions_for(topic_name)


def test_partitions_for_a_topic_with_an_illegal_name(new_consumer: New) -> None:
    """InvalidTopicError names the topic (Java testPartitionsForInvalidTopic)."""
    with pytest.raises(InvalidTopicError, match=";3# ads"):
        new_consumer().partitions_for(";3# ads,{234")


def test_list_topics(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """list_topics() returns all topics with their partitions, including topics created after the first call, whatever
    the subscription is.
    """
    kafka.create_topic(topic_name, 2)
    consumer = new_consumer(topic_name, group_id=topic_name)
    assert 2 == len(consumer.list_topics()[topic_name])
    later = kafka.create_topic(topic_name + "-later", 4)
    listed = consumer.list_topics()
    assert (2, 4) == (len(listed[topic_name]), len(listed[later]))
    assert frozenset({topic_name}) == consumer.subscription()


def test_time_limits_of_lookups(new_consumer: New) -> None:
    """Without a broker every look-up raises TimeoutError after its own timeout; a timeout of zero does not wait."""
    consumer = new_consumer(bootstrap_servers="127.0.0.1:1", group_id="g")
    tp = TopicPartition("t", 0)
    calls: list[Callable[[float], Any]] = [
        lambda t: consumer.partitions_for("t", timeout=t),
        lambda t: consumer.list_topics(timeout=t),
        lambda t: consumer.beginning_offsets([tp], timeout=t),
        lambda t: consumer.end_offsets([tp], timeout=t),
        lambda t: consumer.offsets_for_times({tp: 0}, timeout=t),
        lambda t: consumer.committed([tp], timeout=t),
        lambda t: consumer.commit({tp: 0}, timeout=t),
    ]
    for call in calls:
        for limit in (0, 0.2):
            watch = Stopwatch()
            with pytest.raises(TimeoutError):
                call(limit)
            assert limit <= watch.clock()
            assert watch.seconds() < limit + 1.0


# --- creating topics ---


@pytest.fixture(scope="module")
def creating(new_cluster: type[KafkaCluster]) -> Iterator[KafkaCluster]:
    """A broker that creates a topic when a client requests its metadata."""
    with new_cluster(properties={"auto.create.topics.enable": "true", "num.partitions": "2"}) as cluster:
        yield cluster


@pytest.fixture
def wanted(creating: KafkaCluster, topic_name: str, new_consumer: New) -> Callable[[bool], tuple[Consumer, ...]]:
    """Returns a function that makes consumers that subscribe to, are assigned, and look up topics that do not exist."""

    def make(allowed: bool) -> tuple[Consumer, ...]:
        options = {
            "bootstrap_servers": creating.bootstrap_servers,
            "allow_auto_create_topics": allowed,
            "metadata_max_age_ms": 100,
        }
        subscribed = new_consumer(f"{topic_name}-subscribed", group_id=topic_name, **options)
        assigned = new_consumer(**options)
        assigned.assign(tps(f"{topic_name}-assigned", 0))
        return subscribed, assigned

    return make


def existing(kafka: Kafka, prefix: str) -> set[str]:
    """Returns the suffixes of the topics that exist."""
    return {name.removeprefix(prefix) for name in kafka.metadata().topics if name.startswith(prefix)}


def test_topics_are_not_created_unless_allowed(
    creating: KafkaCluster, topic_name: str, wanted: Callable[[bool], tuple[Consumer, ...]]
) -> None:
    """With allow_auto_create_topics=False, subscribing, assigning and looking up create no topic (Java
    ConsumerTopicCreationTest).
    """
    consumers = wanted(False)
    for _ in range(3):
        for consumer in consumers:
            assert not consumer.poll(0.2)
            assert () == consumer.partitions_for(f"{topic_name}-asked")
    assert set() == existing(creating, topic_name)


def test_topics_are_created_when_allowed(
    creating: KafkaCluster, topic_name: str, wanted: Callable[[bool], tuple[Consumer, ...]]
) -> None:
    """With allow_auto_create_topics=True, the same calls create the topics, and records written later are read."""
    subscribed, assigned = wanted(True)
    poll_until(subscribed, lambda: len(subscribed.assignment()) == 2)
    poll_until(assigned, lambda: len(assigned.partitions_for(f"{topic_name}-asked")) == 2)
    poll_until(assigned, lambda: {"-subscribed", "-assigned", "-asked"} == existing(creating, topic_name))
    for consumer, topic in ((subscribed, f"{topic_name}-subscribed"), (assigned, f"{topic_name}-assigned")):
        creating.produce(topic, [b"v"], partition=0)
        assert [b"v"] == values(read(consumer, 1))


def test_listing_topics_creates_none(creating: KafkaCluster, topic_name: str, new_consumer: New) -> None:
    """list_topics() and a pattern create no topic."""
    consumer = new_consumer(bootstrap_servers=creating.bootstrap_servers, group_id=topic_name)
    consumer.subscribe(re.compile(f"{topic_name}.*"))
    assert not consumer.poll(0.3)
    assert topic_name not in consumer.list_topics()
    assert set() == existing(creating, topic_name)


# --- metrics and states ---


def metric(consumer: Consumer, name: str, **tags: str) -> float | None:
    """Returns the value of the fetch metric with this name whose tags include the given ones."""
    found = [
        value
        for key, value in consumer.metrics().items()
        if (key.name, key.group) == (name, "consumer-fetch-manager-metrics")
        and ({k: v for k, v in key.tags if k in ("topic", "partition")} == tags)
    ]
    assert len(found) <= 1
    return found[0] if found else None


def test_fetch_metrics(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """Totals, sizes, lag and lead have Java's names. The metrics of a partition are removed when the partition is no
    longer assigned (Java testPerPartitionLag…, …Lead…).
    """
    kafka.create_topic(topic_name, 2)
    for partition in (0, 1):
        kafka.produce(topic_name, numbered(1000), partition=partition)
    zero, one = tps(topic_name, 0, 1)
    consumer = new_consumer(max_poll_records=10)
    consumer.assign([zero])
    read(consumer, 1000)
    for tags in ({}, {"topic": topic_name}):
        assert 1000 == metric(consumer, "records-consumed-total", **tags)
    poll_until(consumer, lambda: (metric(consumer, "records-per-request-avg") or 0) > 0)  # recorded by the next polls
    assert 0 == metric(consumer, "records-lag", topic=topic_name, partition="0")
    assert 1000 == metric(consumer, "records-lead", topic=topic_name, partition="0")
    for name in ("fetch-total", "bytes-consumed-total", "fetch-latency-avg", "records-per-request-avg", "fetch-rate"):
        assert (metric(consumer, name) or 0) > 0, name
    consumer.assign([one])
    poll_until(consumer, lambda: metric(consumer, "records-lead", topic=topic_name, partition="1") is not None)
    assert metric(consumer, "records-lag", topic=topic_name, partition="0") is None
    assert metric(consumer, "records-lead", topic=topic_name, partition="0") is None


def test_partition_states_have_reasons(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """partition_states() shows name, reason, numbers and age of each state of a partition."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(10))
    (tp,) = tps(topic_name, 0)
    consumer = new_consumer(max_poll_records=4)
    assert {} == consumer.partition_states()
    consumer.assign([tp])
    state = consumer.partition_states()[tp]
    assert (PartitionCondition.INITIALIZING, None, 0) == (state.state, state.position, state.buffered_bytes)
    read(consumer, 4)
    state = consumer.partition_states()[tp]
    assert (PartitionCondition.BUFFERED, 4, 10, 6) == (state.state, state.position, state.high_watermark, state.lag)
    assert state.buffered_bytes > 0
    consumer.pause(tp)
    state = consumer.partition_states()[tp]
    assert PartitionCondition.PAUSED is state.state
    assert "resume" in state.reason
    assert 0 <= state.since < 1
    consumer.resume(tp)
    read(consumer, 6, max_records=6)
    state = consumer.partition_states()[tp]
    assert (PartitionCondition.IN_FLIGHT, 0) == (state.state, state.lag)
    consumer.seek_to_beginning(tp)
    state = consumer.partition_states()[tp]
    assert (PartitionCondition.AWAIT_RESET, None) == (state.state, state.position)
    assert "earliest" in state.reason


def test_states_of_a_group_member(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """partition_states() lists exactly the assigned partitions, in order."""
    kafka.create_topic(topic_name, 12)
    consumer = new_consumer(topic_name, group_id=topic_name)
    partitions = tps(topic_name, *range(12))
    await_assignment(consumer, *partitions)
    assert list(partitions) == list(consumer.partition_states())
    consumer.unsubscribe()
    assert {} == consumer.partition_states()
    with pytest.raises(StateError):
        consumer.current_lag(partitions[0])
