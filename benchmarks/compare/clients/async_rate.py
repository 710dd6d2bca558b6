"""The same as rate.py for clients in an event loop: async_rate.py CLIENT BROKER TOPIC GROUP SECONDS WARM_UP."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

from async_peers import PEERS
from meter import peak_rss_mb

FIRST_RECORD_S = 30


async def read(batches: AsyncIterator[Iterable[Any]], seconds: float) -> int:
    """Read until the first batch after this time. Returns the number of records."""
    records, end = 0, time.perf_counter() + seconds
    async for batch in batches:
        for record in batch:
            records += len(record.value) > 0
        if time.perf_counter() >= end:
            break
    return records


async def main() -> None:
    """Take one reading."""
    name, bootstrap, topic, group, seconds, warm_up = sys.argv[1:]
    peer = PEERS[name]()
    await peer.subscribe(bootstrap, topic, group)
    batches = peer.soonest()
    async with asyncio.timeout(FIRST_RECORD_S):
        while not await read(batches, 0.0):
            pass
    await read(batches, float(warm_up))
    began, cpu = time.perf_counter(), time.process_time()
    records = await read(batches, float(seconds))
    reading = {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu,
        "records": records,
        "peak_rss_mb": peak_rss_mb(),
        "version": peer.version,
    }
    await peer.close()
    print(json.dumps(reading))


asyncio.run(main())
