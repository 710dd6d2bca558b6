"""Each rule of the journal is violated by a history that breaks it, and only then."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kconsumer import TopicPartition
from support.simulation.handler_journal import MAX_UNCOMMITTED_MS
from support.simulation.journal import MAX_REQUESTS, Journal
from support.simulation.scenario import Workers

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


def late_call(journal: Journal) -> None:
    """A poll takes longer than its timeout."""
    journal.check_call("a", "poll", 7_000.0, 5_000.0)


def late_call_after_close(journal: Journal) -> None:
    """The handler of a signal closes the consumer in a poll, and the poll does not end."""
    journal.check_call_after_close("a", "poll", 2_000.0)


def not_stable_without_owner(journal: Journal) -> None:
    """The only owner gives the partition up, and no other member gets it."""
    journal.take_away("a", [P0])
    journal.check_stable([P0])


def not_stable_with_two_owners(journal: Journal) -> None:
    """A member that a fault has cut off still owns a partition that was assigned to another one."""
    journal.disturb("a", 5_000.0)
    journal.assign("b", [P0])
    journal.check_stable([P0])


def lost_without_a_fault(journal: Journal) -> None:
    """The group removes a member that was not disturbed."""
    journal.lose("a", [P0])


def not_committed_before_on_revoke(journal: Journal) -> None:
    """A member gives the partition up, and has not committed what it has processed."""
    consume(journal, "a", range(3))
    journal.revoke("a", [P0])


def gap_without_a_group(journal: Journal) -> None:
    """A consumer without a group misses a record."""
    journal.read_alone("c", P0, 1)
    journal.read_alone("c", P0, 3)


def discarded(journal: Journal) -> None:
    """A client closes a connection before it has read all of a response."""
    journal.discard("a", 2)


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
        (late_call, "late call: a: poll took 7000 ms of 5000"),
        (late_call_after_close, "late call: a: poll took 2000 ms after close()"),
        (not_stable_without_owner, "not stable: t-0 has owners []"),
        (not_stable_with_two_owners, "not stable: t-0 has owners ['a', 'b']"),
        (lost_without_a_fault, "lost without a fault: a lost t-0"),
        (not_committed_before_on_revoke, "not committed before on_revoke: a has t-0@3, committed 0"),
        (gap_without_a_group, "gap: c returned t-0@3 after 1"),
        (discarded, "discarded: a has closed its connection to broker 2"),
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


def test_forgotten_owner() -> None:
    """If the coordinator has forgotten what a member owns, another one may own it, until the first one gives it up."""
    journal = journal_with(1)
    journal.now = 1.0
    journal.forget_owners()
    journal.assign("b", [P0])
    journal.take_away("a", [P0])
    assert [] == journal.violations
    journal.assign("a", [P0])
    assert ["1.000 two owners of t-0: b and a"] == journal.violations
    journal.take_away("b", [P0])
    journal.assign("b", [P0])
    assert ["1.000 two owners of t-0: a and b"] == journal.violations[1:]


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


def test_rewound_behind_a_transaction() -> None:
    """A commit that was in flight during the seek may be behind a marker of a transaction or behind deleted records."""
    journal = journal_with(3)
    consume(journal, "a", range(3))
    journal.rewind("a", P0)
    journal.commit(P0, 4)  # behind the marker at offset 3, which the member had passed
    journal.commit(P0, 2)
    journal.append(P0, 4)
    journal.append(P0, 5)
    consume(journal, "a", range(3))
    journal.delete(P0, 5)
    journal.rewind("a", P0)
    journal.commit(P0, 5)
    journal.commit(P0, 2)
    assert [] == journal.violations
    consume(journal, "a", range(5, 6))
    journal.commit(P0, 6)
    journal.commit(P0, 5)
    assert ["0.000 committed offset went back: t-0 from 6 to 5"] == journal.violations


def test_rewound_before_it_is_checked() -> None:
    """A member may seek to the beginning shortly before the check of a topic begins."""
    journal = Journal()
    journal.unchecked.add("t")
    journal.assign("a", [P0])
    journal.rewind("a", P0)
    journal.unchecked.discard("t")
    journal.check_from(P0, 0, 3)
    journal.commit(P0, 3)
    journal.commit(P0, 0)
    assert [] == journal.violations
    journal.append(P0, 3)
    consume(journal, "a", range(4))
    journal.commit(P0, 4)
    journal.commit(P0, 3)
    assert ["0.000 committed offset went back: t-0 from 4 to 3"] == journal.violations


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


def test_no_progress_behind_a_hidden_offset() -> None:
    """A record that waits too long is found, unless a fault hides the offset at which its owner starts."""
    journal = journal_with(1)
    journal.check_progress(1_000.0)
    journal.delay_positions([P0], 5_000.0)
    journal.now = 5_000.0
    journal.check_progress(1_000.0)
    assert [] == journal.violations
    journal.now = 7_000.0
    journal.check_progress(1_000.0)
    assert ["7000.000 no progress: t-0@0 waits for 2000 ms"] == journal.violations


def test_calls_in_time_and_a_stable_group() -> None:
    """A call within its timeout, a call that ends with close(), and one owner of each partition violate nothing."""
    journal = journal_with(1)
    journal.check_call("a", "poll", 5_500.0, 5_000.0)
    journal.check_call_after_close("a", "poll", 10.0)
    journal.check_stable([P0])
    assert [] == journal.violations


def test_a_reader_that_starts_again() -> None:
    """A consumer without a group reads from the beginning again after it was closed."""
    journal = journal_with(3)
    for offset in (0, 1, 2):
        journal.read_alone("c", P0, offset)
    journal.end("c")
    journal.read_alone("c", P0, 0)
    assert [] == journal.violations


def finish(journal: Journal, member: str, offset: int) -> None:
    """Let a handler of a member finish a record, and check much later whether it is committed."""
    record: Any = SimpleNamespace(topic_partition=P0, offset=offset, key=None)
    journal.handlers.finish(journal.handlers.start(member, record))
    journal.handlers.check_commits()
    journal.now += 2 * MAX_UNCOMMITTED_MS


def begin(journal: Journal, member: str) -> None:
    """Let a member own the partition, and begin a run."""
    journal.assign(member, [P0])
    journal.handlers.begin_run(member, Workers(), [P0])


def test_what_a_member_has_finished_is_committed() -> None:
    """A finished record that is not committed violates a rule, also after another member has crashed."""
    journal = journal_with(2)
    begin(journal, "a")
    finish(journal, "a", 0)
    journal.end("b", crashed=True)
    journal.handlers.check_commits()
    (violation,) = journal.violations
    assert "not committed: t-0@0" in violation


@pytest.mark.parametrize("lost", [False, True])
def test_what_a_crashed_member_has_finished(lost: bool) -> None:
    """What a member finished before it crashed or lost the partition counts when its successor has finished it."""
    journal = journal_with(2)
    begin(journal, "a")
    finish(journal, "a", 0)
    if lost:
        journal.take_away("a", [P0], lost=True)
    else:
        journal.end("a", crashed=True)
    begin(journal, "b")
    journal.handlers.check_commits()
    assert [] == journal.violations
    finish(journal, "b", 0)
    journal.handlers.check_commits()
    assert "not committed: t-0@0" in journal.violations[0]
