"""The round-robin assignor: assigns all partitions to the members in turn.

The result equals that of Java's RoundRobinAssignor. If members have different subscriptions, their loads can be far
from equal. When a member joins, nearly every partition moves. `sticky` avoids both problems.
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
        """Returns the assignment. Topics are assigned in the order of their names, and partitions in ascending order.

        If a member got the last partition of a topic, the next subscriber in the list of members gets the first
        partition of the next topic.
        """
        roster = Roster(cluster, subscriptions, by_instance_then_id)
        given: list[list[TopicPartition]] = [[] for _ in roster.members]
        turn = 0  # the member whose turn it is
        for topic in roster.topics:
            subscribers = roster.subscribers[topic]
            at = bisect_left(subscribers, turn)
            for partition in roster.partitions(topic):
                if at >= len(subscribers):
                    at = 0
                given[subscribers[at]].append(partition)
                at += 1
            turn = subscribers[at - 1] + 1
        return roster.assignments(given)
