"""The server-side assignors "uniform" and "range" of KIP-848, and "simple" of share groups (KIP-932).

They compute the target assignment of a group from the subscriptions and the present target assignment of its members.
The assignment by "range" equals that of Kafka 4.4, which does not consider racks. The one by "uniform" is as balanced
and moves as few partitions, but which of equal partitions and members it chooses may differ.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

#: Partitions by topic id.
Partitions = dict[bytes, set[int]]


@dataclass(slots=True)
class AssignorMember:
    """The data of a member that assignors use."""

    id: str
    instance_id: str | None
    topic_ids: list[bytes]  # the topics that exist and to which the member subscribes
    target: Partitions = field(default_factory=dict)  # the present target assignment


def assign_uniform(members: Sequence[AssignorMember], counts: Mapping[bytes, int]) -> dict[str, Partitions]:
    """Returns, by member id, a balanced assignment that moves few partitions.

    Members keep their partitions. Partitions without an owner go to the least loaded subscribers, beginning with the
    topics that have the fewest. Then partitions move from the most to the least loaded subscribers of each topic.
    """
    assignment: dict[str, Partitions] = {member.id: {} for member in members}
    sizes = dict.fromkeys(assignment, 0)
    subscribers: dict[bytes, list[str]] = {}
    unowned = {(topic_id, index) for topic_id, count in counts.items() for index in range(count)}
    for member in members:
        for topic_id in member.topic_ids:
            subscribers.setdefault(topic_id, []).append(member.id)
            kept = {index for index in member.target.get(topic_id, ()) if (topic_id, index) in unowned}
            unowned -= {(topic_id, index) for index in kept}
            if kept:
                assignment[member.id][topic_id] = kept
                sizes[member.id] += len(kept)
    for topic_id in sorted(subscribers, key=lambda topic_id: len(subscribers[topic_id])):
        least_loaded = [(sizes[key], at, key) for at, key in enumerate(subscribers[topic_id])]
        heapq.heapify(least_loaded)
        for index in range(counts[topic_id]):
            if (topic_id, index) in unowned:
                _, at, key = least_loaded[0]
                assignment[key].setdefault(topic_id, set()).add(index)
                sizes[key] += 1
                heapq.heapreplace(least_loaded, (sizes[key], at, key))
    while any(_balance(topic_id, keys, assignment, sizes) for topic_id, keys in subscribers.items()):
        pass
    return assignment


def _balance(topic_id: bytes, keys: list[str], assignment: dict[str, Partitions], sizes: dict[str, int]) -> bool:
    """Move partitions of a topic from its most to its least loaded subscribers. Returns whether one was moved."""
    moved = False
    while owners := [key for key in keys if assignment[key].get(topic_id)]:
        source, target = max(owners, key=sizes.__getitem__), min(keys, key=sizes.__getitem__)
        if sizes[source] - sizes[target] <= 1:
            break
        index = max(assignment[source][topic_id])
        assignment[source][topic_id].remove(index)
        assignment[target].setdefault(topic_id, set()).add(index)
        sizes[source] -= 1
        sizes[target] += 1
        moved = True
    return moved


def assign_range(members: Sequence[AssignorMember], counts: Mapping[bytes, int]) -> dict[str, Partitions]:
    """Returns, by member id, an assignment with consecutive partitions of each topic for each subscriber.

    Members are sorted: static members by instance id, and after them the others by member id. So members with equal
    subscriptions get the same partition numbers of topics with equally many partitions.
    """
    members = sorted(members, key=lambda member: (member.instance_id is None, member.instance_id or member.id))
    assignment: dict[str, Partitions] = {member.id: {} for member in members}
    for topic_id in dict.fromkeys(topic_id for member in members for topic_id in member.topic_ids):
        subscribers = [member for member in members if topic_id in member.topic_ids]
        quota, extra = divmod(counts[topic_id], len(subscribers))
        start = 0
        for i, member in enumerate(subscribers):
            end = start + quota + (i < extra)
            if end > start:
                assignment[member.id][topic_id] = set(range(start, end))
            start = end
    return assignment


#: The assignors of a broker by name. Their arguments are the members and, by topic id, the numbers of partitions.
ASSIGNORS: dict[str, Callable[[Sequence[AssignorMember], Mapping[bytes, int]], dict[str, Partitions]]] = {
    "uniform": assign_uniform,
    "range": assign_range,
}


Target = tuple[bytes, int]  # a partition: topic id and index


def assign_simple(members: list[AssignorMember], partitions: Mapping[bytes, set[int]]) -> dict[str, Partitions]:
    """Returns the target assignment by member id. `partitions`: those that may be assigned, by topic id.

    Each partition has about equally many members, and each member about equally many partitions, which stay where they
    are as far as that allows. If all members subscribe to the same topics, the partitions of all topics are shared
    together, otherwise those of each topic on their own. Of equally good partitions, Kafka takes the first one in the
    order of its hash maps, and the model the first one by number.
    """
    subscriptions = {frozenset(member.topic_ids) for member in members}
    groups = (
        subscriptions if len(subscriptions) == 1 else [{topic_id} for topic_id in sorted(set().union(*subscriptions))]
    )
    result: dict[str, Partitions] = {member.id: {} for member in members}
    for topic_ids in groups:
        targets = [
            (topic_id, index) for topic_id in sorted(topic_ids) for index in sorted(partitions.get(topic_id, ()))
        ]
        subscribers = [member for member in members if topic_ids <= set(member.topic_ids)]
        for member_id, found in _share(subscribers, targets).items():
            for topic_id, index in sorted(found):
                result[member_id].setdefault(topic_id, set()).add(index)
    return result


def _share(members: list[AssignorMember], targets: list[Target]) -> dict[str, set[Target]]:
    """Returns partitions by member id."""
    if not members or not targets:
        return {}
    sharing = -(-len(members) // len(targets))  # how many members a partition has
    ends = [-(-sharing * len(targets) * i // len(members)) for i in range(len(members) + 1)]
    wanted = {member.id: ends[i + 1] - ends[i] for i, member in enumerate(members)}
    owned = {member.id: {target for target in targets if _owns(member, target)} for member in members}
    for member_id, found in owned.items():
        for target in sorted(found)[: max(0, len(found) - wanted[member_id])]:
            found.discard(target)
    for target in targets:
        owners = [member_id for member_id, found in owned.items() if target in found]
        for member_id in owners[: max(0, len(owners) - sharing)]:
            owned[member_id].discard(target)
    for target in targets:
        missing = sharing - sum(target in found for found in owned.values())
        free = [key for key, found in owned.items() if target not in found and len(found) < wanted[key]]
        for member_id in sorted(free, key=lambda key: len(owned[key]) - wanted[key])[:missing]:
            owned[member_id].add(target)
    return owned


def _owns(member: AssignorMember, target: Target) -> bool:
    return target[1] in member.target.get(target[0], ())
