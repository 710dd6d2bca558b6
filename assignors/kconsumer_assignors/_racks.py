"""Which racks hold a replica of which partition, and whether that can make a difference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kconsumer.assignors import ClusterView
from kconsumer.types import PartitionInfo
from kconsumer_assignors._common import Roster


class RackTable:
    """The racks that hold a replica of each partition; equal sets are one object."""

    __slots__ = ("_sets",)

    def __init__(self) -> None:
        self._sets: dict[tuple[str | None, ...], frozenset[str]] = {}

    def racks(self, partitions: Iterable[PartitionInfo]) -> list[frozenset[str]]:
        """The racks of each partition, in the same order."""
        sets, result = self._sets, []
        for info in partitions:
            key = tuple([node.rack for node in info.replicas])
            found = sets.get(key)
            if found is None:
                found = sets[key] = frozenset(rack for rack in key if rack is not None)
            result.append(found)
        return result


def racks_matter(consumer_racks: set[str], partition_racks: Sequence[frozenset[str]]) -> bool:
    """Whether racks can make a difference (KIP-881).

    They cannot when no consumer is in a rack that has replicas, nor when every partition is in every rack.
    """
    distinct = set(partition_racks)
    everywhere = frozenset[str]().union(*distinct)
    return not consumer_racks.isdisjoint(everywhere) and distinct != {everywhere}


class RackView:
    """Racks as the sticky assignors use them.

    Of a partition's racks only those with a member that subscribes are kept: an empty set means that nobody can
    read it locally.
    """

    __slots__ = ("member_racks", "rows")

    def __init__(self, member_racks: list[str | None], rows: dict[str, list[frozenset[str]]]) -> None:
        self.member_racks = member_racks
        self.rows = rows

    def fits(self, member: int, racks: frozenset[str]) -> bool:
        """Whether the member can read a partition with these racks locally, or has no rack to care about."""
        own = self.member_racks[member]
        return own is None or own in racks


def rack_view(cluster: ClusterView, roster: Roster) -> RackView | None:
    """The racks of members and partitions, or None when they make no difference."""
    member_racks = [subscription.rack_id or None for subscription in roster.subscriptions]
    known = {rack for rack in member_racks if rack}
    if not known:
        return None
    table = RackTable()
    rows = {topic: table.racks(cluster.partitions(topic)) for topic in roster.topics}
    if not racks_matter(known, [racks for row in rows.values() for racks in row]):
        return None
    for topic, row in rows.items():
        wanted = {rack for member in roster.subscribers[topic] if (rack := member_racks[member])}
        usable = {racks: racks & wanted for racks in set(row)}
        rows[topic] = [usable[racks] for racks in row]
    return RackView(member_racks, rows)
