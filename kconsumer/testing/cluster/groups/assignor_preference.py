"""Finds the server-side assignor that most members of a group prefer."""

from __future__ import annotations

from collections.abc import Mapping

from kconsumer.testing.cluster.groups.consumer_member import ConsumerMember
from kconsumer.testing.cluster.groups.map_order import TimelineOrder, hash_map_order
from kconsumer.testing.cluster.hashes import java_hash_code

CAPACITY = 4  # of a hash map with two names


def preferred(counts: Mapping[str, int]) -> str | None:
    """Returns the assignor that most members prefer, or None if no member has a preference.

    `counts`: by how many members each assignor is preferred.
    """
    return _first(TimelineOrder().order(counts), counts)


def preferred_after(present: Mapping[str, int], before: ConsumerMember, updated: ConsumerMember) -> str | None:
    """Returns the assignor that most members prefer after a member was updated, or None without preferences.

    `present`: by how many members each assignor is preferred before the update. `before` and `updated`: the old and
    the new state of the member.

    As in Kafka, if several assignors have the highest count, the result can differ from that of `preferred`. Kafka
    copies the counts to a new Java hash map, which can have another order than the group's own map. In the copy, it
    removes the member's old preference, and adds the new one. While the two results differ, the group begins a new
    epoch at each heartbeat of the member.
    """
    counts = dict(present)
    if before.preferred_assignor is not None and counts.get(before.preferred_assignor):
        counts[before.preferred_assignor] -= 1
    names = (name for name in TimelineOrder().order(counts) if counts[name])
    order = hash_map_order(names, java_hash_code, CAPACITY)
    name = updated.preferred_assignor
    if name is not None:
        if name not in order:
            order = hash_map_order((name, *order), java_hash_code, CAPACITY)
        counts[name] = counts.get(name, 0) + 1
    return _first(order, counts)


def _first(order: list[str], counts: Mapping[str, int]) -> str | None:
    """Returns the first name in `order` with the highest count, or None if `order` is empty."""
    return max(order, key=lambda name: counts[name], default=None)
