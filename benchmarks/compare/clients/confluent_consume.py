"""confluent-kafka with default options; consume() of many, which costs less per record than poll() of one."""

from __future__ import annotations

import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition, libversion
from meter import Meter

TUNED = {"fetch.queue.backoff.ms": 1, "queued.min.messages": 1_000_000}


def main(options: dict[str, object]) -> None:
    """Read the topic once."""
    meter = Meter()
    base = {"bootstrap.servers": meter.bootstrap, "group.id": "compare", "enable.auto.commit": False}
    consumer = Consumer({**base, **options})
    consumer.assign([TopicPartition(meter.topic, p, OFFSET_BEGINNING) for p in meter.partitions])
    while not meter.done:
        records = size = 0
        for message in consumer.consume(1000, 1.0):
            if message.error() is None:
                records += 1
                size += len(message.value())
        meter.add(records, size)
    meter.report(libversion()[0])
    consumer.close()


if __name__ == "__main__":
    main(TUNED if "tuned" in sys.argv[5:] else {})
