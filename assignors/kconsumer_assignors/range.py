"""The range assignor: each topic's partitions in contiguous ranges, so equal topics are divided equally.

Gives what Java's RangeAssignor of Kafka 4.4 gives, rack awareness (KIP-881) included. Members of a group
that joins topics rely on it: partition p of every topic with the same count and subscribers goes to the same
member. How racks change the picture is in `_rack_ranges.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kconsumer.assignors import Assignment, Assignor, ClusterView, Subscription
from kconsumer.types import TopicPartition
from kconsumer_assignors._common import Roster, by_instance_then_id
from kconsumer_assignors._rack_ranges import assign_with_racks


class RangeAssignor(Assignor):
    """Gives each subscriber of a topic the next run of its partitions; the first ones get one more."""

    name = "range"

    def assign(self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """Topic by topic; members with a group instance id come first, so a restart keeps their ranges."""
        roster = Roster(cluster, subscriptions, by_instance_then_id)
        given = assign_with_racks(cluster, roster) or _assign_plainly(roster)
        return roster.assignments(given)


def _assign_plainly(roster: Roster) -> list[list[TopicPartition]]:
    given: list[list[TopicPartition]] = [[] for _ in roster.members]
    for topic in roster.topics:
        partitions, subscribers = roster.partitions(topic), roster.subscribers[topic]
        share, extra = divmod(len(partitions), len(subscribers))
        if not share:
            for index, partition in zip(subscribers, partitions, strict=False):
                given[index].append(partition)
            continue
        start = 0
        for seat, index in enumerate(subscribers):
            end = start + share + (seat < extra)
            given[index] += partitions[start:end]
            start = end
    return given
