"""Committed offsets in the cluster model: OffsetCommit, OffsetFetch, OffsetDelete, expiry, and open transactions."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer.schema.group_deletion import (
    OFFSET_DELETE,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kconsumer.schema.offsets import (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.offset_store import CommittedOffset
from support.fakes.classic_members import FakeMember, stable
from support.fakes.cluster_client import ClusterClient, advance

WEEK_MS = 7 * 24 * 3600 * 1000
CHECK_MS = 600_000


class World:
    """A cluster with the topics t (2 partitions) and u (1), and a client of the coordinator of its groups."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.cluster = Cluster()
        self.cluster.create_topic("t", 2)
        self.cluster.create_topic("u", 1)
        self.client = ClusterClient(self.cluster, self.clock)

    def commit(self, *rows: tuple[str, int, int], version: int = 9, **fields: Any) -> None:
        """Commit offsets given as topic, partition and offset."""
        topics = [
            OffsetCommitRequestTopic(
                name=name, partitions=[OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)]
            )
            for name, index, offset in rows
        ]
        response = self.client.call(
            OFFSET_COMMIT, version, OffsetCommitRequest(**{"group_id": "g", "topics": topics, **fields})
        )
        assert {0} == {row.error_code for topic in response.topics for row in topic.partitions}

    def offsets(self) -> list[tuple[str, int, int, int]]:
        """Returns topic, partition, offset and error of each committed offset of group g."""
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
        return [
            (topic.name, row.partition_index, row.committed_offset, row.error_code)
            for topic in self.client.call(OFFSET_FETCH, 9, request).groups[0].topics
            for row in topic.partitions
        ]


@pytest.fixture
def world() -> World:
    return World()


# --- open transactions ---


def offset(value: int) -> CommittedOffset:
    """Returns an offset as a transaction stages it."""
    return CommittedOffset(value, -1, "", 0)


# --- removal ---


def test_a_deleted_topic(world: World) -> None:
    """The offsets of a deleted topic are removed, also those of open transactions."""
    store = world.cluster.offsets
    world.commit(("t", 0, 5), ("u", 0, 6))
    store.stage(7, "g", "t", 1, offset(10))
    world.cluster.delete_topic("t")
    store.complete(7, commit=True)
    assert [("u", 0, 6, 0)] == world.offsets()


def test_offsets_expire(world: World) -> None:
    """Offsets without members expire after their retention time, and the group with them."""
    world.commit(("t", 0, 5))
    advance(world.cluster, world.clock, WEEK_MS - CHECK_MS)
    assert [("t", 0, 5, 0)] == world.offsets()
    advance(world.cluster, world.clock, CHECK_MS)
    assert [] == world.offsets()
    assert world.cluster.groups.get("g") is None


def test_offsets_of_members_do_not_expire(world: World) -> None:
    """Offsets of subscribed topics stay while the group has members; others and those of an empty group expire."""
    member = FakeMember(world.cluster, world.clock)
    member.session_ms = 1_800_000
    stable(world.cluster, world.clock, member)
    identity = {"member_id": member.id, "generation_id_or_member_epoch": 1}
    world.commit(("t", 0, 5), ("u", 0, 6), **identity)
    for _ in range(WEEK_MS // CHECK_MS + 1):
        assert 0 == member.heartbeat()
        advance(world.cluster, world.clock, CHECK_MS)
    assert [("t", 0, 5, 0)] == world.offsets()
    advance(world.cluster, world.clock, WEEK_MS + 2 * CHECK_MS)
    assert [] == world.offsets()
    assert world.cluster.groups.get("g") is None


def test_the_retention_time_of_an_old_commit(world: World) -> None:
    """Until version 4 a commit may have a retention time of its own."""
    world.commit(("t", 0, 5), version=4, retention_time_ms=1000)
    advance(world.cluster, world.clock, CHECK_MS)
    assert [] == world.offsets()


def test_open_transactions_do_not_expire(world: World) -> None:
    """An offset of which a transaction is open does not expire, nor does its group."""
    world.commit(("t", 0, 5))
    world.cluster.offsets.stage(7, "g", "t", 0, offset(10))
    advance(world.cluster, world.clock, 2 * WEEK_MS)
    assert [("t", 0, 5, 0)] == world.offsets()
    world.cluster.offsets.complete(7, commit=False)
    advance(world.cluster, world.clock, CHECK_MS)
    assert [] == world.offsets()


def test_an_empty_group_without_offsets_is_removed(world: World) -> None:
    """A group whose last member has left is removed at the next check, if it has no offsets."""
    member = FakeMember(world.cluster, world.clock)
    stable(world.cluster, world.clock, member)
    member.leave()
    assert world.cluster.groups.get("g") is not None
    advance(world.cluster, world.clock, CHECK_MS)
    assert world.cluster.groups.get("g") is None
    assert world.cluster.next_deadline() is None


# --- OffsetDelete ---


def test_deleting_offsets_of_members_of_another_type(world: World) -> None:
    """The offsets of a group whose members are no consumers can be deleted only when it is empty."""
    member = FakeMember(world.cluster, world.clock)
    member.protocol_type = "connect"
    stable(world.cluster, world.clock, member)
    rows = [OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])]
    response = world.client.call(OFFSET_DELETE, 0, OffsetDeleteRequest(group_id="g", topics=rows))
    assert Errors.NON_EMPTY_GROUP == response.error_code
