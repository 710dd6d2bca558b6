"""Prints the orders of a topic until Ctrl-C, and commits each batch:
python aiokafka_after.py HOST:PORT GROUP TOPIC.
"""

import asyncio
import json
import sys

from kconsumer.aio import AsyncConsumer


async def main(servers: str, group: str, topic: str) -> None:
    async with AsyncConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        value_deserializer=json.loads,
    ) as consumer:
        try:
            async for batch in consumer.batches(timeout=1.0):
                for record in batch:
                    headers = dict(record.headers)
                    amount = record.value["amount"]
                    print(record.partition, record.offset, record.key, amount, record.timestamp, headers)
                await consumer.commit(batch)
        except asyncio.CancelledError:
            ends = await consumer.end_offsets(consumer.assignment())
            for partition, at in sorted((await consumer.committed(ends)).items()):
                print(f"{partition}: committed {at and at.offset} of {ends[partition]}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
