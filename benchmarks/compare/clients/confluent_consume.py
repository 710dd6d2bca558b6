"""confluent-kafka with default options and consume() of many messages, which is cheaper per record than poll()."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition, libversion
from meter import Meter

TUNED = {"fetch.queue.backoff.ms": 1, "queued.min.messages": 1_000_000}


def touch_value(messages: Iterable[Any]) -> tuple[int, int]:
    """Return the number of records and the bytes of their values."""
    records = size = 0
    for message in messages:
        if message.error() is None:
            records += 1
            size += len(message.value())
    return records, size


def touch_headers(messages: Iterable[Any]) -> tuple[int, int]:
    """Return the same, and touch the headers of each record."""
    records = size = headers = 0
    for message in messages:
        if message.error() is None:
            records += 1
            size += len(message.value())
            headers += len(message.headers() or ())
    return records, size


def main() -> None:
    """Read the topic once."""
    meter = Meter()
    touch = touch_headers if "headers" in meter.words else touch_value
    options = {
        "bootstrap.servers": meter.bootstrap,
        "group.id": "compare",
        "enable.auto.commit": False,
        "isolation.level": meter.isolation,
        **({"security.protocol": "SSL", "ssl.ca.location": meter.ca} if meter.ca else {}),
        **(TUNED if "tuned" in meter.words else {}),
    }
    consumer = Consumer(options)
    consumer.assign([TopicPartition(meter.topic, p, OFFSET_BEGINNING) for p in meter.partitions])
    while not meter.done:
        meter.add(*touch(consumer.consume(1000, 1.0)))
    meter.report(libversion()[0])
    consumer.close()


if __name__ == "__main__":
    main()
