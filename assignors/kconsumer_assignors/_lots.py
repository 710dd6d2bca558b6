"""Which partitions can stand for one another, and who gets which of them once the numbers are known.

Partitions of topics with the same subscribers, held in the same racks, form a lot. `_flow.py` and `_polish.py` decide
how many of each lot a member gets; here lots are formed from the settled claims and filled in again, so that each
member keeps as many of its own partitions as its number allows.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from kconsumer.types import TopicPartition
from kconsumer_assignors._claims import Owners
from kconsumer_assignors._common import Roster
from kconsumer_assignors._flow import Allow, Flow, Lot
from kconsumer_assignors._polish import Polish
from kconsumer_assignors._racks import RackView

NO_RACKS: frozenset[str] = frozenset()


@dataclass(slots=True)
class Batch:
    """The partitions of one lot: `by_owner` those with an owner who may keep them, `loose` the others."""

    lot: Lot
    allowed: frozenset[int]
    by_owner: dict[int, list[TopicPartition]] = field(default_factory=dict)
    loose: list[TopicPartition] = field(default_factory=list)


def divide(roster: Roster, owners: Owners, racks: RackView | None) -> list[list[TopicPartition]]:
    """Each member's partitions, parallel to the roster's members: even loads first, then racks, then few moves."""
    batches = _batches(roster, owners, racks)
    owned: list[dict[int, int]] = [{} for _ in roster.members]
    for number, batch in enumerate(batches):
        for owner, partitions in batch.by_owner.items():
            owned[owner][number] = len(partitions)
    flow = Flow([batch.lot for batch in batches], owned)
    _hand_out(flow, batches)
    for allow in Allow if racks is not None else (Allow.UNOWNED, Allow.ANY):
        flow.balance(allow)
    Polish(flow).run()
    return _fill_in(flow, batches)


def _batches(roster: Roster, owners: Owners, racks: RackView | None) -> list[Batch]:
    """All partitions in lots; topics with few subscribers first, as they leave the least choice."""
    batches: dict[tuple[int, frozenset[str]], Batch] = {}
    for topic in sorted(roster.topics, key=lambda topic: len(roster.subscribers[topic])):
        takers = roster.subscribers[topic]
        partitions = roster.partitions(topic)
        held = racks.rows[topic] if racks is not None else [NO_RACKS] * len(partitions)
        where, batch = None, None
        for partition, owner, here in zip(partitions, owners[topic], held, strict=True):
            if batch is None or here is not where:
                where = here
                key = id(takers), here  # equal subscribers are one list
                batch = batches.get(key)
                if batch is None:
                    batch = batches[key] = _batch(takers, here, racks)
            if owner in batch.allowed:
                mine = batch.by_owner.get(owner)
                if mine is None:
                    batch.by_owner[owner] = [partition]
                else:
                    mine.append(partition)
            else:
                batch.loose.append(partition)
    return list(batches.values())


def _batch(takers: list[int], where: frozenset[str], racks: RackView | None) -> Batch:
    allowed = frozenset(takers)
    if racks is None:
        return Batch(Lot(takers), allowed)
    return Batch(Lot(takers, frozenset(member for member in takers if racks.fits(member, where))), allowed)


def _hand_out(flow: Flow, batches: list[Batch]) -> None:
    """Give out what has no owner or is outside its owner's rack: to the least loaded who can read it locally.

    What nobody can read locally goes back to its owner, or to the least loaded of all.
    """
    for number, batch in enumerate(batches):
        lot = batch.lot
        misplaced = {owner: len(found) for owner, found in batch.by_owner.items() if not lot.suits(owner)}
        if lot.fits is None:
            flow.add(number, len(batch.loose), lot.takers)
        elif lot.fits:
            flow.add(number, len(batch.loose) + sum(misplaced.values()), sorted(lot.fits))
        else:
            for owner, count in misplaced.items():
                flow.put(owner, number, count)
    for number, batch in enumerate(batches):
        if batch.lot.fits is not None and not batch.lot.fits:
            flow.add(number, len(batch.loose), batch.lot.takers)


def _fill_in(flow: Flow, batches: list[Batch]) -> list[list[TopicPartition]]:
    """Partitions for the numbers: everybody's own first, then what is left over, dealt in turn."""
    given: list[list[TopicPartition]] = [[] for _ in flow.held]
    wanted: list[dict[int, int]] = [{} for _ in batches]
    for member, mine in enumerate(flow.held):
        for number, count in mine.items():
            wanted[number][member] = count
    for batch, members in zip(batches, wanted, strict=True):
        spare = batch.loose
        for owner, partitions in batch.by_owner.items():
            keeps = members.get(owner, 0)
            if keeps >= len(partitions):
                keeps = len(partitions)
                given[owner] += partitions
            else:
                partitions.sort(key=_partition_then_topic)  # so that what it keeps is spread over topics
                given[owner] += partitions[:keeps]
                spare += partitions[keeps:]
            if keeps:
                members[owner] -= keeps
        spare.sort()
        _deal(spare, members, given)
    return given


def _deal(spare: list[TopicPartition], wanted: dict[int, int], given: list[list[TopicPartition]]) -> None:
    """Give each member the number it wants, going round so that each topic is spread over members."""
    line = deque(member for member, count in wanted.items() if count)
    for partition in spare:
        member = line.popleft()
        given[member].append(partition)
        left = wanted[member] - 1
        if left:
            wanted[member] = left
            line.append(member)


def _partition_then_topic(partition: TopicPartition) -> tuple[int, str]:
    return partition.partition, partition.topic
