"""Faults of a chaos run: what happens to the members of a group, to brokers, and to the connections between them.

`draw_storm` depends only on its random source, so the same seed draws the same storms on any machine. `FaultInjector`
injects them, and returns each `Fault` with its member, begin and end.
"""

from __future__ import annotations

import enum
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka import ElectionType, KafkaException

from support.brokers.kafka import KafkaCluster, KafkaNode
from support.brokers.kafka_admin import wait_until
from support.brokers.processes import local_ports
from support.brokers.proxy import CALM, STALLED, Conditions, Link, Proxy
from support.chaos.process import ChaosMember

ONSET_S = 6.0  # from the first fault of a storm to its last
LOOK_FOR_LINKS_S = 0.2  # how often a stalled member's new connections are looked for
IN_SYNC_S = 120.0
FAILOVER_S = 20.0
STOP_S = 60.0
HALVES = (STALLED, STALLED, Conditions(up_stalled=True), Conditions(down_stalled=True))
SLOW = (
    Conditions(delay_s=0.2),
    Conditions(trickle=200),
    Conditions(cut_after=30),
    Conditions(cut_after=20_000),
    *HALVES,
)


class Kind(enum.StrEnum):
    """The kinds of faults."""

    KILL = "member killed"  # and replaced by a new process
    STOP = "member stopped"  # cleanly, and replaced
    SUSPEND = "member suspended"
    STALL = "member's connections stalled"
    CUT = "member's connections cut"
    COORDINATOR = "coordinator killed"
    BROKER = "coordinator's connections stalled"  # of all members
    KILL_LEADER = "leader killed"
    FREEZE_LEADER = "leader frozen"
    RESTART_LEADER = "leader restarted"  # cleanly
    LINKS = "random connections disturbed"


MEMBER_FAULTS = {Kind.KILL: 30, Kind.STOP: 8, Kind.SUSPEND: 28, Kind.STALL: 22, Kind.CUT: 12}
BROKER_FAULTS = {
    Kind.COORDINATOR: 5,
    Kind.BROKER: 2,
    Kind.KILL_LEADER: 3,
    Kind.FREEZE_LEADER: 2,
    Kind.RESTART_LEADER: 2,
    Kind.LINKS: 3,
}


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault: its kind, its member's place (-1: all), its start after the begin of the storm, and its duration."""

    kind: Kind
    slot: int
    at_s: float
    lasts_s: float
    conditions: Conditions = STALLED


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one member, or of every member (`member` None), with its begin and end (s, monotonic)."""

    kind: Kind
    member: str | None
    began: float
    ended: float


def draw_storm(source: random.Random, members: int, session_s: float) -> list[Strike]:
    """Returns the faults of one storm: at most one for each member, and at most one of brokers."""
    slots = source.sample(range(members), source.randint(1, min(5, members)))
    kinds = source.choices(list(MEMBER_FAULTS), list(MEMBER_FAULTS.values()), k=len(slots))
    strikes = [_draw(source, kind, slot, session_s) for kind, slot in zip(kinds, slots, strict=True)]
    if source.random() < 0.7:
        [kind] = source.choices(list(BROKER_FAULTS), list(BROKER_FAULTS.values()))
        strikes.append(_draw(source, kind, -1, session_s))
    return sorted(strikes, key=lambda strike: strike.at_s)


def _draw(source: random.Random, kind: Kind, slot: int, session_s: float) -> Strike:
    at_s = source.uniform(0, ONSET_S)
    if kind in (Kind.KILL, Kind.STOP, Kind.CUT, Kind.COORDINATOR, Kind.KILL_LEADER):
        return Strike(kind, slot, at_s, source.choice((0.0, source.uniform(0, session_s))))
    # Shorter than a session, or longer: the member continues as if nothing had happened, or learns that it was fenced.
    share = source.uniform(0.1, 0.7) if source.random() < 0.5 else source.uniform(1.1, 1.5)
    return Strike(kind, slot, at_s, share * session_s, source.choice(HALVES))


class FaultInjector:
    """Injects the drawn faults into `members`, a list in which `replace` puts new members for ended ones."""

    def __init__(
        self,
        cluster: KafkaCluster,
        proxy: Proxy,
        group: str,
        topic: str,
        members: Sequence[ChaosMember],
        replace: Callable[[int], object],
        log: Callable[[str], None],
        seed: int,
    ) -> None:
        self.happened: Counter[str] = Counter()
        self._cluster, self._proxy, self._group, self._topic = cluster, proxy, group, topic
        self._members, self._replace, self._log = members, replace, log
        self._random = random.Random(seed)

    def inject(self, strikes: Sequence[Strike]) -> list[Fault]:
        """Inject these faults and wait until they have ended, and all replicas are in sync. Returns the faults."""
        began = time.monotonic()
        with ThreadPoolExecutor(len(strikes), "faults") as pool:
            done = [pool.submit(self._do, strike, began + strike.at_s) for strike in strikes]
        faults = [each.result() for each in done]
        wait_until(lambda: all_in_sync(self._cluster), IN_SYNC_S, "all replicas in sync again")
        if self._random.random() < 0.3:
            self._elect_preferred()
            now = time.monotonic()
            faults.append(Fault(Kind.RESTART_LEADER, None, now, now))
        return faults

    def _do(self, strike: Strike, at: float) -> Fault:
        time.sleep(max(0.0, at - time.monotonic()))
        self.happened[strike.kind] += 1
        name = self._members[strike.slot].name if strike.slot >= 0 else None
        self._log(f"{strike.kind} {name or ''} for {strike.lasts_s:.1f} s")
        began = time.monotonic()
        strikes: dict[Kind, Callable[[Strike], object]] = {
            Kind.KILL: self._kill,
            Kind.STOP: self._stop,
            Kind.SUSPEND: self._suspend,
            Kind.STALL: self._stall,
            Kind.CUT: self._cut,
            Kind.COORDINATOR: self._kill_coordinator,
            Kind.BROKER: self._stall_broker,
            Kind.KILL_LEADER: lambda strike: self._kill_node(strike, self._leader()),
            Kind.FREEZE_LEADER: self._freeze_leader,
            Kind.RESTART_LEADER: lambda _: self._leader().restart(),
            Kind.LINKS: self._disturb_links,
        }
        strikes[strike.kind](strike)
        return Fault(strike.kind, name, began, time.monotonic())

    # --- members ---------------------------------------------------------------------------------------------------

    def _kill(self, strike: Strike) -> None:
        self._members[strike.slot].kill()
        time.sleep(strike.lasts_s)
        self._replace(strike.slot)

    def _stop(self, strike: Strike) -> None:
        self._members[strike.slot].stop(STOP_S)
        time.sleep(strike.lasts_s)
        self._replace(strike.slot)

    def _suspend(self, strike: Strike) -> None:
        member = self._members[strike.slot]
        member.freeze()
        try:
            time.sleep(strike.lasts_s)
        finally:
            member.thaw()

    # --- connections -----------------------------------------------------------------------------------------------

    def _links(self, member: ChaosMember) -> Iterator[Link]:
        ports = local_ports(member.pid)
        return (link for link in self._proxy.links() if link.client_port in ports)

    def _cut(self, strike: Strike) -> None:
        self._proxy.cut(*self._links(self._members[strike.slot]))

    def _stall(self, strike: Strike) -> None:
        """Stall all connections of one member, also those that it opens meanwhile."""
        until = time.monotonic() + strike.lasts_s
        stalled: set[Link] = set()
        try:
            while (left := until - time.monotonic()) > 0:
                for link in self._links(self._members[strike.slot]):
                    if link.conditions != strike.conditions:
                        self._proxy.set_conditions(strike.conditions, link)
                        stalled.add(link)
                time.sleep(min(left, LOOK_FOR_LINKS_S))
        finally:
            for link in stalled:
                self._proxy.set_conditions(link.listener.conditions, link)

    def _stall_broker(self, strike: Strike) -> None:
        port = self._cluster.node(self._coordinator()).behind_port
        self._proxy.set_climate(strike.conditions, port)
        try:
            time.sleep(strike.lasts_s)
        finally:
            self._proxy.set_climate(CALM, port)

    def _disturb_links(self, strike: Strike) -> None:
        """Delay, slow down, stall and cut connections at random."""
        until = time.monotonic() + strike.lasts_s
        try:
            while time.monotonic() < until:
                if links := self._proxy.links():
                    self._proxy.set_conditions(self._random.choice(SLOW), self._random.choice(links))
                time.sleep(self._random.uniform(0.05, 0.5))
        finally:
            self._proxy.calm()

    # --- brokers ---------------------------------------------------------------------------------------------------

    def _coordinator(self) -> int:
        """Returns the coordinator's broker id, once there is one."""
        return int(wait_until(lambda: max(0, self._cluster.coordinator_of(self._group)), IN_SYNC_S, "a coordinator"))

    def _leader(self) -> KafkaNode:
        leader = wait_until(lambda: max(0, self._cluster.leader_of(self._topic)), IN_SYNC_S, "a leader")
        return self._cluster.node(int(leader))

    def _kill_coordinator(self, strike: Strike) -> None:
        self._kill_node(strike, self._cluster.node(self._coordinator()))

    def _kill_node(self, strike: Strike, node: KafkaNode) -> None:
        """Kill a broker, and start it again when another one has become the coordinator, and some time has passed."""
        node.kill()
        began = time.monotonic()
        with suppress(TimeoutError):  # no other replica was in sync
            wait_until(lambda: self._coordinator() != node.node_id, FAILOVER_S, "another coordinator")
        time.sleep(max(0.0, began + strike.lasts_s - time.monotonic()))
        node.start()

    def _freeze_leader(self, strike: Strike) -> None:
        node = self._leader()
        node.pause()
        try:
            time.sleep(strike.lasts_s)
        finally:
            node.resume()

    def _elect_preferred(self) -> None:
        """Move leadership back to where partitions were made."""
        self.happened["leader elections"] += 1
        with suppress(KafkaException):  # a controller that is moving itself; nothing depends on it
            self._cluster.admin.elect_leaders(ElectionType.PREFERRED).result(30)


def all_in_sync(cluster: KafkaCluster) -> bool:
    """Returns whether every partition has a leader and all of its replicas, also of internal topics, because a
    group's offsets must survive the next broker.
    """
    try:
        described = cluster.metadata()
    except KafkaException:
        return False
    partitions = [p for topic in described.topics.values() for p in topic.partitions.values()]
    return all(len(p.isrs) == len(p.replicas) and p.leader >= 0 for p in partitions)
