"""How long records are on their way to a Python client: from their producer's call to the return of the client's poll.

delay.py CLIENT BROKER TOPIC GROUP RECORDS WARM_UP_SECONDS

Prints as JSON the delay of each record in microseconds (see pulse.py), after a warm-up that is not counted.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from bare_peer import BarePeer
from meter import peak_rss_mb
from peers import PEERS, Record

Read = Callable[[float], list[Record]]


def warm_up(read: Read, seconds: float) -> None:
    """Read for a while from the first record on."""
    while not read(1.0):
        pass
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        read(1.0)


def delays(read: Read, total: int) -> list[int]:
    """The delays of so many records."""
    found: list[int] = []
    while len(found) < total:
        records = read(1.0)
        returned = time.monotonic_ns()
        found += [(returned - int.from_bytes(value[:8], "big")) // 1000 for _, _, value in records]
    return found


def main() -> None:
    """One reading."""
    name, bootstrap, topic, group, total, seconds = sys.argv[1:]
    peer = BarePeer(bootstrap) if name == "bare" else PEERS[name](bootstrap)
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
