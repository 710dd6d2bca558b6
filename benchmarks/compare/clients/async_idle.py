"""Measures idle consumers in one event loop: async_idle.py BROKER TOPIC CONSUMERS SECONDS [OPTION=NUMBER...].

Each consumer is assigned one partition that gets no records, and polls. Prints CPU time, memory and context switches
as JSON. Connecting does not count.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time

from kconsumer import TopicPartition
from kconsumer.aio import AsyncConsumer


def resident_kb() -> int:
    """Return the resident memory of this process, in KiB."""
    with open("/proc/self/status") as status:
        (line,) = [line for line in status if line.startswith("VmRSS")]
    return int(line.split()[1])


async def idle(consumer: AsyncConsumer, ends: asyncio.Event) -> None:
    """Poll until the measurement ends."""
    while not ends.is_set():
        await consumer.poll(30.0)


async def main() -> None:
    """Take one reading."""
    bootstrap, topic, count, seconds, *rest = sys.argv[1:]
    options = {name: int(number) for name, _, number in (word.partition("=") for word in rest)}
    before_kb = resident_kb()
    consumers, ends, tasks = [], asyncio.Event(), []
    for _ in range(int(count)):
        consumer = AsyncConsumer(bootstrap_servers=bootstrap, auto_offset_reset="latest", **options)
        consumer.assign([TopicPartition(topic, 0)])
        await consumer.poll(0.1)
        consumers.append(consumer)
        tasks.append(asyncio.create_task(idle(consumer, ends)))
    await asyncio.sleep(5)
    used, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    await asyncio.sleep(float(seconds))
    after, took = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - began
    cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    reading = {
        "percent": 100 * cpu / took,
        "switches": (after.ru_nvcsw - used.ru_nvcsw) / took,
        "kb_per_consumer": (resident_kb() - before_kb) / int(count),
    }
    print(json.dumps(reading), flush=True)
    ends.set()
    for consumer in consumers:
        consumer.wakeup()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.gather(*(consumer.close() for consumer in consumers))


asyncio.run(main())
