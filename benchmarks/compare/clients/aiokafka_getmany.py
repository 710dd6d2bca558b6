"""aiokafka with default options, through getmany()."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, TopicPartition, __version__
from meter import Meter


async def main() -> None:
    """Read the topic once."""
    meter = Meter()
    touch_headers = "headers" in meter.words
    consumer = AIOKafkaConsumer(
        bootstrap_servers=meter.bootstrap, auto_offset_reset="earliest", isolation_level=meter.isolation
    )
    await consumer.start()
    consumer.assign([TopicPartition(meter.topic, partition) for partition in meter.partitions])
    while not meter.done:
        records = size = headers = 0
        for run in (await consumer.getmany(timeout_ms=1000)).values():
            for record in run:
                records += 1
                size += len(record.value)
                headers += len(record.headers) if touch_headers else 0
        meter.add(records, size)
    meter.report(__version__)
    await consumer.stop()


asyncio.run(main())
