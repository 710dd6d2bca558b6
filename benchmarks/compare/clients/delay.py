"""Measures the latency of records with a Python client: from the call of their producer to the return of poll().

delay.py CLIENT BROKER TOPIC GROUP RECORDS WARM_UP_SECONDS

Prints the delay of each record in microseconds (see pulse.py) as JSON, after a warm-up that is not counted.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial

from bare_peer import BarePeer
from meter import peak_rss_mb
from peers import PEERS, Record

Read = Callable[[float], list[Record]]
BARE = {"bare": BarePeer, "bare-ahead": partial(BarePeer, ahead=True)}


def warm_up(read: Read, seconds: float) -> None:
    """Read for `seconds` after the first record."""
    while not read(1.0):
        pass
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        read(1.0)


def delays(read: Read, total: int) -> list[int]:
    """Return the delays of at least `total` records."""
    found: list[int] = []
    while len(found) < total:
        records = read(1.0)
        returned = time.monotonic_ns()
        found += [(returned - int.from_bytes(value[:8], "big")) // 1000 for _, _, value in records]
    return found


def main() -> None:
    """Take one reading."""
    name, bootstrap, topic, group, total, seconds = sys.argv[1:]
    peer = BARE[name](bootstrap) if name in BARE else PEERS[name](bootstrap)
    peer.subscribe(topic, group, at_end=True)
    warm_up(peer.read, float(seconds))
    began, cpu = time.perf_counter(), time.process_time()
    found = delays(peer.read, int(total))
    reading = {
        "us": found,
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu,
        "peak_rss_mb": peak_rss_mb(),
        "version": peer.version,
    }
    peer.close()
    print(json.dumps(reading))


if __name__ == "__main__":
    main()
