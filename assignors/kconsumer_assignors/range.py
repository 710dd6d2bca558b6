"""The range assignor: assigns the partitions of each topic in contiguous ranges.

The result equals that of Java's RangeAssignor of Kafka 4.4, including rack awareness (KIP-881, see `_rack_ranges.py`).
Programs that join topics rely on co-partitioning: partition p of all topics with the same number of partitions and the
same subscribers is assigned to the same member.
"""

from __future__ import annotations

from collections.abc import Mapping

from kconsumer.assignors import Assignment, Assignor, ClusterView, Subscription
from kconsumer.types import TopicPartition
from kconsumer_assignors._common import Roster, by_instance_then_id
from kconsumer_assignors._rack_ranges import assign_with_racks


class RangeAssignor(Assignor):
    """Divides the partitions of each topic into contiguous ranges, one for each subscriber of the topic.

    If the partitions do not divide evenly, the first subscribers get one partition more than the others.
    """

    name = "range"

    def assign(self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """Returns the assignment. Unless racks matter, each topic is assigned separately.

        Members with a group instance id come first in the order of members, so they get the same ranges after a
        restart.
        """
        roster = Roster(cluster, subscriptions, by_instance_then_id)
        given = assign_with_racks(cluster, roster) or _assign_plainly(roster)
        return roster.assignments(given)


def _assign_plainly(roster: Roster) -> list[list[TopicPartition]]:
    given: list[list[TopicPartition]] = [[] for _ in roster.members]
    for topic in roster.topics:
        partitions, subscribers = roster.partitions(topic), roster.subscribers[topic]
        per_subscriber, extra = divmod(len(partitions), len(subscribers))
        if not per_subscriber:
            for index, partition in zip(subscribers, partitions, strict=False):
                given[index].append(partition)
            continue
        start = 0
        for number, index in enumerate(subscribers):
            end = start + per_subscriber + (number < extra)
            given[index] += partitions[start:end]
            start = end
    return given
