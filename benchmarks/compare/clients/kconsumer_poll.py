"""kconsumer with default options: iterates over the records of poll() and touches each value."""

from __future__ import annotations

from importlib.metadata import version

from meter import Meter

from kconsumer import ConsumerRecords


def touch_value(polled: ConsumerRecords) -> tuple[int, int]:
    """Return the number of records and the bytes of their values."""
    records = size = 0
    for record in polled:
        records += 1
        size += len(record.value)
    return records, size


def touch_headers(polled: ConsumerRecords) -> tuple[int, int]:
    """Return the same, and touch the headers of each record."""
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
