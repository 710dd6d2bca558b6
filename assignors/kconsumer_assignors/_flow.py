"""Balancing members whose subscriptions differ: a flow of partitions from the loaded to the idle.

Partitions that can stand for one another (same subscribers, same racks) form a lot, and the state is how many of
each lot each member holds, so the work hardly grows with the number of partitions. A partition may pass along a chain
of members: A gives one of topic x to B, who gives one of topic y to C. When no chain improves anything, the loads are
the most even possible: no other assignment has a lower sum of pairwise differences. (A test that looks for single
moves only, as Java's does, can stop short of that.)

The members are divided into blocks as follows. Inside a block with average load a, members above a's ceiling push to
members below; if they get stuck, everybody they can reach is at least as loaded as the ceiling, and nobody outside can
be helped by them: they become a block of their own. Likewise for members below a's floor. A block that neither
happens to has all its loads at the floor or the ceiling of a.

Each push goes along a path that takes as few partitions as possible from members that had them before. What is left
to gain by moving in rings is `_polish.py`'s business.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Allow(enum.Enum):
    """Which moves a pass may make; each allows more than the one before."""

    UNOWNED = 0  # only of partitions that the member did not have before, and none away from a fitting rack
    LOCAL = 1  # none away from a fitting rack
    ANY = 2


@dataclass(slots=True)
class Lot:
    """Partitions that can stand for one another."""

    takers: Sequence[int]  # members that may have them
    fits: frozenset[int] | None = None  # takers that read them in their own rack; None: all of them
    claimants: frozenset[int] = frozenset()  # takers that claim each of them without being its owner

    def suits(self, member: int) -> bool:
        """Whether the lot is in the right rack at this member."""
        return self.fits is None or member in self.fits

    @property
    def uniform(self) -> bool:
        """Returns whether only owners have a reason to hold more of the lot than others."""
        return self.fits is None and not self.claimants

    def preferred(self, members: Sequence[int]) -> Sequence[int]:
        """Returns those of the members that claim the lot's partitions, or all of them if none does."""
        return [member for member in members if member in self.claimants] or members if self.claimants else members


class Step(NamedTuple):
    """One move of a path; `owned`: it takes partitions that the giver had before."""

    giver: int
    lot: int
    taker: int
    owned: bool


class Flow:
    """How many partitions of each lot each member holds, and how to even that out.

    `owned[m][lot]` is what member m had before, `held[m][lot]` what it has now, `loads[m]` the sum of the latter.
    It starts with what members had in the right rack.
    """

    def __init__(self, lots: Sequence[Lot], owned: Sequence[dict[int, int]]) -> None:
        self.lots = lots
        self.owned = owned
        self.held = [
            {lot: count for lot, count in mine.items() if lots[lot].suits(member)} for member, mine in enumerate(owned)
        ]
        self.loads = [sum(mine.values()) for mine in self.held]

    def add(self, lot: int, count: int, takers: Sequence[int]) -> None:
        """Hand out `count` new partitions, each to the taker with the lowest load then."""
        if not count:
            return
        order = sorted(takers, key=self.loads.__getitem__)
        # Find how many of the lowest are raised to a common level: the water poured over their loads.
        water, raised = count, 1
        while raised < len(order):
            step = (self.loads[order[raised]] - self.loads[order[raised - 1]]) * raised
            if step > water:
                break
            water -= step
            raised += 1
        level, extra = divmod(water, raised)
        level += self.loads[order[raised - 1]]
        for place, member in enumerate(order[:raised]):
            amount = level + (place < extra) - self.loads[member]
            if amount:
                self.put(member, lot, amount)

    def balance(self, allow: Allow) -> None:
        """Even out the loads as far as the allowed moves can."""
        blocks = [list(range(len(self.loads)))] if self.loads else []
        while blocks:
            block = blocks.pop()
            stuck = self._level(block, allow)
            if stuck is not None:
                inside = frozenset(stuck)
                blocks += [stuck, [member for member in block if member not in inside]]

    def _level(self, block: list[int], allow: Allow) -> list[int] | None:
        """Bring all loads of a block to the floor or ceiling of their average; else the upper part to split off."""
        loads = self.loads
        floor, rest = divmod(sum(loads[member] for member in block), len(block))
        ceiling = floor + (rest > 0)
        if all(floor <= loads[member] <= ceiling for member in block):
            return None
        self._push(block, ceiling, floor, allow)  # first to those who must get something anyway
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
        """Move what is above `high` to where it is below `low`, until no path leads there."""
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
        """The moves of one step, which are most of them, without a search for each."""
        inside = frozenset(block)
        lines: dict[tuple[int, bool], list[int]] = {}  # who may have room, by lot and whether it must suit
        for giver in block:
            if self.loads[giver] <= high:
                continue
            for owned in (False,) if allow is Allow.UNOWNED else (False, True):
                for lot, holding in list(self.held[giver].items()):
                    available = holding if owned else holding - self.owned[giver].get(lot, 0)
                    local = allow is not Allow.ANY and self.lots[lot].fits is not None and self.lots[lot].suits(giver)
                    if (lot, local) not in lines:
                        lines[lot, local] = self._with_room(lot, local, low, inside)
                    self._serve(giver, lot, min(available, self.loads[giver] - high), low, lines[lot, local])

    def _with_room(self, lot: int, local: bool, low: int, inside: frozenset[int]) -> list[int]:
        """Members that may take from a lot and have less than `low`; the first one last."""
        fits = self.lots[lot].fits
        takers = inside if not local or fits is None else inside & fits
        return [t for t in reversed(self.lots[lot].takers) if t in takers and self.loads[t] < low]

    def _serve(self, giver: int, lot: int, amount: int, low: int, line: list[int]) -> None:
        """Move up to `amount` to the members in line, dropping those that are full."""
        while amount > 0 and line:
            step = min(amount, low - self.loads[line[-1]])
            if step > 0:
                self.move(giver, lot, line[-1], step)
                amount -= step
            else:
                line.pop()

    def _augment(self, path: list[Step], high: int, low: int) -> int:
        """Move along a path as much as its ends and its members' holdings permit; how much that was."""
        source, target = path[0].giver, path[-1].taker
        amount = min(self.loads[source] - high, low - self.loads[target])
        for giver, lot, _, owned in path:
            holding = self.held[giver].get(lot, 0)
            amount = min(amount, holding if owned else holding - self.owned[giver].get(lot, 0))
        if amount <= 0:  # an earlier path of the same search used it up
            return 0
        for giver, lot, taker, _ in path:
            self.move(giver, lot, taker, amount)
        return amount

    def move(self, giver: int, lot: int, taker: int, amount: int = 1) -> None:
        """Let partitions of a lot change hands."""
        self.put(giver, lot, -amount)
        self.put(taker, lot, amount)

    def put(self, member: int, lot: int, amount: int) -> None:
        """Change how many partitions of a lot a member holds."""
        held = self.held[member]
        held[lot] = held.get(lot, 0) + amount
        if not held[lot]:
            del held[lot]
        self.loads[member] += amount


class _Search:
    """A breadth-first walk from the members that have too much, by cost: owned partitions moved so far (0-1 BFS)."""

    def __init__(self, flow: Flow, block: Iterable[int], sources: Sequence[int], allow: Allow) -> None:
        self.flow = flow
        self.allow = allow
        self.cost = dict.fromkeys(sources, 0)
        self.came_by: dict[int, tuple[int, int]] = {}  # member -> (giver, lot)
        self.order: list[int] = []
        self._walk(frozenset(block), sources)

    def members(self) -> list[int]:
        """Everybody reached."""
        return sorted(self.cost)

    def nearest(self, targets: set[int]) -> list[int]:
        """The reached targets of the lowest cost, in the order they were reached."""
        found = [member for member in self.order if member in targets]
        return [member for member in found if self.cost[member] == self.cost[found[0]]]

    def path(self, target: int) -> list[Step]:
        """The steps from a source to this target."""
        steps: list[Step] = []
        while target in self.came_by:
            giver, lot = self.came_by[target]
            steps.append(Step(giver, lot, target, self.cost[target] > self.cost[giver]))
            target = giver
        steps.reverse()
        return steps

    def _walk(self, block: frozenset[int], sources: Sequence[int]) -> None:
        flow, allow, cost, came_by = self.flow, self.allow, self.cost, self.came_by
        lots, held, owned = flow.lots, flow.held, flow.owned
        done: set[tuple[int, bool]] = set()  # lots passed through, with "must stay in a fitting rack"
        queue: deque[tuple[int, int, int, bool]] = deque()  # cost, giver, lot, local

        def enter(member: int, so_far: int) -> None:
            self.order.append(member)
            mine = owned[member]
            for lot, count in held[member].items():
                fits = lots[lot].fits
                local = fits is not None and allow is not Allow.ANY and member in fits
                if (lot, local) in done or (lot, False) in done:
                    continue
                if count > mine.get(lot, 0):
                    queue.appendleft((so_far, member, lot, local))
                elif allow is not Allow.UNOWNED:
                    queue.append((so_far + 1, member, lot, local))

        for source in sources:
            enter(source, 0)
        while queue:
            so_far, giver, lot, local = queue.popleft()
            if (lot, local) in done or (lot, False) in done:
                continue
            done.add((lot, local))
            fits = lots[lot].fits
            for taker in lots[lot].takers:
                if taker in block and taker not in cost and not (local and fits is not None and taker not in fits):
                    cost[taker] = so_far
                    came_by[taker] = (giver, lot)
                    enter(taker, so_far)
