"""Fills the demo's topic, with confluent-kafka's producer."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import KafkaException, Producer
from events import events

REPORT_EVERY = 50_000


def load(bootstrap_servers: str, topic: str, count: int, report: Callable[[int], None]) -> None:
    """Write `count` events, and wait until the broker has them. Raises RuntimeError if the broker refuses one."""
    failures: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "compression.type": "lz4",
            "linger.ms": 20,
            "batch.size": 262_144,
            "queue.buffering.max.messages": 400_000,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _message: failures.append(error),
        }
    )
    for number, (key, value, timestamp) in enumerate(events(count)):
        while True:
            try:
                producer.produce(topic, value, key, timestamp=timestamp)
                break
            except BufferError:
                producer.poll(0.05)
        if number % REPORT_EVERY == 0:
            producer.poll(0)
            report(number)
            if failures:
                break
    try:
        waiting = producer.flush(60)
    except KafkaException as error:
        raise RuntimeError(f"loading {topic} failed: {error}") from error
    if waiting or failures:
        raise RuntimeError(f"loading {topic} failed: {failures[0] if failures else f'{waiting} records unsent'}")
    report(count)
