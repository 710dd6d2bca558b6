"""The server-side assignor "uniform": sizes of assignments differ by at most one where the subscriptions allow it.

If all members subscribe to the same topics, each member gets a quota, keeps its partitions up to the quota, and is
filled with the partitions that remain. Otherwise partitions without an owner go to the least loaded subscribers, topic
by topic, and then partitions are moved from the most to the least loaded subscribers of each topic.
"""

from __future__ import annotations

from collections.abc import Iterable

from kconsumer.testing.cluster.groups.assignor_input import AssignorGroup, AssignorMember, Partitions
from kconsumer.testing.cluster.groups.map_order import partition_order, topic_order

MAX_ROUNDS = 16  # of moves over all topics
NO_OWNER = -1


def assign_same(group: AssignorGroup) -> dict[str, Partitions]:
    """Returns, by member id, the assignment of members that all subscribe to the same topics."""
    topic_ids = group.members[0].topic_ids
    if not topic_ids:
        return {}
    assigned = {
        (topic_id, partition)
        for member in group.members
        for topic_id, partitions in member.target.items()
        for partition in partitions
    }
    unassigned = [
        (topic_id, partition)
        for topic_id in topic_ids
        for partition in range(group.partition_counts[topic_id])
        if (topic_id, partition) not in assigned
    ]
    quota, extra = divmod(sum(group.partition_counts[topic_id] for topic_id in topic_ids), len(group.members))
    assignment: dict[str, Partitions] = {}
    unfilled = []
    for i, member in enumerate(group.members):
        has_extra = extra > 0
        assignment[member.id], revoked, room = _keep(member, topic_ids, quota + has_extra)
        unassigned += revoked
        if has_extra and room > 0 and len(group.members) - i > extra:
            # A later member gets the extra partition, perhaps one that has it already and so need not give it up.
            has_extra, room = False, room - 1
        extra -= has_extra
        unfilled.append((member.id, room))
    remaining = iter(unassigned)
    for member_id, room in unfilled:
        for _, (topic_id, partition) in zip(range(room), remaining, strict=False):
            assignment[member_id].setdefault(topic_id, set()).add(partition)
    return assignment


def _keep(
    member: AssignorMember, topic_ids: list[bytes], quota: int
) -> tuple[Partitions, list[tuple[bytes, int]], int]:
    """Returns the partitions that a member keeps, those that exceed its quota, and how many more it can get."""
    kept: Partitions = {}
    revoked = []
    for topic_id in topic_order(member.target):
        if topic_id not in topic_ids:
            continue
        partitions = partition_order(member.target[topic_id])
        revoked += [(topic_id, partition) for partition in partitions[quota:]]
        if partitions[:quota]:
            kept[topic_id] = set(partitions[:quota])
        quota -= min(quota, len(partitions))
    return kept, revoked, quota


def assign_mixed(group: AssignorGroup) -> dict[str, Partitions]:
    """Returns, by member id, the assignment of members with different subscriptions."""
    return _MixedAssignment(group).build()


class _MixedAssignment:
    """Computes the assignment of members with different subscriptions. Identifies members by their index."""

    def __init__(self, group: AssignorGroup) -> None:
        self._group = group
        self.sizes = [0] * len(group.members)  # how many partitions each member has
        self._subscribers: dict[bytes, list[int]] = {}
        for i, member in enumerate(group.members):
            for topic_id in member.topic_ids:
                self._subscribers.setdefault(topic_id, []).append(i)
        self._owners = {topic_id: [NO_OWNER] * group.partition_counts[topic_id] for topic_id in self._subscribers}

    def build(self) -> dict[str, Partitions]:
        """Returns the assignment by member id."""
        for i, member in enumerate(self._group.members):
            for topic_id in member.topic_ids:
                for partition in member.target.get(topic_id, ()):
                    self._own(topic_id, partition, i)
        self._assign_unowned()
        self._balance()
        assignment: dict[str, Partitions] = {member.id: {} for member in self._group.members}
        for topic_id, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                assignment[self._group.members[owner].id].setdefault(topic_id, set()).add(partition)
        return assignment

    def _own(self, topic_id: bytes, partition: int, owner: int) -> None:
        """Make a member the owner of a partition, in place of its present owner. `owner`: the member's index."""
        before = self._owners[topic_id][partition]
        if before != NO_OWNER:
            self.sizes[before] -= 1
        self._owners[topic_id][partition] = owner
        self.sizes[owner] += 1

    def _sorted(self, topic_ids: Iterable[bytes]) -> list[bytes]:
        """Returns topics in the order in which partitions are assigned.

        Topics with more partitions per subscriber come first. Of topics with the same ratio, those with fewer
        subscribers come first.
        """

        def key(topic_id: bytes) -> tuple[float, int, tuple[int, int]]:
            subscribers = len(self._subscribers[topic_id])
            return (-self._group.partition_counts[topic_id] / subscribers, subscribers, _signed_halves(topic_id))

        return sorted(topic_ids, key=key)

    def _assign_unowned(self) -> None:
        """Give the partitions without an owner to the least loaded subscribers."""
        for topic_id in self._sorted(self._owners):
            balancer = _Balancer(self.sizes, self._subscribers[topic_id])
            for partition, owner in enumerate(self._owners[topic_id]):
                if owner == NO_OWNER:
                    self._own(topic_id, partition, balancer.next_least_loaded())

    def _balance(self) -> None:
        """Move partitions until no move improves the balance of any topic, for at most MAX_ROUNDS rounds."""
        topic_ids = self._sorted(topic_id for topic_id, members in self._subscribers.items() if len(members) > 1)
        last_changed = None
        for _ in range(MAX_ROUNDS):
            for topic_id in topic_ids:
                if topic_id == last_changed:
                    return
                if self._balance_topic(topic_id) or last_changed is None:
                    last_changed = topic_id

    def _balance_topic(self, topic_id: bytes) -> bool:
        """Move partitions of a topic from the most to the least loaded subscribers.

        Returns whether a partition was moved.
        """
        balancer = _Balancer(self.sizes, self._subscribers[topic_id])
        if balancer.imbalance <= 1:
            return False
        movable: dict[int, list[int]] = {}  # by owner; the last one moves first
        for partition, owner in enumerate(self._owners[topic_id]):
            movable.setdefault(owner, []).append(partition)
        moved = False
        while not balancer.balanced:
            source = balancer.next_most_loaded()
            while source is not None and not movable.get(source):
                balancer.exclude_most_loaded()
                source = balancer.next_most_loaded()
            if source is None:
                break
            partition = movable[source].pop()
            target = balancer.next_least_loaded()
            if balancer.balanced:
                break
            self._own(topic_id, partition, target)
            moved = True
        return moved


class _Balancer:
    """Returns the least and the most loaded subscribers of a topic, while the caller moves partitions.

    The caller must give one partition to each member from `next_least_loaded`, and take one from each member from
    `next_most_loaded`. `_members` is sorted by load when the balancer is created. The least loaded members are a range
    at its start, and the most loaded members a range near its end.
    """

    def __init__(self, sizes: list[int], members: list[int]) -> None:
        self._sizes = sizes
        self._members = members = sorted(members, key=lambda member: (sizes[member], member))
        self.imbalance = sizes[members[-1]] - sizes[members[0]]
        self._low_end = 0  # the least loaded members are those before
        self._low_size = sizes[members[0]] - 1
        self._next_low = 0
        self._high_start = self._high_end = len(members)  # the most loaded members are in between
        self._high_size = sizes[members[-1]] + 1
        self._next_high = len(members) - 1

    @property
    def balanced(self) -> bool:
        """True if loads differ by at most one."""
        return self._high_size - self._low_size <= 1

    def next_least_loaded(self) -> int:
        """Returns one of the least loaded members. The caller must give it a partition."""
        if self._next_low >= self._low_end:
            self._low_size += 1
            while self._low_end < len(self._members) and self._sizes[self._members[self._low_end]] == self._low_size:
                self._low_end += 1
            self._next_low = 0
        self._next_low += 1
        return self._members[self._next_low - 1]

    def next_most_loaded(self) -> int | None:
        """Returns one of the most loaded members, or None if all are excluded.

        The caller must take a partition from it.
        """
        if self._next_high < self._high_start:
            if self._high_end <= self._high_start and self._high_start > 0:
                self._high_size = self._sizes[self._members[self._high_start - 1]]
            else:
                self._high_size -= 1
            while self._high_start > 0 and self._sizes[self._members[self._high_start - 1]] == self._high_size:
                self._high_start -= 1
            self._next_high = self._high_end - 1
        if self._next_high < 0:
            return None
        self._next_high -= 1
        return self._members[self._next_high + 1]

    def exclude_most_loaded(self) -> None:
        """Exclude the member that `next_most_loaded` returned last: it has no partition to lose."""
        members, last = self._members, self._high_end - 1
        here = self._next_high + 1
        members[here], members[last] = members[last], members[here]
        self._high_end = last


def _signed_halves(uuid: bytes) -> tuple[int, int]:
    """Returns the two halves of a UUID as signed numbers, because Kafka compares UUIDs in this form."""
    return int.from_bytes(uuid[:8], signed=True), int.from_bytes(uuid[8:], signed=True)
