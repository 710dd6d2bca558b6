"""The round-robin assignor: all partitions in one line, dealt to the members in turn.

Gives what Java's RoundRobinAssignor gives. Members with different subscriptions may end far from balanced,
and one member's arrival moves nearly every partition; `sticky` does better on both counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from kconsumer.assignors import Assignment, Assignor, ClusterView, Subscription
from kconsumer.types import TopicPartition
from kconsumer_assignors._common import Roster, by_instance_then_id


class RoundRobinAssignor(Assignor):
    """Deals partitions to members in a circle, passing over members that do not subscribe to the topic."""

    name = "roundrobin"

    def assign(self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """Topics by name, partitions ascending; the circle goes on from topic to topic."""
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
