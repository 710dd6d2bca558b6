"""Positions for an automatic commit are captured while the caller is in poll, never while it processes a batch."""

from __future__ import annotations

import pytest

from support.harnesses.consumer_harness import ConsumerGroupHarness
from support.harnesses.group_harness import FirstTakesAllCooperative, GroupHarness, committed, tps

ZERO, ONE = tps("t", 0, 1)


def in_the_middle_of_a_batch() -> GroupHarness:
    """A cooperative member that joins while its caller processes offsets 100 to 199 of both partitions."""
    group = GroupHarness(assignor=FirstTakesAllCooperative())
    group.stable(ZERO, ONE)
    group.consume(ZERO, 100)
    group.consume(ONE, 100)
    group.member.request_rejoin("another member joined")
    sync = group.join(generation=2)
    group.consume(ZERO, 200)
    group.consume(ONE, 200)
    group.answer(sync, group.synced(ZERO))
    return group


def offsets(group: GroupHarness) -> dict[int, int]:
    """What the one commit of the next poll says, by partition."""
    commit = group.request()
    assert "OffsetCommit" == commit.api.name
    return {p.partition_index: p.committed_offset for topic in commit.message.topics for p in topic.partitions}


def test_sync_response_outside_poll_commits_nothing() -> None:
    """A SyncGroup response that the heartbeat thread or another call receives captures no position and takes nothing
    away: close() after an exception has nothing to send."""
    group = in_the_middle_of_a_batch()
    assert [] == group.background()
    assert not group.commits.pending_commits()
    assert group.membership.due_callback is None
    assert (ZERO, ONE) == group.subscription.assigned()


def test_next_poll_commits_what_was_returned_before_it() -> None:
    """The next call of poll says that the batch is processed: it is committed before the partition is given up."""
    group = in_the_middle_of_a_batch()
    assert {0: 200, 1: 200} == offsets(group)
    assert not group.subscription.is_fetchable(ONE)


def test_seek_back_before_the_next_poll_is_committed() -> None:
    """A record that failed and was sought back to is still to be read: the next owner of its partition begins there."""
    group = in_the_middle_of_a_batch()
    group.background()
    group.consume(ONE, 103)
    assert {0: 200, 1: 103} == offsets(group)


def test_leaving_in_the_middle_of_a_batch_commits_nothing() -> None:
    """close() after the body raised: the rebalance that waits for a poll is forgotten with what it would commit."""
    group = in_the_middle_of_a_batch()
    callback = group.membership.leave_callback()
    assert callback is not None
    assert (ZERO, ONE) == callback.partitions
    group.membership.leave("the consumer closed", group.now)
    assert not group.commits.pending_commits()


@pytest.mark.parametrize("protocol", ["eager", "cooperative"])
def test_rebalance_asked_for_outside_poll_commits_nothing(protocol: str) -> None:
    """A heartbeat that hears of a rebalance while the caller processes leaves the commit to the next poll."""
    group = GroupHarness(assignor=FirstTakesAllCooperative() if protocol == "cooperative" else None)
    group.stable(ZERO)
    group.consume(ZERO, 100)
    group.now += 3000
    (heartbeat,) = group.background()
    group.answer(heartbeat, heartbeat.api.response(error_code=27))
    assert [] == group.background()
    assert not group.commits.pending_commits()
    assert {0: 100} == offsets(group)


def test_consumer_protocol_captures_in_poll_only() -> None:
    """A heartbeat response that takes a partition away, received by the network thread in the middle of a batch, leaves
    the commit to the next poll."""
    group = ConsumerGroupHarness(enable_auto_commit=True)
    group.joined({"t": [0, 1]})
    group.subscription.seek(ZERO, 100)
    group.subscription.seek(ONE, 100)
    group.now += 5000
    (heartbeat,) = group.background()
    group.answer(heartbeat, 2, {"t": [0]})
    assert [] == group.background()
    assert not group.commits.pending_commits()
    group.subscription.seek(ONE, 50)
    (commit,) = [request for request in group.poll() if request.api.name == "OffsetCommit"]
    (topic,) = commit.message.topics
    assert {0: 100, 1: 50} == {p.partition_index: p.committed_offset for p in topic.partitions}


def test_commit_of_the_revocation_holds_up_what_follows() -> None:
    """The commit captured in poll is awaited before on_revoke, as the one before the join."""
    group = in_the_middle_of_a_batch()
    commit = group.request()
    assert group.membership.due_callback is None
    group.answer(commit, committed(commit))
    group.poll()
    callback = group.membership.due_callback
    assert callback is not None
    assert (ONE,) == callback.partitions
