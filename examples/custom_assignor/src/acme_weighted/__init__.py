"""An assignor that gives members partitions in proportion to their weights.

A member's weight is the environment variable `ACME_WEIGHT`, or the number of its processors. It is sent in the user
data of the subscription, because the leader assigns for all and needs the weights of all members.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from kconsumer import Assignment, Assignor, ClusterView, Subscription, TopicPartition

__all__ = ["WeightedAssignor"]


class WeightedAssignor(Assignor):
    """Gives the next partition to the member with the lowest load relative to its weight."""

    name = "weighted"

    def __init__(self, weight: int | None = None) -> None:
        self.weight = weight or int(os.environ.get("ACME_WEIGHT", "0")) or os.cpu_count() or 1

    def subscription_user_data(self, topics: frozenset[str]) -> bytes:
        """Return the weight of this member. The leader of the group receives it with the subscription."""
        return str(self.weight).encode()

    def assign(self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        """Assign topic after topic. Members and topics are sorted, so that every leader returns the same assignment."""
        weights = {member: _weight(subscriptions[member].user_data) for member in sorted(subscriptions)}
        given: dict[str, list[TopicPartition]] = {member: [] for member in weights}
        for topic in sorted(cluster.topics()):
            eligible = [member for member in weights if topic in subscriptions[member].topics]
            for info in cluster.partitions(topic) if eligible else ():
                least = min(eligible, key=lambda member: (len(given[member]) + 1) / weights[member])
                given[least].append(TopicPartition(topic, info.partition))
        return {member: Assignment(tuple(partitions)) for member, partitions in given.items()}


def _weight(data: bytes | None) -> int:
    """Return the weight in a member's user data, or 1 if it is not a number: other programs may send any bytes."""
    try:
        return max(1, int(data or b"1"))
    except ValueError:
        return 1
