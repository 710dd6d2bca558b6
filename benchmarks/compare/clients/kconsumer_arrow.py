"""kconsumer as installed: poll_arrow, which makes columns and no record objects."""

from __future__ import annotations

from importlib.metadata import version

from meter import Meter

from kconsumer import Consumer, TopicPartition


def main() -> None:
    """Read the topic once."""
    meter = Meter()
    options = {"auto_offset_reset": "earliest", "isolation_level": meter.isolation}
    with Consumer(bootstrap_servers=meter.bootstrap, **options) as consumer:
        consumer.assign([TopicPartition(meter.topic, partition) for partition in meter.partitions])
        while not meter.done:
            meter.add(len(consumer.poll_arrow(1.0)), 0)
        meter.report(version("kconsumer"))


main()
