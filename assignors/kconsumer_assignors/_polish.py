"""Rings of moves that leave all loads as they are but bring partitions to a better place.

After balancing, a member may hold a partition that another one had before, or that another could read in its own
rack, while a ring of moves (A gives to B, B to C, C to A) would put that right. A ring may also end at a member
with one partition less than the one it began at: those two change places and the loads are as even as before.

Moves are arcs of a graph with costs: FAR for a partition that ends outside its rack, OWNED for one that leaves its
owner, CLAIMED for one that leaves a member that claims it in vain. No ring is long enough for many of the lesser to
outweigh one of the greater. A ring of negative cost is an improvement; the search is Bellman and Ford's, started from
the arcs of negative cost only, so it costs nothing when all is well.
"""

from __future__ import annotations

from collections import deque

from kconsumer_assignors._flow import Flow

CLAIMED = 1
OWNED = 1 << 20
FAR = 1 << 40
# How many arcs the search follows before it ends and keeps the rings found so far: this many passes over all of them,
# and in small groups as many as half a second permits.
EFFORT = 40
MIN_ARCS_FOLLOWED = 2_000_000

# Nodes of the graph are plain ints: members, then lots, then loads ("somebody with this load may keep one more").


class Polish:
    """Looks for rings in a balanced flow and applies them."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.members = len(flow.loads)
        self.first_load = self.members + len(flow.lots)
        arcs = sum(len(lot.takers) for lot in flow.lots) + sum(map(len, flow.held)) + 2 * self.members
        self.budget = max(EFFORT * arcs, MIN_ARCS_FOLLOWED)

    def run(self) -> None:
        """Improve until there is no ring left, or the budget is used up."""
        while (ring := self._ring()) is not None:
            self._turn(ring)

    def _arcs(self, node: int) -> list[tuple[int, int]]:
        """Where a partition at this node can go, and the cost."""
        if node < self.members:
            arcs = [(self.members + lot, self._leaving(node, lot)) for lot in self.flow.held[node]]
            arcs.append((self.first_load + self.flow.loads[node], 0))
            return arcs
        if node < self.first_load:
            lot = node - self.members
            return [(taker, self._coming(taker, lot)) for taker in self.flow.lots[lot].takers]
        heavier = node - self.first_load + 1
        return [(member, 0) for member in self.by_load.get(heavier, ())]

    def _leaving(self, member: int, lot: int) -> int:
        """Returns the cost of a member giving up one partition of a lot."""
        return self._gain(member, lot, self.flow.held[member][lot] - 1)

    def _coming(self, member: int, lot: int) -> int:
        """Returns the cost of a member getting one more partition of a lot."""
        return -self._gain(member, lot, self.flow.held[member].get(lot, 0))

    def _gain(self, member: int, number: int, holding: int) -> int:
        """Returns what one more partition of a lot is worth to a member that holds this many of it."""
        lot = self.flow.lots[number]
        worth = 0 if lot.fits is None or member in lot.fits else -FAR
        if holding < self.flow.owned[member].get(number, 0):
            return worth + OWNED
        return worth + CLAIMED if member in lot.claimants else worth

    def _starts(self) -> list[int]:
        """The nodes that arcs of negative cost leave."""
        members, flow = self.members, self.flow
        found: dict[int, None] = {}
        for member, held in enumerate(flow.held):
            for lot in held:
                if flow.lots[lot].fits is not None and self._leaving(member, lot) < 0:
                    found[member] = None
            for lot, count in flow.owned[member].items():
                if held.get(lot, 0) < count:
                    found[members + lot] = None
        found |= {members + number: None for number, lot in enumerate(flow.lots) if lot.claimants}
        return list(found)

    def _ring(self) -> list[int] | None:
        """The nodes of a ring of negative cost, in order; None when there is none."""
        self.by_load: dict[int, list[int]] = {}
        for member, load in enumerate(self.flow.loads):
            self.by_load.setdefault(load, []).append(member)
        cost: dict[int, int] = {}
        before: dict[int, int] = {}
        queue = deque(self._starts())
        waiting = set(queue)
        while queue and self.budget > 0:
            node = queue.popleft()
            waiting.discard(node)
            here = cost.get(node, 0)
            for goal, price in self._arcs(node):
                self.budget -= 1
                if here + price < cost.get(goal, 0):
                    ring = self._closes(node, goal, before)
                    before[goal] = node
                    if ring is not None:
                        return ring
                    cost[goal] = here + price
                    if goal not in waiting:
                        waiting.add(goal)
                        queue.append(goal)
        return None

    @staticmethod
    def _closes(node: int, goal: int, before: dict[int, int]) -> list[int] | None:
        """The ring that the arc from `node` to `goal` closes, if the way to `node` came through `goal`."""
        ring = [node]
        while node != goal:
            if node not in before:
                return None
            node = before[node]
            ring.append(node)
        ring.reverse()
        return ring

    def _turn(self, ring: list[int]) -> None:
        """Move one partition along each arc of the ring that is a move."""
        lots = range(self.members, self.first_load)
        for place, node in enumerate(ring):
            if node in lots:
                giver, taker = ring[place - 1], ring[(place + 1) % len(ring)]
                self.flow.move(giver, node - self.members, taker)
