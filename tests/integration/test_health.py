"""`consumer.health()` of a member of a group, with each engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kconsumer import Consumer
from kconsumer.health import Health
from support.brokers.kafka import Kafka
from support.harnesses.polling import numbered, poll_until


def test_a_member(kafka: Kafka, topic_name: str, new_consumer: Callable[..., Consumer]) -> None:
    """A member is healthy while it reads, and when it has read all; it says why it is not before and after."""
    kafka.create_topic(topic_name, 2)
    kafka.produce(topic_name, numbered(10), partition=1)
    options: dict[str, Any] = {"group_id": topic_name, "max_poll_records": 1}
    consumer = new_consumer(topic_name, **options)
    assert f"not a member of the group {topic_name!r}" in consumer.health().reasons
    records = poll_until(consumer, lambda: consumer.health().ok and consumer.position((topic_name, 1)))
    lag = 10 - consumer.position((topic_name, 1))
    assert Health(False, (f"{topic_name}-1 has a lag of {lag} records, more than 0",)) == consumer.health(max_lag=0)
    records += poll_until(consumer, lambda: consumer.health(max_lag=0).ok)
    assert numbered(10) == [record.value for record in records]
    consumer.close()
    assert (False, True) == (consumer.health().ok, consumer.health().live)
