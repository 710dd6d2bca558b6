"""Resolves the claims of members to the owner of each partition before the rebalance.

Several members may claim a partition, for example because one of them missed a generation. The claim with the higher
generation wins; claims with the same generation leave the partition without an owner. A claim without a conflict counts
in any generation. A claim of a topic or partition that does not exist (any more) never counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kconsumer_assignors._common import Roster
from kconsumer_assignors._user_data import Claim

FREE = -1
CONTESTED = -2  # claimed by several members in the same generation

#: Topic -> the index of the owner of each partition in ascending order, or FREE or CONTESTED. Only claimed topics.
Owners = dict[str, list[int]]

#: Topic -> index of the partition -> all members that claim it, for partitions that several members claim.
Claimants = dict[str, dict[int, set[int]]]


class Ownership(NamedTuple):
    """The owner of every claimed partition, and the members whose claims conflict."""

    owners: Owners
    claimants: Claimants


def resolve(roster: Roster, claims: Sequence[Claim]) -> Ownership:
    """Resolve claims, one for each member of the roster in its order."""
    owners: Owners = {}
    claimants: Claimants = {}
    gaps = roster.gaps
    generations = [claim.generation for claim in claims]
    # In descending order of generation, a later claim of an owned partition can only be a conflict or lose.
    for member in sorted(range(len(claims)), key=generations.__getitem__, reverse=True):
        generation = generations[member]
        for topic, partition in claims[member].partitions:
            row = owners.get(topic)
            if row is None:
                ids = roster.ids.get(topic)
                if ids is None:
                    continue
                row = owners[topic] = [FREE] * len(ids)
            index = gaps[topic].get(partition, -1) if topic in gaps else partition
            if not 0 <= index < len(row):
                continue
            owner = row[index]
            if owner == FREE:
                row[index] = member
            elif owner != member:
                claimants.setdefault(topic, {}).setdefault(index, {owner}).add(member)
                if owner != CONTESTED and generations[owner] == generation:
                    row[index] = CONTESTED
    return Ownership(owners, claimants)
