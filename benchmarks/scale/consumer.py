"""Simulates one consumer with very many partitions over many brokers: its memory, and its CPU time while idle and busy.

Each phase lasts some virtual time. CPU time is that of the consumer's tasks, so it does not include the brokers.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from dataclasses import dataclass
from typing import Any

from group import rss
from meter import Meter

from kconsumer import Consumer, TopicPartition
from kconsumer.testing.batches import build_batch
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.records import Rec
from support.simulation.scheduler import Process
from support.simulation.simulation import Simulation

TOPICS = 10
IDLE_S, ACTIVE_S = 3, 2
MAX_START_S = 600
ACTIVE = 0.01  # of the partitions get a record each second
NAME = "reader"


@dataclass(frozen=True)
class Load:
    """A consumer with assigned partitions. `group`: commits offsets every 5 s, as the default is."""

    partitions: int
    brokers: int
    engine: str = "classic"
    group: bool = False
    traced: bool = False  # measure memory by allocations; this takes time, so CPU time is not measured
    seed: int = 1


class Reader:
    """The consumer and its cluster."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.simulation = Simulation(load.seed, Cluster(load.brokers, seed=load.seed))
        self.partitions: list[TopicPartition] = []
        for number in range(TOPICS):
            name = f"topic-{number}"
            topic = self.simulation.cluster.create_topic(name, load.partitions // TOPICS)
            self.partitions += [TopicPartition(name, partition.index) for partition in topic.partitions]
        self.meter = Meter(self.simulation)
        self.records = 0
        self._consumer: Consumer | None = None

    def start(self) -> None:
        """Start the task that polls."""
        self.simulation.spawn(Process(NAME), "caller", self._run)

    def _run(self) -> None:
        load = self.load
        consumer = self._consumer = self.simulation.consumer(
            Process(NAME),
            engine=load.engine,
            auto_offset_reset="earliest",
            group_id="scale" if load.group else None,
        )
        consumer.assign(self.partitions)
        while True:
            self.records += len(consumer.poll(1.0))

    def run(self, seconds: float) -> None:
        """Simulate a time."""
        self.simulation.scheduler.run(self.simulation.now + seconds * 1000)

    def settled(self) -> bool:
        """Return whether all brokers have a fetch session with the partitions that they lead."""
        brokers = self.simulation.cluster.brokers.values()
        sessions = [session for broker in brokers for session in broker.fetch_sessions.sessions.values()]
        return sum(len(session.rows) for session in sessions) >= self.load.partitions

    def produce(self, seconds: int) -> int:
        """Append a record to 1 % of the partitions in each second. Return the number of records."""
        simulation, count = self.simulation, max(1, int(self.load.partitions * ACTIVE))
        batch = build_batch([Rec(value=b"x" * 100)], timestamp=simulation.clock.wall_ms())
        for second in range(seconds):
            for index in range(count):
                position = (second * count + index) % len(self.partitions)
                self._append_later((second + index / count) * 1000, self.partitions[position], batch)
        return seconds * count

    def _append_later(self, delay_ms: float, tp: TopicPartition, batch: bytes) -> None:
        partition = self.simulation.cluster.topics[tp.topic].partitions[tp.partition]

        def append() -> None:
            partition.append(batch, self.simulation.clock.wall_ms())
            self.simulation.network.pump()

        self.simulation.scheduler.call_at(self.simulation.now + delay_ms, append)


def measure(load: Load) -> dict[str, Any]:
    """Simulate the consumer. Return its figures."""
    gc.disable()
    reader = Reader(load)
    meter = reader.meter
    gc.collect()
    gc.freeze()
    before = rss()
    if load.traced:
        tracemalloc.start()
    reader.start()
    began = time.process_time()
    while not reader.settled():
        reader.run(0.5)
        if reader.simulation.now > MAX_START_S * 1000:
            raise RuntimeError("not all partitions are fetched")
    result: dict[str, Any] = {
        "partitions": load.partitions,
        "brokers": load.brokers,
        "engine": load.engine,
        "group": load.group,
        "start_virtual_s": reader.simulation.now / 1000,
        "start_cpu_s": meter.reset().cpu_ns[NAME] / 1e9,
    }
    gc.collect()
    result["rss_bytes"] = (rss() - before) / load.partitions
    if load.traced:
        result["library"] = allocations(load.partitions)
        tracemalloc.stop()
        reader.simulation.scheduler.close()
        return result
    reader.run(2.0)
    meter.reset()
    reader.run(IDLE_S)
    result["idle"] = figures(meter, IDLE_S)
    produced, read = reader.produce(ACTIVE_S), reader.records
    reader.run(ACTIVE_S + 1.0)
    result["active"] = figures(meter, ACTIVE_S) | {"records_s": produced / ACTIVE_S}
    assert reader.records - read == produced, f"{reader.records - read} of {produced} records were read"
    result["process_s"] = time.process_time() - began
    meter.close()
    reader.simulation.scheduler.close()
    return result


def figures(meter: Meter, seconds: int) -> dict[str, Any]:
    """Return figures per second."""
    totals = meter.reset()
    return {
        "cpu_ms_s": totals.cpu_ns[NAME] / 1e6 / seconds,
        "requests_s": sum(totals.requests.values()) / seconds,
        "sent_s": sum(totals.sent.values()) / seconds,
        "received_s": sum(totals.received.values()) / seconds,
        "apis": totals.by_api(seconds),
    }


def allocations(partitions: int) -> dict[str, float]:
    """Return the bytes per partition that each package of the library has allocated, without the model."""
    found: dict[str, float] = {}
    for row in tracemalloc.take_snapshot().statistics("filename"):
        path = row.traceback[0].filename
        if "/kconsumer/" in path and "/kconsumer/testing/" not in path:
            name = path.rsplit("/kconsumer/", 1)[1]
            if row.size >= partitions:
                found[name] = round(row.size / partitions, 1)
    return found
