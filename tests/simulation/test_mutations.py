"""Shows that the simulation finds defects: each mutation violates a rule within ten minutes of virtual time."""

from __future__ import annotations

import gc
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from simulation.findings import NOT_SIMULATED
from simulation.mutation import Mutation
from simulation.mutations import MUTATIONS
from support.simulation.run import run_scenario
from support.simulation.scenario import MINUTE_MS, Fault, FaultKind, Member, Program, Scenario, Workers

# A run that ends at a violation leaves its consumers open.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <Consumer:ResourceWarning")

ROOT = Path(__file__).resolve().parents[2]
LIMIT_MS = 10 * MINUTE_MS
SEEDS = range(24)  # a mutation must be found with one of them, because each may miss the moment that a defect needs
#: Where the search begins for a defect that few seeds find: the moment that it needs is rare.
FIRST_SEEDS = {"unsubscribe-cancelled": 100}
COMMITTING = (Program.COMMIT, Program.COMMIT_ASYNC, Program.COMMIT_IN_CALLBACK)


def _members(
    *programs: Program,
    protocol: str = "classic",
    assignor: str = "cooperative-sticky",
    engine: str = "classic",
    interval_ms: float = 20_000.0,
) -> tuple[Member, ...]:
    """Returns members that start one after the other."""
    return tuple(
        Member(program, engine, protocol, assignor, start_ms=interval_ms * index)
        for index, program in enumerate(programs)
    )


def _three(
    protocol: str = "classic", assignor: str = "cooperative-sticky", engine: str = "classic"
) -> tuple[Member, ...]:
    return _members(*[Program.AUTO_COMMIT] * 3, protocol=protocol, assignor=assignor, engine=engine)


def _scenario(members: tuple[Member, ...], *faults: Fault, record_interval_ms: float = 2_000.0) -> Scenario:
    """Returns a scenario in which all members have ended after ten minutes."""
    return Scenario(
        0,
        members,
        faults,
        duration_ms=570_000.0,
        record_interval_ms=record_interval_ms,
        fetch_max_wait_ms=20_000,
        session_timeout_ms=10_000,
    )


def _errors(*numbers: int, at_ms: float, times: int = 1, duration_ms: float = 0.0) -> tuple[Fault, ...]:
    """Returns faults that let requests of some APIs fail. The numbers are indexes of `faults.ERRORS`."""
    return tuple(Fault(FaultKind.ERROR, at_ms, duration_ms, number=n) for n in numbers for _ in range(times))


ALL_ERRORS = tuple(Fault(FaultKind.ERROR, 15_000.0 + 4_000.0 * number, number=number) for number in range(17))
CUT_OFF = tuple(Fault(FaultKind.CUT_OFF, 20_000.0 + 15_000.0 * n, 13_000.0, member=n) for n in range(4))
SUSPEND = tuple(Fault(FaultKind.SUSPEND, 20_000.0 + 15_000.0 * n, 13_000.0, member=n) for n in range(4))
LOST_LOOKUPS = tuple(Fault(FaultKind.DISCONNECT, at_ms, number=3) for at_ms in (0.0, 15_000.0, 35_000.0))
KILL = tuple(Fault(FaultKind.KILL_BROKER, 30_000.0 + 20_000.0 * n, 10_000.0, broker=1 + n) for n in range(3))

SCENARIOS = {
    "cooperative": _scenario(_three()),
    "eager": _scenario(_three(assignor="range")),
    "consumer": _scenario(_three("consumer")),
    "commits": _scenario(_members(*COMMITTING), *ALL_ERRORS),
    "eager-errors": _scenario(_three(assignor="range", engine="threaded"), *ALL_ERRORS),
    "cut-off": _scenario(_three(), *CUT_OFF),
    "consumer-cut-off": _scenario(_three("consumer"), *CUT_OFF),
    "kill": _scenario(_three(), *KILL),
    "consumer-kill": _scenario(_three("consumer"), *KILL),
    "disconnected-lookups": _scenario(_three("consumer"), *LOST_LOOKUPS),
    "pause": _scenario(_members(Program.PAUSE, Program.PAUSE)),
    "consumer-raise": _scenario(
        _members(*[Program.RAISE_IN_CALLBACK] * 3, protocol="consumer"), record_interval_ms=300.0
    ),
    # The reset of a connection is only there to delay the check for stability until metadata is too old.
    "partitions": _scenario(
        _members(Program.AUTO_COMMIT, Program.AUTO_COMMIT),
        Fault(FaultKind.ADD_PARTITIONS, 40_000.0),
        Fault(FaultKind.RESET, 400_000.0),
    ),
    "sync-error": _scenario(_members(Program.AUTO_COMMIT), *_errors(15, at_ms=0.0)),
    "commit-errors": _scenario(
        _three(), *_errors(10, at_ms=19_900.0, times=6), *_errors(10, at_ms=39_900.0, times=6), record_interval_ms=500.0
    ),
    "seek-back": _scenario(
        _members(*[Program.SEEK_BACK] * 6, engine="threaded", interval_ms=8_000.0),
        Fault(FaultKind.SLOW_NETWORK, 0.0, 60_000.0),
        record_interval_ms=200.0,
    ),
    "close-in-callback": _scenario(_members(*[Program.CLOSE_IN_CALLBACK] * 2, engine="threaded")),
    "slow-deserializer": _scenario(_members(*[Program.SLOW_DESERIALIZER] * 2, engine="threaded")),
    # Without records there are no commits, and commits cannot notice that the member is unknown.
    "no-records": _scenario(
        _members(*[Program.COMMIT] * 3),
        Fault(FaultKind.SUSPEND, 50_000.0, 16_000.0),
        Fault(FaultKind.SUSPEND, 65_000.0, 16_000.0),
        record_interval_ms=1e7,
    ),
    "no-coordinator": _scenario(
        (Member(Program.AUTO_COMMIT, stop_ms=60_000.0),), *_errors(3, at_ms=0.0, times=1_500, duration_ms=500_000.0)
    ),
    "change-topics": replace(_scenario(_members(*[Program.CHANGE_TOPICS] * 2)), topics=2),
    "refused-offsets": _scenario(
        _members(*[Program.AUTO_COMMIT] * 2, protocol="consumer"),
        Fault(FaultKind.REFUSE, 15_000.0, 60_000.0, number=37),
    ),
}

SCENARIOS |= {
    "store": _scenario(_members(*[Program.STORE] * 3), record_interval_ms=500.0),
    "filtered": replace(_scenario(_three()), filtered=True),
    "new-partitions": replace(
        SCENARIOS["partitions"],
        faults=(Fault(FaultKind.ADD_PARTITIONS, 40_000.0),),
        reset="latest",
        record_interval_ms=300.0,
    ),
}

CANCEL = _members(*[Program.CANCEL] * 3, engine="asyncio")
HANDSHAKES = tuple(Fault(FaultKind.CLOSE_IN_HANDSHAKE, 20_000.0 + 60_000.0 * n, 20_000.0, member=n) for n in range(3))
SCENARIOS |= {
    "change-topics-consumer": replace(
        _scenario(_members(*[Program.CHANGE_TOPICS] * 2, protocol="consumer"), record_interval_ms=500.0),
        duration_ms=560_000.0,
        topics=2,
    ),
    "close-in-handler": _scenario(_members(*[Program.CLOSE_IN_HANDLER] * 3), record_interval_ms=500.0),
    "interrupt": _scenario(_members(*[Program.INTERRUPT] * 3), record_interval_ms=500.0),
    "wake-up-slow-offsets": _scenario(
        _members(*[Program.WAKE_UP] * 3, engine="threaded"),
        Fault(FaultKind.SLOW_REQUESTS, 0.0, 400_000.0, number=13),
        record_interval_ms=500.0,
    ),
    # The first member gets all partitions, and waits for the offset of the last one until the second member gets that.
    "pending-offsets": replace(
        _scenario(
            _members(*[Program.AUTO_COMMIT] * 2, assignor="range"),
            Fault(FaultKind.PENDING_OFFSETS, 0.0, 450_000.0, number=5),
        ),
        api_timeout_ms=300_000,
    ),
    "handshakes": replace(_scenario(_three(), *HANDSHAKES), tls=True),
    "read-alone": replace(_scenario(_members(Program.READ_ALONE), record_interval_ms=1_000.0), window_bytes=100),
    "compressed": replace(_scenario(_three()), compressed=True),
    "calls": _scenario(_members(*[Program.CALLS] * 3), record_interval_ms=500.0),
    "cancel": _scenario(CANCEL, record_interval_ms=500.0),
}

# Handlers that are often slow, and do not fail: many records are finished behind one that is not.
SLOW_HANDLERS = Workers(max_in_flight=30, failing=0.0, slow=0.1, slow_ms=6_000.0, run_ms=20_000.0)
PARALLEL = _scenario(
    tuple(replace(m, workers=SLOW_HANDLERS) for m in _members(*[Program.PARALLEL] * 3)), record_interval_ms=1_000.0
)
SCENARIOS |= {
    "parallel": replace(PARALLEL, duration_ms=540_000.0, keys=5),
    "parallel-one-run": replace(
        PARALLEL, members=tuple(replace(m, workers=replace(SLOW_HANDLERS, run_ms=1e9)) for m in PARALLEL.members[:1])
    ),
}

# For each mutation, a scenario, and a text of the violation that it causes.
EXPECTED = {
    "commit-behind-a-gap": ("store", "committed too early"),
    "filter-skipped": ("filtered", "gap"),
    "new-partitions-as-old-ones": ("new-partitions", "committed too early"),
    "commit-at-sync": ("seek-back", "committed too early"),
    "callback-flag-stays": ("cooperative", "no progress"),
    "poll-after-close-in-callback": ("close-in-callback", "internal error"),
    "network-thread-after-close": ("close-in-callback", "internal error"),
    "deserializer-holds-lock": ("slow-deserializer", "two owners"),
    "unknown-member-keeps-generation": ("no-records", "not stable"),
    "epoch-not-updated": ("consumer", "lost without a fault"),
    "revocation-without-callback": ("consumer", "two owners"),
    "stale-data-returned": ("seek-back", "gap"),
    "sync-error-keeps-state": ("sync-error", "not stable"),
    "join-number-taken-first": ("cooperative", "not stable"),
    "old-commit-retried": ("commit-errors", "committed offset went back"),
    "no-backoff": ("no-coordinator", "flood"),
    "auto-commit-after-collect": ("consumer", "committed too early"),
    "no-rejoin-after-revocation": ("cooperative", "not stable"),
    "revoked-partitions-kept": ("cooperative", "without owning the partition"),
    "eager-keeps-assignment": ("eager", "two owners"),
    "metadata-change-unnoticed": ("partitions", "not stable"),
    "leader-forgets-partition": ("cooperative", "not stable"),
    "lost-partitions-kept": ("eager-errors", "not stable"),
    "heartbeats-too-late": ("cooperative", "two owners"),
    "rebalance-unnoticed": ("cooperative", "two owners"),
    "heartbeat-flag-stays": ("cut-off", "not stable"),
    "poll-interval-not-restarted": ("cooperative", "lost without a fault"),
    "fenced-member-stays-out": ("consumer-cut-off", "not stable"),
    "fenced-member-keeps-partitions": ("consumer-cut-off", "committed offset went back"),
    "consumer-heartbeat-stays-in-flight": ("consumer-kill", "not stable"),
    "lookup-stays-in-flight": ("disconnected-lookups", "not stable"),
    "coordinator-not-forgotten": ("kill", "not stable"),
    "commit-stays-in-flight": ("commit-errors", "two owners"),
    "failed-commit-reported-as-done": ("commits", "commit not stored"),
    "commit-of-next-offset": ("cooperative", "committed too early"),
    "committed-offset-ignored": ("eager", "repeated"),
    "starts-behind-committed-offset": ("eager", "skipped"),
    "data-of-revoked-partition-returned": ("consumer-raise", "without owning the partition"),
    "resume-ignored": ("pause", "lost"),
    "pause-ignored": ("pause", "paused"),
    "position-of-next-record": ("calls", "wrong position"),
    "old-committed-offsets": ("calls", "wrong committed offset"),
    "unsubscribed-records-returned": ("change-topics", "not subscribed"),
    "no-backoff-of-positions": ("refused-offsets", "flood"),
    "no-commit-before-rebalance": ("consumer", "not committed before on_revoke"),
    "unsubscribed-flag-stays": ("change-topics-consumer", "lost"),
    "handlers-inside-a-step": ("interrupt", "Interruption()"),
    "interrupted-leave": ("interrupt", "without owning the partition"),
    "lookup-not-abandoned": ("pending-offsets", "no progress"),
    "shared-offset-fetch": ("wake-up-slow-offsets", "extra wakeup"),
    "closed-handshake-is-fatal": ("handshakes", "AuthenticationError"),
    "arriving-response-expires": ("read-alone", "discarded"),
    "no-minimum-of-output": ("compressed", "no progress"),
    "cancelled-poll-skips": ("cancel", "gap"),
    "cancelled-commit-is-done": ("cancel", "commit not stored"),
    "callback-cancelled": ("cancel", "callback cancelled"),
    "unsubscribe-cancelled": ("cancel", "two owners"),
    "commit-of-finished-records": ("parallel", "committed too early"),
    "metadata-ignored": ("parallel", "repeated"),
    "shards-at-once": ("parallel", "at once"),
    "shards-in-wrong-order": ("parallel", "wrong order"),
    "revocation-without-drain": ("parallel", "not drained"),
    "parallel-commit-stays-in-flight": ("parallel-one-run", "not committed"),
    "workers-not-notified": ("parallel-one-run", "no progress"),
}


@cache
def _violations(name: str, seed: int) -> tuple[str, ...]:
    """Returns the violations of a scenario without a mutation."""
    return run_scenario(replace(SCENARIOS[name], seed=seed)).violations


def _found(mutation: Mutation, name: str, seed: int, text: str) -> bool:
    """Returns whether the expected violation was the first one, and happened in time."""
    with mutation.applied():
        outcome = run_scenario(replace(SCENARIOS[name], seed=seed), until_violation=True)
    gc.collect()  # the warnings about open consumers
    first = next(iter(outcome.violations), "inf")
    return text in first and float(first.split()[0]) <= LIMIT_MS


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_simulation_finds_the_defect(mutation: Mutation) -> None:
    """A scenario violates a rule with the mutation, and none without it."""
    name, text = EXPECTED[mutation.name]
    first = FIRST_SEEDS.get(mutation.name, 0)
    seed = next((first + seed for seed in SEEDS if _found(mutation, name, first + seed, text)), None)
    assert seed is not None, f"not found: {mutation.description}"
    assert _violations(name, seed) == ()


@pytest.mark.parametrize("finding", NOT_SIMULATED)
def test_a_finding_that_is_not_simulated_has_another_test(finding: str) -> None:
    """The test that is named for such a finding exists."""
    _reason, test = NOT_SIMULATED[finding]
    path, _, name = test.partition("::")
    assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")


def test_a_mutation_without_its_text_is_refused() -> None:
    """A mutation whose text is not in the source raises an error, and leaves the function as it was."""
    mutation = replace(MUTATIONS[0], old="this is not in the source")
    with pytest.raises(ValueError, match="not once"), mutation.applied():
        pass
