"""Scenarios: what a simulated run contains, as data that can be generated from a seed, shrunk, and printed.

The `repr` of a scenario is Python code that creates it again. `generate` draws a random mix: a run has only some of the
programs and some kinds of faults (swarm testing), because with all of them at once most runs would look alike.
"""

from __future__ import annotations

import enum
import random
from dataclasses import dataclass

HOUR_MS = 3_600_000.0
MINUTE_MS = 60_000.0
MIN_REQUEST_FAULT_MS = 15_000.0  # a fault of some requests waits this long for them


class Program(enum.Enum):
    """What the application of a member does. The value describes it."""

    AUTO_COMMIT = "polls and processes"
    SLOW = "processes slowly, sometimes longer than max_poll_interval_ms"
    COMMIT = "commits each batch and waits"
    COMMIT_ASYNC = "commits each batch without waiting"
    COMMIT_IN_CALLBACK = "commits in on_revoke"
    SEEK_BACK = "seeks back to the committed offset now and then, as after a failed batch"
    PAUSE = "pauses and resumes partitions"
    RAISE_IN_CALLBACK = "raises exceptions in rebalance callbacks"
    REOPEN = "closes its consumer now and then, and opens another one"
    CHANGE_PROTOCOL = "closes its consumer now and then, and opens one with the other group protocol"
    RESUBSCRIBE = "unsubscribes and subscribes now and then"
    ITERATE = "iterates record by record, and leaves the loop in the middle of a batch"
    CLOSE_IN_CALLBACK = "closes its consumer now and then in the callback of an auto-commit, and opens another one"
    SLOW_DESERIALIZER = "has a deserializer that sometimes takes longer than the session timeout"

    def __repr__(self) -> str:
        return f"Program.{self.name}"


class FaultKind(enum.Enum):
    """What goes wrong. The value describes it."""

    KILL_BROKER = "a broker stops, and starts again at the end"
    MOVE_LEADERS = "the leaders of some partitions move"
    BLOCK = "packets between a member and a broker are held back"
    CUT_OFF = "packets between a member and all brokers are held back"
    SUSPEND = "the process of a member does not run"
    CRASH = "the process of a member ends; it starts again at the end"
    RESET = "the connections of a member are reset"
    SLOW_NETWORK = "all packets take longer"
    ERROR = "the next requests of an API fail with an error code"
    DISCONNECT = "a broker closes the connection instead of processing the next requests of an API"
    DISCONNECT_AFTER = "a broker processes the next requests of an API, and closes the connection instead of responding"
    INTERRUPT_BROKER = "a broker does not receive or send anything"
    ADD_PARTITIONS = "the topic gets another partition"

    def __repr__(self) -> str:
        return f"FaultKind.{self.name}"


@dataclass(frozen=True)
class Member:
    """One process that runs one consumer after the other."""

    program: Program
    engine: str = "classic"  # the option `engine`; only for the classic protocol
    protocol: str = "classic"  # the option `group_protocol`
    assignor: str = "cooperative-sticky"
    static: bool = False  # the consumer has a group_instance_id
    start_ms: float = 0.0
    stop_ms: float | None = None  # the consumer is closed then; None: at the end of the run


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong, from `at_ms` on for `duration_ms`."""

    kind: FaultKind
    at_ms: float
    duration_ms: float = 0.0
    member: int = 0  # the index of the member
    broker: int = 1  # the id of the broker
    number: int = 0  # which API or how many partitions, depending on the kind

    @property
    def ends_ms(self) -> float:
        """When the fault ends. Those that wait for requests last long enough for some requests."""
        waits = self.kind in (FaultKind.ERROR, FaultKind.DISCONNECT, FaultKind.DISCONNECT_AFTER)
        return self.at_ms + max(self.duration_ms, MIN_REQUEST_FAULT_MS if waits else 0.0)


@dataclass(frozen=True)
class Scenario:
    """One run. `seed` decides about everything that is not a field: delays, values, the order of tasks."""

    seed: int
    members: tuple[Member, ...]
    faults: tuple[Fault, ...] = ()
    duration_ms: float = HOUR_MS
    brokers: int = 3
    partitions: int = 6
    record_interval_ms: float = 10_000.0  # the mean time between two appends
    fetch_max_wait_ms: int = 10_000
    session_timeout_ms: int = 45_000
    release: str = "4.4"
    transactions: bool = False  # some records are written in transactions, and members read with read_committed

    @property
    def has_both_protocols(self) -> bool:
        """True if members have different group protocols, or change theirs."""
        changes = any(member.program is Program.CHANGE_PROTOCOL for member in self.members)
        return changes or len({member.protocol for member in self.members}) > 1


def generate(seed: int, duration_ms: float = HOUR_MS) -> Scenario:
    """Returns a random scenario. The same seed and duration give the same scenario."""
    rng = random.Random(f"scenario {seed}")
    members = _members(rng, duration_ms)
    kinds = [kind for kind in FaultKind if rng.random() < 0.4]
    quiet_ms = rng.choice([2, 5, 10, 20]) * MINUTE_MS  # the mean time between two faults
    faults = []
    at_ms = rng.expovariate(1 / quiet_ms)
    # The run ends with ten minutes without faults, in which everything must become right.
    while kinds and at_ms < duration_ms - 10 * MINUTE_MS:
        faults.append(_fault(rng, rng.choice(kinds), at_ms, len(members)))
        at_ms += rng.expovariate(1 / quiet_ms)
    session_timeout_ms = rng.choice([10_000, 45_000])
    return Scenario(
        seed,
        members,
        tuple(faults),
        duration_ms,
        brokers=3,
        partitions=rng.choice([1, 2, 3, 6, 12]),
        record_interval_ms=rng.choice([500.0, 5_000.0, 20_000.0, 60_000.0]),
        # A request for the coordinator may wait behind a fetch, so this must be shorter than the session.
        fetch_max_wait_ms=min(rng.choice([500, 5_000, 20_000]), session_timeout_ms // 4),
        session_timeout_ms=session_timeout_ms,
        transactions=rng.random() < 0.4,
    )


def _members(rng: random.Random, duration_ms: float) -> tuple[Member, ...]:
    """Returns the members of a run: one protocol, or a rolling change from one protocol or assignor to another."""
    programs = rng.sample(list(Program), rng.randint(1, 4))
    protocols = rng.choice([("classic",), ("classic",), ("consumer",), ("consumer",), ("classic", "consumer")])
    assignors = rng.choice([("range",), ("cooperative-sticky",), ("cooperative-sticky",), ("sticky",), ("roundrobin",)])
    members = []
    for _ in range(rng.choice([1, 2, 3, 3, 4])):
        protocol = rng.choice(protocols)
        stop_ms = rng.uniform(0.2, 0.8) * duration_ms if rng.random() < 0.2 else None
        members.append(
            Member(
                rng.choice(programs),
                engine=rng.choice(["classic", "threaded"]),
                protocol=protocol,
                assignor=rng.choice(assignors),
                static=rng.random() < 0.2,
                start_ms=0.0 if rng.random() < 0.7 else rng.uniform(0, 0.5) * duration_ms,
                stop_ms=stop_ms,
            )
        )
    return tuple(members)


def _fault(rng: random.Random, kind: FaultKind, at_ms: float, members: int) -> Fault:
    duration_ms = rng.choice([0.0, rng.uniform(0, 2_000), rng.uniform(0, 30_000), rng.uniform(0, 120_000)])
    return Fault(kind, at_ms, duration_ms, rng.randrange(members), rng.randint(1, 3), rng.randrange(1000))
