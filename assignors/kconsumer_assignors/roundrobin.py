"""The round-robin assignor: assigns all partitions to the members in turn.

The result equals that of Java's RoundRobinAssignor. With different subscriptions it can be far from balanced, and a
new member moves nearly every partition. `sticky` avoids both.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from kconsumer.assignors import Assignment, Assignor, ClusterView, Subscription
from kconsumer.types import TopicPartition
from kconsumer_assignors._common import Roster, by_instance_then_id


class RoundRobinAssignor(Assignor):
    """Assigns partitions to members in turn, and skips members that do not subscribe to the topic."""

    name = "roundrobin"

    def assign(self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """Assign topics by name and partitions in ascending order. Each topic continues after the previous one."""
        roster = Roster(cluster, subscriptions, by_instance_then_id)
        given: list[list[TopicPartition]] = [[] for _ in roster.members]
        turn = 0  # the member whose turn it is
        for topic in roster.topics:
            subscribers = roster.subscribers[topic]
            seat = bisect_left(subscribers, turn)
            for partition in roster.partitions(topic):
                if seat >= len(subscribers):
                    seat = 0
                given[subscribers[seat]].append(partition)
                seat += 1
            turn = subscribers[seat - 1] + 1
        return roster.assignments(given)
