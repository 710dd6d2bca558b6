"""Positions for an auto-commit are read while the caller is in poll, never while it processes a batch."""

from __future__ import annotations

import pytest

from support.harnesses.consumer_harness import ConsumerGroupHarness
from support.harnesses.group_harness import FirstTakesAllCooperative, GroupHarness, committed, tps

ZERO, ONE = tps("t", 0, 1)


def in_the_middle_of_a_batch() -> GroupHarness:
    """Returns a cooperative member that joins while its caller processes offsets 100 to 199 of both partitions."""
    group = GroupHarness(assignor=FirstTakesAllCooperative())
    group.stable(ZERO, ONE)
    group.consume(ZERO, 100)
    group.consume(ONE, 100)
    group.member.request_rejoin("another member joined")
    sync = group.join(generation=2)
    group.consume(ZERO, 200)
    group.consume(ONE, 200)
    group.respond(sync, group.synced(ZERO))
    return group


def offsets(group: GroupHarness) -> dict[int, int]:
    """Returns the offsets in the one commit of the next poll, by partition."""
    commit = group.request()
    assert "OffsetCommit" == commit.api.name
    return {p.partition_index: p.committed_offset for topic in commit.message.topics for p in topic.partitions}


def test_sync_response_outside_poll_commits_nothing() -> None:
    """A SyncGroup response that is received outside poll reads no position and removes no partition, so close() after
    an exception commits nothing.
    """
    group = in_the_middle_of_a_batch()
    assert [] == group.background()
    assert not group.commits.pending_commits()
    assert group.membership.due_callback is None
    assert (ZERO, ONE) == group.assignment.assigned()


def test_next_poll_commits_what_was_returned_before_it() -> None:
    """The next call of poll implies that the batch is processed: its offsets are committed before the partition is
    revoked.
    """
    group = in_the_middle_of_a_batch()
    assert {0: 200, 1: 200} == offsets(group)
    assert not group.assignment.is_fetchable(ONE)


def test_seek_back_before_the_next_poll_is_committed() -> None:
    """If the caller seeks back to a record that failed, that position is committed, and the next owner starts there."""
    group = in_the_middle_of_a_batch()
    group.background()
    group.consume(ONE, 103)
    assert {0: 200, 1: 103} == offsets(group)


def test_leaving_in_the_middle_of_a_batch_commits_nothing() -> None:
    """close() after an exception in the loop cancels the rebalance that waits for a poll, with its commit."""
    group = in_the_middle_of_a_batch()
    callback = group.membership.leave_callback()
    assert callback is not None
    assert (ZERO, ONE) == callback.partitions
    group.membership.leave("the consumer closed", group.now)
    assert not group.commits.pending_commits()


@pytest.mark.parametrize("protocol", ["eager", "cooperative"])
def test_rebalance_noticed_outside_poll_commits_nothing(protocol: str) -> None:
    """If a heartbeat is notified of a rebalance while the caller processes a batch, the commit waits for
    the next poll.
    """
    group = GroupHarness(assignor=FirstTakesAllCooperative() if protocol == "cooperative" else None)
    group.stable(ZERO)
    group.consume(ZERO, 100)
    group.now += 3000
    (heartbeat,) = group.background()
    group.respond(heartbeat, heartbeat.api.response(error_code=27))
    assert [] == group.background()
    assert not group.commits.pending_commits()
    assert {0: 100} == offsets(group)


def test_consumer_protocol_captures_in_poll_only() -> None:
    """If a heartbeat response revokes a partition while the caller processes a batch, the commit waits for the next
    poll.
    """
    group = ConsumerGroupHarness(enable_auto_commit=True)
    group.joined({"t": [0, 1]})
    group.positions.seek(ZERO, 100)
    group.positions.seek(ONE, 100)
    group.now += 5000
    (heartbeat,) = group.background()
    group.respond(heartbeat, 2, {"t": [0]})
    assert [] == group.background()
    assert not group.commits.pending_commits()
    group.positions.seek(ONE, 50)
    (commit,) = [request for request in group.poll() if request.api.name == "OffsetCommit"]
    (topic,) = commit.message.topics
    assert {0: 100, 1: 50} == {p.partition_index: p.committed_offset for p in topic.partitions}


def test_on_revoke_waits_for_the_commit() -> None:
    """on_revoke waits for the commit whose positions were read in poll, as a join does."""
    group = in_the_middle_of_a_batch()
    commit = group.request()
    assert group.membership.due_callback is None
    group.respond(commit, committed(commit))
    group.poll()
    callback = group.membership.due_callback
    assert callback is not None
    assert (ONE,) == callback.partitions
