"""The racks of the replicas of each partition, and whether they can affect an assignment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kconsumer.assignors import ClusterView
from kconsumer.types import PartitionInfo
from kconsumer_assignors._common import Roster


class RackTable:
    """Finds the racks that have a replica of each partition. Equal sets of racks are the same object."""

    __slots__ = ("_sets",)

    def __init__(self) -> None:
        self._sets: dict[tuple[str | None, ...], frozenset[str]] = {}

    def racks(self, partitions: Iterable[PartitionInfo]) -> list[frozenset[str]]:
        """Returns, for each partition, the set of racks that have a replica of it. The result has the order of
        `partitions`."""
        sets, result = self._sets, []
        for info in partitions:
            key = tuple([node.rack for node in info.replicas])
            found = sets.get(key)
            if found is None:
                found = sets[key] = frozenset(rack for rack in key if rack is not None)
            result.append(found)
        return result


def racks_matter(consumer_racks: set[str], partition_racks: Sequence[frozenset[str]]) -> bool:
    """Returns whether racks can affect an assignment (KIP-881).

    Racks cannot affect it if no consumer is in a rack that has replicas, or if all partitions have replicas in the same
    racks.
    """
    distinct = set(partition_racks)
    everywhere = frozenset[str]().union(*distinct)
    return not consumer_racks.isdisjoint(everywhere) and distinct != {everywhere}


class RackView:
    """The racks of members and partitions, for the sticky assignors."""

    __slots__ = ("member_racks", "rows")

    def __init__(self, member_racks: list[str | None], rows: dict[str, list[frozenset[str]]]) -> None:
        self.member_racks = member_racks
        #: Topic -> for each partition, the racks that have both a replica and a subscriber. If a set is empty, no
        #: subscriber that has a rack can read the partition in its own rack.
        self.rows = rows

    def is_local(self, member: int, racks: frozenset[str]) -> bool:
        """Returns whether a member can read a partition in its own rack. `racks`: the racks of the partition.

        True for a member without a rack.
        """
        own = self.member_racks[member]
        return own is None or own in racks


def rack_view(cluster: ClusterView, roster: Roster) -> RackView | None:
    """Returns the racks of members and partitions, or None if they cannot affect the assignment."""
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
