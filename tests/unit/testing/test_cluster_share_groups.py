"""Share groups in the cluster model: what recorded scenarios with one broker and without ACLs do not show."""

from __future__ import annotations

from typing import Any

from kconsumer._common.error_codes import Errors
from kconsumer.schema.share_group import (
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    SHARE_GROUP_HEARTBEAT,
    ShareAcknowledgementBatch,
    ShareAcknowledgePartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeTopic,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchTopic,
    ShareGroupHeartbeatRequest,
)
from kconsumer.testing.batches import build_batch
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.acls import GROUP, TOPIC, Acl
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.settings import Settings
from support.fakes.cluster_client import ClusterClient, advance
from support.scenarios.share_records import ranges

ASSIGNMENT_INTERVAL_MS = 1000


class FakeShareMember:
    """A member of a share group, which sends encoded requests to one broker in virtual time."""

    def __init__(self, cluster: Cluster, clock: VirtualClock, member_id: str = "m", broker: int = 1) -> None:
        self.cluster, self.clock, self.id = cluster, clock, member_id
        coordinator = cluster.coordinator("g", "group")
        assert coordinator is not None
        self.coordinator = ClusterClient(cluster, clock, coordinator.id)
        self.client = ClusterClient(cluster, clock, broker)
        self.epoch = 0
        self.session_epoch = 0

    def heartbeat(self, epoch: int | None = None, topics: list[str] | None = None) -> Any:
        """Returns the response to a heartbeat."""
        message = ShareGroupHeartbeatRequest(
            group_id="g",
            member_id=self.id,
            member_epoch=self.epoch if epoch is None else epoch,
            subscribed_topic_names=topics,
        )
        response = self.coordinator.call(SHARE_GROUP_HEARTBEAT, 1, message)
        self.epoch = response.member_epoch
        return response

    def join(self) -> Any:
        """Let the member join and get its partitions. Returns the last response."""
        self.heartbeat(0, ["t"])
        advance(self.cluster, self.clock, ASSIGNMENT_INTERVAL_MS)
        return self.heartbeat()

    def fetch(self, *, wait_ms: int = 0) -> Any:
        """Returns the response to a ShareFetch of the partition."""
        topic = ShareFetchTopic(topic_id=self.cluster.topics["t"].id, partitions=[ShareFetchPartition()])
        message = ShareFetchRequest(
            group_id="g",
            member_id=self.id,
            share_session_epoch=self.session_epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_records=500,
            batch_size=500,
            topics=[topic],
        )
        self.session_epoch += 1
        return self.client.call(SHARE_FETCH, 2, message, wait_ms=wait_ms)

    def acknowledge(self, first: int, last: int, kind: int = 1) -> Any:
        """Returns the response to a ShareAcknowledge."""
        batch = ShareAcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
        row = ShareAcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
        topics = [ShareAcknowledgeTopic(topic_id=self.cluster.topics["t"].id, partitions=[row])]
        message = ShareAcknowledgeRequest(
            group_id="g", member_id=self.id, share_session_epoch=self.session_epoch, topics=topics
        )
        self.session_epoch += 1
        return self.client.call(SHARE_ACKNOWLEDGE, 2, message)


def new_cluster(brokers: int = 1, **settings: Any) -> Cluster:
    """Returns a cluster with a topic that has three records, and a group that begins at the first one."""
    cluster = Cluster(brokers, settings=Settings(**settings))
    topic = cluster.create_topic("t", replication_factor=brokers)
    topic.partitions[0].append(build_batch([b"0", b"1", b"2"]), 0)
    cluster.group_configs.set("g", "share.auto.offset.reset", "earliest")
    return cluster


def test_a_member_whose_session_expires(clock: VirtualClock) -> None:
    """The group removes the member. Its records stay locked: the group and the leader of the partition are apart."""
    cluster = new_cluster(group_share_session_timeout_ms=9000)
    member, other = FakeShareMember(cluster, clock), FakeShareMember(cluster, clock, "other")
    member.join()
    assert [(0, 2, 1)] == ranges(member.fetch())
    advance(cluster, clock, 9000)
    assert Errors.UNKNOWN_MEMBER_ID == member.heartbeat().error_code
    other.join()
    assert [] == ranges(other.fetch())
    member.client.connection.close()
    advance(cluster, clock, 0)
    assert [(0, 2, 2)] == ranges(other.fetch())


def test_limits_of_a_broker(clock: VirtualClock) -> None:
    """A group and a broker have limits of members and sessions."""
    cluster = new_cluster(group_share_max_size=1, group_share_max_share_sessions=1)
    member, other = FakeShareMember(cluster, clock), FakeShareMember(cluster, clock, "other")
    member.join()
    assert Errors.GROUP_MAX_SIZE_REACHED == other.heartbeat(0, ["t"]).error_code
    member.fetch()
    assert Errors.SHARE_SESSION_LIMIT_REACHED == other.fetch().error_code


def test_acls(clock: VirtualClock) -> None:
    """Members need READ for the group and for the topics that they read, and DESCRIBE for those they subscribe to."""
    cluster = new_cluster()
    member = FakeShareMember(cluster, clock)
    cluster.acls.add(Acl("User:*", "DESCRIBE", TOPIC, "t"))
    assert Errors.GROUP_AUTHORIZATION_FAILED == member.heartbeat(0, ["t"]).error_code
    assert Errors.GROUP_AUTHORIZATION_FAILED == member.fetch().error_code
    cluster.acls.add(Acl("User:*", "READ", GROUP, "g"))
    assert Errors.TOPIC_AUTHORIZATION_FAILED == member.heartbeat(0, ["t", "secret"]).error_code
    member.join()
    member.session_epoch = 0
    assert Errors.TOPIC_AUTHORIZATION_FAILED == member.fetch().responses[0].partitions[0].error_code
    cluster.acls.add(Acl("User:*", "READ", TOPIC, "t"))
    assert [(0, 2, 1)] == ranges(member.fetch())


def test_another_leader(clock: VirtualClock) -> None:
    """The old leader names the new one, with its address. Locks of the old leader mean nothing to the new one."""
    cluster = new_cluster(2)
    old, new = FakeShareMember(cluster, clock), FakeShareMember(cluster, clock, "other", broker=2)
    old.join()
    assert [(0, 2, 1)] == ranges(old.fetch())
    assert Errors.NONE == old.acknowledge(0, 0).responses[0].partitions[0].error_code
    cluster.move_leader("t", 0, 2)
    assert Errors.UNKNOWN_TOPIC_OR_PARTITION == old.acknowledge(1, 1).responses[0].partitions[0].error_code
    response = old.fetch()
    row = response.responses[0].partitions[0]
    assert (Errors.NOT_LEADER_OR_FOLLOWER, 2, 2) == (
        row.error_code,
        row.current_leader.leader_id,
        response.node_endpoints[0].node_id,
    )
    assert [(1, 2, 1)] == ranges(new.fetch())


def test_a_leader_that_moves_and_returns(clock: VirtualClock) -> None:
    """A leader that has been another one meanwhile begins with the stored state."""
    cluster = new_cluster(2)
    member = FakeShareMember(cluster, clock)
    member.join()
    member.fetch()
    member.acknowledge(1, 1, 2)
    cluster.move_leader("t", 0, 2)
    cluster.move_leader("t", 0, 1)
    found = ranges(member.fetch()) + ranges(member.fetch())
    assert [(0, 0, 1), (1, 1, 2), (2, 2, 1)] == sorted(found)
