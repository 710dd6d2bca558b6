"""kafka-python with default options, through poll()."""

from __future__ import annotations

from kafka import KafkaConsumer, TopicPartition, __version__
from meter import Meter


def main() -> None:
    """Read the topic once."""
    meter = Meter()
    touch_headers = "headers" in meter.words
    consumer = KafkaConsumer(
        bootstrap_servers=meter.bootstrap, auto_offset_reset="earliest", isolation_level=meter.isolation
    )
    consumer.assign([TopicPartition(meter.topic, partition) for partition in meter.partitions])
    while not meter.done:
        records = size = headers = 0
        for run in consumer.poll(timeout_ms=1000).values():
            for record in run:
                records += 1
                size += len(record.value)
                headers += len(record.headers) if touch_headers else 0
        meter.add(records, size)
    meter.report(__version__)
    consumer.close()


main()
