"""Scenarios of share groups: what a simulated run contains, as data that is drawn from a seed, and printed.

The `repr` of a scenario is Python code that creates it again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from support.simulation.scenario import MINUTE_MS, Fault, FaultKind, Scenario

LOCK_MS = 15_000  # the shortest that brokers accept
CATCH_UP_MS = 2 * MINUTE_MS  # no record is written at the end of a run, and members accept all records
#: Faults that a share group can meet.
KINDS = (
    FaultKind.MOVE_LEADERS,
    FaultKind.KILL_BROKER,
    FaultKind.RESET,
    FaultKind.CRASH,
    FaultKind.SUSPEND,
    FaultKind.CUT_OFF,
    FaultKind.SLOW_NETWORK,
    FaultKind.SLOW_REQUESTS,
    FaultKind.ERROR,
    FaultKind.DISCONNECT,
    FaultKind.DISCONNECT_AFTER,
)


@dataclass(frozen=True)
class ShareMember:
    """One process that runs one share consumer after the other. What is a share is drawn for each step or record."""

    explicit: bool = False  # share_acknowledgement_mode
    record_limit: bool = False  # share_acquire_mode
    max_poll_records: int = 10
    releases: float = 0.0  # the share of records that are released; in explicit mode
    rejects: float = 0.0
    renews: float = 0.0
    commits: float = 0.3  # the share of batches that are committed before the next poll, half of them without waiting
    slow: float = 0.0  # the share of batches whose processing takes up to 1.5 locks
    iterates: float = 0.0  # the share of batches that a `for` loop processes, which may stop in the middle
    resubscribes: float = 0.0  # the share of steps that unsubscribe, or subscribe to other topics
    reopens: float = 0.0  # the share of steps that close the consumer and open another one
    start_ms: float = 0.0
    workers: int = 0  # of `kconsumer.parallel`, which receives and acknowledges; 0: the member does so itself
    executor: str = "threads"


@dataclass(frozen=True)
class ShareScenario:
    """One run. `seed` decides about everything that is not a field: delays, decisions, the order of tasks."""

    seed: int
    members: tuple[ShareMember, ...]
    faults: tuple[Fault, ...] = ()
    duration_ms: float = 6 * MINUTE_MS
    brokers: int = 3
    partitions: int = 3
    topics: int = 1
    record_interval_ms: float = 1_000.0  # the mean time between two appends
    fetch_max_wait_ms: int = 500
    delivery_limit: int = 5
    transactions: bool = False

    @property
    def steady(self) -> bool:
        """True if members never drop what they have fetched: there are no faults, and no member is slow or leaves."""
        return not self.faults and not any(m.slow or m.resubscribes or m.reopens or m.workers for m in self.members)

    @property
    def base(self) -> Scenario:
        """The same run for what all simulations have in common: topics, producers and faults."""
        return Scenario(
            self.seed,
            (),
            self.faults,
            duration_ms=self.duration_ms,
            brokers=self.brokers,
            partitions=self.partitions,
            topics=self.topics,
            record_interval_ms=self.record_interval_ms,
            fetch_max_wait_ms=self.fetch_max_wait_ms,
            session_timeout_ms=10_000,
            transactions=self.transactions,
        )


def generate_share(seed: int) -> ShareScenario:
    """Returns a scenario with some kinds of members and some kinds of faults."""
    draw = random.Random(seed)
    kinds = draw.sample(KINDS, draw.randint(0, 4))
    duration_ms = 6 * MINUTE_MS
    faults = tuple(_fault(draw, draw.choice(kinds), duration_ms - CATCH_UP_MS) for _ in kinds * 3)
    return ShareScenario(
        seed,
        _with_parallel(random.Random(f"parallel {seed}"), [_member(draw) for _ in range(draw.randint(1, 5))]),
        tuple(sorted(faults, key=lambda fault: fault.at_ms)),
        duration_ms,
        partitions=draw.choice((1, 3, 6)),
        topics=draw.choice((1, 1, 2)),
        record_interval_ms=draw.choice((200.0, 1_000.0, 5_000.0)),
        fetch_max_wait_ms=draw.choice((500, 500, 5_000)),
        delivery_limit=draw.choice((2, 5, 10)),
        transactions=draw.random() < 0.2,
    )


def _member(draw: random.Random) -> ShareMember:
    explicit = draw.random() < 0.6

    def sometimes(share: float) -> float:
        """Returns a share, or 0: members that do everything look alike."""
        return share if draw.random() < 0.4 else 0.0

    return ShareMember(
        explicit=explicit,
        record_limit=draw.random() < 0.4,
        max_poll_records=draw.choice((1, 5, 20, 500)),
        releases=sometimes(0.2) if explicit else 0.0,
        rejects=sometimes(0.1) if explicit else 0.0,
        renews=sometimes(0.1) if explicit else 0.0,
        commits=draw.choice((0.0, 0.3, 1.0)),
        slow=sometimes(0.1),
        iterates=sometimes(0.5),
        resubscribes=sometimes(0.1),
        reopens=sometimes(0.05),
        start_ms=draw.uniform(0, 20_000),
    )


def _with_parallel(draw: random.Random, members: list[ShareMember]) -> tuple[ShareMember, ...]:
    """Returns the members. In a few runs, some of them process records in parallel."""
    share = draw.choice((0.0, 0.0, 0.0, 0.5, 1.0))
    return tuple(
        replace(member, explicit=True, workers=draw.choice((1, 4, 8)), executor=draw.choice(("threads", "asyncio")))
        if draw.random() < share
        else member
        for member in members
    )


def _fault(draw: random.Random, kind: FaultKind, end_ms: float) -> Fault:
    return Fault(
        kind,
        draw.uniform(0, end_ms),
        draw.uniform(500, 20_000),
        member=draw.randrange(5),
        broker=draw.randint(1, 3),
        number=draw.randrange(100),
    )
