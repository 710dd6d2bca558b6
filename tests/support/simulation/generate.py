"""Generates scenarios: draws a random mix of members, faults and settings from a seed.

A run has only some of the programs and some kinds of faults (swarm testing), because with all of them at once most runs
would look alike.
"""

from __future__ import annotations

import random
from dataclasses import replace

from support.simulation.scenario import HOUR_MS, MINUTE_MS, Fault, FaultKind, Member, Program, Scenario, Workers

ASYNCIO = 0.25  # the share of members with an AsyncConsumer
RARE = (Program.WAKE_UP, Program.CLOSE_IN_HANDLER, Program.READ_ALONE, Program.CANCEL)
RARE_SHARE = 0.15  # of members with one of the rare programs
CALLS_SHARE = STORE_SHARE = 0.1  # of members with one of the programs QUIET
QUIET = (Program.AUTO_COMMIT, Program.PAUSE, Program.ITERATE)
DRAWN_LATER = (Program.PARALLEL, Program.CALLS, Program.STORE)
PARALLEL_SHARE = 0.15  # of runs: all or some members process records in parallel
TLS_SHARE = COMPRESSED_SHARE = FILTERED_SHARE = 0.15  # of runs
FENCING_SHARE = 0.1  # of runs with members of the consumer protocol: heartbeats fail again and again
FENCING_NUMBERS = (19, 20, 22, 23)  # errors of ConsumerGroupHeartbeat: two that fence the member, two that are fatal


def generate(seed: int, duration_ms: float = HOUR_MS) -> Scenario:
    """Returns a random scenario. The same seed and duration give the same scenario.

    Each rare thing is drawn from a generator of its own. So the scenarios of other seeds stay the same when another
    rare thing is added.
    """
    scenario = _common(seed, duration_ms)
    scenario = _with_tls(random.Random(f"tls {seed}"), scenario)
    scenario = _with_fencing(random.Random(f"fencing {seed}"), scenario)
    scenario = _with_parallel(random.Random(f"parallel {seed}"), scenario)
    scenario = replace(scenario, members=_with_calls(random.Random(f"calls {seed}"), scenario.members))
    scenario = replace(scenario, members=_with_stores(random.Random(f"store {seed}"), scenario.members))
    filtered = random.Random(f"filter {seed}").random() < FILTERED_SHARE
    compressed = random.Random(f"compressed {seed}").random() < COMPRESSED_SHARE
    window_bytes = random.Random(f"window {seed}").choice([0, 0, 0, 0, 100, 1_000])
    return replace(scenario, compressed=compressed, filtered=filtered, window_bytes=window_bytes)


def _common(seed: int, duration_ms: float) -> Scenario:
    """Returns a random scenario with one of the rare programs at most."""
    rng = random.Random(f"scenario {seed}")
    members = _with_asyncio(random.Random(f"asyncio {seed}"), _members(rng, duration_ms))
    members = _with_rare_programs(random.Random(f"programs {seed}"), members)
    sasl = rng.choice(["", "", "", "PLAIN", "SCRAM-SHA-256"])
    volatile = rng.random() < 0.2
    common = [kind for kind in FaultKind if kind is not FaultKind.CLOSE_IN_HANDSHAKE]
    kinds = [kind for kind in common if rng.random() < 0.3 and _applies(kind, members, sasl, volatile=volatile)]
    quiet_ms = rng.choice([2, 5, 10, 20]) * MINUTE_MS  # the mean time between two faults
    numbers = [rng.randrange(1000) for _ in range(rng.choice([2, 5, 20]))]  # the APIs and error codes of this run
    faults = []
    at_ms = rng.expovariate(1 / quiet_ms)
    # The run ends with ten minutes without faults, in which everything must become right.
    while kinds and at_ms < duration_ms - 10 * MINUTE_MS:
        faults.append(_fault(rng, rng.choice(kinds), at_ms, len(members), rng.choice(numbers)))
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
        topics=rng.choice([1, 1, 1, 2]),
        volatile=volatile,
        sasl=sasl,
        max_callback_ms=rng.choice([2_000.0, 2_000.0, 15_000.0]),
        reset=rng.choice(["earliest", "earliest", "none"]),
    )


def _members(rng: random.Random, duration_ms: float) -> tuple[Member, ...]:
    """Returns the members of a run: one protocol, or a rolling change from one protocol or assignor to another."""
    programs = rng.sample([program for program in Program if program not in (*RARE, *DRAWN_LATER)], rng.randint(1, 4))
    protocols = rng.choice([("classic",), ("classic",), ("consumer",), ("consumer",), ("classic", "consumer")])
    assignors = rng.choice([("range",), ("cooperative-sticky",), ("cooperative-sticky",), ("sticky",), ("roundrobin",)])
    if Program.UPGRADE in programs:  # all members of the classic protocol must take part
        programs, protocols = [Program.UPGRADE], rng.choice([("classic",), ("classic", "consumer")])
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


def _with_asyncio(rng: random.Random, members: tuple[Member, ...]) -> tuple[Member, ...]:
    """Returns the members, of which some have an AsyncConsumer.

    A signal handler that raises an exception in an event loop ends the loop, so no such member has one.
    """
    return tuple(
        replace(member, engine="asyncio")
        if rng.random() < ASYNCIO and member.program is not Program.INTERRUPT
        else member
        for member in members
    )


def _with_rare_programs(rng: random.Random, members: tuple[Member, ...]) -> tuple[Member, ...]:
    """Returns the members, of which some have a rare program. Calls of an AsyncConsumer are cancelled, not interrupted.

    If the members upgrade their assignors, all of them must take part.
    """
    if any(member.program is Program.UPGRADE for member in members):
        return members
    chosen = []
    for member in members:
        program, draw = rng.choice(RARE), rng.random()
        if draw < RARE_SHARE and program is Program.CANCEL:
            member = replace(member, program=program, engine="asyncio")
        elif draw < RARE_SHARE and (member.engine != "asyncio" or program is Program.WAKE_UP):
            member = replace(member, program=program)
        chosen.append(member)
    return tuple(chosen)


def _with_tls(rng: random.Random, scenario: Scenario) -> Scenario:
    """Returns the scenario, sometimes with TLS and faults of TLS handshakes in addition."""
    if rng.random() >= TLS_SHARE:
        return scenario
    calm_ms = scenario.duration_ms - 10 * MINUTE_MS
    times = [rng.uniform(0, calm_ms) for _ in range(rng.randint(0, 3))] if calm_ms > 0 else []
    faults = [_fault(rng, FaultKind.CLOSE_IN_HANDSHAKE, at_ms, len(scenario.members), 0) for at_ms in times]
    return replace(scenario, tls=True, faults=scenario.faults + tuple(faults))


def _with_fencing(rng: random.Random, scenario: Scenario) -> Scenario:
    """Returns the scenario, or rarely one in which heartbeats of the consumer protocol fail again and again.

    Most states of a member last some milliseconds. Slow responses and long callbacks prolong them, and programs that
    leave the group often begin them, so that each of them meets errors.
    """
    calm_ms = scenario.duration_ms - 10 * MINUTE_MS
    consumers = any(member.protocol == "consumer" for member in scenario.members)
    if rng.random() >= FENCING_SHARE or not consumers or calm_ms <= 0:
        return scenario
    faults = [Fault(FaultKind.SLOW_REQUESTS, 0.0, calm_ms, number=FENCING_NUMBERS[0])]
    at_ms = rng.expovariate(1 / MINUTE_MS)
    while at_ms < calm_ms:
        faults.append(Fault(FaultKind.ERROR, at_ms, number=rng.choice(FENCING_NUMBERS)))
        at_ms += rng.expovariate(1 / MINUTE_MS)
    programs = (Program.SLOW, Program.SLOW, Program.RESUBSCRIBE, Program.CHANGE_TOPICS)
    members = [
        replace(member, program=rng.choice(programs)) if member.protocol == "consumer" else member
        for member in scenario.members
    ]
    return replace(scenario, members=tuple(members), faults=tuple(faults), max_callback_ms=15_000.0)


def _with_parallel(rng: random.Random, scenario: Scenario) -> Scenario:
    """Returns the scenario, sometimes with members that process records in parallel.

    If the members upgrade their assignors, all of them must take part.
    """
    if rng.random() >= PARALLEL_SHARE or any(member.program is Program.UPGRADE for member in scenario.members):
        return scenario
    share = rng.choice([0.5, 1.0, 1.0])
    members = tuple(
        replace(member, program=Program.PARALLEL, workers=_workers(rng)) if rng.random() < share else member
        for member in scenario.members
    )
    return replace(scenario, members=members, keys=rng.choice([1, 3, 10, 50]))


def _with_calls(rng: random.Random, members: tuple[Member, ...]) -> tuple[Member, ...]:
    """Returns the members, of which some make random calls."""
    return tuple(
        replace(member, program=Program.CALLS) if rng.random() < CALLS_SHARE and member.program in QUIET else member
        for member in members
    )


def _with_stores(rng: random.Random, members: tuple[Member, ...]) -> tuple[Member, ...]:
    """Returns the members, of which some store offsets."""
    return tuple(
        replace(member, program=Program.STORE) if rng.random() < STORE_SHARE and member.program in QUIET else member
        for member in members
    )


def _workers(rng: random.Random) -> Workers:
    return Workers(
        order=rng.choice(["key", "key", "partition", "none"]),
        executor=rng.choice(["threads", "threads", "asyncio"]),
        number=rng.choice([1, 2, 4, 8]),
        max_in_flight=rng.choice([4, 20, 100]),
        on_revoke=rng.choice(["drain", "drain", "abandon"]),
        drain_timeout_s=rng.choice([0.0, 2.0, 10.0]),
        commit_interval_s=rng.choice([0.0, 1.0, 5.0]),
        run_ms=rng.choice([10_000.0, MINUTE_MS, 10 * MINUTE_MS]),
    )


def _fault(rng: random.Random, kind: FaultKind, at_ms: float, members: int, number: int) -> Fault:
    duration_ms = rng.choice([0.0, rng.uniform(0, 2_000), rng.uniform(0, 30_000), rng.uniform(0, 120_000)])
    return Fault(kind, at_ms, duration_ms, rng.randrange(members), rng.randint(1, 3), number)


def _applies(kind: FaultKind, members: tuple[Member, ...], sasl: str, *, volatile: bool) -> bool:
    """Returns whether a kind of faults has an effect in a scenario."""
    if kind is FaultKind.WRONG_PASSWORD:
        return bool(sasl)
    if kind in (FaultKind.LOSE_RECORDS, FaultKind.RECREATE_TOPIC):
        return volatile
    if kind is FaultKind.TWIN:
        return any(member.static for member in members)
    return True
