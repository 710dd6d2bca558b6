"""The checker of a chaos run finds violations in event logs and accepts what fencing allows."""

from __future__ import annotations

import random
from typing import Any

import pytest

from support.soak.chaos_checker import (
    Fault,
    check_calms,
    check_generations,
    check_owners,
    replay,
    stable_since,
)
from support.soak.chaos_faults import ONSET_S, Kind, draw_storm
from support.soak.soak_journal import Journal, check_group

TP = ("t", 0)
SESSION_S = 6.0
END = 100.0

Event = tuple[float, str, dict[str, Any]]


def log(name: str, *events: Event, killed_at: float | None = None) -> Journal:
    """Return the events that a member recorded of one partition: time, kind and details."""
    lines = [{"event": kind, "at": at, "partition": TP, "partitions": [TP], **details} for at, kind, details in events]
    return replay(name, lines, killed_at)


def assigned(at: float) -> Event:
    """Return the event that the partition was assigned to the member."""
    return at, "assigned", {}


def revoked(at: float) -> Event:
    """Return the event that the member revoked the partition."""
    return at, "revoked", {}


def lost(at: float) -> Event:
    """Return the event that the member found that it was fenced."""
    return at, "lost", {}


def read(at: float, first: int, count: int) -> Event:
    """Return the event that a poll returned this many records from an offset on."""
    return at, "records", {"runs": [(first, first, count)]}


def committed(at: float, offset: int) -> Event:
    """Return the event that the coordinator accepted an offset."""
    return at, "committed", {"offsets": [(*TP, offset)]}


def owners(*journals: Journal, faults: tuple[Fault, ...] = ()) -> list[str]:
    """Return the findings of `check_owners`."""
    return check_owners(journals, faults, SESSION_S, END)


def suspended(member: str | None, began: float, ended: float) -> Fault:
    """Return a fault that disconnects a member from the coordinator."""
    return Fault("suspended", member, began, ended, silences=True)


# --- records -------------------------------------------------------------------------------------------------------


def test_every_record_once() -> None:
    """A handover is accepted in which the second member continues at the first one's commit."""
    first = log("a", assigned(0), read(1, 0, 5), committed(2, 5), revoked(3))
    second = log("b", assigned(4), read(5, 5, 5))
    assert ([], 0) == check_group([first, second], "t", [10])


def test_a_lost_record() -> None:
    """An acknowledged record that no member read is reported, whatever happened to its owner."""
    first = log("a", assigned(0), read(1, 0, 5), killed_at=2)
    second = log("b", assigned(9), read(10, 6, 4))
    wrong, _ = check_group([first, second], "t", [10])
    assert ["t-0: 5 to 5 lost"] == [line.partition(" before")[0] for line in wrong]


def test_repetitions_after_a_kill_begin_at_the_last_commit() -> None:
    """Records that a killed member had not committed may be read again; a repetition of committed ones is reported."""
    for resumed, right in [(3, True), (2, False)]:
        first = log("a", assigned(0), read(1, 0, 3), committed(2, 3), read(3, 3, 3), killed_at=4)
        second = log("b", assigned(10), read(11, resumed, 10 - resumed))
        wrong, _ = check_group([first, second], "t", [10])
        assert right == (wrong == [])


def test_repetitions_after_a_clean_handover() -> None:
    """A repetition of records that were read before a regular revocation is reported."""
    first = log("a", assigned(0), read(1, 0, 5), revoked(3))
    second = log("b", assigned(4), read(5, 4, 6))
    assert check_group([first, second], "t", [10])[0]


def test_a_commit_that_a_stalled_one_may_overtake_proves_nothing() -> None:
    """An accepted offset may be replaced by an older commit that had no response shortly before; not by one that was
    refused.
    """
    for text, right in [("commit timed out", True), ("commit: NOT_COORDINATOR", False)]:
        doubt = (1.5, "doubt", {"text": text})
        first = log("a", assigned(0), read(1, 0, 3), doubt, committed(2, 3), killed_at=4)
        second = log("b", assigned(10), read(11, 0, 10))
        assert right == (check_group([first, second], "t", [10])[0] == [])


def test_a_record_after_the_member_was_fenced() -> None:
    """A record that a member returns after it was fenced or has revoked the partition is reported."""
    for end in (lost, revoked):
        journal = log("a", assigned(0), read(1, 0, 5), end(2), read(3, 5, 5))
        assert check_group([journal], "t", [10])[0]


# --- owners --------------------------------------------------------------------------------------------------------


def test_one_owner_after_the_other() -> None:
    """A partition may get a new owner after it was revoked or after its owner was killed."""
    first = log("a", assigned(0), revoked(10))
    second = log("b", assigned(11), killed_at=20)
    third = log("c", assigned(27))
    assert [] == owners(first, second, third)


def test_two_healthy_owners() -> None:
    """A partition that is assigned before its owner has revoked it is reported if no fault affected the owner."""
    first = log("a", assigned(0), revoked(10.01))
    second = log("b", assigned(10))
    (wrong,) = owners(first, second)
    assert wrong.startswith("('t', 0): b owned it from 10.000, a until 10.010")


def test_the_owner_in_the_middle_is_not_the_only_one_compared() -> None:
    """An overlap of the first and the third owner is reported, although the second was in between."""
    first, second, third = log("a", assigned(0), revoked(30)), log("b", assigned(5), revoked(6)), log("c", assigned(8))
    assert 2 == len(owners(first, second, third))


def test_a_suspended_owner_is_replaced() -> None:
    """A member that was suspended for a session may believe that it owns the partition until it is connected again."""
    first = log("a", assigned(0), lost(20.5))
    second = log("b", assigned(16))
    assert [] == owners(first, second, faults=(suspended("a", 10, 20),))
    assert [] == owners(first, second, faults=(suspended(None, 10, 20),)), "every member was suspended"


@pytest.mark.parametrize(
    "faults",
    [
        (suspended("b", 10, 20),),
        (suspended("a", 13, 20),),
        (suspended("a", 16.5, 26),),
        (suspended("a", -20, 3),),
        (Fault("coordinator killed", None, 5, 20),),
    ],
    ids=["another member's", "shorter than a session", "afterwards", "long ago", "of the coordinator"],
)
def test_what_excuses_no_second_owner(faults: tuple[Fault, ...]) -> None:
    """A second owner is reported unless the first one was disconnected for a session before."""
    first = log("a", assigned(0), lost(20.5))
    second = log("b", assigned(16))
    assert owners(first, second, faults=faults)


def test_several_short_faults_add_up() -> None:
    """Faults that overlap or follow each other count each moment once."""
    first, second = log("a", assigned(0), lost(20)), log("b", assigned(16))
    assert [] == owners(first, second, faults=(suspended("a", 10, 13), suspended("a", 12, 15)))
    assert owners(first, second, faults=(suspended("a", 10, 13), suspended("a", 10, 13)))


def test_an_owner_that_does_not_learn_of_its_end() -> None:
    """A fenced member that keeps the partition for longer than a session timeout after it is connected again is
    reported.
    """
    second = log("b", assigned(16))
    fault = suspended("a", 10, 20)
    assert owners(log("a", assigned(0), lost(27)), second, faults=(fault,))
    assert owners(log("a", assigned(0)), second, faults=(fault,)), "it never did"
    down = Fault("coordinator killed", None, 19, 26)
    assert [] == owners(log("a", assigned(0), lost(27)), second, faults=(fault, down))


# --- generations ---------------------------------------------------------------------------------------------------


def test_generations_go_forward() -> None:
    """A generation, or epoch, of a member that decreases is reported, except with a new member id."""

    def journal_of(*generations: tuple[str, int]) -> Journal:
        events = [{"event": "generation", "at": 1.0, "member_id": who, "generation": n} for who, n in generations]
        return replay("a", events)

    assert [] == check_generations([journal_of(("x", 3), ("x", 3), ("x", 5), ("y", 1), ("x", 6))])
    assert ["a: generation 4 after 5 at 1.000 as x"] == check_generations([journal_of(("x", 5), ("y", 9), ("x", 4))])


# --- calms ---------------------------------------------------------------------------------------------------------


def test_stable_within_two_session_timeouts() -> None:
    """The result is the time from the last fault until every partition permanently has one owner."""
    first, second = log("a", assigned(0), killed_at=10), log("b", assigned(19))
    assert ([], [9.0]) == check_calms([first, second], [TP], [(10, 30)], SESSION_S)


@pytest.mark.parametrize(
    "second",
    [
        log("b", assigned(22.5)),
        log("b", assigned(19), revoked(23), assigned(24)),
        log("b", assigned(19), killed_at=21),
        log("b"),
    ],
    ids=["too late", "not for good", "killed", "never"],
)
def test_a_group_that_is_too_slow(second: Journal) -> None:
    """A group that becomes stable later, or only temporarily, is reported."""
    first = log("a", assigned(0), killed_at=10)
    wrong, took = check_calms([first, second], [TP], [(10, 30)], SESSION_S)
    assert (1, []) == (len(wrong), took)


def test_a_partition_that_was_never_owned() -> None:
    """A partition that is in no log is reported as not stable."""
    assert stable_since([log("a", assigned(0))], [TP, ("t", 1)], 10, 30) is None


def test_two_owners_are_not_stable() -> None:
    """A group is stable only if each partition has exactly one owner."""
    first, second = log("a", assigned(0), lost(15)), log("b", assigned(5))
    assert 15 == stable_since([first, second], [TP], 10, 30)
    assert stable_since([log("a", assigned(0)), second], [TP], 10, 30) is None


def test_what_happened_before_a_calm_does_not_count() -> None:
    """For a group that was stable when the last fault ended the time is 0."""
    assert 10 == stable_since([log("a", assigned(0), revoked(5)), log("b", assigned(6))], [TP], 10, 30)


# --- storms of faults ----------------------------------------------------------------------------------------------


def test_a_seed_draws_the_same_faults_again() -> None:
    """Storms depend only on the random source, and each has at most one fault per member."""
    storms = [draw_storm(random.Random(seed), 6, SESSION_S) for seed in range(200)]
    assert storms == [draw_storm(random.Random(seed), 6, SESSION_S) for seed in range(200)]
    assert set(Kind) == {strike.kind for storm in storms for strike in storm}
    for storm in storms:
        slots = [strike.slot for strike in storm if strike.slot >= 0]
        assert len(set(slots)) == len(slots) >= 2
        assert all(0 <= strike.at_s <= ONSET_S for strike in storm)
    lasting = {strike.lasts_s > SESSION_S for storm in storms for strike in storm if strike.kind is Kind.SUSPEND}
    assert {True, False} == lasting, "suspended for less than a session, and for more"
