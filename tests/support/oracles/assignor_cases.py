"""Random rebalances of the kinds that are hard for sticky assignors, each from a seed of its own.

A case is a group that has lived through some generations: members with mixed subscriptions and racks, members that
joined, left or subscribed to other topics, topics that grew or vanished, members that missed generations and claim what
others have meanwhile, and members that claim the partitions of others in the same generation.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from kconsumer.assignors import ClusterView, Subscription
from kconsumer.types import PartitionInfo, TopicPartition
from support.oracles.assignor_groups import Given, Members, imbalance, lists, random_group

KINDS = ("mixed", "conflicts", "racks", "everything")


Assign = Callable[[dict[str, Subscription]], Given | None]


@dataclass
class Outcome:
    """What a group has when it is settled."""

    imbalance: int
    local: int
    kept: int  # partitions that their owner has now and had all the time
    kept_by_claimants: int  # sticky only: a cooperative member loses what another one claims, too
    rounds: int
    given: Given

    def rank(self) -> tuple[int, int, int, int]:
        """Returns the key by which outcomes are compared; lower is better."""
        return self.imbalance, -self.local, -self.kept, -self.kept_by_claimants


@dataclass
class Case:
    """A group at the moment of a rebalance."""

    seed: int
    kind: str
    name: str
    members: Members

    @property
    def view(self) -> ClusterView:
        """Returns the cluster."""
        return self.members.view

    def subscriptions(self) -> dict[str, Subscription]:
        """Returns what the members send to the leader."""
        return self.members.subscriptions(self.name)

    def kept(self, given: Given) -> int:
        """Returns how many partitions their owner keeps; a partition that members contest has no owner."""
        return sum(partition in given[owner] for partition, owner in self.members.owners().items())

    def kept_by_claimants(self, given: Given) -> int:
        """Returns how many partitions stay with a member that claims them, whatever its generation."""
        claimed = {member: set(mine) for member, (_, mine) in self.members.owned.items()}
        return sum(len(claimed.get(member, set()).intersection(mine)) for member, mine in given.items())

    def local(self, given: Given) -> int:
        """Returns how many partitions are read in their member's rack; 0 where racks make no difference."""
        return self.members.local(given) if self.members.racks_matter() else 0

    def sound(self, given: Given) -> bool:
        """Returns whether an assignment keeps to subscriptions and to partitions that exist."""
        real, group = self.members.wanted(), self.members.group
        return all(p in real and p.topic in group[member].topics for member, mine in given.items() for p in mine)

    def settle(self, assign: Assign) -> Outcome | None:
        """Rebalance until nothing changes; for `sticky` that is once.

        Returns None if an assignment is not sound or if nothing is settled after eight rebalances.
        """
        start, owners = self.members, self.members.owners()
        members = Members(random.Random(0), start.view, start.group, dict(start.owned), start.generation)
        for rounds in range(1, 9):
            given = assign(members.subscriptions(self.name))
            if given is None or not self.sound(given):
                return None
            owners = {partition: owner for partition, owner in owners.items() if partition in given[owner]}
            before = {member: set(members.owned.get(member, (0, []))[1]) for member in members.group}
            members.take(given)
            if self.name == "sticky" or before == {member: set(mine) for member, mine in given.items()}:
                claimants = self.kept_by_claimants(given) if self.name == "sticky" else 0
                return Outcome(imbalance(given), self.local(given), len(owners), claimants, rounds, given)
        return None

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.kind}, {self.name}"]
        for topic in sorted(self.view.topics()):
            held = [",".join(n.rack for n in info.replicas if n.rack) or "-" for info in self.view.partitions(topic)]
            lines.append(f"  topic {topic}: {' '.join(held)}")
        for member, subscription in sorted(self.members.group.items()):
            generation, mine = self.members.owned.get(member, (-1, []))
            listed = " ".join(f"{topic}-{partition}" for topic, partition in sorted(mine))
            lines.append(
                f"  {member} rack={subscription.rack_id} topics={' '.join(subscription.topics)} "
                f"claims in generation {generation}: {listed}"
            )
        return "\n".join(lines)


def random_case(seed: int) -> Case:
    """Returns the case of a seed."""
    rng = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    name = ("sticky", "cooperative-sticky")[seed // len(KINDS) % 2]
    everything = kind == "everything"
    racks = rng.choice((2, 3)) if kind == "racks" else rng.choice((0, 3)) if everything else 0
    equal = rng.random() < (0.0 if kind == "mixed" else 0.4)
    count, topics = (25, 16) if rng.random() < 0.1 else (9, 8)
    members = Members(rng, *random_group(rng, racks=racks, equal=equal, members=count, topics=topics))
    for _ in range(rng.randint(1, 3)):
        given = lists("sticky", members.view, members.subscriptions("sticky"))
        members.take(given, missing=0.25 if kind in ("conflicts", "everything") else 0.0)
        members.change(resubscribe=not equal)
        if everything and rng.random() < 0.4:
            _change_topics(members)
    if kind in ("conflicts", "everything"):
        for _ in range(rng.randint(1, 3)):
            rng.choice(CONFLICTS)(members)
    if name == "cooperative-sticky":
        for member, (generation, mine) in members.owned.items():  # revoked before the member joins
            members.owned[member] = generation, [p for p in mine if p.topic in members.group[member].topics]
    return Case(seed, kind, name, members)


def conflicting_case(seed: int, *, racks: int, members: int, topics: int) -> Case:
    """Returns a case of `sticky` with up to this many members and topics, mixed subscriptions and five conflicts."""
    rng = random.Random(seed)
    group = Members(rng, *random_group(rng, racks=racks, equal=False, members=members, topics=topics))
    for _ in range(2):
        group.take(lists("sticky", group.view, group.subscriptions("sticky")), missing=0.1)
        group.change(resubscribe=True)
    for _ in range(5):
        rng.choice(CONFLICTS)(group)
    return Case(seed, "conflicts", "sticky", group)


def _claim_as_well(members: Members) -> None:
    """Let a member claim, in the same generation, some partitions of another one."""
    taker, giver = _two(members)
    if taker is None or giver is None:
        return
    generation, mine = members.owned[giver]
    _, own = members.owned.get(taker, (-1, []))
    more = members.rng.sample(mine, members.rng.randint(0, len(mine)))
    members.owned[taker] = generation, list(dict.fromkeys(own + more))


def _claim_from_before(members: Members) -> None:
    """Let a member claim some partitions of another one from an older generation."""
    taker, giver = _two(members)
    if taker is None or giver is None:
        return
    generation, mine = members.owned[giver]
    older = members.rng.choice((-1, max(-1, generation - 1)))
    members.owned[taker] = older, members.rng.sample(mine, members.rng.randint(0, len(mine)))


def _claim_at_random(members: Members) -> None:
    """Let a member claim any partitions of its topics."""
    rng = members.rng
    member = rng.choice(sorted(members.group))
    topics = [topic for topic in members.group[member].topics if members.view.partition_count(topic)]
    every = [TopicPartition(topic, info.partition) for topic in topics for info in members.view.partitions(topic)]
    members.owned[member] = members.generation - rng.randint(0, 1), rng.sample(every, rng.randint(0, len(every)))


CONFLICTS: tuple[Callable[[Members], None], ...] = (_claim_as_well, _claim_from_before, _claim_at_random)


def _two(members: Members) -> tuple[str | None, str | None]:
    """Returns a member and another one that owned something, or (None, None) if no other one did."""
    taker = members.rng.choice(sorted(members.group))
    others = sorted(member for member in members.owned if member != taker and member in members.group)
    return (taker, members.rng.choice(others)) if others else (None, None)


def _change_topics(members: Members) -> None:
    """Delete a topic, or change its number of partitions."""
    rng = members.rng
    changed = rng.choice(sorted(members.view.topics()))
    infos: list[PartitionInfo] = []
    for topic in sorted(members.view.topics()):
        found = members.view.partitions(topic)
        if topic == changed:
            count = rng.choice((0, len(found) + rng.randint(1, 4)))
            found = tuple(replace(found[number % len(found)], partition=number) for number in range(count))
        infos += found
    if infos:
        members.view = ClusterView(infos)
