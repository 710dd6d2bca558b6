"""Simulates one group through its life: start, rest, a join, a leave, a rolling restart and a coordinator failure.

All topics are empty, and the members have default options. They pause their partitions, because idle fetches do not
depend on the size of the group, and would take most of the run (`consumer.py` measures them).
"""

from __future__ import annotations

import gc
import resource
import statistics
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from meter import Meter, Totals

from kconsumer import Consumer, TopicPartition
from kconsumer.errors import WakeupError
from kconsumer.listener import RebalanceListener
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.settings import Settings
from support.simulation.scheduler import Process
from support.simulation.simulation import Simulation

TOPICS = 4
BROKERS, REPLICAS = 3, 3
START_MS = 1_000  # all members start within this time
REST_MS = 30_000
QUIET_MS = 11_000  # a group is stable if nothing changes for this time: two heartbeats of the consumer protocol
MAX_MS = 600_000
WAVES = 10  # of a rolling restart
RESTART_MS = 1_000  # from the end of a member to its next start
GROUP = "scale"


@dataclass(frozen=True)
class Shape:
    """A group. `assignor`: of the leader (classic protocol) or of the broker (consumer protocol)."""

    protocol: str
    assignor: str
    members: int
    partitions: int
    seed: int = 1
    rolling: bool = True
    brief: bool = False  # only start and join, for the largest groups

    def options(self) -> dict[str, Any]:
        """Return the options of each member."""
        if self.protocol == "consumer":
            return {"group_protocol": "consumer", "group_remote_assignor": self.assignor}
        return {"group_protocol": "classic", "assignors": [self.assignor]}


class Member(RebalanceListener):
    """One member. It polls until it is stopped."""

    def __init__(self, group: Group, name: str) -> None:
        self.process = Process(name)
        self.group = group
        self.owned: set[TopicPartition] = set()
        self._stopping = False
        self._consumer: Consumer | None = None

    def run(self) -> None:
        """Join the group, poll, and leave."""
        group = self.group
        consumer = self._consumer = group.simulation.consumer(self.process, group_id=GROUP, **group.shape.options())
        consumer.subscribe(group.topics, listener=self)
        with suppress(WakeupError):
            while not self._stopping:
                consumer.poll(3600.0)
        consumer.close()

    def stop(self) -> None:
        """Let the member leave the group. Called outside of its tasks."""
        self._stopping = True
        if self._consumer is not None:
            self._consumer.wakeup()

    def on_partitions_assigned(self, consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        """Record and pause added partitions."""
        consumer.pause(*partitions)
        self.owned.update(partitions)
        self.group.changed(len(partitions))

    def on_partitions_revoked(self, consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        """Record revoked partitions."""
        self.owned.difference_update(partitions)
        self.group.changed(-len(partitions))


class Group:
    """A simulated group and its cluster."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        settings = Settings(max_incremental_fetch_session_cache_slots=10 * shape.members)
        self.simulation = Simulation(shape.seed, Cluster(BROKERS, settings=settings, seed=shape.seed))
        self.topics = [f"topic-{number}" for number in range(min(TOPICS, shape.partitions))]
        for number, topic in enumerate(self.topics):
            count = len(range(number, shape.partitions, len(self.topics)))
            self.simulation.cluster.create_topic(topic, count, REPLICAS)
        self.meter = Meter(self.simulation)
        self.members: list[Member] = []
        self._assigned = 0
        self._last_change = 0.0
        self._started = 0

    def changed(self, partitions: int) -> None:
        """Record that a member has got (or, if negative, given up) this many partitions."""
        self._assigned += partitions
        self._last_change = self.simulation.now

    def start(self, count: int, within_ms: float = 0.0) -> None:
        """Start members at random times `within_ms`."""
        for _ in range(count):
            member = Member(self, f"member-{self._started}")
            self._started += 1
            self.members.append(member)
            delay = self.simulation.random.uniform(0.0, within_ms)
            self.simulation.scheduler.call_at(self.simulation.now + delay, lambda member=member: self._spawn(member))

    def _spawn(self, member: Member) -> None:
        self.simulation.spawn(member.process, "caller", member.run)

    def stop(self, count: int) -> None:
        """Let the members that have been in the group for the longest time leave it, but not its leader."""
        stopped, self.members = self.members[1 : count + 1], [self.members[0], *self.members[count + 1 :]]
        for member in stopped:
            member.stop()

    def run(self, ms: float) -> None:
        """Simulate a time."""
        self.simulation.scheduler.run(self.simulation.now + ms)

    def stabilize(self) -> float:
        """Simulate until all members have joined, every partition has one owner, and nothing changes for `QUIET_MS`.

        Return the time of the last change (virtual ms).
        """
        began = self.simulation.now
        while self.simulation.now < began + MAX_MS:
            self.run(500.0)
            if self.simulation.now < max(began, self._last_change) + QUIET_MS:
                continue
            joined = all(member.process.name in self.meter.heartbeats for member in self.members)
            if joined and self._assigned == self.shape.partitions:
                owners = Counter(partition for member in self.members for partition in member.owned)
                assert len(owners) == self.shape.partitions, "a partition has two owners"
                return max(began, self._last_change)
        raise RuntimeError(f"the group is not stable after {MAX_MS} ms: {self._assigned} partitions are assigned")

    def wait_for_heartbeats(self, since: float) -> float:
        """Simulate until all members have had a heartbeat after `since`. Return the time of the last of these."""
        names = [member.process.name for member in self.members]
        while any(self.meter.heartbeats.get(name, 0.0) <= since for name in names):
            self.run(100.0)
            if self.simulation.now > since + MAX_MS:
                raise RuntimeError("members have no coordinator")
        return self.simulation.now


def figures(totals: Totals, members: int, stable_ms: float) -> dict[str, Any]:
    """Return the figures of one event, per member."""
    cpu = sorted(totals.cpu_ns.values()) or [0]
    return {
        "stable_ms": round(stable_ms, 1),
        "requests": sum(totals.requests.values()) / members,
        "sent": sum(totals.sent.values()) / members,
        "received": sum(totals.received.values()) / members,
        "cpu_ms": sum(cpu) / members / 1e6,
        "cpu_ms_median": statistics.median(cpu) / 1e6,
        "cpu_ms_max": cpu[-1] / 1e6,  # the leader, if there is one
        "model_ms": totals.model_ns / members / 1e6,
        "apis": totals.by_api(members),
    }


def rss() -> int:
    """Return the resident memory of this process in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def changes(group: Group, event: Callable[[str, float, float], None]) -> None:
    """Simulate a leave, a rolling restart, and a failure of the coordinator."""
    simulation, meter, count = group.simulation, group.meter, group.shape.members
    began = simulation.now
    group.stop(1)
    event("leave", began, group.stabilize())

    if group.shape.rolling:
        took, size = 0.0, -(-count // WAVES)
        for _ in range(WAVES):
            began = simulation.now
            group.stop(min(size, count - 1))
            group.run(RESTART_MS)
            group.start(count - len(group.members))
            took += group.stabilize() - began
        event("rolling restart", 0.0, took)

    began, coordinator = simulation.now, simulation.cluster.coordinator(GROUP, "group")
    simulation.cluster.kill(coordinator.id)
    simulation.network.pump()
    group.wait_for_heartbeats(began)
    stable_at = max(began, *(meter.heartbeats[member.process.name] for member in group.members))
    event("coordinator failure", began, stable_at)


def measure(shape: Shape) -> dict[str, Any]:
    """Simulate the group. Return the figures of each event."""
    group, found = Group(shape), {}
    simulation, meter, count = group.simulation, group.meter, shape.members
    gc.disable()  # a collection would count for the process that happens to run, and visit the objects of all of them
    before = rss()

    def event(name: str, began: float, stable_at: float) -> None:
        found[name] = figures(meter.reset(), count, stable_at - began)
        gc.collect()
        meter.reset()

    group.start(count, START_MS)
    event("start", 0.0, group.stabilize())
    memory = (rss() - before) / count
    if not shape.brief:
        group.run(REST_MS)
        meter.reset()
        group.run(REST_MS)
        event("rest", 0.0, 0.0)

    began = simulation.now
    group.start(1)
    event("join", began, group.stabilize())

    if not shape.brief:
        changes(group, event)
    meter.close()
    result = {
        "protocol": shape.protocol,
        "assignor": shape.assignor,
        "members": count,
        "partitions": shape.partitions,
        "rest_s": REST_MS / 1000,
        "rss_kb": memory / 1000,
        "virtual_s": simulation.now / 1000,
        "events": found,
    }
    simulation.scheduler.close()
    return result
