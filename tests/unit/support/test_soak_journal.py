"""The checks of a soak find records that are lost, repeated, out of order, or read again after a commit."""

from __future__ import annotations

from typing import Any

from support.soak.soak_journal import DOUBT_S, Journal, check_group, check_numbers, check_plain
from support.soak.soak_use import Status, check_use

TP = ["t", 0]


def journal_of(name: str, *events: tuple[float, str, dict[str, Any]]) -> Journal:
    """Return a journal of these events: time, kind and details."""
    journal = Journal(name)
    for at, kind, details in events:
        journal.note({"event": kind, "at": at, "partition": TP, "partitions": [TP], **details})
    return journal


def read(*runs: tuple[int, int, int]) -> dict[str, Any]:
    """Return the event of a poll that returned records."""
    return {"runs": list(runs)}


ASSIGNED = (0.0, "assigned", {})


def test_a_whole_reading_is_right() -> None:
    """Runs that together are the log are accepted."""
    journal = journal_of("r", ASSIGNED, (1, "records", read((0, 0, 5))), (2, "records", read((5, 5, 5))))
    assert [] == check_plain(journal, "t", [10])
    assert 10 == journal.reached(("t", 0))


def test_a_gap_a_repetition_and_a_missing_end_are_found() -> None:
    """A reader that skips or repeats records, or ends early, is reported."""
    for runs, count in [(((0, 0, 5), (6, 6, 4)), 10), (((0, 0, 5), (4, 4, 6)), 10), (((0, 0, 5),), 6), ((), 1)]:
        journal = journal_of("r", ASSIGNED, (1, "records", read(*runs)))
        assert check_plain(journal, "t", [count])


def test_going_back_reads_again_from_there() -> None:
    """After a seek a reader must continue exactly at its offset."""
    for first, right in [(3, True), (2, False), (4, False)]:
        events = [(1.0, "records", read((0, 0, 5))), (2.0, "sought", {"offset": 3})]
        journal = journal_of("r", ASSIGNED, *events, (3, "records", read((first, first, 10 - first))))
        assert right == (check_plain(journal, "t", [10]) == [])


def test_numbers_may_have_gaps_in_their_offsets() -> None:
    """Control records and aborted records take offsets, and each number must be at the offset to which it
    was written.
    """
    journal = journal_of("r", ASSIGNED, (1, "records", read((0, 0, 2), (5, 2, 1))))
    assert [] == check_numbers(journal, "t", [[0, 1, 5]])
    assert [] == check_numbers(journal, "t", [[0, -1, 5]])
    assert check_numbers(journal, "t", [[0, 1, 6]])
    assert check_numbers(journal, "t", [[0, 1, 5, 8]])
    assert check_numbers(journal, "t", [[0, 1]])


def test_a_group_may_not_repeat_what_was_committed() -> None:
    """After a revocation with a commit a repetition is an error; otherwise it is counted."""
    doubt = (4.0, "doubt", {"text": "commit timed out"})
    for how, extra, right in [("revoked", (), False), ("lost", (), True), ("revoked", (doubt,), True)]:
        first = journal_of("a", ASSIGNED, (1, "records", read((0, 0, 6))), *extra, (5.0, how, {}))
        second = journal_of("b", (6, "assigned", {}), (7, "records", read((4, 4, 6))))
        wrong, repeated = check_group([first, second], "t", [10])
        assert right == (wrong == [])
        assert 2 == repeated


def test_an_old_doubt_excuses_nothing() -> None:
    """A commit without a response long before the end of an ownership does not excuse a repetition."""
    first = journal_of(
        "a",
        ASSIGNED,
        (1, "records", read((0, 0, 6))),
        (2, "doubt", {"text": "commit timed out"}),
        (3 + DOUBT_S, "revoked", {}),
    )
    second = journal_of("b", (50, "assigned", {}), (51, "records", read((4, 4, 6))))
    assert check_group([first, second], "t", [10])[0]


def test_a_group_may_not_lose_a_record() -> None:
    """A record that no member read is reported, in the middle and at the end."""
    first = journal_of("a", ASSIGNED, (1, "records", read((0, 0, 4))), (2, "lost", {}))
    second = journal_of("b", (3, "assigned", {}), (4, "records", read((5, 5, 5))))
    assert check_group([first, second], "t", [10])[0]
    assert check_group([first], "t", [10])[0]
    assert [] == check_group([first], "t", [4])[0]


def test_a_killed_member_owns_nothing() -> None:
    """Records that a killed member read count, and its ownership ends without a commit."""
    journal = journal_of("a", ASSIGNED, (1, "records", read((0, 0, 4))))
    journal.killed(2)
    (span,) = journal.spans["t", 0]
    assert ("killed", 2, False) == (span.ended, span.ended_at, span.committed)


def test_records_of_a_partition_not_owned_are_wrong() -> None:
    """A member that returns records after a revocation is reported."""
    journal = journal_of("a", ASSIGNED, (1, "revoked", {}), (2, "records", read((0, 0, 1))))
    assert journal.wrong


def test_what_a_reader_found_wrong_itself_is_reported() -> None:
    """A record with a wrong value, and an error that poll raised, are reported."""
    for kind in ("wrong", "raised"):
        journal = journal_of("r", ASSIGNED, (1, "records", read((0, 0, 5))), (2, kind, {"text": "a reason"}))
        assert ["r: a reason"] == check_plain(journal, "t", [5])
        assert (["r: a reason"], 0) == check_group([journal], "t", [5])


def test_growing_memory_and_slow_polls_are_found() -> None:
    """Resource use that grows from the second quarter to the last, or exceeds a limit, is reported."""

    def statuses(grown_kb: int, fds: int = 9, slowest_poll_s: float = 0.6) -> list[Status]:
        return [Status(n, 20_000 + grown_kb * (n > 50), fds, 2, 1.0, slowest_poll_s) for n in range(100)]

    assert [] == check_use("r", statuses(1_000))
    assert check_use("r", statuses(20_000))
    assert check_use("r", statuses(0, fds=100))
    assert check_use("r", statuses(0, slowest_poll_s=30))
