"""Takes one reading of a Python client in a scenario, `first`, `steady` or `four`, and prints it as JSON.

scenario.py first  CLIENT BROKER TOPIC GROUP
scenario.py steady CLIENT BROKER TOPIC PARTITIONS SECONDS
scenario.py four   CLIENT BROKER TOPIC PARTITIONS RECORDS
"""

from __future__ import annotations

import json
import sys
import threading
import time

from meter import peak_rss_mb
from peers import PEERS, Peer

WARM_UP_S = 5.0
CONSUMERS = 4


def first(peer: Peer, topic: str, group: str, began: float, cpu: float) -> dict[str, float]:
    """Measure from the import of the client to its first record, in a new group."""
    peer.subscribe(topic, group)
    while not (records := peer.poll(1.0)):
        pass
    return {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu,
        "records": records,
    }


def steady(peer: Peer, topic: str, partitions: int, seconds: float) -> dict[str, float]:
    """Measure a consumer of many partitions that get few records."""
    peer.assign(topic, list(range(partitions)), at_end=True)
    end = time.perf_counter() + WARM_UP_S
    while time.perf_counter() < end:
        peer.poll(0.1)
    records = 0
    began, cpu = time.perf_counter(), time.process_time()
    while time.perf_counter() < began + seconds:
        records += peer.poll(0.1)
    return {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu,
        "records": records,
    }


class Count:
    """Counts what several threads read together, and measures the time."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.records = self.skipped = 0
        self.began = self.cpu = self.took = self.cpu_took = 0.0
        self._lock = threading.Lock()

    @property
    def done(self) -> bool:
        """Whether all records were read."""
        return self.records + self.skipped >= self.total

    def add(self, records: int) -> None:
        """Count the records of one poll. The first poll only starts the clock."""
        with self._lock:
            if not self.began and records:
                self.skipped = records
                self.began, self.cpu = time.perf_counter(), time.process_time()
            else:
                self.records += records
            if self.done and not self.took:
                self.took, self.cpu_took = time.perf_counter() - self.began, time.process_time() - self.cpu


def four(peers: list[Peer], topic: str, partitions: int, total: int) -> dict[str, float]:
    """Measure four consumers in four threads of this process, each with a share of the partitions."""
    count = Count(total)

    def run(peer: Peer, share: list[int]) -> None:
        peer.assign(topic, share)
        while not count.done:
            count.add(peer.poll(0.1))

    threads = [
        threading.Thread(target=run, args=(peer, list(range(number, partitions, len(peers)))))
        for number, peer in enumerate(peers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"seconds": count.took, "cpu_seconds": count.cpu_took, "records": count.records}


def main() -> None:
    """Run the scenario of the command line."""
    scenario, name, bootstrap, topic, *rest = sys.argv[1:]
    began, cpu = time.perf_counter(), time.process_time()
    peers = [PEERS[name](bootstrap) for _ in range(CONSUMERS if scenario == "four" else 1)]
    if scenario == "first":
        found = first(peers[0], topic, rest[0], began, cpu)
    elif scenario == "steady":
        found = steady(peers[0], topic, int(rest[0]), float(rest[1]))
    else:
        found = four(peers, topic, int(rest[0]), int(rest[1]))
    for peer in peers:
        peer.close()
    print(json.dumps({**found, "peak_rss_mb": peak_rss_mb(), "version": peers[0].version}))


main()
