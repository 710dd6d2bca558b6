"""Each rule of the journal is violated by a history that breaks it, and only then."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kconsumer import TopicPartition
from support.simulation.journal import MAX_REQUESTS, Journal

P0 = TopicPartition("t", 0)


def journal_with(records: int) -> Journal:
    """Returns a journal of one partition with records 0, 1, ..., which member `a` owns."""
    journal = Journal()
    for offset in range(records):
        journal.append(P0, offset)
    journal.assign("a", [P0])
    return journal


def consume(journal: Journal, member: str, offsets: range) -> None:
    """Let a member receive and process records."""
    for offset in offsets:
        journal.deliver(member, P0, offset)
        journal.process(P0, offset)


def hand_over(journal: Journal) -> None:
    """Move the partition from member `a` to member `b`."""
    journal.take_away("a", [P0])
    journal.assign("b", [P0])


def skipped(journal: Journal) -> None:
    """The next owner starts behind a record that was never processed."""
    consume(journal, "a", range(2))
    hand_over(journal)
    journal.deliver("b", P0, 3)


def repeated(journal: Journal) -> None:
    """The next owner gets a record that was committed before its assignment."""
    consume(journal, "a", range(3))
    journal.commit(P0, 3)
    hand_over(journal)
    journal.deliver("b", P0, 2)


def gap(journal: Journal) -> None:
    """A member misses a record."""
    consume(journal, "a", range(2))
    journal.deliver("a", P0, 3)


def gap_backwards(journal: Journal) -> None:
    """A member gets a record twice without an assignment or a seek in between."""
    consume(journal, "a", range(2))
    journal.deliver("a", P0, 1)


def committed_too_early(journal: Journal) -> None:
    """A record is committed that was delivered but not processed."""
    consume(journal, "a", range(2))
    journal.deliver("a", P0, 2)
    journal.commit(P0, 3)


def committed_offset_went_back(journal: Journal) -> None:
    """A smaller offset is committed after a larger one."""
    consume(journal, "a", range(3))
    journal.commit(P0, 3)
    journal.commit(P0, 2)


def two_owners(journal: Journal) -> None:
    """A member is assigned a partition that another one has."""
    journal.assign("b", [P0])


def not_owned(journal: Journal) -> None:
    """A member returns a record of a partition that it has lost."""
    hand_over(journal)
    journal.deliver("a", P0, 0)


def commit_not_stored(journal: Journal) -> None:
    """A commit returns without an error, but the coordinator has not stored it."""
    consume(journal, "a", range(3))
    journal.acknowledge("a", P0, 3)


def flood(journal: Journal) -> None:
    """A client sends many requests at once."""
    for _ in range(MAX_REQUESTS + 1):
        journal.request("a", "Heartbeat")


@pytest.mark.parametrize(
    ("history", "rule"),
    [
        (skipped, "skipped: b starts at t-0@3; 2 was never processed"),
        (repeated, "repeated: b returned t-0@2; 3 was committed before"),
        (gap, "gap: a returned t-0@3 after 1"),
        (gap_backwards, "gap: a returned t-0@1 after 1"),
        (committed_too_early, "committed too early: t-0@3; 2 was not processed"),
        (committed_offset_went_back, "committed offset went back: t-0 from 3 to 2"),
        (two_owners, "two owners of t-0: a and b"),
        (not_owned, "a returned t-0@0 without owning the partition"),
        (commit_not_stored, "commit not stored: a has committed t-0@3"),
        (flood, f"flood: a sent more than {MAX_REQUESTS} Heartbeat requests in 10 s"),
    ],
)
def test_a_rule_is_violated(history: Callable[[Journal], None], rule: str) -> None:
    """A planted history violates its rule, at the time of the journal."""
    journal = journal_with(5)
    journal.now = 1.0
    history(journal)
    assert f"1.000 {rule}" in journal.violations


def test_a_right_history() -> None:
    """Records that are processed, committed, handed over, sought back and committed again violate nothing."""
    journal = journal_with(10)
    consume(journal, "a", range(3))
    journal.commit(P0, 2)
    hand_over(journal)
    consume(journal, "b", range(2, 6))
    journal.sought("b", P0, 4)
    consume(journal, "b", range(4, 10))
    journal.commit(P0, 10)
    for second in range(100):
        journal.now = second * 1000.0
        for _ in range(MAX_REQUESTS // 12):
            journal.request("b", "Heartbeat")
    assert [] == journal.violations
    assert {} == journal.unprocessed()


def test_offsets_without_records() -> None:
    """Offsets between records, such as those of transaction markers, are no gaps, and may be committed."""
    journal = Journal()
    for offset in (0, 1, 5, 6, 9):
        journal.append(P0, offset)
    journal.assign("a", [P0])
    for offset in (0, 1, 5):
        journal.deliver("a", P0, offset)
        journal.process(P0, offset)
    journal.commit(P0, 6)
    assert [] == journal.violations
    assert {P0: 6} == journal.unprocessed()


def test_records_processed_out_of_order() -> None:
    """A record counts as processed for a commit only if all records before it were processed, too."""
    journal = journal_with(4)
    journal.process(P0, 2)
    journal.process(P0, 0)
    assert {P0: 1} == journal.unprocessed()
    journal.process(P0, 1)
    assert {P0: 3} == journal.unprocessed()
    journal.commit(P0, 3)
    assert [] == journal.violations


def test_two_owners_after_a_fault() -> None:
    """A member that cannot know that it lost a partition is no second owner until the fault is over."""
    journal = journal_with(1)
    journal.now = 1_000.0
    journal.disturb("a", 5_000.0)
    journal.assign("b", [P0])
    assert [] == journal.violations
    journal.now = 6_000.0
    journal.assign("c", [P0])
    assert "6000.000 two owners of t-0: a and c" in journal.violations


def test_lost_record() -> None:
    """A record that no member processed is found at the end."""
    journal = journal_with(3)
    consume(journal, "a", range(2))
    assert {P0: 2} == journal.unprocessed()


def test_deleted_records() -> None:
    """Records that were deleted need not be returned nor processed; a member may still return some of them."""
    journal = journal_with(10)
    consume(journal, "a", range(2))
    journal.delete(P0, 5)
    consume(journal, "a", range(2, 4))
    consume(journal, "a", range(5, 8))
    journal.commit(P0, 8)
    assert [] == journal.violations
    assert {P0: 8} == journal.unprocessed()
    journal.deliver("a", P0, 9)
    assert ["0.000 gap: a returned t-0@9 after 7"] == journal.violations


def test_rewound_records() -> None:
    """A member may read from the beginning and commit smaller offsets again, but only until it has caught up."""
    journal = journal_with(5)
    consume(journal, "a", range(4))
    journal.commit(P0, 4)
    journal.rewind("a", P0)
    consume(journal, "a", range(4))
    journal.commit(P0, 4)  # was in flight when the member sought
    journal.commit(P0, 2)
    consume(journal, "a", range(4, 5))
    journal.commit(P0, 5)
    assert [] == journal.violations
    journal.commit(P0, 3)
    assert ["0.000 committed offset went back: t-0 from 5 to 3"] == journal.violations


def test_unchecked_topic() -> None:
    """The records of a topic are not checked until `check_from`; later ones must be processed."""
    journal = Journal()
    journal.unchecked.add("t")
    journal.assign("a", [P0])
    journal.append(P0, 0)
    consume(journal, "a", range(3, 1, -1))
    journal.commit(P0, 9)
    journal.unchecked.discard("t")
    journal.check_from(P0, 2, 5)
    consume(journal, "a", range(3, 5))
    assert ([], {}) == (journal.violations, journal.unprocessed())
    journal.append(P0, 5)
    assert {P0: 5} == journal.unprocessed()


def test_lost_without_a_fault() -> None:
    """A partition is lost without a fault, unless a fault, or a change of the protocol, explains it."""
    journal = journal_with(1)
    journal.disturb_all(1_000.0)
    journal.lose("a", [P0])
    journal.now = 2_000.0
    journal.changes_protocol = True
    journal.lose("a", [P0])
    assert [] == journal.violations
    journal.changes_protocol = False
    journal.lose("a", [P0], 900.0)  # it was busy since the fault, and learns it now
    assert [] == journal.violations
    journal.lose("a", [P0])
    assert ["2000.000 lost without a fault: a lost t-0"] == journal.violations


def test_not_committed_before_on_revoke() -> None:
    """A member with auto-commit must have committed its position when it gives a partition up in order."""
    journal = journal_with(5)
    consume(journal, "a", range(3))
    journal.commit(P0, 3)
    journal.revoke("a", [P0])
    consume(journal, "a", range(3, 5))
    journal.disturb("a", 10.0)
    journal.revoke("a", [P0])
    assert [] == journal.violations
    journal.now = 11.0
    journal.revoke("a", [P0])
    assert ["11.000 not committed before on_revoke: a has t-0@5, committed 3"] == journal.violations


def test_no_progress() -> None:
    """A record may not wait too long, unless a fault explains it, or no member is running."""
    journal = journal_with(3)
    for second in range(0, 300, 10):
        journal.now = second * 1000.0
        journal.disturb_all(50_000.0)
        if second == 100:
            consume(journal, "a", range(1))
        if second == 200:
            journal.restart_waits()
        journal.check_progress(95_000.0)
    assert [] == journal.violations
    journal.now = 300_000.0
    journal.check_progress(95_000.0)
    journal.check_progress(95_000.0)
    assert ["300000.000 no progress: t-0@1 waits for 100000 ms"] == journal.violations
