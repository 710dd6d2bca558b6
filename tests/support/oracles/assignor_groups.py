"""Random groups for assignor tests, and the yardsticks: balance, partitions moved, partitions read locally.

`member`, `plain_view` and `table` are for small cases written by hand. `random_group` makes cluster and subscriptions
from a seed; `Members` lives through generations, with members that miss one now and then.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations

from kconsumer.assignors import Assignor, ClusterView, Subscription, assign, load
from kconsumer.types import Node, PartitionInfo, TopicPartition
from kconsumer_assignors._user_data import encode_generation, encode_sticky

Given = Mapping[str, Collection[TopicPartition]]


def view_of(topics: Mapping[str, Sequence[Sequence[str]]]) -> ClusterView:
    """Returns a view with the racks of each partition's replicas: `{"t": [["a", "b"], ["b"]]}`, `[]` for no racks."""
    infos = []
    for topic, partitions in topics.items():
        for partition, racks in enumerate(partitions):
            nodes = tuple(Node(number, "host", 9092, rack) for number, rack in enumerate(racks)) or (
                Node(0, "host", 9092),
            )
            infos.append(PartitionInfo(topic, partition, nodes[0], nodes, nodes))
    return ClusterView(infos)


def plain_view(**counts: int) -> ClusterView:
    """Returns a view without racks: `plain_view(t=3, u=2)`."""
    return view_of({topic: [[]] * count for topic, count in counts.items()})


def partitions(text: str) -> tuple[TopicPartition, ...]:
    """Returns partitions of topics with one letter: `partitions("t0 t1 u10")`."""
    return tuple(TopicPartition(word[0], int(word[1:])) for word in text.split())


def member(
    assignor: str, topics: str, owned: str | None = None, generation: int = 1, rack: str | None = None
) -> Subscription:
    """Returns a member of one-letter topics. It claims `owned`, encoded for that assignor; None: it is new."""
    if owned is None:
        return Subscription(tuple(topics), rack_id=rack)
    mine = partitions(owned)
    if assignor == "sticky":
        data = encode_sticky(mine, generation)
        return Subscription(tuple(topics), user_data=data, generation_id=generation, rack_id=rack)
    return Subscription(tuple(topics), owned_partitions=mine, generation_id=generation, rack_id=rack)


def table(name: str, view: ClusterView, group: Mapping[str, Subscription]) -> dict[str, str]:
    """Returns the assignment of this assignor by member, sorted, as text."""
    return {m: " ".join(f"{t}{p}" for t, p in sorted(mine)) for m, mine in lists(name, view, group).items()}


def lists(name: str, view: ClusterView, group: Mapping[str, Subscription]) -> dict[str, list[TopicPartition]]:
    """Returns the assignment of this assignor by member."""
    return {m: list(assignment.partitions) for m, assignment in assign(kind(name)(), view, group).items()}


@cache
def kind(name: str) -> type[Assignor]:
    """Returns the class of a built-in assignor; looking it up each time would take most of a test's time."""
    return type(load(name))


def random_group(
    rng: random.Random, *, racks: int = 0, equal: bool = True, static: bool = False, members: int = 9, topics: int = 8
) -> tuple[ClusterView, dict[str, Subscription]]:
    """Returns up to that many members and topics; some cases have members without racks or an unknown topic."""
    names = [f"t{number}" for number in range(rng.randint(1, topics))]
    brokers = [f"r{number}" for number in range(racks)]
    one = rng.randint(1, 12)
    sizes = rng.choice(([one], [3, 6], range(1, 13)))
    layout: dict[str, list[list[str]]] = {}
    for name in names:
        replicas = rng.randint(1, max(1, racks))
        layout[name] = [rng.sample(brokers, replicas) if racks else [] for _ in range(rng.choice(sizes))]
    if rng.random() < 0.2:
        names.append("unknown")
    some_without = rng.random() < 0.3
    group: dict[str, Subscription] = {}
    for number in range(rng.randint(1, members)):
        without = not racks or (some_without and rng.random() < 0.4)
        group[f"m{rng.randrange(10**6):06}"] = Subscription(
            topics=tuple(sorted(names if equal else rng.sample(names, rng.randint(0, len(names))))),
            rack_id=None if without else f"r{rng.randint(0, racks)}",  # one rack more than there are brokers in
            group_instance_id=f"i{number}" if static and rng.random() < 0.3 else None,
        )
    return view_of(layout), group


@dataclass
class Members:
    """A group through its generations: `owned` is what each member has and since which generation."""

    rng: random.Random
    view: ClusterView
    group: dict[str, Subscription]
    owned: dict[str, tuple[int, list[TopicPartition]]] = field(default_factory=dict)
    generation: int = 0

    def subscriptions(self, assignor: str) -> dict[str, Subscription]:
        """Returns what the members send under this assignor's name."""
        sent = {}
        for member, subscription in self.group.items():
            generation, mine = self.owned.get(member, (-1, []))
            if assignor == "sticky":
                data = encode_sticky(mine, generation) if member in self.owned else None
                sent[member] = replace(subscription, user_data=data, generation_id=generation)
            else:
                sent[member] = replace(
                    subscription,
                    user_data=encode_generation(generation),
                    owned_partitions=tuple(mine),
                    generation_id=generation,
                )
        return sent

    def take(self, given: Given, missing: float = 0.0) -> None:
        """Begin a generation; each member misses it with that probability and keeps its partitions."""
        self.generation += 1
        for member in self.group:
            if self.rng.random() >= missing:
                self.owned[member] = (self.generation, list(given[member]))

    def change(self, *, resubscribe: bool) -> None:
        """Let up to two members leave, up to two join, and at most one change its subscription."""
        rng = self.rng
        for _ in range(rng.randint(0, 2)):
            if len(self.group) > 1:
                member = rng.choice(sorted(self.group))
                del self.group[member]
                self.owned.pop(member, None)
        for _ in range(rng.randint(0, 2)):
            self.group[f"m{rng.randrange(10**6):06}"] = self.group[rng.choice(sorted(self.group))]
        if resubscribe and rng.random() < 0.4:
            member, topics = rng.choice(sorted(self.group)), sorted(self.view.topics())
            wanted = tuple(sorted(rng.sample(topics, rng.randint(0, len(topics)))))
            self.group[member] = replace(self.group[member], topics=wanted)

    def owners(self) -> dict[TopicPartition, str]:
        """Returns the one member with the latest claim to each partition that exists, if it may keep it."""
        claims: dict[TopicPartition, list[tuple[int, str]]] = {}
        for member, (generation, mine) in self.owned.items():
            for partition in set(mine):
                if partition.partition < (self.view.partition_count(partition.topic) or 0):
                    claims.setdefault(partition, []).append((generation, member))
        settled = {}
        for partition, found in claims.items():
            latest = max(found)
            alone = [generation for generation, _ in found].count(latest[0]) == 1
            if alone and partition.topic in self.group[latest[1]].topics:
                settled[partition] = latest[1]
        return settled

    def moved(self, given: Given) -> int:
        """Returns how many partitions their owners lose."""
        return sum(partition not in given[owner] for partition, owner in self.owners().items())

    def racks_matter(self) -> bool:
        """Returns whether racks make a difference by KIP-881; if not, assignors do not read them."""
        topics = {topic for subscription in self.group.values() for topic in subscription.topics}
        infos = (info for topic in topics for info in self.view.partitions(topic))
        held = {frozenset(node.rack for node in info.replicas if node.rack) for info in infos}
        everywhere = frozenset[str]().union(*held)
        own = {subscription.rack_id for subscription in self.group.values() if subscription.rack_id}
        return bool(own & everywhere) and held != {everywhere}

    def wanted(self) -> set[TopicPartition]:
        """Returns every partition with a subscriber."""
        topics = {topic for subscription in self.group.values() for topic in subscription.topics}
        infos = (info for topic in topics for info in self.view.partitions(topic))
        return {TopicPartition(info.topic, info.partition) for info in infos}

    def local(self, given: Given) -> int:
        """Returns how many partitions are given to a member that can read them in its rack, or has none."""
        count = 0
        for member, mine in given.items():
            rack = self.group[member].rack_id
            for topic, partition in mine:
                held = {node.rack for node in self.view.partitions(topic)[partition].replicas}
                count += rack is None or rack in held
        return count


def imbalance(given: Given) -> int:
    """Returns Java's balance score: the sum of the load differences of all pairs of members; 0 is perfect."""
    return sum(abs(len(one) - len(other)) for one, other in combinations(given.values(), 2))
