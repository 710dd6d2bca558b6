"""Measures the latency of records in an event loop: async_delay.py CLIENT BROKER TOPIC GROUP RECORDS WARM_UP_SECONDS.

Prints the delay of each record in microseconds (see pulse.py) as JSON, after a warm-up that is not counted.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator

from async_peers import PEERS, AsyncPeer, value_of
from meter import peak_rss_mb


async def returned(peer: AsyncPeer) -> AsyncIterator[list[tuple[int, bytes]]]:
    """Yield batches of pairs: the time when the client returned the record (ns), and its value."""
    async for batch in peer.soonest():
        now = time.monotonic_ns()
        found = [(now, value_of(record)) for record in batch]
        if found:
            yield found


async def main() -> None:
    """Take one reading."""
    name, bootstrap, topic, group, total, seconds = sys.argv[1:]
    peer = PEERS[name]()
    await peer.subscribe(bootstrap, topic, group)
    end = None
    delays: list[int] = []
    async for batch in returned(peer):
        if end is None:
            end = time.monotonic() + float(seconds)
        if time.monotonic() < end:
            began, cpu = time.perf_counter(), time.process_time()
            continue
        delays += [(now - int.from_bytes(value[:8], "big")) // 1000 for now, value in batch]
        if len(delays) >= int(total):
            break
    reading = {
        "us": delays,
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu,
        "peak_rss_mb": peak_rss_mb(),
        "version": peer.version,
    }
    await peer.close()
    print(json.dumps(reading))


asyncio.run(main())
