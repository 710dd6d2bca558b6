"""Committed offsets, deletion and listing of groups of the consumer protocol."""

from __future__ import annotations

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer.schema.offsets import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from support.fakes.consumer_members import GROUP, FakeConsumerMember, settle


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.create_topic("t", 3)
    return cluster


@pytest.fixture
def member(cluster: Cluster, clock: VirtualClock) -> FakeConsumerMember:
    """Returns a member with all partitions."""
    member = FakeConsumerMember(cluster, clock, "m0")
    member.join()
    return member


def commit(member: FakeConsumerMember, epoch: int, *partitions: int, member_id: str = "m0") -> int:
    """Returns the error code of a commit, which is the same for all partitions."""
    rows = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=7, committed_metadata="")
        for index in partitions
    ]
    request = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name="t", partitions=rows)],
    )
    response = member.client.call(OFFSET_COMMIT, 9, request)
    (code,) = {partition.error_code for partition in response.topics[0].partitions}
    return int(code)


def test_a_commit_with_an_older_epoch(cluster: Cluster, clock: VirtualClock, member: FakeConsumerMember) -> None:
    """An older epoch is valid for partitions that the member had in that epoch, and for no others."""
    other = FakeConsumerMember(cluster, clock, "m1")
    other.join()
    settle(member, other)
    assert (3, [0, 1]) == (member.epoch, member.assigned["t"])
    assert [0, 0] == [commit(member, epoch, 0, 1) for epoch in (2, 3)]
    assert Errors.STALE_MEMBER_EPOCH == commit(member, 2, 0, 2)
    assert Errors.STALE_MEMBER_EPOCH == commit(other, 2, 2, member_id="m1")


def test_an_empty_group_accepts_commits_without_a_member(member: FakeConsumerMember) -> None:
    """Without members, offsets can be committed without an epoch."""
    member.leave()
    assert [0, Errors.UNKNOWN_MEMBER_ID] == [commit(member, epoch, 0, member_id="") for epoch in (-1, 2)]
