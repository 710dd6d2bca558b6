"""Faults of a chaos run: what happens to the members of a group, its coordinator and their connections.

`draw_storm` depends only on its random source, so the same seed draws the same storms on any machine. `GroupFaults`
injects them and reports each `Fault` with its member, begin and end.
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

from support.brokers.kafka import KafkaCluster
from support.brokers.kafka_admin import wait_until
from support.brokers.processes import local_ports
from support.brokers.proxy import CALM, STALLED, Conditions, Link, Proxy
from support.members.members import wait_for
from support.soak.chaos_checker import Fault
from support.soak.soak_faults import IN_SYNC_S, all_in_sync
from support.soak.soak_journal import ReaderProcess

ONSET_S = 6.0  # from the first fault of a storm to its last
LOOK_FOR_LINKS_S = 0.2  # how often a stalled member's new connections are looked for
FAILOVER_S = 20.0
START_S = 60.0
STOP_S = 60.0
HALVES = (STALLED, STALLED, Conditions(up_stalled=True), Conditions(down_stalled=True))


class Kind(enum.StrEnum):
    """The kinds of faults."""

    KILL = "member killed"  # and replaced by a new process
    STOP = "member stopped"  # cleanly, and replaced
    SUSPEND = "member suspended"
    STALL = "member's connections stalled"
    CUT = "member's connections cut"
    COORDINATOR = "coordinator killed"
    BROKER = "coordinator's connections stalled"  # of all members


WEIGHTS = {Kind.KILL: 30, Kind.STOP: 8, Kind.SUSPEND: 28, Kind.STALL: 22, Kind.CUT: 12}


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault: its kind, its member's place (-1: all), its start after the begin of the storm, and its duration."""

    kind: Kind
    slot: int
    at_s: float
    lasts_s: float
    conditions: Conditions = STALLED


def draw_storm(source: random.Random, members: int, session_s: float) -> list[Strike]:
    """Returns the faults of one storm: at most one for each member, and one of the coordinator or of a broker."""
    slots = source.sample(range(members), source.randint(2, min(5, members)))
    kinds = source.choices(list(WEIGHTS), list(WEIGHTS.values()), k=len(slots))
    strikes = [_draw(source, kind, slot, session_s) for kind, slot in zip(kinds, slots, strict=True)]
    draw = source.random()
    if draw < 0.5:
        strikes.append(Strike(Kind.COORDINATOR, -1, source.uniform(0, ONSET_S), source.uniform(0, 3)))
    elif draw < 0.7:
        strikes.append(_draw(source, Kind.BROKER, -1, session_s))
    return sorted(strikes, key=lambda strike: strike.at_s)


def _draw(source: random.Random, kind: Kind, slot: int, session_s: float) -> Strike:
    at_s = source.uniform(0, ONSET_S)
    if kind in (Kind.KILL, Kind.STOP, Kind.CUT):
        return Strike(kind, slot, at_s, source.choice((0.0, source.uniform(0, session_s))))
    # Shorter than a session, or longer: the member continues as if nothing had happened, or learns that it was fenced.
    # Not long enough that a stalled commit comes after the time in which it is looked for (DOUBT_S of the journal).
    share = source.uniform(0.1, 0.7) if source.random() < 0.5 else source.uniform(1.1, 1.5)
    return Strike(kind, slot, at_s, share * session_s, source.choice(HALVES))


class GroupFaults:
    """Injects the drawn faults into `members`, a list in which `replace` puts new members for ended ones."""

    def __init__(
        self,
        cluster: KafkaCluster,
        proxy: Proxy,
        group: str,
        members: Sequence[ReaderProcess],
        replace: Callable[[int], ReaderProcess],
        log: Callable[[str], None],
    ) -> None:
        self.happened: Counter[str] = Counter()
        self._cluster, self._proxy, self._group = cluster, proxy, group
        self._members, self._replace, self._log = members, replace, log

    def inject(self, strikes: Sequence[Strike]) -> list[Fault]:
        """Inject these faults and wait until they have ended. Returns them."""
        began = time.monotonic()
        with ThreadPoolExecutor(len(strikes), "faults") as pool:
            done = [pool.submit(self._do, strike, began + strike.at_s) for strike in strikes]
        faults = [each.result() for each in done]
        wait_until(lambda: all_in_sync(self._cluster), IN_SYNC_S, "all replicas in sync again")
        return faults

    def _do(self, strike: Strike, at: float) -> Fault:
        time.sleep(max(0.0, at - time.monotonic()))
        self.happened[strike.kind] += 1
        name = self._members[strike.slot].name if strike.slot >= 0 else None
        self._log(f"{strike.kind} {name or ''} for {strike.lasts_s:.1f} s")
        began = time.monotonic()
        strikes: dict[Kind, Callable[[Strike], float | None]] = {
            Kind.KILL: self._kill,
            Kind.STOP: self._stop,
            Kind.SUSPEND: self._suspend,
            Kind.STALL: self._stall,
            Kind.CUT: self._cut,
            Kind.COORDINATOR: self._kill_coordinator,
            Kind.BROKER: self._stall_broker,
        }
        ended = strikes[strike.kind](strike) or time.monotonic()
        if ended - began > strike.lasts_s + 5:
            self._log(f"{strike.kind} {name or ''}: passed after {ended - began:.1f} s")
        silences = strike.kind in (Kind.SUSPEND, Kind.STALL, Kind.BROKER)
        return Fault(strike.kind, name, began, ended, silences)

    # --- members ---------------------------------------------------------------------------------------------------

    def _kill(self, strike: Strike) -> None:
        self._members[strike.slot].kill()
        time.sleep(strike.lasts_s)
        self._refill(strike.slot)

    def _stop(self, strike: Strike) -> None:
        self._members[strike.slot].stop(STOP_S)
        time.sleep(strike.lasts_s)
        self._refill(strike.slot)

    def _refill(self, slot: int) -> None:
        """Replace a member that ended, and wait until the new one has started."""
        member = self._replace(slot)
        wait_for(lambda: member.seen("started"), f"start of {member.name}", [member], START_S)

    def _suspend(self, strike: Strike) -> None:
        member = self._members[strike.slot]
        member.freeze()
        try:
            time.sleep(strike.lasts_s)
        finally:
            member.thaw()

    # --- connections -----------------------------------------------------------------------------------------------

    def _links(self, member: ReaderProcess) -> Iterator[Link]:
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

    # --- brokers ---------------------------------------------------------------------------------------------------

    def _coordinator(self) -> int:
        """Returns the coordinator's broker id, once there is one."""
        return int(wait_until(lambda: max(0, self._cluster.coordinator_of(self._group)), IN_SYNC_S, "a coordinator"))

    def _kill_coordinator(self, strike: Strike) -> float:
        """Kill the coordinator and start it again. Returns the time when another broker became coordinator, which ends
        the fault: the return of the first one need not change anything in a group.
        """
        node = self._cluster.node(self._coordinator())
        node.kill()
        began = time.monotonic()
        replaced: float | None = None
        with suppress(TimeoutError):  # no other replica was in sync: it is the coordinator again
            wait_until(lambda: self._coordinator() != node.node_id, FAILOVER_S, "another coordinator")
            replaced = time.monotonic()
            time.sleep(max(0.0, began + strike.lasts_s - replaced))
        node.start()
        return replaced or time.monotonic()
