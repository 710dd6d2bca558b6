"""What the leader of the group does in a rebalance: decode subscriptions, run the assignor, encode assignments.

Decides when metadata has changed since the assignment was computed, so that the group must rebalance. The assignor
decides which member gets which partition. `embedded.py` encodes and decodes the bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from kconsumer.assignors import Assignment, Assignor, ClusterView, Subscription, assign
from kconsumer.coordinator.classic_protocol.assignment_errors import plugin_error
from kconsumer.coordinator.classic_protocol.embedded import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kconsumer.errors import ProtocolError
from kconsumer.schema.classic_group import JoinGroupResponse, JoinGroupResponseMember
from kconsumer.schema.embedded import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
)
from kconsumer.state.cluster import Cluster
from kconsumer.types import TopicPartition

# The metadata that an assignment depends on: topic -> the racks of each partition's replicas. If it changes, the leader
# starts a rebalance.
Snapshot = dict[str, tuple[frozenset[str], ...]]


class LeaderAssignment:
    """The leader's data for one generation: all members' subscriptions, and the metadata used for the assignment."""

    def __init__(self, assignor: Assignor, joined: JoinGroupResponse, rack: str) -> None:
        self._assignor = assignor
        self._skip = joined.skip_assignment
        self._rack_aware = bool(rack)
        self.subscriptions = {member.member_id: _subscription(member) for member in joined.members}
        self.topics = frozenset(topic for s in self.subscriptions.values() for topic in s.topics)
        self._snapshot: Snapshot = {}

    def covered_by(self, cluster: Cluster) -> bool:
        """Returns True if metadata contains every topic that a member of the group has subscribed to."""
        return all(cluster.partition_count(topic) is not None for topic in self.topics)

    def assign(self, cluster: Cluster) -> dict[str, bytes]:
        """Run the assignor. Returns a dict of member id -> encoded assignment.

        If the coordinator asked to keep the current assignment (KIP-814), the assignor is not run, and the dict is
        empty. Raises AssignorError if the assignor fails or returns an invalid assignment.
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

    def partitions(self, cluster: Cluster) -> list[TopicPartition]:
        """Returns the partitions of the group's topics that metadata contains."""
        return [TopicPartition(info.topic, info.partition) for info in cluster.partition_infos(self.topics)]

    def outdated(self, cluster: Cluster) -> bool:
        """Returns True if the topics or their numbers of partitions have changed since `assign` was called.

        If `client_rack` is set, also returns True if the racks of replicas have changed.
        """
        if not cluster.nodes:
            return False  # the client bootstraps again: metadata is empty for the moment
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
    """Encode the subscription that this member sends to the leader for one assignor.

    Raises AssignorError if the assignor's `subscription_user_data` fails.
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


def parse_assignment(data: bytes) -> Assignment:
    """Decode the assignment of this member. Raises ProtocolError if the bytes cannot be decoded."""
    message = decode_assignment(data)
    partitions = (TopicPartition(t.topic, p) for t in message.assigned_partitions for p in t.partitions)
    return Assignment(tuple(partitions), _bytes(message.user_data))


def _subscription(member: JoinGroupResponseMember) -> Subscription:
    """Decode a member's subscription. Raises a ProtocolError that names the member."""
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
    """Encode the assignment of one member."""
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
