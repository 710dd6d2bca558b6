"""The leader's part of a rebalance: read the members' subscriptions, run the assignor, write the assignments.

It decides who gets what through the plugin only, and knows when the metadata it used is no longer what the cluster
looks like. Bytes of the embedded consumer protocol are `protocol.py`'s business.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from kconsumer.assignors import Assignment, Assignor, ClusterView, Subscription, assign, origin
from kconsumer.coordinator.classic_protocol.embedded import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kconsumer.errors import AssignorError, ProtocolError
from kconsumer.schema.classic_group import JoinGroupResponse, JoinGroupResponseMember
from kconsumer.schema.embedded import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
)
from kconsumer.state.cluster import Cluster
from kconsumer.types import TopicPartition

# What a change of makes the leader rebalance: topic -> racks of each partition's replicas.
Snapshot = dict[str, tuple[frozenset[str], ...]]


class LeaderAssignment:
    """One generation as its leader sees it, from the JoinGroup answer to a later change of metadata."""

    def __init__(self, assignor: Assignor, joined: JoinGroupResponse, rack: str) -> None:
        self._assignor = assignor
        self._skip = joined.skip_assignment
        self._rack_aware = bool(rack)
        self.subscriptions = {member.member_id: _subscription(member) for member in joined.members}
        self.topics = frozenset(topic for s in self.subscriptions.values() for topic in s.topics)
        self._snapshot: Snapshot = {}

    def covered_by(self, cluster: Cluster) -> bool:
        """Whether the cluster view knows every topic of the group."""
        return all(cluster.partition_count(topic) is not None for topic in self.topics)

    def assign(self, cluster: Cluster) -> dict[str, bytes]:
        """Assignment bytes by member id; empty when the coordinator keeps the assignment it has (KIP-814).

        Raises AssignorError when the plugin fails or returns nonsense.
        """
        self._snapshot = self._snap(cluster)
        if self._skip:
            return {}
        view = ClusterView(cluster.partition_infos(self.topics))
        assignments = assign(self._assignor, view, self.subscriptions)
        try:
            return {member_id: assignment_bytes(assignment) for member_id, assignment in assignments.items()}
        except Exception as error:  # user data that is not bytes, for example
            raise plugin_error(self._assignor, "assign", error) from error

    def outdated(self, cluster: Cluster) -> bool:
        """Whether topics, partition counts or (when racks matter) replica racks differ from those assigned with."""
        if not cluster.nodes:
            return False  # bootstrapping again: nothing is known for the moment
        return self._snap(cluster) != self._snapshot

    def _snap(self, cluster: Cluster) -> Snapshot:
        infos: dict[str, list[frozenset[str]]] = defaultdict(list)
        for info in cluster.partition_infos(self.topics):
            racks = (node.rack for node in info.replicas if node.rack) if self._rack_aware else ()
            infos[info.topic].append(frozenset(racks))
        return {topic: tuple(racks) for topic, racks in infos.items()}


def encode_own_subscription(
    assignor: Assignor, topics: Iterable[str], owned: Iterable[TopicPartition], generation_id: int, rack: str
) -> bytes:
    """Encode what this member sends to the leader under one assignor's name.

    Raises AssignorError if the plugin fails.
    """
    names = sorted(topics)
    return encode_subscription(
        ConsumerProtocolSubscription(
            topics=names,
            user_data=_user_data(assignor, frozenset(names)),
            owned_partitions=_by_topic(owned),
            generation_id=generation_id,
            rack_id=rack or None,
        )
    )


def _user_data(assignor: Assignor, topics: frozenset[str]) -> bytes | None:
    try:
        data = assignor.subscription_user_data(topics)
        return None if data is None else bytes(memoryview(data))
    except Exception as error:  # a plugin may raise anything
        raise plugin_error(assignor, "subscription_user_data", error) from error


def plugin_error(assignor: Assignor, method: str, error: Exception) -> AssignorError:
    """Make the error for a plugin whose method raised, or returned what cannot be sent."""
    failed = AssignorError(f"{origin(assignor)} failed in {method}: {type(error).__name__}: {error}")
    failed.__cause__ = error
    return failed


def parse_assignment(data: bytes) -> Assignment:
    """What the leader gave this member. Raises ProtocolError for bytes that are no assignment."""
    message = decode_assignment(data)
    partitions = (TopicPartition(t.topic, p) for t in message.assigned_partitions for p in t.partitions)
    return Assignment(tuple(partitions), _bytes(message.user_data))


def _subscription(member: JoinGroupResponseMember) -> Subscription:
    """Decode a member's subscription. Raises ProtocolError naming the member."""
    try:
        message = decode_subscription(member.metadata)
    except ProtocolError as error:
        raise ProtocolError(f"the subscription of group member {member.member_id!r} cannot be read: {error}") from error
    return Subscription(
        topics=tuple(message.topics),
        user_data=_bytes(message.user_data),
        owned_partitions=tuple(TopicPartition(t.topic, p) for t in message.owned_partitions for p in t.partitions),
        generation_id=message.generation_id,
        rack_id=message.rack_id or None,
        group_instance_id=member.group_instance_id,
    )


def assignment_bytes(assignment: Assignment) -> bytes:
    """What the leader writes for one member."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=_by_topic(assignment.partitions), user_data=assignment.user_data
    )
    return encode_assignment(message)


def _by_topic(partitions: Iterable[TopicPartition]) -> list[TopicPartitions]:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        by_topic[topic].append(partition)
    return [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]


def _bytes(data: object) -> bytes | None:
    return None if data is None else bytes(data)  # type: ignore[call-overload]  # any buffer
