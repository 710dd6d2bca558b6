"""Members of a group of the consumer protocol, which send encoded heartbeats to the cluster model in virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kconsumer.schema.admin import CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest
from kconsumer.schema.consumer_group import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatTopicPartitions,
)
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from support.fakes.cluster_client import ClusterClient, advance

GROUP = "g"
Assignment = dict[str, list[int]]  # partitions by topic


class FakeConsumerMember:
    """A member that keeps its epoch and its assignment. It owns what it was assigned, as soon as it was."""

    def __init__(
        self,
        cluster: Cluster,
        clock: VirtualClock,
        member_id: str = "m",
        topics: Sequence[str] | None = ("t",),
        *,
        version: int = 1,
        **fields: Any,
    ) -> None:
        self.cluster, self.clock, self.version = cluster, clock, version
        self.id = member_id
        self.epoch = 0
        self.assigned: Assignment = {}
        self.topics = topics
        self.fields = {"rebalance_timeout_ms": 60_000, **fields}  # of the request with which the member joins
        coordinator = cluster.coordinator(GROUP, "group")
        assert coordinator is not None
        self.client = ClusterClient(cluster, clock, coordinator.id)

    def send(self, epoch: int, **fields: Any) -> Any:
        """Returns the response to a heartbeat with only these fields."""
        message = ConsumerGroupHeartbeatRequest(
            **{"group_id": GROUP, "member_id": self.id, "member_epoch": epoch, **fields}
        )
        return self.client.call(CONSUMER_GROUP_HEARTBEAT, self.version, message)

    def join(self, **fields: Any) -> Any:
        """Returns the response to the request with which the member joins."""
        self.assigned = {}
        names = None if self.topics is None else list(self.topics)
        fields = {"subscribed_topic_names": names, "topic_partitions": [], **self.fields, **fields}
        return self._store(self.send(0, **fields))

    def heartbeat(self, **fields: Any) -> Any:
        """Returns the response to a heartbeat with the present epoch."""
        instance_id = self.fields.get("instance_id")
        return self._store(self.send(self.epoch, **{"instance_id": instance_id, **fields}))

    def confirm(self) -> Any:
        """Returns the response to a heartbeat that names the partitions that the member owns."""
        return self.heartbeat(topic_partitions=self.owned(self.assigned))

    def leave(self, epoch: int = -1) -> Any:
        """Returns the response to the heartbeat with which the member leaves."""
        return self.send(epoch, instance_id=self.fields.get("instance_id"))

    def owned(self, partitions: Mapping[str, Sequence[int]]) -> list[Any]:
        """Returns partitions in the form of the request."""
        return [
            ConsumerGroupHeartbeatTopicPartitions(topic_id=self.cluster.topics[name].id, partitions=list(found))
            for name, found in partitions.items()
        ]

    def _store(self, response: Any) -> Any:
        """Keep the epoch and the assignment of a response."""
        if not response.error_code:
            self.id, self.epoch = response.member_id, response.member_epoch
            if response.assignment is not None:
                self.assigned = self._by_name(response.assignment)
        return response

    def _by_name(self, assignment: Any) -> Assignment:
        topics = self.cluster.topics_by_id
        return {topics[row.topic_id].name: row.partitions for row in assignment.topic_partitions}


def settle(*members: FakeConsumerMember, rounds: int = 6) -> None:
    """Let members send heartbeats, one second apart, until each has reached its target assignment."""
    for _ in range(rounds):
        advance(members[0].cluster, members[0].clock, 1000)
        for member in members:
            member.confirm()


def describe(member: FakeConsumerMember, group: str = GROUP, version: int = 1) -> Any:
    """Returns the description of a group."""
    (found,) = member.client.call(
        CONSUMER_GROUP_DESCRIBE, version, ConsumerGroupDescribeRequest(group_ids=[group])
    ).groups
    return found
