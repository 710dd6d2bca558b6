"""Improves an assignment whose loads are balanced: moves partitions to members for which they have a higher value.

After `_min_cost_flow.py` has balanced the loads, a member may hold a partition that another member owned before, or
that another member could read in its own rack. A cycle of moves may correct this without a change of loads: A gives a
partition to B, B another one to C, and C another one to A. A path of moves may correct it, too, if its last member
holds one partition less than its first member. The path exchanges the loads of these two members, so the loads are as
even as before.

A partition has a value for each member: OWNED if the member owned it before, else CLAIMED if the member sent it as
owned but is not its owner (see `_ownership.py`), else 0. If the member cannot read the partition in its own rack,
REMOTE is subtracted. The cost of a move is the value for the giver minus the value for the receiver. The cost of a
cycle is the sum of the costs of its moves. A cycle with a negative cost is an improvement. Each of the three constants
is greater than any sum of smaller constants in a cycle, so racks have priority over ownership, and ownership has
priority over claims.

Moves are arcs of a graph, in which the Bellman-Ford algorithm finds cycles with a negative cost. The search starts only
at arcs with a negative cost. If there are none, it ends at once. Interchangeable partitions form a class, and a move
concerns any partition of a class.
"""

from __future__ import annotations

from collections import deque

from kconsumer_assignors._min_cost_flow import MinCostFlow

CLAIMED = 1
OWNED = 1 << 20
REMOTE = 1 << 40
# The search ends after this many passes over all arcs, or after MIN_ARCS_FOLLOWED arcs if that is more. The cycles
# found until then are applied. MIN_ARCS_FOLLOWED arcs take up to half a second.
MAX_PASSES = 40
MIN_ARCS_FOLLOWED = 2_000_000

# The nodes of the graph are ints: members first, then classes of partitions, then loads. An arc leads from each member
# to the node of its load, and from there to each member with one partition more. A cycle with these two arcs exchanges
# the loads of the two members.


class CycleCanceller:
    """Improves the assignment in `flow` after its loads were balanced.

    Finds cycles of moves whose total cost is negative, and makes these moves. The loads stay as even as before.
    """

    def __init__(self, flow: MinCostFlow) -> None:
        self.flow = flow
        self.members = len(flow.loads)
        self.first_load = self.members + len(flow.classes)
        arcs = sum(len(each.eligible) for each in flow.classes) + sum(map(len, flow.held)) + 2 * self.members
        self.budget = max(MAX_PASSES * arcs, MIN_ARCS_FOLLOWED)

    def run(self) -> None:
        """Find cycles whose total cost is negative, and make their moves.

        Ends when there are no such cycles, or when the search has followed `budget` arcs.
        """
        while (cycle := self._negative_cycle()) is not None:
            self._apply(cycle)

    def _arcs(self, node: int) -> list[tuple[int, int]]:
        """Returns the arcs from a node, as pairs (next node, cost)."""
        if node < self.members:
            arcs = [(self.members + class_id, self._removal_cost(node, class_id)) for class_id in self.flow.held[node]]
            arcs.append((self.first_load + self.flow.loads[node], 0))
            return arcs
        if node < self.first_load:
            class_id = node - self.members
            return [
                (receiver, self._addition_cost(receiver, class_id)) for receiver in self.flow.classes[class_id].eligible
            ]
        heavier = node - self.first_load + 1
        return [(member, 0) for member in self.by_load.get(heavier, ())]

    def _removal_cost(self, member: int, class_id: int) -> int:
        """Returns the cost of taking one partition of a partition class from a member: its value for the member."""
        return self._value(member, class_id, self.flow.held[member][class_id] - 1)

    def _addition_cost(self, member: int, class_id: int) -> int:
        """Returns the cost of giving a member one more partition of a partition class: the value for the member,
        negated."""
        return -self._value(member, class_id, self.flow.held[member].get(class_id, 0))

    def _value(self, member: int, class_id: int, held: int) -> int:
        """Returns the value that one more partition of a class has for a member (see the module's docstring).

        `held` is the number of partitions of this class that the member holds already.
        """
        found = self.flow.classes[class_id]
        value = 0 if found.local_members is None or member in found.local_members else -REMOTE
        if held < self.flow.owned[member].get(class_id, 0):
            return value + OWNED
        return value + CLAIMED if member in found.claimants else value

    def _start_nodes(self) -> list[int]:
        """Returns the nodes with an outgoing arc of negative cost."""
        members, flow = self.members, self.flow
        found: dict[int, None] = {}
        for member, held in enumerate(flow.held):
            for class_id in held:
                if flow.classes[class_id].local_members is not None and self._removal_cost(member, class_id) < 0:
                    found[member] = None
            for class_id, count in flow.owned[member].items():
                if held.get(class_id, 0) < count:
                    found[members + class_id] = None
        found |= {members + class_id: None for class_id, each in enumerate(flow.classes) if each.claimants}
        return list(found)

    def _negative_cycle(self) -> list[int] | None:
        """Returns the nodes of a cycle whose total cost is negative, in the order of the cycle.

        Returns None if the search has found no such cycle before `budget` was used up.
        """
        self.by_load: dict[int, list[int]] = {}
        for member, load in enumerate(self.flow.loads):
            self.by_load.setdefault(load, []).append(member)
        cost: dict[int, int] = {}
        before: dict[int, int] = {}
        queue = deque(self._start_nodes())
        waiting = set(queue)
        while queue and self.budget > 0:
            node = queue.popleft()
            waiting.discard(node)
            here = cost.get(node, 0)
            for goal, price in self._arcs(node):
                self.budget -= 1
                if here + price < cost.get(goal, 0):
                    cycle = self._cycle_through(node, goal, before)
                    before[goal] = node
                    if cycle is not None:
                        return cycle
                    cost[goal] = here + price
                    if goal not in waiting:
                        waiting.add(goal)
                        queue.append(goal)
        return None

    @staticmethod
    def _cycle_through(node: int, goal: int, before: dict[int, int]) -> list[int] | None:
        """Returns the nodes of the cycle that the arc from `node` to `goal` closes, or None if it closes no cycle.

        `before` maps each node to the previous node on its path. The arc closes a cycle if `goal` is on the path to
        `node`. The result begins with `goal` and ends with `node`.
        """
        cycle = [node]
        while node != goal:
            if node not in before:
                return None
            node = before[node]
            cycle.append(node)
        cycle.reverse()
        return cycle

    def _apply(self, cycle: list[int]) -> None:
        """Make the moves of a cycle.

        For each node of the cycle that is a partition class, moves one partition of this class. The member before it on
        the cycle gives the partition, and the member after it gets the partition.
        """
        class_nodes = range(self.members, self.first_load)
        for index, node in enumerate(cycle):
            if node in class_nodes:
                giver, receiver = cycle[index - 1], cycle[(index + 1) % len(cycle)]
                self.flow.move(giver, node - self.members, receiver)
