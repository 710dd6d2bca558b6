"""The base of all four assignors: members in Java's order, and the subscribers of each topic.

A member is represented by its index in an ordered list. Members that subscribe to the same set of topics are handled
together. So the time of an assignment grows with the number of partitions plus the number of members, and not with the
number of members times the number of topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, repeat
from typing import cast

from kconsumer.assignors import Assignment, ClusterView, Subscription
from kconsumer.types import PartitionInfo, TopicPartition

# Creates a TopicPartition in 0.1 µs for each partition of the group. The constructor of NamedTuple, which is Python
# code, would take 0.3 µs.
_new = cast(Callable[[tuple[str, int]], TopicPartition], partial(tuple.__new__, TopicPartition))

Order = Callable[[Mapping[str, Subscription]], list[str]]


def topic_partitions(topic: str, ids: Iterable[int]) -> list[TopicPartition]:
    """Returns the partitions of a topic with these ids."""
    return list(map(_new, zip(repeat(topic), ids)))


def java_order(text: str) -> bytes:
    """Returns a sort key that orders text as Java's `String.compareTo` does: by UTF-16 code unit."""
    return text.encode("utf-16-be", "surrogatepass")


def by_instance_then_id(subscriptions: Mapping[str, Subscription]) -> list[str]:
    """Returns the member ids in the order of Java's `MemberInfo`.

    Members with a group instance id come first, sorted by that id. The other members are sorted by member id.
    """
    instances = {m: s.group_instance_id for m, s in subscriptions.items() if s.group_instance_id is not None}
    static = sorted(instances, key=lambda member: java_order(instances[member]))
    return static + by_id(subscriptions.keys() - instances) if static else by_id(subscriptions)


def by_id(members: Iterable[str]) -> list[str]:
    """Returns the member ids, sorted in Java's order."""
    if all(map(str.isascii, members)):
        return sorted(members)  # for ASCII the order is the same, and this is ten times as fast
    return sorted(members, key=java_order)


class Roster:
    """The members of a group, their subscriptions, and the subscribers of each topic."""

    __slots__ = ("gaps", "ids", "members", "subscribers", "subscriptions", "topics")

    def __init__(self, cluster: ClusterView, subscriptions: Mapping[str, Subscription], order: Order) -> None:
        self.members = order(subscriptions)
        self.subscriptions = [subscriptions[member] for member in self.members]
        classes = _classes(self.subscriptions)
        found = frozenset[str]().union(*classes)
        #: The subscribed topics that have partitions, sorted.
        self.topics = sorted(topic for topic in found if cluster.partition_count(topic))
        #: Topic -> partition ids, ascending.
        self.ids = {topic: _ids(cluster.partitions(topic)) for topic in self.topics}
        #: Topic -> partition id -> index in `ids`. Contains only topics whose partitions are not numbered 0, 1, 2…
        #: Real clusters have no such topics.
        self.gaps = {
            topic: {partition: index for index, partition in enumerate(ids)}
            for topic, ids in self.ids.items()
            if ids[-1] != len(ids) - 1
        }
        #: Topic -> indexes of its subscribers, ascending. Topics with the same subscribers have the same list object.
        self.subscribers = _subscribers(self.topics, classes)

    def partitions(self, topic: str) -> list[TopicPartition]:
        """Returns the partitions of a topic in ascending order."""
        return topic_partitions(topic, self.ids[topic])

    def index_of(self, topic: str, partition: int) -> int:
        """Returns the index of a partition in `ids[topic]`, or -1 if the partition does not exist."""
        gap = self.gaps.get(topic)
        if gap is not None:
            return gap.get(partition, -1)
        return partition if partition < len(self.ids[topic]) else -1

    def assignments(self, given: Sequence[Sequence[TopicPartition]]) -> dict[str, Assignment]:
        """Returns a dict of member id -> assignment.

        `given`: the partitions of each member, in the order of `members`.
        """
        return {member: Assignment(tuple(mine)) for member, mine in zip(self.members, given, strict=True)}


def _ids(infos: Sequence[PartitionInfo]) -> Sequence[int]:
    """Returns the ids of the partitions in `infos`, which is sorted by partition id and not empty."""
    count = len(infos)
    return range(count) if infos[-1].partition == count - 1 else [info.partition for info in infos]


def _classes(subscriptions: Iterable[Subscription]) -> dict[frozenset[str], list[int]]:
    """Returns a dict that maps each set of topics to the indexes of the members that subscribe to exactly these topics.

    The members are first grouped by their tuple of topics, because most groups have only a few different tuples. A set
    is then created for each tuple, not for each member.
    """
    by_tuple: dict[tuple[str, ...], list[int]] = {}
    previous: tuple[str, ...] | None = None
    indexes: list[int] = []
    for index, subscription in enumerate(subscriptions):
        topics = tuple(subscription.topics)
        if topics != previous:  # a comparison is faster than hashing
            previous, indexes = topics, by_tuple.setdefault(topics, [])
        indexes.append(index)
    by_set: dict[frozenset[str], list[int]] = {}
    for topics, indexes in by_tuple.items():
        by_set.setdefault(frozenset(topics), []).extend(indexes)
    return by_set


def _subscribers(topics: Iterable[str], classes: Mapping[frozenset[str], list[int]]) -> dict[str, list[int]]:
    """Returns a dict that maps each of `topics` to the indexes of its subscribers, in ascending order.

    `classes` is the result of `_classes`. Topics with the same subscribers get the same list object.
    """
    interested: dict[str, list[int]] = {topic: [] for topic in topics}
    groups = list(classes.values())
    for number, found in enumerate(classes):
        for topic in found:
            if topic in interested:
                interested[topic].append(number)
    merged: dict[tuple[int, ...], list[int]] = {}
    result: dict[str, list[int]] = {}
    for topic, numbers in interested.items():
        signature = tuple(numbers)
        if signature not in merged:
            merged[signature] = sorted(chain.from_iterable([groups[number] for number in numbers]))
        result[topic] = merged[signature]
    return result
