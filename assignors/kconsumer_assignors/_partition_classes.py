"""Groups partitions into classes, and divides the partitions of each class among the members.

Partitions form a class if their topics have the same subscribers, their replicas are in the same racks, and the same
members claim them without being their owner. If there are several classes, `_min_cost_flow.py` and
`_cycle_cancelling.py` decide how many partitions of each class a member gets. This module forms the classes before
that. Afterwards it decides which partitions each member gets: first those that the member owned before, then others.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from kconsumer.types import TopicPartition
from kconsumer_assignors._common import Roster
from kconsumer_assignors._cycle_cancelling import CycleCanceller
from kconsumer_assignors._min_cost_flow import Allow, MinCostFlow, PartitionClass
from kconsumer_assignors._ownership import Ownership
from kconsumer_assignors._racks import RackView

NO_RACKS: frozenset[str] = frozenset()
NO_CLAIMANTS: frozenset[int] = frozenset()
# The maximum sum of the eligible members of all classes with claimants. Up to this sum, the search for cycles takes at
# most half a second. Above it, claims that did not make a member the owner are ignored.
MAX_CONTESTED_ARCS = 30_000
_PARTITION_THEN_TOPIC = itemgetter(1, 0)

Key = tuple[int, frozenset[str], frozenset[int]]


@dataclass(slots=True)
class ClassContent:
    """The partitions of one partition class, that is, interchangeable partitions."""

    partition_class: PartitionClass
    #: Owner -> the partitions that it owned before and may keep.
    by_owner: defaultdict[int, list[TopicPartition]] = field(default_factory=lambda: defaultdict(list))
    #: The other partitions.
    unowned: list[TopicPartition] = field(default_factory=list)
    unowned_sorted: bool = True

    def add(self, partitions: list[TopicPartition], owners: list[int] | None) -> None:
        """Add partitions of a topic.

        `owners` contains, for each partition, the index of the member that owns it, or FREE or CONTESTED. If `owners`
        is None, all the partitions are free.
        """
        if owners is None:
            self.unowned += partitions
            return
        by_owner = self.by_owner
        for partition, owner in zip(partitions, owners, strict=True):
            by_owner[owner].append(partition)

    def release(self) -> None:
        """Move a partition to `unowned` if it has no owner, or if its owner may no longer hold partitions of this
        class."""
        outside = self.by_owner.keys() - self.partition_class.eligible if self.by_owner else ()
        for owner in sorted(outside):
            self.unowned += self.by_owner.pop(owner)
            self.unowned_sorted = False


class Division(NamedTuple):
    """The result of `divide`: the partitions of each member, in the order of the roster."""

    kept: list[list[TopicPartition]]  # partitions that the member owned before
    received: list[list[TopicPartition]]  # partitions that the member did not own before


def divide(roster: Roster, ownership: Ownership, racks: RackView | None) -> Division:
    """Divide all partitions among the members. Returns the partitions of each member.

    The loads are as even as possible. Among assignments with such loads, those are preferred in which members read in
    their own racks, and among these the ones in which few partitions move.
    """
    contents = _class_contents(roster, ownership, racks)
    contested = [content.partition_class for content in contents if content.partition_class.claimants]
    if sum(len(partition_class.eligible) for partition_class in contested) > MAX_CONTESTED_ARCS:
        contents = _class_contents(roster, Ownership(ownership.owners, {}), racks)
    members = len(roster.members)
    # Most groups have one class, because the members have equal subscriptions, no racks and no conflicting claims.
    if len(contents) == 1 and contents[0].partition_class.uniform:
        return _choose_partitions(members, contents, [_even_shares(contents[0])])
    return _choose_partitions(members, contents, _balanced(members, contents, racks))


def _even_shares(content: ClassContent) -> dict[int, int]:
    """Returns a dict that maps each eligible member to the number of partitions that it gets.

    `content` must be the only partition class, and must be `uniform`. The numbers differ by at most one.
    """
    eligible, owned = content.partition_class.eligible, {owner: len(found) for owner, found in content.by_owner.items()}
    floor, extra = divmod(len(content.unowned) + sum(owned.values()), len(eligible))
    # The `extra` remaining partitions go first to members that otherwise would lose one, then to members that owned the
    # fewest.
    order = sorted(eligible, key=lambda member: owned.get(member, 0))
    first = bisect_right(order, floor, key=lambda member: owned.get(member, 0))
    more = sorted(order[first:])[:extra]
    more += order[: extra - len(more)]
    shares = dict.fromkeys(eligible, floor)
    shares.update(dict.fromkeys(more, floor + 1))
    return shares


def _balanced(members: int, contents: list[ClassContent], racks: RackView | None) -> list[dict[int, int]]:
    """Decide how many partitions of each partition class each member gets.

    Returns a list with one dict for each class in `contents`. The dict maps each member to its number of partitions of
    this class.
    """
    owned: list[dict[int, int]] = [{} for _ in range(members)]
    for class_id, content in enumerate(contents):
        for owner, partitions in content.by_owner.items():
            owned[owner][class_id] = len(partitions)
    flow = MinCostFlow([content.partition_class for content in contents], owned)
    _assign_unowned(flow, contents)
    for allow in Allow if racks is not None else (Allow.UNOWNED, Allow.ANY):
        flow.balance(allow)
    CycleCanceller(flow).run()
    shares: list[dict[int, int]] = [{} for _ in contents]
    for member, mine in enumerate(flow.held):
        for class_id, count in mine.items():
            shares[class_id][member] = count
    return shares


def _class_contents(roster: Roster, ownership: Ownership, racks: RackView | None) -> list[ClassContent]:
    """Returns the partition classes and their partitions.

    Classes of topics with few subscribers come first, because there are fewer choices for their partitions.
    """
    contents: dict[Key, ClassContent] = {}
    for topic in sorted(roster.topics, key=lambda topic: len(roster.subscribers[topic])):
        eligible, partitions, owners = roster.subscribers[topic], roster.partitions(topic), ownership.owners.get(topic)
        held = None if racks is None else racks.rows[topic]
        contested = _contested(ownership.claimants.get(topic), owners or [], eligible)
        if held is None and not contested:
            _content_of(contents, (id(eligible), NO_RACKS, NO_CLAIMANTS), eligible, racks).add(partitions, owners)
            continue
        indexes: dict[Key, list[int]] = defaultdict(list)
        for index, here in enumerate(held or [NO_RACKS] * len(partitions)):
            key = (id(eligible), here, contested.get(index, NO_CLAIMANTS))  # equal subscribers are one list
            indexes[key].append(index)
        for key, found in indexes.items():
            content = _content_of(contents, key, eligible, racks)
            content.add([partitions[index] for index in found], owners and [owners[index] for index in found])
    for content in contents.values():
        content.release()
    return list(contents.values())


def _contested(
    claimants: Mapping[int, set[int]] | None, owners: list[int], eligible: list[int]
) -> dict[int, frozenset[int]]:
    """Returns a dict of partition index -> the eligible members that claim the partition without being its owner.

    Contains only partitions with at least one such member.
    """
    if not claimants:
        return {}
    allowed = frozenset(eligible)
    found = {index: (allowed & members) - {owners[index]} for index, members in claimants.items()}
    return {index: others for index, others in found.items() if others}


def _content_of(
    contents: dict[Key, ClassContent], key: Key, eligible: list[int], racks: RackView | None
) -> ClassContent:
    """Returns the partition class with this key from `contents`. Adds it to `contents` if it is not there."""
    content = contents.get(key)
    if content is None:
        _, here, claimants = key
        local_members = (
            None if racks is None else frozenset(member for member in eligible if racks.is_local(member, here))
        )
        content = contents[key] = ClassContent(PartitionClass(eligible, local_members, claimants))
    return content


def _assign_unowned(flow: MinCostFlow, contents: list[ClassContent]) -> None:
    """Assign the partitions that have no owner, and those that their owner cannot read in its own rack.

    The candidates for such a partition are the members that can read it in their own rack. If there are none, a
    partition with an owner stays with its owner. For a partition without an owner, all eligible members are then
    candidates. If some of the candidates claim the partition, the others are left out. Of the remaining candidates, the
    one with the lowest load gets the partition.
    """
    for class_id, content in enumerate(contents):
        found = content.partition_class
        if found.local_members is None:
            flow.add(class_id, len(content.unowned), found.preferred(found.eligible))
            continue
        remote = {owner: len(owned) for owner, owned in content.by_owner.items() if not found.is_local(owner)}
        if found.local_members:
            flow.add(
                class_id, len(content.unowned) + sum(remote.values()), found.preferred(sorted(found.local_members))
            )
        else:
            for owner, count in remote.items():
                flow.put(owner, class_id, count)
    for class_id, content in enumerate(contents):
        if content.partition_class.local_members is not None and not content.partition_class.local_members:
            flow.add(
                class_id, len(content.unowned), content.partition_class.preferred(content.partition_class.eligible)
            )


def _choose_partitions(members: int, contents: list[ClassContent], shares: list[dict[int, int]]) -> Division:
    """Choose the partitions of each member. `shares` contains their numbers, in the form that `_balanced` returns.

    Each member first keeps partitions that it owned before. The remaining partitions are distributed to the members in
    turn.
    """
    kept: list[list[TopicPartition]] = [[] for _ in range(members)]
    received: list[list[TopicPartition]] = [[] for _ in range(members)]
    for content, wanted in zip(contents, shares, strict=True):
        spare, in_order = content.unowned, content.unowned_sorted
        for owner, partitions in content.by_owner.items():
            keeps = wanted.get(owner, 0)
            if keeps >= len(partitions):
                keeps = len(partitions)
                kept[owner] += partitions
            else:
                partitions.sort(key=_PARTITION_THEN_TOPIC)  # spreads the partitions that it keeps over topics
                kept[owner] += partitions[:keeps]
                spare += partitions[keeps:]
                in_order = False
            if keeps:
                wanted[owner] -= keeps
        if not in_order:
            spare.sort()
        _distribute(spare, wanted, received)
    return Division(kept, received)


def _distribute(spare: list[TopicPartition], wanted: dict[int, int], given: list[list[TopicPartition]]) -> None:
    """Append partitions from `spare` to the lists `given`: `wanted[member]` partitions for each member.

    Each member gets one partition per round, which spreads the partitions of each topic over the members.
    """
    line = [member for member, count in wanted.items() if count]
    start = rounds = 0
    while line:  # each iteration makes all rounds until at least one member has all of its partitions
        last = min([wanted[member] for member in line])
        width = len(line)
        end = start + (last - rounds) * width
        if last - rounds == 1:
            for member, partition in zip(line, spare[start:end], strict=True):
                given[member].append(partition)
        else:
            for first, member in enumerate(line, start):
                given[member] += spare[first:end:width]
        start, rounds = end, last
        line = [member for member in line if wanted[member] > rounds]
