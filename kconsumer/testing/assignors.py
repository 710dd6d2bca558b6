"""A compliance suite for assignors: subclass it in a test file, return your assignor from `make`, and run pytest.

    from kconsumer.testing.assignors import AssignorCompliance

    class TestMine(AssignorCompliance):
        balanced = True                      # a property that MyAssignor claims to have

        def make(self):
            return MyAssignor()

The suite tests what every group needs. Each partition is assigned once, to a subscriber. The same input has the same
result. No partition has two owners in a cooperative rebalance. The suite also tests the properties that the assignor
claims to have. It does not need a broker, and does not import pytest. Other tests can use `SimulatedGroup`, too.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from unittest import SkipTest

from kconsumer._core.lock import Clock
from kconsumer.assignors import (
    Assignment,
    Assignor,
    ClusterView,
    RebalanceProtocol,
    Subscription,
    assign,
    load,
)
from kconsumer.types import GroupMetadata, Node, PartitionInfo, TopicPartition

__all__ = ["AssignorCompliance", "SimulatedGroup", "cluster"]

RACKS = ("rack-a", "rack-b", "rack-c")
COOPERATIVE_ROUNDS = 4
SEEDS = range(40)


def cluster(topics: Mapping[str, int], racks: Iterable[str] = (), replicas: int = 1) -> ClusterView:
    """Returns a cluster for tests, with one broker in each rack.

    `topics`: topic -> number of partitions. `replicas`: the number of replicas of each partition, which are placed on
    the brokers in turn.
    """
    names = tuple(racks) or (None,)
    nodes = [Node(number, f"broker-{number}", 9092, rack) for number, rack in enumerate(names)]
    infos = []
    for topic, count in topics.items():
        for partition in range(count):
            held = tuple(nodes[(partition + copy) % len(nodes)] for copy in range(min(replicas, len(nodes))))
            infos.append(PartitionInfo(topic, partition, held[0], held, held))
    return ClusterView(infos)


class SimulatedGroup:
    """A consumer group without brokers. Each member has its own assignor. The first member is the leader.

    `make` provides an assignor for each new member. `rebalance()` does what the consumers of a group do for one
    generation: it passes the members' subscriptions to the leader's assignor, checks the result, and passes each member
    its assignment.
    """

    def __init__(self, make: Iterable[Assignor], view: ClusterView) -> None:
        self._spare = iter(make)
        self.view = view
        #: The number of rebalances so far.
        self.generation = 0
        #: Member -> its assignor.
        self.assignors: dict[str, Assignor] = {}
        #: Member -> its partitions.
        self.owned: dict[str, tuple[TopicPartition, ...]] = {}
        self._topics: dict[str, tuple[str, ...]] = {}
        self._racks: dict[str, str | None] = {}
        self._seen: dict[str, int] = {}  # member -> the last generation in which it got an assignment

    def join(self, member: str, topics: Iterable[str], rack: str | None = None) -> None:
        """Add a member, or change its subscription."""
        self._topics[member] = tuple(sorted(topics))
        self._racks[member] = rack
        if member not in self.assignors:
            self.assignors[member] = next(self._spare)
            self.owned[member] = ()
        elif self.cooperative:
            self.owned[member] = tuple(p for p in self.owned[member] if p.topic in self._topics[member])

    def leave(self, member: str) -> None:
        """Remove a member and its partitions."""
        for table in (self.assignors, self.owned, self._topics, self._racks, self._seen):
            table.pop(member, None)

    @property
    def cooperative(self) -> bool:
        """True if members keep their partitions during a rebalance, because all assignors support COOPERATIVE."""
        protocols = [assignor.protocols for assignor in self.assignors.values()]
        return all(RebalanceProtocol.COOPERATIVE in supported for supported in protocols)

    def subscriptions(self) -> dict[str, Subscription]:
        """Returns the subscriptions that members would send to the leader now."""
        return {
            member: Subscription(
                topics=self._topics[member],
                user_data=assignor.subscription_user_data(frozenset(self._topics[member])),
                owned_partitions=self.owned[member] if self.cooperative else (),
                generation_id=self._seen.get(member, -1),
                rack_id=self._racks[member],
            )
            for member, assignor in self.assignors.items()
        }

    def rebalance(self) -> dict[str, Assignment]:
        """Run one rebalance, and call `on_assignment` of each member's assignor. Returns the assignments.

        In a cooperative group, raises AssertionError if a partition is assigned while another member still owns it.
        """
        leader = next(iter(self.assignors.values()))
        given = assign(leader, self.view, self.subscriptions())
        if self.cooperative:
            self._check_cooperative(given)
        self.generation += 1
        for member, assignment in given.items():
            self.owned[member] = assignment.partitions
            self._seen[member] = self.generation
            metadata = GroupMetadata("simulated", self.generation, member)
            self.assignors[member].on_assignment(assignment, metadata)
        return given

    def settle(self) -> int:
        """Rebalance until the assignment does not change any more. Returns the number of rebalances minus one.

        Raises AssertionError if partitions remain unassigned, or if the assignment still changes after four rebalances.
        """
        for done in range(COOPERATIVE_ROUNDS + 1):
            before = dict(self.owned)
            self.rebalance()
            if done and {m: set(p) for m, p in before.items()} == {m: set(p) for m, p in self.owned.items()}:
                _demand(not self.unassigned(), f"partitions remain unassigned: {self.unassigned()}")
                return done
        raise AssertionError(f"the assignment still changes after {COOPERATIVE_ROUNDS} rebalances of the same group")

    def unassigned(self) -> list[TopicPartition]:
        """Returns the partitions of subscribed topics that have no owner."""
        subscribed = {topic for topics in self._topics.values() for topic in topics}
        taken = {partition for partitions in self.owned.values() for partition in partitions}
        infos = (info for topic in sorted(subscribed) for info in self.view.partitions(topic))
        return [tp for info in infos if (tp := TopicPartition(info.topic, info.partition)) not in taken]

    def _check_cooperative(self, given: Mapping[str, Assignment]) -> None:
        """Raise AssertionError if a partition is assigned to a member while another member owns it."""
        owners = {partition: member for member, partitions in self.owned.items() for partition in partitions}
        for member, assignment in given.items():
            for partition in assignment.partitions:
                owner = owners.get(partition, member)
                _demand(owner == member, f'{partition} is given to "{member}" while "{owner}" still has it')


class AssignorCompliance:
    """The test suite. Name your subclass `Test…`, override `make`, and set the properties that it must test."""

    #: True to test this property: the loads of members with equal subscriptions differ by one at most.
    balanced = False
    #: True to test this property: with equal subscriptions, members keep their partitions when other members leave, and
    #: when a member joins, only this new member gets other partitions.
    sticky = False
    #: True to test this property: members get partitions with a replica in their rack if there are enough of them.
    rack_aware = False
    #: The maximum time in seconds to assign 3,000 partitions to 450 members with equal subscriptions.
    scale_limit_s = 10.0

    def make(self) -> Assignor:
        """Returns a new instance of the assignor under test. Override this method."""
        raise SkipTest("subclass AssignorCompliance and write make()")

    def test_loads(self) -> None:
        """The assignor has what `load` checks: a name, known protocols and an int version."""
        assignor = self.make()
        _demand(load(assignor) is assignor, "load() did not take the instance as it is")

    def test_gives_every_partition_to_one_subscriber(self) -> None:
        """Every partition of a subscribed topic is assigned, and every member is in the result, in random groups."""
        for seed in SEEDS:
            group = self._random_group(seed)
            given = self.make().assign(group.view, group.subscriptions())
            _demand(set(given) == set(group.assignors), f"seed {seed}: not every member is in the result")
            group.settle()

    def test_keeps_to_the_rules_as_the_group_changes(self) -> None:
        """All partitions are assigned, without conflicts, after members join, leave and change subscriptions."""
        for seed in SEEDS:
            rng = random.Random(seed)
            group = self._random_group(seed)
            group.settle()
            for step in range(4):
                if len(group.assignors) > 1:
                    group.leave(rng.choice(sorted(group.assignors)))
                topics = sorted(group.view.topics())
                group.join(f"late-{step}", topics[: rng.randint(1, len(topics))], rng.choice(RACKS))
                group.join(rng.choice(sorted(group.assignors)), rng.sample(topics, rng.randint(0, len(topics))))
                group.settle()

    def test_accepts_empty_input(self) -> None:
        """There is no error without members, without topics, with unknown topics, or with an empty subscription."""
        view = cluster({"known": 2})
        _demand(dict(self.make().assign(view, {})) == {}, "no members should give an empty result")
        nothing = Subscription(())
        for topics in ((), ("unknown",), ("unknown", "known")):
            given = assign(self.make(), view, {"a": Subscription(topics), "b": nothing})
            expected = 2 if "known" in topics else 0
            count = len(given["a"].partitions)
            _demand(count == expected, f"a member of {topics} got {count} partitions, not {expected}")
            _demand(given["b"].partitions == (), "a member that subscribes to nothing got partitions")

    def test_repeats_its_result(self) -> None:
        """A new instance returns the same result, also if the members have another order: the leader may change."""
        for seed in SEEDS:
            group = self._random_group(seed)
            subscriptions = group.subscriptions()
            turned = dict(reversed(subscriptions.items()))
            first, second = (
                {
                    member: set(assignment.partitions)
                    for member, assignment in assign(self.make(), group.view, s).items()
                }
                for s in (subscriptions, turned)
            )
            _demand(first == second, f"seed {seed}: the order of members changed the result")

    def test_survives_foreign_user_data(self) -> None:
        """User data of other versions, and invalid user data, do not raise an error."""
        rng = random.Random(7)
        view = cluster({"t": 6})
        own = self.make().subscription_user_data(frozenset({"t"})) or b""
        _demand(isinstance(own, bytes), f"subscription_user_data gave {type(own).__name__}, not bytes or None")
        for length in (0, 1, 2, 3, 4, 5, 8, 13, 40):
            data = (rng.randbytes(length), own[:length], b"\xff" * length, b"\x00" * length)
            members = {f"m{number}": Subscription(("t",), user_data=bytes_) for number, bytes_ in enumerate(data)}
            assign(self.make(), view, members)

    def test_is_quick_enough(self) -> None:
        """Assigning 3,000 partitions to 450 members takes less than `scale_limit_s`.

        The next assignment, after ten of these members have left, also takes less than that.
        """
        clock = Clock()
        group = SimulatedGroup(self._makers(), cluster({f"t{number:03}": 30 for number in range(100)}))
        for number in range(450):
            group.join(f"m{number:03}", group.view.topics())
        for leaving in range(2):
            start = clock.now()
            group.rebalance()
            took = (clock.now() - start) / 1000
            _demand(took < self.scale_limit_s, f"it took {took:.1f} s, more than {self.scale_limit_s} s")
            for number in range(10 * (1 - leaving)):
                group.leave(f"m{number:03}")

    def test_balances(self) -> None:
        """The loads of members with equal subscriptions differ by one at most."""
        self._only_if(self.balanced, "balanced")
        for seed in SEEDS:
            group = self._random_group(seed, equal=True)
            group.settle()
            loads = sorted(map(len, group.owned.values()))
            _demand(loads[-1] - loads[0] <= 1, f"seed {seed}: loads are {loads}")

    def test_sticks_when_members_leave(self) -> None:
        """When a member leaves a group with equal subscriptions, the other members keep all their partitions."""
        self._only_if(self.sticky, "sticky")
        for seed in SEEDS:
            group = self._random_group(seed, equal=True, least=3)
            group.settle()
            group.leave(min(group.assignors))
            before = dict(group.owned)
            group.settle()
            for member, partitions in before.items():
                lost = set(partitions) - set(group.owned[member])
                _demand(not lost, f'seed {seed}: "{member}" lost {sorted(lost)} though it stayed')

    def test_moves_only_what_newcomers_need(self) -> None:
        """When a member joins a group with equal subscriptions, the other members get no additional partitions."""
        self._only_if(self.sticky, "sticky")
        for seed in SEEDS:
            group = self._random_group(seed, equal=True)
            group.settle()
            before = dict(group.owned)
            group.join("newcomer", group.view.topics())
            group.settle()
            for member, partitions in before.items():
                extra = set(group.owned[member]) - set(partitions)
                _demand(not extra, f'seed {seed}: "{member}" got {sorted(extra)} when another joined')

    def test_reads_locally(self) -> None:
        """If each rack has as many partitions of a topic as members, every member gets partitions in its own rack."""
        self._only_if(self.rack_aware, "rack_aware")
        view = cluster({"t": 2 * len(RACKS), "u": 2 * len(RACKS)}, RACKS)
        group = SimulatedGroup(self._makers(), view)
        for number in range(2 * len(RACKS)):
            group.join(f"m{number}", ("t", "u"), RACKS[-1 - number % len(RACKS)])
        group.settle()
        for member, subscription in group.subscriptions().items():
            for topic, partition in group.owned[member]:
                held = [str(node.rack) for node in view.partitions(topic)[partition].replicas]
                where = f"{topic}-{partition}, which is in {', '.join(held)}"
                _demand(subscription.rack_id in held, f'"{member}" in {subscription.rack_id} got {where}')

    def _random_group(self, seed: int, equal: bool = False, least: int = 1) -> SimulatedGroup:
        """Returns a group with random topics and at least `least` members, with `equal` or random subscriptions."""
        rng = random.Random(seed)
        counts = {f"t{number}": rng.randint(1, 9) for number in range(rng.randint(1, 6))}
        racks = RACKS if seed % 2 and not equal else ()
        group = SimulatedGroup(self._makers(), cluster(counts, racks, rng.randint(1, 2)))
        for number in range(rng.randint(least, least + 7)):
            topics = (
                sorted(counts)
                if equal or rng.random() < 0.3
                else rng.sample(sorted(counts), rng.randint(0, len(counts)))
            )
            group.join(f"m{number}", topics, rng.choice(RACKS) if racks else None)
        return group

    def _makers(self) -> Iterator[Assignor]:
        """Yields new assignors without end."""
        while True:
            yield self.make()

    def _only_if(self, claimed: bool, name: str) -> None:
        """Skip the test unless the assignor claims to have the property `name`."""
        if not claimed:
            raise SkipTest(f"{type(self).__name__} does not claim to be {name}")


def _demand(condition: bool, message: str) -> None:
    """Raise AssertionError with a message if the condition is False. Also works under `python -O`, unlike `assert`."""
    if not condition:
        raise AssertionError(message)
