"""Balances members with different subscriptions: moves partitions from members with high loads to those with low loads.

The load of a member is its number of partitions. Interchangeable partitions (with the same subscribers, racks and
claimants) form a class. The state is the number of partitions of each class that each member holds, so the time hardly
depends on the number of partitions. Moves may form a path: A gives a partition of topic x to B, and B gives a partition
of topic y to C. When no path improves the balance, the loads are as even as possible: no other assignment has a lower
sum of the load differences over all pairs of members. (Java considers only single moves, and may end with less even
loads.)

The members are divided into blocks, at first one block with all members. The goal is that the load of each member of a
block is the average load of the block, rounded down (the floor) or up (the ceiling). So members above the ceiling give
partitions, along paths, to members of the block that are below it. If some members are still above the ceiling when no
further path exists, then every member that they reach by a path has a load of at least the ceiling. The reached members
cannot give anything to the rest of the block, so they become a separate block. Members below the floor get partitions
in the same way, and the block is split if some of them stay below the floor.

A path is chosen so that as few members as possible lose partitions that they owned before. `_cycle_cancelling.py` makes
the improvements that need cycles of moves.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Allow(enum.Enum):
    """The moves that `MinCostFlow.balance` may make. Each value allows more moves than the previous one."""

    UNOWNED = 0  # like LOCAL, and a member gives only partitions that it did not own before
    LOCAL = 1  # a partition that a member reads in its own rack moves only to members that read it in their rack
    ANY = 2  # all moves


@dataclass(slots=True)
class PartitionClass:
    """A set of interchangeable partitions: they have the same subscribers, racks and claimants."""

    eligible: Sequence[int]  # the members that may hold them
    local_members: frozenset[int] | None = None  # eligible members that read them in their own rack; None: all
    claimants: frozenset[int] = frozenset()  # eligible members that claim each of them without being its owner

    def is_local(self, member: int) -> bool:
        """Returns whether the member reads these partitions in its own rack."""
        return self.local_members is None or member in self.local_members

    @property
    def uniform(self) -> bool:
        """True if all eligible members read these partitions in their own rack, and none of them is a claimant."""
        return self.local_members is None and not self.claimants

    def preferred(self, members: Sequence[int]) -> Sequence[int]:
        """Returns the claimants among `members`. If there are none, returns all of `members`.

        A claimant is a member that has reported to own these partitions, but is not their owner (see `_ownership.py`).
        """
        return [member for member in members if member in self.claimants] or members if self.claimants else members


class Step(NamedTuple):
    """One move of a path."""

    giver: int
    class_id: int
    receiver: int
    owned: bool  # True: the move may take partitions that the giver owned before


class MinCostFlow:
    """Stores how many partitions of each partition class each member holds, and moves them to balance the loads.

    Initially, each member holds the partitions that it owned before and can read in its own rack.
    """

    def __init__(self, classes: Sequence[PartitionClass], owned: Sequence[dict[int, int]]) -> None:
        self.classes = classes
        #: For each member: class id -> number of partitions that it owned before.
        self.owned = owned
        #: For each member: class id -> number of partitions that it holds now.
        self.held = [
            {class_id: count for class_id, count in mine.items() if classes[class_id].is_local(member)}
            for member, mine in enumerate(owned)
        ]
        #: For each member: the number of partitions of all classes that it holds now.
        self.loads = [sum(mine.values()) for mine in self.held]

    def add(self, class_id: int, count: int, eligible: Sequence[int]) -> None:
        """Give `count` partitions of a partition class to the members in `eligible`.

        The partitions are given one after another. Each one goes to the member that has the lowest load at that time.
        """
        if not count:
            return
        order = sorted(eligible, key=self.loads.__getitem__)
        # The members with the lowest loads are raised to a common level. Find the number of these members.
        remaining, raised = count, 1
        while raised < len(order):
            step = (self.loads[order[raised]] - self.loads[order[raised - 1]]) * raised
            if step > remaining:
                break
            remaining -= step
            raised += 1
        level, extra = divmod(remaining, raised)
        level += self.loads[order[raised - 1]]
        for index, member in enumerate(order[:raised]):
            amount = level + (index < extra) - self.loads[member]
            if amount:
                self.put(member, class_id, amount)

    def balance(self, allow: Allow) -> None:
        """Move partitions until the loads are as even as possible with the moves that `allow` permits."""
        blocks = [list(range(len(self.loads)))] if self.loads else []
        while blocks:
            block = blocks.pop()
            stuck = self._level(block, allow)
            if stuck is not None:
                inside = frozenset(stuck)
                blocks += [stuck, [member for member in block if member not in inside]]

    def _level(self, block: list[int], allow: Allow) -> list[int] | None:
        """Move partitions within a block until each load is the average load of the block, rounded down or up.

        Returns None if that succeeds. If it does not succeed, the block must be split: returns the members of the part
        with the higher loads.
        """
        loads = self.loads
        floor, rest = divmod(sum(loads[member] for member in block), len(block))
        ceiling = floor + (rest > 0)
        if all(floor <= loads[member] <= ceiling for member in block):
            return None
        self._push(block, ceiling, floor, allow)  # members below the floor need partitions in any case
        self._push(block, ceiling, ceiling, allow)
        above = [member for member in block if loads[member] > ceiling]
        if above:
            return _Search(self, block, above, allow).members()
        self._push(block, floor, floor, allow)
        if any(loads[member] < floor for member in block):
            above = [member for member in block if loads[member] > floor]
            return _Search(self, block, above, allow).members()
        return None

    def _push(self, block: list[int], high: int, low: int, allow: Allow) -> None:
        """Move partitions within a block, from members with loads above `high` to members with loads below `low`.

        Ends when there are no such members, or when no path of allowed moves connects them.
        """
        loads = self.loads
        self._push_directly(block, high, low, allow)
        while True:
            above = [member for member in block if loads[member] > high]
            below = {member for member in block if loads[member] < low}
            if not above or not below:
                return
            search = _Search(self, block, above, allow)
            moved = 0
            for target in search.nearest(below):
                moved += self._augment(search.path(target), high, low)
            if not moved:
                return

    def _push_directly(self, block: list[int], high: int, low: int, allow: Allow) -> None:
        """Like `_push`, but make only direct moves from a member above `high` to a member below `low`.

        Most moves are direct, and they need no search for a path.
        """
        inside = frozenset(block)
        lines: dict[tuple[int, bool], list[int]] = {}  # members with room, by class and whether they must be local
        for giver in block:
            if self.loads[giver] <= high:
                continue
            for owned in (False,) if allow is Allow.UNOWNED else (False, True):
                for class_id, holding in list(self.held[giver].items()):
                    available = holding if owned else holding - self.owned[giver].get(class_id, 0)
                    found = self.classes[class_id]
                    local = allow is not Allow.ANY and found.local_members is not None and found.is_local(giver)
                    if (class_id, local) not in lines:
                        lines[class_id, local] = self._with_room(class_id, local, low, inside)
                    self._serve(giver, class_id, min(available, self.loads[giver] - high), low, lines[class_id, local])

    def _with_room(self, class_id: int, local: bool, low: int, inside: frozenset[int]) -> list[int]:
        """Returns the members of the block `inside` that have a load below `low` and may get partitions of a class.

        The members are in descending order. If `local` is True, they must read the partitions in their own rack.
        """
        local_members = self.classes[class_id].local_members
        eligible = inside if not local or local_members is None else inside & local_members
        return [t for t in reversed(self.classes[class_id].eligible) if t in eligible and self.loads[t] < low]

    def _serve(self, giver: int, class_id: int, amount: int, low: int, line: list[int]) -> None:
        """Move up to `amount` partitions of a partition class from `giver` to the members in the list `line`.

        Begins with the last member of the list. Removes members whose load has reached `low` from the list.
        """
        while amount > 0 and line:
            step = min(amount, low - self.loads[line[-1]])
            if step > 0:
                self.move(giver, class_id, line[-1], step)
                amount -= step
            else:
                line.pop()

    def _augment(self, path: list[Step], high: int, low: int) -> int:
        """Make the moves of a path, with as many partitions as its members can give and receive. Returns this number.

        The load of the first member stays at least `high`, and that of the last member stays at most `low`.
        """
        source, target = path[0].giver, path[-1].receiver
        amount = min(self.loads[source] - high, low - self.loads[target])
        for giver, class_id, _, owned in path:
            holding = self.held[giver].get(class_id, 0)
            amount = min(amount, holding if owned else holding - self.owned[giver].get(class_id, 0))
        if amount <= 0:  # an earlier path of the same search has moved these partitions
            return 0
        for giver, class_id, receiver, _ in path:
            self.move(giver, class_id, receiver, amount)
        return amount

    def move(self, giver: int, class_id: int, receiver: int, amount: int = 1) -> None:
        """Move `amount` partitions of a partition class from one member to another."""
        self.put(giver, class_id, -amount)
        self.put(receiver, class_id, amount)

    def put(self, member: int, class_id: int, amount: int) -> None:
        """Add `amount` to the number of partitions of a partition class that a member holds.

        `amount` may be negative.
        """
        held = self.held[member]
        held[class_id] = held.get(class_id, 0) + amount
        if not held[class_id]:
            del held[class_id]
        self.loads[member] += amount


class _Search:
    """Searches for the cheapest paths from the members `sources` to all members of a block.

    The sources have high loads. The cost of a path is the number of its steps that move partitions away from their
    owner. The constructor runs the search, which is a 0-1 breadth-first search.
    """

    def __init__(self, flow: MinCostFlow, block: Iterable[int], sources: Sequence[int], allow: Allow) -> None:
        self.flow = flow
        self.allow = allow
        self.cost = dict.fromkeys(sources, 0)
        self.reached_by: dict[int, tuple[int, int]] = {}  # member -> (giver, class_id) of the last step of its path
        self.order: list[int] = []
        self._walk(frozenset(block), sources)

    def members(self) -> list[int]:
        """Returns the sources and the members that the search has reached, in ascending order."""
        return sorted(self.cost)

    def nearest(self, targets: set[int]) -> list[int]:
        """Returns the members of `targets` that the search has reached at the lowest cost.

        The cost is the same for all these members. They are in the order in which the search has reached them.
        """
        found = [member for member in self.order if member in targets]
        return [member for member in found if self.cost[member] == self.cost[found[0]]]

    def path(self, target: int) -> list[Step]:
        """Returns the steps of the cheapest path that leads from one of the sources to the member `target`."""
        steps: list[Step] = []
        while target in self.reached_by:
            giver, class_id = self.reached_by[target]
            steps.append(Step(giver, class_id, target, self.cost[target] > self.cost[giver]))
            target = giver
        steps.reverse()
        return steps

    def _walk(self, block: frozenset[int], sources: Sequence[int]) -> None:
        flow, allow, cost, reached_by = self.flow, self.allow, self.cost, self.reached_by
        classes, held, owned = flow.classes, flow.held, flow.owned
        done: set[tuple[int, bool]] = set()  # (class_id, whether the receivers had to be local) of each completed class
        queue: deque[tuple[int, int, int, bool]] = deque()  # cost, giver, class_id, local

        def enter(member: int, so_far: int) -> None:
            self.order.append(member)
            mine = owned[member]
            for class_id, count in held[member].items():
                local_members = classes[class_id].local_members
                local = local_members is not None and allow is not Allow.ANY and member in local_members
                if (class_id, local) in done or (class_id, False) in done:
                    continue
                if count > mine.get(class_id, 0):
                    queue.appendleft((so_far, member, class_id, local))
                elif allow is not Allow.UNOWNED:
                    queue.append((so_far + 1, member, class_id, local))

        for source in sources:
            enter(source, 0)
        while queue:
            so_far, giver, class_id, local = queue.popleft()
            if (class_id, local) in done or (class_id, False) in done:
                continue
            done.add((class_id, local))
            local_members = classes[class_id].local_members
            for receiver in classes[class_id].eligible:
                if (
                    receiver in block
                    and receiver not in cost
                    and not (local and local_members is not None and receiver not in local_members)
                ):
                    cost[receiver] = so_far
                    reached_by[receiver] = (giver, class_id)
                    enter(receiver, so_far)
