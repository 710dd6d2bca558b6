"""Reads a topic in an event loop: async_read.py BROKER TOPIC RECORDS PARTITIONS CLIENT STYLE [CONSUMERS].

STYLE is `batches` or `records` (see async_peers.py). With CONSUMERS, that many consumers of one event loop read the
topic at the same time, each a share of RECORDS. As with one consumer, connecting does not count: the consumers wait for
each other after their first records, which are not counted.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

from async_peers import PEERS, AsyncPeer, value_of
from meter import Meter


async def read_batches(peer: AsyncPeer, meter: Meter | Shared) -> None:
    """Count the records of whole batches."""
    async for batch in peer.batches():
        if isinstance(meter, Shared) and not meter.began and batch:
            await meter.begin()
            continue
        records = size = 0
        for record in batch:
            records += 1
            size += len(value_of(record))
        meter.add(records, size)
        if meter.done:
            return


async def read_records(peer: AsyncPeer, meter: Meter | Shared) -> None:
    """Count record by record."""
    async for record in peer.records():
        meter.add(1, len(value_of(record)))
        if meter.done:
            return


def shares(total: int, count: int) -> Iterator[int]:
    """Divide `total` into `count` parts."""
    for number in range(count):
        yield total * (number + 1) // count - total * number // count


class Shared:
    """A meter that several consumers use. Each reads its share of the records."""

    def __init__(self, meter: Meter, share: int, barrier: asyncio.Barrier) -> None:
        self._meter, self._left, self._barrier = meter, share, barrier
        self.began = False

    @property
    def done(self) -> bool:
        return self._left <= 0

    async def begin(self) -> None:
        """Wait until each consumer has received records."""
        self.began = True
        await self._barrier.wait()

    def add(self, records: int, size: int) -> None:
        self._left -= records
        self._meter.add(records, size)


async def main() -> None:
    """Take one reading."""
    name, style, *rest = sys.argv[5:]
    meter = Meter()
    count = int(rest[0]) if rest else 1
    read = {"batches": read_batches, "records": read_records}[style]
    peers = [PEERS[name]() for _ in range(count)]
    barrier = asyncio.Barrier(count)
    meters = [meter] if count == 1 else [Shared(meter, share, barrier) for share in shares(meter.total, count)]
    for number, peer in enumerate(peers):
        chosen = meter.partitions if count == 1 else [meter.partitions[number % len(meter.partitions)]]
        await peer.assign(meter.bootstrap, meter.topic, chosen)
    await asyncio.gather(*(read(peer, one) for peer, one in zip(peers, meters, strict=True)))
    meter.report(peers[0].version)
    await asyncio.gather(*(peer.close() for peer in peers))


asyncio.run(main())
