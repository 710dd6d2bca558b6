"""Range assignment with racks: assigns partitions that members can read in their own rack, then the rest in ranges.

Topics with the same subscribers and the same number of partitions form a group. A group stays co-partitioned: the same
member gets partition p of all topics in the group. So partition p is assigned by rack only to a member in whose rack
partition p of every topic in the group has a replica, or to a member without a rack. The numbers of partitions per
member are those of the range assignor without racks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kconsumer.assignors import ClusterView
from kconsumer.types import TopicPartition
from kconsumer_assignors._common import Roster
from kconsumer_assignors._racks import RackTable, racks_matter


def assign_with_racks(cluster: ClusterView, roster: Roster) -> list[list[TopicPartition]] | None:
    """Returns the sorted partitions of each member, or None if racks do not affect any topic.

    Topics with the same subscribers and number of partitions form a group. If racks affect at least one topic, then, as
    in Java, every group of several topics that has a subscriber with a rack is assigned by racks. A single topic is
    assigned by racks only if they affect it.
    """
    member_racks = [subscription.rack_id or None for subscription in roster.subscriptions]
    if not any(member_racks):
        return None
    racks = _topic_racks(cluster, roster, member_racks)
    needed = {topic for topic, found in racks.items() if _needs_racks(roster, topic, member_racks, found)}
    if not needed:
        return None
    given: list[list[TopicPartition]] = [[] for _ in roster.members]
    for topics in _groups(roster, racks):
        first = topics[0]
        subscribers = roster.subscribers[first]
        state = TopicAssignmentState([member_racks[index] for index in subscribers], len(roster.ids[first]))
        if len(topics) > 1 and first in racks:
            held_by_all = zip(*(racks[topic] for topic in topics), strict=True)
            state.match_together([frozenset.intersection(*held) for held in held_by_all])
        elif first in needed:
            state.match_each(racks[first])
        state.fill()
        for topic in topics:
            for owner, partition in zip(state.owners, roster.partitions(topic), strict=True):
                given[subscribers[owner]].append(partition)
    for mine in given:
        mine.sort()
    return given


def _topic_racks(
    cluster: ClusterView, roster: Roster, member_racks: Sequence[str | None]
) -> dict[str, list[frozenset[str]]]:
    """Returns a dict of topic -> the racks of each partition. Contains only topics with a subscriber that has a
    rack."""
    table = RackTable()
    return {
        topic: table.racks(cluster.partitions(topic))
        for topic in roster.topics
        if any(member_racks[index] for index in roster.subscribers[topic])
    }


def _needs_racks(
    roster: Roster, topic: str, member_racks: Sequence[str | None], racks: Sequence[frozenset[str]]
) -> bool:
    """Returns whether racks can affect the assignment of a topic. `racks`: the racks of each of its partitions."""
    consumer_racks = {rack for index in roster.subscribers[topic] if (rack := member_racks[index])}
    return racks_matter(consumer_racks, racks)


def _groups(roster: Roster, racks: Iterable[str]) -> list[list[str]]:
    """Returns the topics in groups that can be co-partitioned.

    The topics of a group have the same subscribers and the same number of partitions.
    """
    groups: dict[tuple[int, int], list[str]] = {}
    for topic in roster.topics:
        key = (id(roster.subscribers[topic]), len(roster.ids[topic]))  # equal subscribers are one list
        groups.setdefault(key, []).append(topic)
    return list(groups.values())


class TopicAssignmentState:
    """The partitions of one group of topics, and the subscribers that they are assigned to.

    A subscriber is given by its index in the list of subscribers. Each one gets `per_subscriber` partitions, and some
    get one partition more. `extra` is the number of these additional partitions that were not assigned yet. When it is
    0, a subscriber with `per_subscriber` partitions is full. A full subscriber stays full, so it need not be considered
    again.
    """

    def __init__(self, racks: Sequence[str | None], count: int) -> None:
        self.racks = racks  # the rack of each subscriber, or None
        self.per_subscriber, self.extra = divmod(count, len(racks))
        self.assigned = [0] * len(racks)  # the number of partitions of each subscriber
        self.owners = [-1] * count  # the subscriber of each partition; -1: none yet

    def max_assignable(self, subscriber: int) -> int:
        """Returns how many partitions a subscriber may get in addition to those that it has."""
        return max(0, self.per_subscriber + (self.extra > 0) - self.assigned[subscriber])

    def assign(self, subscriber: int, positions: Sequence[int]) -> None:
        """Assign the partitions with the indexes `positions` to a subscriber."""
        if not positions:
            return
        for position in positions:
            self.owners[position] = subscriber
        self.assigned[subscriber] += len(positions)
        if self.assigned[subscriber] > self.per_subscriber:
            self.extra -= 1

    def match_together(self, racks: Sequence[frozenset[str]]) -> None:
        """Assign each partition to the first suitable subscriber that is not full. A partition without one stays free.

        A subscriber is suitable if it has no rack, or if its rack is one of the partition's racks. `racks`: for each
        partition number, the racks that have a replica of that partition of every topic in the group.
        """
        open_subscribers: dict[str | None, list[int]] = {}  # by rack; the first subscriber is the last entry
        for subscriber in reversed(range(len(self.racks))):
            open_subscribers.setdefault(self.racks[subscriber], []).append(subscriber)
        for position, held in enumerate(racks):
            found = -1
            usable: list[str | None] = [None, *held]  # a subscriber without a rack matches every partition
            for rack in usable:
                candidates = open_subscribers.get(rack, [])
                while candidates and not self.max_assignable(candidates[-1]):
                    candidates.pop()
                if candidates and (found < 0 or candidates[-1] < found):
                    found = candidates[-1]
            if found >= 0:
                self.assign(found, (position,))

    def match_each(self, racks: Sequence[frozenset[str]]) -> None:
        """Assign to each subscriber, until it is full, the first free partitions that have a replica in its rack.

        For a subscriber without a rack, these are the first of all free partitions. Only used for groups of one topic.
        `racks`: the racks of each partition.
        """
        everywhere = list(range(len(racks)))
        in_rack: dict[str, list[int]] = {}
        for position, held in enumerate(racks):
            for rack in held:
                in_rack.setdefault(rack, []).append(position)
        for subscriber, own in enumerate(self.racks):
            self._take_first(subscriber, everywhere if own is None else in_rack.get(own, []))

    def fill(self) -> None:
        """Assign the remaining partitions in ranges to the subscribers that are not full."""
        remaining = [position for position, owner in enumerate(self.owners) if owner < 0]
        start = 0
        for subscriber in range(len(self.racks)):
            if start == len(remaining):
                break
            end = start + self.max_assignable(subscriber)
            self.assign(subscriber, remaining[start:end])
            start = min(end, len(remaining))

    def _take_first(self, subscriber: int, candidates: list[int]) -> None:
        """Assign the first free partitions of `candidates` to a subscriber, until the subscriber is full.

        Removes the examined partitions from the front of `candidates`, so that they are not examined again.
        """
        wanted, passed = self.max_assignable(subscriber), 0
        taken: list[int] = []
        for position in candidates:
            if len(taken) == wanted:
                break
            passed += 1
            if self.owners[position] < 0:
                taken.append(position)
        del candidates[:passed]
        self.assign(subscriber, taken)
