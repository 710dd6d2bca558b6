"""The judge of chaos runs makes the calls of event logs in the order of time, so that the rules find what is wrong."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kconsumer import TopicPartition
from support.chaos.chaos_faults import ONSET_S, Fault, Kind, draw_storm
from support.chaos.judge import MAX_GROWTH_KB, MIN_STATUSES, History, judge
from support.chaos.load import compact_string, plain_string

P0 = TopicPartition("t", 0)
SESSION_MS = 8_000.0


def line(at: float, event: str, *arguments: Any, **options: Any) -> dict[str, Any]:
    """Returns a line of an event log, as it is read from JSON."""
    plain = [list(argument) if isinstance(argument, tuple) else argument for argument in arguments]
    return {"event": event, "at": at, "arguments": plain, "options": options}


def history(*more: dict[str, Any], commit_at: float = 140.0, **fields: Any) -> History:
    """Returns a run in which member `a` reads two records, which are committed."""
    log = [
        line(100.0, "assign", "a", [list(P0)]),
        line(120.0, "deliver", "a", P0, 0),
        line(120.1, "deliver", "a", P0, 1),
        line(140.5, "process", P0, 0),  # in the millisecond of the commit
        line(140.6, "process", P0, 1),
        *more,
    ]
    found = History({"a": log}, records={P0: [(50.0, 0), (60.0, 1)]}, commits=[(commit_at, P0, 2, "")])
    for name, value in fields.items():
        setattr(found, name, value)
    return found


def violations(found: History) -> list[str]:
    """Returns the violations without their times."""
    return [text.split(" ", 1)[1] for text in judge(found, SESSION_MS).violations]


def test_a_run_without_defects_is_accepted() -> None:
    """A commit of the millisecond in which its records were processed is not too early."""
    assert [] == violations(history())


OTHER = [line(200.0, "assign", "b", [list(P0)])]
STOPPED = Fault(Kind.SUSPEND, "a", 150.0, 180.0)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (history(commit_at=130.0), "committed too early"),
        (history(records={P0: [(50.0, 0), (60.0, 1), (70.0, 2)]}), "lost"),
        (history(line(150.0, "deliver", "a", P0, 1)), "gap"),
        (history(line(9_000.0, "check_call", "a", "poll", 8_000.0, 1_000.0)), "late call"),
        (history(line(150.0, "take_away", "a", [list(P0)], lost=False), calms=[160.0]), "not stable"),
        (history(*[line(200.0 + n, "use", n * MAX_GROWTH_KB // 20, 5, 3) for n in range(MIN_STATUSES)]), "leak"),
    ],
)
def test_a_violation_is_found(found: History, text: str) -> None:
    """Each part of a history can violate a rule."""
    assert text in violations(found)[0]


def test_two_owners() -> None:
    """Two owners are a violation unless the first one was killed or had a fault."""
    found = history()
    found.logs["b"] = OTHER
    assert "two owners" in violations(found)[0]
    found.killed = {"a": 150.0}
    assert [] == violations(found)
    found.killed, found.faults = {}, [STOPPED]
    assert [] == violations(found)


@pytest.mark.parametrize("handlers", [False, True])
def test_a_commit_without_its_replicas(handlers: bool) -> None:
    """A member may start before the last commit, and commit less, only if a broker has died."""
    again = [line(210.0, "deliver", "b", P0, 0)]
    if handlers:
        record = {"tp": list(P0), "offset": 0, "key": "k"}
        run = line(195.0, "handlers.begin_run", "b", {"order": "key", "number": 4}, [])
        again = [run, line(210.0, "handlers.start", "b", record, number=1)]
    found = history(killed={"a": 150.0}, commits=[(140.0, P0, 2, ""), (220.0, P0, 1, "")])
    found.logs["b"] = sorted([*OTHER, *again], key=lambda each: each["at"])
    assert "repeated" in violations(found)[0]
    found.faults = [Fault(Kind.KILL_LEADER, None, 130.0, 9_000.0)]
    assert [] == violations(found)


def test_the_time_of_a_suspended_process_does_not_count() -> None:
    """A call is not late if its process was suspended."""
    late = line(9_000.0, "check_call", "a", "poll", 8_000.0, 1_000.0)
    assert [] == violations(history(late, faults=[Fault(Kind.SUSPEND, "a", 2_000.0, 6_000.0)]))


def test_handlers_are_judged_too() -> None:
    """Two handlers of one key at once are a violation, though they were written as JSON."""
    record = {"tp": list(P0), "key": "k"}
    workers = {"order": "key", "number": 4}
    begin = line(110.0, "handlers.begin_run", "a", workers, [])
    starts = [line(121.0 + n, "handlers.start", "a", {**record, "offset": n}, number=n) for n in (0, 1)]
    found = history(begin, *starts)
    found.logs["a"].sort(key=lambda each: each["at"])
    assert "at once" in violations(found)[0]
    found = history(
        begin, starts[0], line(121.5, "handlers.finish", {"running": 0, "tp": list(P0), "offset": 0}), starts[1]
    )
    found.logs["a"].sort(key=lambda each: each["at"])
    assert [] == violations(found)


def test_the_same_seed_draws_the_same_storm() -> None:
    """A storm has at most one fault for each member and one of brokers, and begins within ONSET_S."""
    first, second = (draw_storm(random.Random(5), 6, 8.0) for _ in range(2))
    assert first == second
    storms = [draw_storm(random.Random(seed), 6, 8.0) for seed in range(200)]
    assert set(Kind) == {strike.kind for storm in storms for strike in storm}
    for storm in storms:
        slots = [strike.slot for strike in storm]
        assert len(set(slots)) == len(slots)
        assert all(0 <= strike.at_s <= ONSET_S for strike in storm)


def test_strings_of_the_log_of_commits() -> None:
    """Metadata is read from both encodings of strings."""
    assert ("abc", 5) == plain_string(b"\0\3abcx", 0)
    assert "a" * 200 == compact_string(b"\xc9\x01" + b"a" * 200 + b"x", 0)
