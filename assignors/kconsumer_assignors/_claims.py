"""Who owns what before the rebalance, when the members' claims are put together.

Members may claim the same partition: one of them missed a generation, or something went wrong. The higher
generation wins; at the same generation nobody does. A claim that nobody contests counts whatever its
generation, and one of a topic or partition that does not exist (any more) never does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kconsumer_assignors._common import Roster
from kconsumer_assignors._user_data import Claim

FREE = -1
CONTESTED = -2  # claimed by several members in the same generation

Owners = dict[str, list[int]]
"""Topic -> for each partition, in ascending order, the index of its owner or one of the two above; topics that
no member claims are left out."""

Claimants = dict[str, dict[int, set[int]]]
"""Topic -> place -> all members that claim the partition, for partitions that more than one member claims."""


class Ownership(NamedTuple):
    """The owner of every claimed partition, and who else claims it."""

    owners: Owners
    claimants: Claimants


def settle(roster: Roster, claims: Sequence[Claim]) -> Ownership:
    """Resolve the members' claims, which are parallel to the roster's members."""
    owners: Owners = {}
    claimants: Claimants = {}
    gaps = roster.gaps
    generations = [claim.generation for claim in claims]
    # The latest generation goes first, so whoever comes later to a taken partition can only contest or lose.
    for member in sorted(range(len(claims)), key=generations.__getitem__, reverse=True):
        generation = generations[member]
        for topic, partition in claims[member].partitions:
            row = owners.get(topic)
            if row is None:
                ids = roster.ids.get(topic)
                if ids is None:
                    continue
                row = owners[topic] = [FREE] * len(ids)
            place = gaps[topic].get(partition, -1) if topic in gaps else partition
            if not 0 <= place < len(row):
                continue
            owner = row[place]
            if owner == FREE:
                row[place] = member
            elif owner != member:
                claimants.setdefault(topic, {}).setdefault(place, {owner}).add(member)
                if owner != CONTESTED and generations[owner] == generation:
                    row[place] = CONTESTED
    return Ownership(owners, claimants)
