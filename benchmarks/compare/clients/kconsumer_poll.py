"""kconsumer as installed: iterate over poll's records and touch each value."""

from __future__ import annotations

from importlib.metadata import version

from meter import Meter

from kconsumer import ConsumerRecords


def touch_value(polled: ConsumerRecords) -> tuple[int, int]:
    """How many records, and the bytes of their values."""
    records = size = 0
    for record in polled:
        records += 1
        size += len(record.value)
    return records, size


def touch_headers(polled: ConsumerRecords) -> tuple[int, int]:
    """The same, looking at the headers of each."""
    records = size = headers = 0
    for record in polled:
        records += 1
        size += len(record.value)
        headers += len(record.headers)
    return records, size


def main() -> None:
    """Read the topic once."""
    meter = Meter()
    touch = touch_headers if "headers" in meter.words else touch_value
    with meter.kconsumer() as consumer:
        while not meter.done:
            meter.add(*touch(consumer.poll(1.0)))
        meter.report(version("kconsumer"))


main()
