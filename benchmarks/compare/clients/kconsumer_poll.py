"""kconsumer as installed: iterate over poll's records and touch each value."""

from __future__ import annotations

from importlib.metadata import version

from meter import Meter

from kconsumer import Consumer, TopicPartition


def main() -> None:
    """Read the topic once."""
    meter = Meter()
    with Consumer(bootstrap_servers=meter.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(meter.topic, partition) for partition in meter.partitions])
        while not meter.done:
            records = size = 0
            for record in consumer.poll(1.0):
                records += 1
                size += len(record.value)
            meter.add(records, size)
        meter.report(version("kconsumer"))


main()
