"""The rules of the random model test find violations in event logs and accept what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from support.model.group_model_checker import (
    Finding,
    check,
    check_commits,
    check_errors,
    check_owners,
    check_records,
    check_times,
    check_wakeups,
    history,
)
from support.model.group_model_events import Event, EventLog, runs_of

TP, OTHER = ("t", 0), ("u", 0)
WRITTEN = {TP: list(range(10)), OTHER: list(range(10))}
Line = tuple[str, str, dict[str, Any]]


def log(*lines: Line) -> list[Event]:
    """Return events of these members and kinds, one per second."""
    members = dict.fromkeys(member for member, _, _ in lines if member != "observer")
    opened = [Event(0.0, member, "opened", {"protocol": "classic"}) for member in members]
    return [*opened, *(Event(float(n), *line) for n, line in enumerate(lines, 1))]


def texts(found: Iterable[Finding]) -> list[str]:
    """Return the findings of a rule, without times and names."""
    return [finding.text for finding in found]


def assigned(member: str = "a", *, raises: bool = False) -> Line:
    """Return the event that on_assign begins."""
    return member, "assigned", {"partitions": (TP,), "raises": raises}


def revoked(member: str = "a", *, raises: bool = False) -> Line:
    """Return the event that on_revoke ends."""
    return member, "revoked", {"partitions": (TP,), "raises": raises}


def lost(member: str = "a") -> Line:
    """Return the event that on_lost ends."""
    return member, "lost", {"partitions": (TP,), "raises": False}


def subscribed(*topics: str) -> Line:
    """Return the event that subscribe() has returned."""
    return "a", "subscribed", {"topics": topics or ("t",)}


def returned(first: int, last: int, member: str = "a") -> Line:
    """Return the event that a poll returned records."""
    return member, "returned", {"runs": [(TP, first, last)]}


def finished(first: int, last: int, member: str = "a") -> Line:
    """Return the event that records were processed."""
    return member, "finished", {"runs": [(TP, first, last)]}


def sought(offset: int, member: str = "a") -> Line:
    """Return the event that seek() is called."""
    return member, "sought", {"partition": TP, "offset": offset}


def position(offset: int, member: str = "a") -> Line:
    """Return the event that position() returned."""
    return member, "position", {"partition": TP, "offset": offset}


def chosen(offset: int, member: str = "a") -> Line:
    """Return the event that the application is about to commit an offset that it chose."""
    return member, "commit", {"offsets": {TP: offset}}


def acknowledged(called_at: float, offset: int, member: str = "a") -> Line:
    """Return the event that a commit succeeded."""
    return member, "acknowledged", {"called_at": called_at, "offsets": {TP: offset}}


def observed(began: float, offset: int) -> Line:
    """Return the event that another client read the committed offset."""
    return "observer", "observed", {"began": began, "offsets": {TP: offset}}


def called(name: str, *, error: str | None = None, took_s: float = 0.0, bound_s: float = 0.0) -> Line:
    """Return the event that a call ended."""
    return "a", "call", {"name": name, "bound_s": bound_s, "took_s": took_s, "error": error, "text": "text"}


def commits(*lines: Line) -> list[str]:
    """Return the findings of the rules for commits."""
    return texts(check_commits(log(*lines), WRITTEN))


def records(*lines: Line) -> list[str]:
    """Return the findings of the rules for records."""
    return texts(check_records(log(*lines), WRITTEN))


# --- all rules -----------------------------------------------------------------------------------------------------

HANDOVER = (
    subscribed(),
    assigned(),
    position(0),
    returned(0, 4),
    finished(0, 4),
    called("commit"),
    acknowledged(5, 5),
    observed(7.5, 5),
    revoked(),
    ("b", "subscribed", {"topics": ("t",)}),
    assigned("b"),
    position(5, "b"),
    returned(5, 9, "b"),
    finished(5, 9, "b"),
)


def test_a_handover() -> None:
    """A run without a violation has no findings: the second member continues at the first one's commit."""
    assert [] == check(log(*HANDOVER), WRITTEN)


def test_findings_come_in_order_with_their_history() -> None:
    """Findings are in order of time, with the last events of the partition or of the member."""
    events = log(*HANDOVER, ("a", "woken", {}), called("seek", error="KeyError"), returned(3, 3, "b"))
    late, first = check(events, WRITTEN)[::-1]
    assert ("seek raised KeyError: text", None) == (first.text, first.partition)
    assert ("3 to 3 returned, but the next offset is 10", TP) == (late.text, late.partition)
    assert ["woken", "call"] == [event.kind for event in history(events, first, 2)]
    assert ["finished", "returned"] == [event.kind for event in history(events, late, 2)]
    assert "runs 3 to 3" in history(events, late, 1)[0].about(TP)


# --- single calls --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "error", "right"),
    [
        ("poll", None, True),
        ("poll", "WakeupError", True),
        ("poll", "TimeoutError", False),
        ("poll", "AttributeError", False),
        ("commit", "RebalanceInProgressError", True),
        ("seek", "WakeupError", False),
        ("close", "WakeupError", False),
    ],
)
def test_documented_errors(name: str, error: str | None, right: bool) -> None:
    """An error that the documentation of a call does not name is reported."""
    assert right == (texts(check_errors(log(called(name, error=error)))) == [])


def test_timeouts() -> None:
    """A call may take one second longer than its timeout, or one second without a timeout."""
    assert [] == texts(check_times(log(called("poll", bound_s=2, took_s=2.9), called("seek", took_s=0.9))))
    late = log(called("poll", bound_s=2, took_s=3.1), called("seek", took_s=1.1))
    assert 2 == len(list(check_times(late)))


def test_one_wakeup_raises_once() -> None:
    """More WakeupErrors than wakeups before are reported."""
    woken, raised = ("a", "woken", {}), called("poll", error="WakeupError")
    assert [] == texts(check_wakeups(log(woken, raised, woken, woken, raised)))
    assert ["2 WakeupErrors of 1 wakeups"] == texts(check_wakeups(log(woken, raised, raised, woken)))


# --- ownership -----------------------------------------------------------------------------------------------------


def owners(protocol: str, *lines: Line) -> list[str]:
    """Return the findings of the rule for owners."""
    events = log(*lines)
    return texts(check_owners([*(Event(0.0, name, "opened", {"protocol": protocol}) for name in "ab"), *events[2:]]))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize(
    ("ends", "right"),
    [
        ((revoked(),), True),
        ((("a", "left", {}),), True),
        ((("a", "leaving", {}), revoked(raises=True)), True),
        ((), False),
        ((("a", "leaving", {}),), False),
    ],
)
def test_one_owner_at_a_time(protocol: str, ends: tuple[Line, ...], right: bool) -> None:
    """A partition that is assigned before its owner has revoked it is reported."""
    assert right == (owners(protocol, assigned(), *ends, assigned("b")) == [])


def test_an_owner_that_lost_it() -> None:
    """A fenced member may call on_lost late."""
    assert [] == owners("classic", assigned(), assigned("b"), lost())
    assert ["assigned from 2.000 on, though a had it until 3.000"] == owners(
        "classic", assigned(), assigned("b"), revoked()
    )


def test_callbacks_that_raise() -> None:
    """The classic protocol continues after a callback raised; in the consumer protocol the callback counts as not
    called.
    """
    for protocol, given_up in [("classic", True), ("consumer", False)]:
        assert given_up == (owners(protocol, assigned(), revoked(raises=True), assigned("b")) == [])
    for protocol, owned in [("classic", True), ("consumer", False)]:
        assert owned == (owners(protocol, assigned(raises=True), assigned("b")) != [])
    assert owners("consumer", assigned(raises=True), assigned(), assigned("b")), "the second call announced it"


# --- records -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lines",
    [
        (returned(0, 3), returned(4, 9)),
        (returned(0, 3), position(4), returned(4, 9)),
        (returned(0, 3), sought(2), position(2), returned(2, 9)),
        (returned(0, 3), ("a", "unknown", {"partitions": [TP]}), position(10), sought(4), returned(4, 4)),
        (returned(0, 3), revoked(), assigned(), returned(2, 3)),
        (("a", "paused", {"partitions": [TP]}), ("a", "resumed", {"partitions": [TP]}), returned(0, 0)),
        (("a", "paused", {"partitions": [TP]}), revoked(), assigned(), returned(0, 0)),
    ],
)
def test_records_in_order(lines: tuple[Line, ...]) -> None:
    """Records continue after the last ones, after a seek at its offset, and after a new assignment at any offset."""
    assert [] == records(subscribed(), assigned(), *lines)


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        ((returned(0, 3), returned(5, 9)), "5 to 9 returned, but the next offset is 4"),
        ((returned(0, 3), returned(3, 9)), "3 to 9 returned, but the next offset is 4"),
        ((returned(0, 3), sought(2), returned(3, 9)), "3 to 9 returned, but the next offset is 2"),
        ((position(1), returned(0, 9)), "0 to 9 returned, but the next offset is 1"),
        ((returned(0, 3), position(5)), "the position is 5, but the next offset is 4"),
        ((returned(8, 10),), "8 to 10 returned, but the log has 2 records there"),
        ((subscribed("u"), returned(0, 3)), "0 to 3 returned, but subscribed to ['u']"),
        ((revoked(), returned(0, 3)), "0 to 3 returned, but the partition is not assigned"),
        ((lost(), returned(0, 3)), "0 to 3 returned, but the partition is not assigned"),
        ((("a", "paused", {"partitions": [TP]}), returned(0, 3)), "0 to 3 returned, but the partition is paused"),
    ],
)
def test_records_that_may_not_be_returned(lines: tuple[Line, ...], wrong: str) -> None:
    """Gaps, repetitions, and records of other topics or of partitions that are paused or not owned are reported."""
    assert [wrong] == records(subscribed(), assigned(), *lines)


def test_offsets_without_a_record() -> None:
    """Offsets of control records and aborted records are not reported as a gap."""
    written = {TP: [0, 1, 4, 5]}
    lines = (subscribed(), assigned(), returned(0, 1), position(4), returned(4, 5))
    assert [] == texts(check_records(log(*lines), written))
    behind = ("a", "position", {"partition": TP, "offset": 3})
    assert [] == texts(check_records(log(subscribed(), assigned(), returned(0, 1), behind, returned(4, 5)), written))
    assert runs_of([(TP, 0), (TP, 1), (TP, 4), (OTHER, 5)]) == [(TP, 0, 1), (TP, 4, 4), (OTHER, 5, 5)]


def test_an_assignment_that_the_listener_refused() -> None:
    """In the consumer protocol a record that is returned before on_assign has returned is reported."""
    lines = log(subscribed(), assigned(raises=True), returned(0, 3))
    assert [] == texts(check_records(lines, WRITTEN))
    lines[0] = Event(0.0, "a", "opened", {"protocol": "consumer"})
    assert ["0 to 3 returned, but the partition is not assigned"] == texts(check_records(lines, WRITTEN))


# --- commits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seen", [observed, acknowledged])
def test_a_commit_of_what_was_not_processed(seen: Callable[[float, int], Line]) -> None:
    """A commit of records that no member has processed is reported, once for each record."""
    batch = (assigned(), returned(0, 4), finished(0, 2))
    assert [] == commits(*batch, seen(3.5, 3))
    assert ["4 is committed, but 3 was not processed"] == commits(*batch, seen(3.5, 4), seen(4.5, 4))
    assert [] == commits(*batch, ("b", "finished", {"runs": [(TP, 3, 4)]}), seen(3.5, 5))


def test_a_commit_that_goes_back() -> None:
    """A committed offset that decreases without a cause is reported."""
    begin = (assigned(), finished(0, 8), acknowledged(2.5, 8))
    assert ["4 is committed, but 8 was before"] == commits(*begin, observed(4, 4))
    assert [] == commits(*begin, observed(2.9, 8)), "an observation that began before"
    assert ["4 is committed, but 6 was before"] == commits(assigned(), finished(0, 8), observed(2, 6), observed(4, 4))


@pytest.mark.parametrize("back", [sought, chosen])
def test_a_commit_that_the_application_takes_back(back: Callable[[int], Line]) -> None:
    """After a seek or a commit of chosen offsets, the commit may be as low as these while the owner has the partition,
    but not for the next owner.
    """
    begin = (assigned(), finished(0, 8), acknowledged(2.5, 8), back(4))
    assert [] == commits(*begin, observed(5, 4), observed(6, 8), observed(7, 5))
    assert ["3 is committed, but 4 was before"] == commits(*begin, observed(5, 3))
    handed_over = (*begin, revoked(), assigned("b"), acknowledged(6.5, 8, "b"))
    assert ["5 is committed, but 8 was before"] == commits(*handed_over, observed(8, 5))


def test_a_seek_that_is_no_way_back() -> None:
    """A seek to the first record that was not processed does not allow the commit to decrease later."""
    retried = (assigned(), returned(0, 4), finished(0, 2), sought(3), returned(3, 8), finished(3, 8), observed(6.5, 9))
    assert ["3 is committed, but 9 was before"] == commits(*retried, observed(7.5, 3))


def test_a_commit_before_a_marker() -> None:
    """A commit may move between the positions before and after a control record, because both are equivalent."""
    written = {TP: [0, 1, 2, 4, 5]}
    lines = (assigned(), finished(0, 2), observed(2.5, 4), observed(3.5, 3))
    assert [] == texts(check_commits(log(*lines), written))
    assert ["2 is committed, but 4 was before"] == texts(check_commits(log(*lines, observed(4.5, 2)), written))


def test_a_late_acknowledgement_of_an_earlier_owner() -> None:
    """A commit of an earlier owner that is acknowledged late does not affect what its successor may commit."""
    lines = (assigned(), finished(0, 8), revoked(), assigned("b"), sought(2, "b"), ("b", "left", {}), assigned("c"))
    assert [] == commits(*lines, acknowledged(2.5, 8), observed(8.5, 2))


def test_where_an_owner_begins() -> None:
    """A new owner that does not begin at the commit is reported."""
    begin = (assigned(), finished(0, 5), acknowledged(2.5, 6), revoked(), assigned("b"))
    for first in (position, lambda offset, member: returned(offset, 9, member)):
        assert [] == commits(*begin, first(6, "b"))
        assert ["starts at 5, but 6 is committed"] == commits(*begin, first(5, "b"))
        assert ["starts at 8, but 6 was not processed"] == commits(*begin, first(8, "b"))
        assert [] == commits(*begin, sought(3, "b"), first(3, "b")), "it went elsewhere"


def test_a_start_after_a_commit_that_may_have_failed() -> None:
    """After a decreasing commit without an acknowledgement a new owner may begin at either offset."""
    begin = (assigned(), finished(0, 5), acknowledged(2.5, 6), chosen(3), revoked(), assigned("b"))
    assert [] == commits(*begin, position(3, "b"))
    assert [] == commits(*begin, position(6, "b"))
    assert ["starts at 2, but 3 is committed"] == commits(*begin, position(2, "b"))


def test_an_event_log_is_in_order() -> None:
    """Events are recorded in order of time, with their partition."""
    recorded = EventLog()
    recorded.add("a", "position", partition=TP, offset=3)
    recorded.add("a", "left")
    recorded.add("observer", "observed", began=0.0, offsets={TP: 3})
    assert [True, True, True] == [event.concerns(TP) for event in recorded.events]
    assert [False, True, False] == [event.concerns(OTHER) for event in recorded.events]
    assert sorted(event.at for event in recorded.events) == [event.at for event in recorded.events]
