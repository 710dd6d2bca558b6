"""Which partitions can stand for one another, and who gets which of them once the numbers are known.

Partitions of topics with the same subscribers, held in the same racks and claimed in vain by the same members, form a
lot. If there is more than one, `_flow.py` and `_polish.py` decide how many of each lot a member gets. Here lots are
formed from the settled claims and filled in again, so that each member keeps as many of its own partitions as its
number allows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from kconsumer.types import TopicPartition
from kconsumer_assignors._claims import Ownership
from kconsumer_assignors._common import Roster
from kconsumer_assignors._flow import Allow, Flow, Lot
from kconsumer_assignors._polish import Polish
from kconsumer_assignors._racks import RackView

NO_RACKS: frozenset[str] = frozenset()
NO_CLAIMANTS: frozenset[int] = frozenset()
# The takers of all contested lots together. Up to here the search takes half a second at most; beyond it, claims made
# in vain are ignored.
MAX_CONTESTED_ARCS = 30_000
_PARTITION_THEN_TOPIC = itemgetter(1, 0)

Key = tuple[int, frozenset[str], frozenset[int]]


@dataclass(slots=True)
class Batch:
    """The partitions of one lot: `by_owner` those with an owner who may keep them, `loose` the others."""

    lot: Lot
    by_owner: defaultdict[int, list[TopicPartition]] = field(default_factory=lambda: defaultdict(list))
    loose: list[TopicPartition] = field(default_factory=list)
    loose_sorted: bool = True

    def add(self, partitions: list[TopicPartition], owners: list[int] | None) -> None:
        """Add partitions of the next topic, and their owners in the same order if there are any."""
        if owners is None:
            self.loose += partitions
            return
        by_owner = self.by_owner
        for partition, owner in zip(partitions, owners, strict=True):
            by_owner[owner].append(partition)

    def release(self) -> None:
        """Move partitions to `loose` whose owner is none of the lot's takers."""
        outside = self.by_owner.keys() - self.lot.takers if self.by_owner else ()
        for owner in sorted(outside):
            self.loose += self.by_owner.pop(owner)
            self.loose_sorted = False


class Division(NamedTuple):
    """Who gets what, in lists parallel to the roster's members."""

    kept: list[list[TopicPartition]]  # what the member owned
    received: list[list[TopicPartition]]  # what it did not own


def divide(roster: Roster, ownership: Ownership, racks: RackView | None) -> Division:
    """Each member's partitions: even loads first, then racks, then few moves."""
    batches = _batches(roster, ownership, racks)
    if sum(len(batch.lot.takers) for batch in batches if batch.lot.claimants) > MAX_CONTESTED_ARCS:
        batches = _batches(roster, Ownership(ownership.owners, {}), racks)
    members = len(roster.members)
    if len(batches) == 1 and batches[0].lot.uniform:  # equal subscriptions, no racks, no conflict: most groups
        return _fill_in(members, batches, [_even_shares(batches[0])])
    return _fill_in(members, batches, _balanced(members, batches, racks))


def _even_shares(batch: Batch) -> dict[int, int]:
    """Returns how many partitions each member gets of a lot that is the only one."""
    takers, owned = batch.lot.takers, {owner: len(found) for owner, found in batch.by_owner.items()}
    floor, extra = divmod(len(batch.loose) + sum(owned.values()), len(takers))
    # The extra partitions go to members that would lose one otherwise, then to those that owned least.
    order = sorted(takers, key=lambda member: owned.get(member, 0))
    first = bisect_right(order, floor, key=lambda member: owned.get(member, 0))
    more = sorted(order[first:])[:extra]
    more += order[: extra - len(more)]
    shares = dict.fromkeys(takers, floor)
    shares.update(dict.fromkeys(more, floor + 1))
    return shares


def _balanced(members: int, batches: list[Batch], racks: RackView | None) -> list[dict[int, int]]:
    """Returns how many partitions of each lot each member gets."""
    owned: list[dict[int, int]] = [{} for _ in range(members)]
    for number, batch in enumerate(batches):
        for owner, partitions in batch.by_owner.items():
            owned[owner][number] = len(partitions)
    flow = Flow([batch.lot for batch in batches], owned)
    _hand_out(flow, batches)
    for allow in Allow if racks is not None else (Allow.UNOWNED, Allow.ANY):
        flow.balance(allow)
    Polish(flow).run()
    shares: list[dict[int, int]] = [{} for _ in batches]
    for member, mine in enumerate(flow.held):
        for number, count in mine.items():
            shares[number][member] = count
    return shares


def _batches(roster: Roster, ownership: Ownership, racks: RackView | None) -> list[Batch]:
    """All partitions in lots; topics with few subscribers first, as they leave the least choice."""
    batches: dict[Key, Batch] = {}
    for topic in sorted(roster.topics, key=lambda topic: len(roster.subscribers[topic])):
        takers, partitions, owners = roster.subscribers[topic], roster.partitions(topic), ownership.owners.get(topic)
        held = None if racks is None else racks.rows[topic]
        contested = _contested(ownership.claimants.get(topic), owners or [], takers)
        if held is None and not contested:
            _batch(batches, (id(takers), NO_RACKS, NO_CLAIMANTS), takers, racks).add(partitions, owners)
            continue
        places: dict[Key, list[int]] = defaultdict(list)
        for place, here in enumerate(held or [NO_RACKS] * len(partitions)):
            places[id(takers), here, contested.get(place, NO_CLAIMANTS)].append(place)  # equal subscribers are one list
        for key, found in places.items():
            batch = _batch(batches, key, takers, racks)
            batch.add([partitions[place] for place in found], owners and [owners[place] for place in found])
    for batch in batches.values():
        batch.release()
    return list(batches.values())


def _contested(
    claimants: Mapping[int, set[int]] | None, owners: list[int], takers: list[int]
) -> dict[int, frozenset[int]]:
    """Returns, by place, the members that claim a partition in vain and may have it; others are left out."""
    if not claimants:
        return {}
    allowed = frozenset(takers)
    found = {place: (allowed & members) - {owners[place]} for place, members in claimants.items()}
    return {place: others for place, others in found.items() if others}


def _batch(batches: dict[Key, Batch], key: Key, takers: list[int], racks: RackView | None) -> Batch:
    batch = batches.get(key)
    if batch is None:
        _, here, claimants = key
        fits = None if racks is None else frozenset(member for member in takers if racks.fits(member, here))
        batch = batches[key] = Batch(Lot(takers, fits, claimants))
    return batch


def _hand_out(flow: Flow, batches: list[Batch]) -> None:
    """Give out what has no owner or is outside its owner's rack: to the least loaded who can read it locally.

    What nobody can read locally goes back to its owner, or to the least loaded of all.
    """
    for number, batch in enumerate(batches):
        lot = batch.lot
        if lot.fits is None:
            flow.add(number, len(batch.loose), lot.preferred(lot.takers))
            continue
        misplaced = {owner: len(found) for owner, found in batch.by_owner.items() if not lot.suits(owner)}
        if lot.fits:
            flow.add(number, len(batch.loose) + sum(misplaced.values()), lot.preferred(sorted(lot.fits)))
        else:
            for owner, count in misplaced.items():
                flow.put(owner, number, count)
    for number, batch in enumerate(batches):
        if batch.lot.fits is not None and not batch.lot.fits:
            flow.add(number, len(batch.loose), batch.lot.preferred(batch.lot.takers))


def _fill_in(members: int, batches: list[Batch], shares: list[dict[int, int]]) -> Division:
    """Partitions for the numbers: everybody's own first, then what is left over, dealt in turn."""
    kept: list[list[TopicPartition]] = [[] for _ in range(members)]
    received: list[list[TopicPartition]] = [[] for _ in range(members)]
    for batch, wanted in zip(batches, shares, strict=True):
        spare, in_order = batch.loose, batch.loose_sorted
        for owner, partitions in batch.by_owner.items():
            keeps = wanted.get(owner, 0)
            if keeps >= len(partitions):
                keeps = len(partitions)
                kept[owner] += partitions
            else:
                partitions.sort(key=_PARTITION_THEN_TOPIC)  # so that what it keeps is spread over topics
                kept[owner] += partitions[:keeps]
                spare += partitions[keeps:]
                in_order = False
            if keeps:
                wanted[owner] -= keeps
        if not in_order:
            spare.sort()
        _deal(spare, wanted, received)
    return Division(kept, received)


def _deal(spare: list[TopicPartition], wanted: dict[int, int], given: list[list[TopicPartition]]) -> None:
    """Give each member the number it wants, going round so that each topic is spread over members."""
    line = [member for member, count in wanted.items() if count]
    start = rounds = 0
    while line:  # each pass deals all rounds until the next member has what it wants
        last = min([wanted[member] for member in line])
        width = len(line)
        end = start + (last - rounds) * width
        if last - rounds == 1:
            for member, partition in zip(line, spare[start:end], strict=True):
                given[member].append(partition)
        else:
            for seat, member in enumerate(line, start):
                given[member] += spare[seat:end:width]
        start, rounds = end, last
        line = [member for member in line if wanted[member] > rounds]
