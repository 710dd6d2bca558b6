"""Measures the CPU time of a Python client while records arrive: rate.py CLIENT BROKER TOPIC GROUP SECONDS WARM_UP.

The client is the only member of a new group. Prints the measurement as JSON, after a warm-up that is not counted.
"""

from __future__ import annotations

import json
import sys
import time

from meter import peak_rss_mb
from peers import PEERS, Peer

FIRST_RECORD_S = 30


def read(peer: Peer, seconds: float) -> int:
    """Read for this time. Returns the number of records."""
    records, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        records += peer.poll(1.0)
    return records


def main() -> None:
    """Take one reading."""
    name, bootstrap, topic, group, seconds, warm_up = sys.argv[1:]
    peer = PEERS[name](bootstrap)
    peer.subscribe(topic, group, at_end=True)
    if not any(peer.poll(1.0) for _ in range(FIRST_RECORD_S)):
        raise SystemExit("no record has arrived")
    read(peer, float(warm_up))
    began, cpu = time.perf_counter(), time.process_time()
    records = read(peer, float(seconds))
    reading = {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu,
        "records": records,
        "peak_rss_mb": peak_rss_mb(),
        "version": peer.version,
    }
    peer.close()
    print(json.dumps(reading))


if __name__ == "__main__":
    main()
