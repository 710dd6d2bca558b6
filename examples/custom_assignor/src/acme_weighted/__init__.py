"""An assignor that gives members partitions in proportion to their weights.

A member's weight is the environment variable `ACME_WEIGHT`, or the number of its processors. It travels in the user
data of the subscription, because only the leader assigns and it must know everybody's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from kconsumer import Assignment, Assignor, ClusterView, Subscription, TopicPartition

__all__ = ["WeightedAssignor"]


class WeightedAssignor(Assignor):
    """Whoever is least loaded for its weight gets the next partition."""

    name = "weighted"

    def __init__(self, weight: int | None = None) -> None:
        self.weight = weight or int(os.environ.get("ACME_WEIGHT", "0")) or os.cpu_count() or 1

    def subscription_user_data(self, topics: frozenset[str]) -> bytes:
        """Tell the leader what this member can carry."""
        return str(self.weight).encode()

    def assign(self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        """Deal out topic after topic. Members and topics are sorted, so that every leader gives the same answer."""
        weights = {member: _weight(subscriptions[member].user_data) for member in sorted(subscriptions)}
        given: dict[str, list[TopicPartition]] = {member: [] for member in weights}
        for topic in sorted(cluster.topics()):
            takers = [member for member in weights if topic in subscriptions[member].topics]
            for info in cluster.partitions(topic) if takers else ():
                least = min(takers, key=lambda member: (len(given[member]) + 1) / weights[member])
                given[least].append(TopicPartition(topic, info.partition))
        return {member: Assignment(tuple(partitions)) for member, partitions in given.items()}


def _weight(data: bytes | None) -> int:
    """What a member said. Anything may come from other programs and versions; what does not parse means 1."""
    try:
        return max(1, int(data or b"1"))
    except ValueError:
        return 1
