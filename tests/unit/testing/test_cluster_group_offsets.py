"""Committed offsets in the cluster model: OffsetCommit, OffsetFetch, OffsetDelete, expiry, and open transactions."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer.error_codes import Errors
from kconsumer.schema import OFFSET_COMMIT, OFFSET_FETCH
from kconsumer.schema.group_deletion import (
    OFFSET_DELETE,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kconsumer.schema.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.groups.offset_store import CommittedOffset
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

    def commit(
        self, *rows: tuple[str, int, int], version: int = 9, metadata: str | None = None, **fields: Any
    ) -> list[tuple[str, int, int]]:
        """Commit offsets given as topic, partition and offset. Returns topic, partition and error of each one."""
        topics = []
        for name, partition, offset in rows:
            topic_id = self.cluster.topics[name].id if name in self.cluster.topics else b"x" * 16
            row = OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=3,
                committed_metadata=metadata,
            )
            topics.append(OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=[row]))
        request = OffsetCommitRequest(**{"group_id": "g", "topics": topics, **fields})
        response = self.client.call(OFFSET_COMMIT, version, request)
        return [
            (topic.name, row.partition_index, row.error_code) for topic in response.topics for row in topic.partitions
        ]

    def fetch(self, *rows: tuple[str, int], version: int = 9, stable_only: bool = False, **fields: Any) -> Any:
        """Fetch offsets of group g; of all topics without `rows`. Returns the row of the group."""
        topics = [
            OffsetFetchRequestTopics(name=name, topic_id=self.topic_id(name), partition_indexes=[index])
            for name, index in rows
        ]
        group = OffsetFetchRequestGroup(**{"group_id": "g", "topics": topics or None, **fields})
        request = OffsetFetchRequest(groups=[group], require_stable=stable_only)
        return self.client.call(OFFSET_FETCH, version, request).groups[0]

    def offsets(self, *rows: tuple[str, int], **options: Any) -> list[tuple[str, int, int, int]]:
        """Fetch offsets of group g. Returns topic, partition, offset and error of each one."""
        return [
            (topic.name, row.partition_index, row.committed_offset, row.error_code)
            for topic in self.fetch(*rows, **options).topics
            for row in topic.partitions
        ]

    def topic_id(self, name: str) -> bytes:
        """Returns the id of a topic, or an unknown id."""
        return self.cluster.topics[name].id if name in self.cluster.topics else b"x" * 16

    def delete(self, *rows: tuple[str, int], group: str = "g") -> Any:
        """Delete offsets. Returns the response."""
        topics = [
            OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index)])
            for name, index in rows
        ]
        return self.client.call(OFFSET_DELETE, 0, OffsetDeleteRequest(group_id=group, topics=topics))


@pytest.fixture
def world() -> World:
    return World()


# --- OffsetCommit ---


@pytest.mark.parametrize("version", range(2, 11))
@pytest.mark.parametrize("fetch_version", [8, 9, 10])
def test_a_commit_without_members(world: World, version: int, fetch_version: int) -> None:
    """A consumer without membership may commit for a group that does not exist; the group is empty then."""
    assert [0] == [error for _, _, error in world.commit(("t", 1, 5), version=version, metadata="m")]
    (topic,) = world.fetch(("t", 1), version=fetch_version).topics
    (row,) = topic.partitions
    epoch = 3 if version >= 6 else -1
    assert (1, 5, epoch, "m", 0) == (
        row.partition_index,
        row.committed_offset,
        row.committed_leader_epoch,
        row.metadata,
        row.error_code,
    )
    assert (world.topic_id("t") if fetch_version >= 10 else bytes(16)) == topic.topic_id
    group = world.cluster.groups.get("g")
    assert group is not None
    assert ("Empty", "classic", "") == (group.state_name, group.type, group.protocol_type)


@pytest.mark.parametrize(
    ("fields", "version", "error"),
    [
        ({"generation_id_or_member_epoch": 0}, 9, Errors.GROUP_ID_NOT_FOUND),
        ({"generation_id_or_member_epoch": 0}, 8, Errors.ILLEGAL_GENERATION),
        ({"member_id": "m"}, 9, Errors.NONE),
        ({"group_id": ""}, 9, Errors.NONE),
    ],
)
def test_a_group_that_does_not_exist(world: World, fields: dict[str, Any], version: int, error: int) -> None:
    """With a generation the group must exist; its error is GROUP_ID_NOT_FOUND since version 9."""
    assert [("t", 0, error)] == world.commit(("t", 0, 1), version=version, **fields)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, Errors.UNKNOWN_MEMBER_ID),
        ({"member_id": "ID", "generation_id_or_member_epoch": 1}, Errors.NONE),
        ({"member_id": "ID", "generation_id_or_member_epoch": 1, "group_instance_id": "i"}, Errors.NONE),
        ({"member_id": "ID", "generation_id_or_member_epoch": 0}, Errors.ILLEGAL_GENERATION),
        ({"member_id": "ID"}, Errors.ILLEGAL_GENERATION),
        ({"member_id": "other", "generation_id_or_member_epoch": 1}, Errors.UNKNOWN_MEMBER_ID),
        (
            {"member_id": "other", "generation_id_or_member_epoch": 1, "group_instance_id": "i"},
            Errors.FENCED_INSTANCE_ID,
        ),
        (
            {"member_id": "ID", "generation_id_or_member_epoch": 1, "group_instance_id": "unknown"},
            Errors.UNKNOWN_MEMBER_ID,
        ),
    ],
)
def test_a_commit_of_a_member(world: World, fields: dict[str, Any], error: int) -> None:
    """A group with members accepts commits of members of the present generation only."""
    member = FakeMember(world.cluster, world.clock, instance="i")
    stable(world.cluster, world.clock, member)
    fields = {name: member.id if value == "ID" else value for name, value in fields.items()}
    assert [("t", 0, error)] == world.commit(("t", 0, 1), **fields)


def test_a_commit_during_a_rebalance(world: World) -> None:
    """Members may commit while others join, but not until they have their assignment."""
    first, second = FakeMember(world.cluster, world.clock), FakeMember(world.cluster, world.clock)
    stable(world.cluster, world.clock, first)
    second.enter()
    identity = {"member_id": first.id, "generation_id_or_member_epoch": 1}
    assert [("t", 0, 0)] == world.commit(("t", 0, 1), **identity)
    first.join()
    assert [("t", 0, Errors.ILLEGAL_GENERATION)] == world.commit(("t", 0, 2), **identity)
    identity["generation_id_or_member_epoch"] = 2
    assert [("t", 0, Errors.REBALANCE_IN_PROGRESS)] == world.commit(("t", 0, 2), **identity)
    assert [("t", 0, 1, 0)] == world.offsets(("t", 0))


def test_a_commit_extends_the_session(world: World) -> None:
    """A commit counts as a heartbeat of a classic member."""
    member = FakeMember(world.cluster, world.clock)
    stable(world.cluster, world.clock, member)
    for _ in range(3):
        advance(world.cluster, world.clock, 9_000)
        world.commit(("t", 0, 1), member_id=member.id, generation_id_or_member_epoch=1)
    assert 0 == member.heartbeat()


def test_unknown_partitions(world: World) -> None:
    """Partitions that do not exist are at the beginning of the response, with their error; the others are stored."""
    rows = [("t", 0, 1), ("absent", 0, 1), ("t", 9, 1), ("u", 0, 1)]
    unknown = Errors.UNKNOWN_TOPIC_OR_PARTITION
    expected = [("absent", 0, unknown), ("t", 9, unknown), ("t", 0, 0), ("u", 0, 0)]
    assert expected == world.commit(*rows)
    assert [("t", 0, 1, 0), ("u", 0, 1, 0)] == world.offsets()


def test_unknown_topic_ids(world: World) -> None:
    """With topic ids, the error of an unknown topic is UNKNOWN_TOPIC_ID."""
    errors = [error for _, _, error in world.commit(("absent", 0, 1), ("t", 9, 1), ("t", 0, 1), version=10)]
    assert [Errors.UNKNOWN_TOPIC_ID, Errors.UNKNOWN_TOPIC_OR_PARTITION, 0] == errors


def test_metadata_that_is_too_long(world: World) -> None:
    """Metadata may have 4096 characters; characters beyond the Basic Multilingual Plane count twice, as in Java."""
    assert [("t", 0, 0)] == world.commit(("t", 0, 1), metadata="x" * 4096)
    assert [("t", 0, Errors.OFFSET_METADATA_TOO_LARGE)] == world.commit(("t", 0, 2), metadata="x" * 4097)
    assert [("t", 0, Errors.OFFSET_METADATA_TOO_LARGE)] == world.commit(("t", 0, 2), metadata="\U0001f600" * 2049)
    assert [("t", 0, 1, 0)] == world.offsets(("t", 0))


# --- OffsetFetch ---


def test_missing_offsets(world: World) -> None:
    """A partition without a committed offset has -1 and no error, also if its topic or the group does not exist."""
    expected = [("t", 0, -1, 0), ("absent", 3, -1, 0)]
    assert expected == world.offsets(("t", 0), ("absent", 3))
    world.commit(("t", 1, 5))
    assert expected == world.offsets(("t", 0), ("absent", 3))
    assert "" == world.fetch(("t", 0)).topics[0].partitions[0].metadata


@pytest.mark.parametrize("version", range(2, 8))
def test_a_single_group(world: World, version: int) -> None:
    """Before version 8 a request has one group; null in place of the topics means all."""
    world.commit(("t", 1, 5), ("u", 0, 6))
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
    named = world.client.call(OFFSET_FETCH, version, OffsetFetchRequest(group_id="g", topics=topics))
    assert [(0, -1), (1, 5)] == [(row.partition_index, row.committed_offset) for row in named.topics[0].partitions]
    everything = world.client.call(OFFSET_FETCH, version, OffsetFetchRequest(group_id="g", topics=None))
    assert [("t", 5), ("u", 6)] == [(row.name, row.partitions[0].committed_offset) for row in everything.topics]


def test_several_groups(world: World) -> None:
    """Since version 8 a request may have several groups."""
    world.commit(("t", 0, 5))
    world.commit(("t", 0, 6), group_id="h")
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("g", "h", "absent")]
    response = world.client.call(OFFSET_FETCH, 9, OffsetFetchRequest(groups=groups))
    found = [[row.partitions[0].committed_offset for row in group.topics] for group in response.groups]
    assert [[5], [6], []] == found


def test_fetching_unknown_topic_ids(world: World) -> None:
    """With topic ids, an unknown id has an error for each partition, after the known ones."""
    world.commit(("t", 0, 5))
    rows = world.fetch(("absent", 7), ("t", 0), version=10).topics
    expected = [(world.topic_id("t"), 0, 5, 0), (b"x" * 16, 7, -1, Errors.UNKNOWN_TOPIC_ID)]
    found = [
        (row.topic_id, part.partition_index, part.committed_offset, part.error_code)
        for row in rows
        for part in row.partitions
    ]
    assert expected == found


def test_fetching_from_another_broker() -> None:
    """Another broker than the coordinator responds NOT_COORDINATOR; in version 1 for each partition."""
    cluster, clock = Cluster(2), VirtualClock()
    cluster.create_topic("t")
    coordinator = cluster.coordinator("g", "group")
    assert coordinator is not None
    client = ClusterClient(cluster, clock, broker=3 - coordinator.id)
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(
        group_id="g", topics=topics, groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]
    )
    assert Errors.NOT_COORDINATOR == client.call(OFFSET_FETCH, 9, request).groups[0].error_code
    assert Errors.NOT_COORDINATOR == client.call(OFFSET_FETCH, 7, request).error_code
    first = client.call(OFFSET_FETCH, 1, request).topics[0]
    assert [(Errors.NOT_COORDINATOR, -1)] == [(row.error_code, row.committed_offset) for row in first.partitions]


# --- open transactions ---


def offset(value: int) -> CommittedOffset:
    """Returns an offset as a transaction stages it."""
    return CommittedOffset(value, -1, "", 0)


def test_offsets_of_an_open_transaction(world: World) -> None:
    """While a transaction is open, its partitions are unstable; others see the offset before it."""
    store = world.cluster.groups.offsets
    world.commit(("t", 0, 5), ("t", 1, 6))
    store.stage(7, "g", "t", 0, offset(10))
    unstable = Errors.UNSTABLE_OFFSET_COMMIT
    assert [("t", 0, -1, unstable), ("t", 1, 6, 0)] == world.offsets(("t", 0), ("t", 1), stable_only=True)
    assert [("t", 0, -1, unstable), ("t", 1, 6, 0)] == world.offsets(stable_only=True)
    assert [("t", 0, 5, 0), ("t", 1, 6, 0)] == world.offsets(("t", 0), ("t", 1))
    store.complete(7, commit=True)
    assert [("t", 0, 10, 0), ("t", 1, 6, 0)] == world.offsets(stable_only=True)


def test_an_aborted_transaction(world: World) -> None:
    """The offsets of an aborted transaction are dropped."""
    store = world.cluster.groups.offsets
    world.commit(("t", 0, 5))
    store.stage(7, "g", "t", 0, offset(10))
    store.complete(7, commit=False)
    assert [("t", 0, 5, 0)] == world.offsets(stable_only=True)


def test_a_newer_commit_wins(world: World) -> None:
    """An offset that was committed while the transaction was open stays; it was written later."""
    store = world.cluster.groups.offsets
    world.commit(("t", 0, 5))
    store.stage(7, "g", "t", 0, offset(10))
    world.commit(("t", 0, 6))
    store.complete(7, commit=True)
    assert [("t", 0, 6, 0)] == world.offsets(stable_only=True)


def test_two_open_transactions(world: World) -> None:
    """A partition is stable when the last open transaction with an offset of it has ended."""
    store = world.cluster.groups.offsets
    store.stage(7, "g", "t", 0, offset(1))
    store.stage(8, "g", "t", 0, offset(2))
    store.complete(8, commit=True)
    assert [("t", 0, -1, Errors.UNSTABLE_OFFSET_COMMIT)] == world.offsets(("t", 0), stable_only=True)
    store.complete(7, commit=True)
    assert [("t", 0, 2, 0)] == world.offsets(("t", 0), stable_only=True)


# --- removal ---


def test_a_deleted_topic(world: World) -> None:
    """The offsets of a deleted topic are removed, also those of open transactions."""
    store = world.cluster.groups.offsets
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
    world.cluster.groups.offsets.stage(7, "g", "t", 0, offset(10))
    advance(world.cluster, world.clock, 2 * WEEK_MS)
    assert [("t", 0, 5, 0)] == world.offsets()
    world.cluster.groups.offsets.complete(7, commit=False)
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


def deleted(response: Any) -> list[tuple[str, int, int]]:
    """Returns topic, partition and error of each row of an OffsetDelete response."""
    return [(topic.name, row.partition_index, row.error_code) for topic in response.topics for row in topic.partitions]


def test_deleting_offsets(world: World) -> None:
    """Offsets are deleted unless members subscribe to their topic; unknown partitions come first."""
    member = FakeMember(world.cluster, world.clock)
    stable(world.cluster, world.clock, member)
    world.commit(("t", 0, 5), ("u", 0, 6), member_id=member.id, generation_id_or_member_epoch=1)
    expected = [
        ("absent", 0, Errors.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 0, Errors.GROUP_SUBSCRIBED_TO_TOPIC),
        ("u", 0, 0),
    ]
    assert expected == deleted(world.delete(("t", 0), ("u", 0), ("absent", 0)))
    assert [("t", 0, 5, 0)] == world.offsets()
    member.leave()
    assert [("t", 0, 0)] == deleted(world.delete(("t", 0)))
    assert [] == world.offsets()


@pytest.mark.parametrize(("group", "error"), [("", Errors.INVALID_GROUP_ID), ("absent", Errors.GROUP_ID_NOT_FOUND)])
def test_deleting_offsets_of_no_group(world: World, group: str, error: int) -> None:
    """The group must exist."""
    response = world.delete(("t", 0), group=group)
    assert (error, []) == (response.error_code, response.topics)


def test_deleting_offsets_of_members_of_another_type(world: World) -> None:
    """The offsets of a group whose members are no consumers can be deleted only when it is empty."""
    member = FakeMember(world.cluster, world.clock)
    member.protocol_type = "connect"
    stable(world.cluster, world.clock, member)
    assert Errors.NON_EMPTY_GROUP == world.delete(("t", 0)).error_code
