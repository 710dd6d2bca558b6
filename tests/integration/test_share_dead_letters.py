"""Dead-letter topics of share groups (KIP-1191), and runs of kconsumer.parallel whose records end there."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pytest

from kconsumer import Consumer, ConsumerRecord, ShareConsumer, groups, parallel
from support.brokers.kafka import Kafka
from support.members.share_groups import configure_group

pytestmark = [pytest.mark.consumer_protocol, pytest.mark.network_thread]

ENABLED = {"errors.deadletterqueue.group.enable": "true"}


def configure(kafka: Kafka, topic_name: str, config: Mapping[str, str]) -> str:
    """Give the group a dead-letter topic. Returns its name."""
    name = f"dlq.{topic_name}"
    kafka.create_topic(name, 2, config=ENABLED)
    shared = {"share.auto.offset.reset": "earliest", "errors.deadletterqueue.topic.name": name}
    configure_group(kafka.bootstrap_servers, topic_name, {**shared, **config})
    return name


def dead_letters(kafka: Kafka, name: str, count: int) -> list[ConsumerRecord]:
    """Returns this many records of a dead-letter topic."""
    with Consumer(
        name, bootstrap_servers=kafka.bootstrap_servers, group_id=name, auto_offset_reset="earliest"
    ) as consumer:
        return [record for _, record in zip(range(count), consumer, strict=False)]


@pytest.mark.parametrize("copies", [True, False])
def test_given_up_records_are_written(kafka: Kafka, topic_name: str, copies: bool) -> None:
    """A rejected record and one whose deliveries are exhausted have headers that say where they are from, and why."""
    kafka.create_topic(topic_name)
    name = configure(kafka, topic_name, {"errors.deadletterqueue.copy.record.enable": str(copies).lower()})
    kafka.produce(topic_name, [b"a", b"b", b"c"], keys=[b"k", b"k", b"k"], headers=[("mine", b"1")])
    deliveries = 0
    with ShareConsumer(
        topic_name,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=topic_name,
        share_acknowledgement_mode="explicit",
    ) as consumer:
        while deliveries < 7:
            for record in consumer.poll(1.0):
                deliveries += 1
                (record.reject, record.release, record.ack)[record.offset]()
            consumer.commit()
    found = dead_letters(kafka, name, 2)
    for record, offset, count, message in zip(
        found,
        (0, 1),
        (1, 5),
        ("Offset rejected by client.", "Offset delivery count exceeded the threshold."),
        strict=True,
    ):
        about = {
            "topic": topic_name,
            "partition": 0,
            "offset": offset,
            "group": topic_name,
            "delivery.count": count,
            "message": message,
        }
        expected = tuple((f"__dlq.errors.{key}", str(value).encode()) for key, value in about.items())
        assert (0, set(expected)) == (record.partition, set(record.headers))
        assert ((b"k", b"ab"[offset : offset + 1]) if copies else (None, None)) == (record.key, record.value)


def test_a_run_rejects_into_the_dead_letter_topic(kafka: Kafka, topic_name: str) -> None:
    """While a handler is slow, all other records are processed. Those that fail, or that a deserializer refuses, are
    written to the dead-letter topic.
    """
    kafka.create_topic(topic_name, 2)
    name = configure(kafka, topic_name, {"errors.deadletterqueue.copy.record.enable": "true"})
    for partition in range(2):
        kafka.produce(topic_name, [b"%d" % n for n in range(partition, 200, 2)], partition=partition)
    finished: set[int] = set()
    others = threading.Event()

    def deserialize(data: bytes) -> int:
        if data == b"5":
            raise ValueError(data)
        return int(data)

    def handle(record: ConsumerRecord) -> None:
        if record.value == 7:
            raise ValueError(record.value)
        if record.value == 9:
            assert others.wait(60)
        finished.add(record.value)
        if len(finished) == 197:
            others.set()

    with ShareConsumer(
        topic_name,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=topic_name,
        share_acknowledgement_mode="explicit",
        value_deserializer=deserialize,
        consumer_timeout_ms=5000,
    ) as consumer:
        summary = parallel.process(consumer, handle, workers=4, order="none", retry=None, on_failure="skip")
    assert (198, 2, "idle") == (summary.processed, summary.failed, summary.reason)
    assert {b"5", b"7"} == {record.value for record in dead_letters(kafka, name, 2)}
    offsets = groups.offsets(topic_name, bootstrap_servers=kafka.bootstrap_servers)
    assert {0} == {offset.lag for offset in offsets.values()}


def test_a_group_that_refuses_renewals(kafka: Kafka, topic_name: str) -> None:
    """A run sends one renewal that is refused, and still accepts a record whose handler returns within its lock."""
    kafka.create_topic(topic_name)
    configure_group(
        kafka.bootstrap_servers,
        topic_name,
        {
            "share.auto.offset.reset": "earliest",
            "share.record.lock.duration.ms": "15000",
            "share.renew.acknowledge.enable": "false",
        },
    )
    kafka.produce(topic_name, [b"slow"])
    calls, waits = [], threading.Event()

    def handle(record: ConsumerRecord) -> None:
        calls.append(record.offset)
        waits.wait(11.5)  # a renewal is due after ten seconds

    with ShareConsumer(
        topic_name,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=topic_name,
        share_acknowledgement_mode="explicit",
        consumer_timeout_ms=4000,
    ) as consumer:
        summary = parallel.process(consumer, handle, workers=1, order="none")
    assert ([0], 1) == (calls, summary.processed)
