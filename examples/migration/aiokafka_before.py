"""Prints the orders of a topic until Ctrl-C, and commits each partition, with aiokafka:
python aiokafka_before.py HOST:PORT GROUP TOPIC.
"""

import asyncio
import json
import sys

from aiokafka import AIOKafkaConsumer


async def main(servers: str, group: str, topic: str) -> None:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        value_deserializer=json.loads,
    )
    await consumer.start()
    try:
        while True:
            batch = await consumer.getmany(timeout_ms=1000, max_records=500)
            for partition, records in batch.items():
                for record in records:
                    headers = dict(record.headers)
                    amount = record.value["amount"]
                    print(record.partition, record.offset, record.key, amount, record.timestamp, headers)
                await consumer.commit({partition: records[-1].offset + 1})
    except asyncio.CancelledError:
        for partition, end in sorted((await consumer.end_offsets(consumer.assignment())).items()):
            print(f"{partition.topic}-{partition.partition}: committed {await consumer.committed(partition)} of {end}")
    finally:
        await consumer.stop()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
