"""The server-side assignor "simple" of share groups (KIP-932): each partition has about equally many members, and each
member about equally many partitions.

Partitions stay where they are as far as that allows. If all members subscribe to the same topics, the partitions of all
topics are shared together, otherwise those of each topic on their own. Of equally good partitions, Kafka takes the
first one in the order of its hash maps, and the model the first one by number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kconsumer.testing.cluster.groups.server_assignors import Partitions

Target = tuple[bytes, int]  # a partition: topic id and index


@dataclass(slots=True)
class AssignorInput:
    """A member, as the assignor sees it."""

    id: str
    topic_ids: set[bytes]  # the subscribed topics that exist
    target: Partitions  # the present target assignment


def assign_simple(members: list[AssignorInput], partitions: Mapping[bytes, set[int]]) -> dict[str, Partitions]:
    """Returns the target assignment by member id. `partitions`: those that may be assigned, by topic id."""
    subscriptions = {frozenset(member.topic_ids) for member in members}
    groups = (
        subscriptions if len(subscriptions) == 1 else [{topic_id} for topic_id in sorted(set().union(*subscriptions))]
    )
    result: dict[str, Partitions] = {member.id: {} for member in members}
    for topic_ids in groups:
        targets = [
            (topic_id, index) for topic_id in sorted(topic_ids) for index in sorted(partitions.get(topic_id, ()))
        ]
        subscribers = [member for member in members if topic_ids <= member.topic_ids]
        for member_id, found in _share(subscribers, targets).items():
            for topic_id, index in sorted(found):
                result[member_id].setdefault(topic_id, set()).add(index)
    return result


def _share(members: list[AssignorInput], targets: list[Target]) -> dict[str, set[Target]]:
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


def _owns(member: AssignorInput, target: Target) -> bool:
    return target[1] in member.target.get(target[0], ())
