"""The server-side assignors "uniform" and "range" of KIP-848.

They compute the target assignment of a group from the subscriptions and the present target assignment of its members.
The result equals that of Kafka 4.4, which does not consider racks. `uniform_assignor.py` has the assignor "uniform".
"""

from __future__ import annotations

from collections.abc import Callable

from kconsumer.testing.cluster.groups.assignor_input import AssignorGroup, Partitions
from kconsumer.testing.cluster.groups.uniform_assignor import assign_mixed, assign_same


def assign_uniform(group: AssignorGroup) -> dict[str, Partitions]:
    """Returns, by member id, a balanced assignment that moves as few partitions as possible."""
    return assign_same(group) if group.homogeneous else assign_mixed(group)


def assign_range(group: AssignorGroup) -> dict[str, Partitions]:
    """Returns, by member id, an assignment with consecutive partitions of each topic for each subscriber.

    Members are sorted: static members by instance id, and after them the others by member id. So members with equal
    subscriptions get the same partition numbers of topics with equally many partitions.
    """
    members = sorted(group.members, key=lambda member: (member.instance_id is None, member.instance_id or member.id))
    assignment: dict[str, Partitions] = {member.id: {} for member in members}
    for topic_id in dict.fromkeys(topic_id for member in members for topic_id in member.topic_ids):
        subscribers = [member for member in members if topic_id in member.topic_ids]
        quota, extra = divmod(group.partition_counts[topic_id], len(subscribers))
        start = 0
        for i, member in enumerate(subscribers):
            end = start + quota + (i < extra)
            if end > start:
                assignment[member.id][topic_id] = set(range(start, end))
            start = end
    return assignment


#: The assignors of a broker by name.
ASSIGNORS: dict[str, Callable[[AssignorGroup], dict[str, Partitions]]] = {
    "uniform": assign_uniform,
    "range": assign_range,
}
