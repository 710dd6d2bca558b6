"""Decides which member owned each partition before the rebalance. The decision follows from the claims of the members.

With its subscription, a member sends the partitions that it owned and the generation in which it owned them. This is
the member's claim. If only one member claims a partition, it is the owner, whatever its generation is. Several members
may claim the same partition, for example because one of them missed a generation. Then the member with the highest
generation is the owner. If several of these members have the highest generation, the partition has no owner. A claim to
a topic or partition that does not exist is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kconsumer_assignors._common import Roster
from kconsumer_assignors._user_data import Claim

FREE = -1
CONTESTED = -2  # claimed by several members in the same generation

#: Topic -> for each partition, in ascending order, the index of its owner in the roster, or FREE or CONTESTED. Contains
#: only topics that a member claims.
Owners = dict[str, list[int]]

#: Topic -> index of a partition -> all members that claim it. Contains only partitions that several members claim.
Claimants = dict[str, dict[int, set[int]]]


class Ownership(NamedTuple):
    """The result of `resolve`: the owners of partitions, and the claimants of partitions that several members claim."""

    owners: Owners
    claimants: Claimants


def resolve(roster: Roster, claims: Sequence[Claim]) -> Ownership:
    """Returns the owners of partitions and the conflicting claims.

    `claims` contains the claim of each member, in the order of `roster.members`.
    """
    owners: Owners = {}
    claimants: Claimants = {}
    gaps = roster.gaps
    generations = [claim.generation for claim in claims]
    # The claims are read in descending order of generation. So a claim to a partition that already has an owner has the
    # same generation, which is a conflict, or a lower one, and does not count.
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
