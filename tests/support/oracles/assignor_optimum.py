"""Proof that no assignment is better than a given one, by a method of its own: no cycle of negative cost.

Assignments are judged by balance, then by partitions read in the reader's rack, then by partitions that their owner
keeps, then by partitions with a member that claims them in vain. All are separable convex costs of a flow of partitions
to members, so an assignment is optimal if and only if its residual graph has no cycle of negative cost. Every move of
every single partition is an arc here; the assignors' own search works on classes of partitions within a budget.
"""

from __future__ import annotations

from kconsumer.types import TopicPartition
from support.oracles.assignor_cases import Case
from support.oracles.assignor_groups import Given

WEIGHTS = LOAD, RACK, OWNED, CLAIMED = 1 << 60, 1 << 40, 1 << 20, 1


def improvement(case: Case, given: Given) -> list[str]:
    """Returns the members of a cycle of moves that makes the assignment better; empty if it is optimal."""
    members = sorted(given)
    arcs = _moves(case, given, members)
    loads = [len(given[member]) for member in members]
    pool = len(members)  # leaves the pool: a member has one less in the end; enters it: one more
    for member, load in enumerate(loads):
        arcs[member, pool] = LOAD * (2 * load + 1)
        if load:
            arcs[pool, member] = -LOAD * (2 * load - 1)
    return [members[node] if node < pool else "(pool)" for node in _negative_cycle(arcs, pool + 1)]


def _moves(case: Case, given: Given, members: list[str]) -> dict[tuple[int, int], int]:
    """Returns the cheapest move of one partition from each member to each other, where there is one."""
    group, owners = case.members.group, case.members.owners()
    claims = {member: set(mine) for member, (_, mine) in case.members.owned.items()}
    racks_matter = case.members.racks_matter()

    def worth(member: str, partition: TopicPartition) -> int:
        topic, number = partition
        total = 0
        if racks_matter:
            rack = group[member].rack_id
            held = {node.rack for node in case.view.partitions(topic)[number].replicas}
            total += RACK * (rack is None or rack in held)
        if owners.get(partition) == member:
            return total + OWNED
        return total + CLAIMED * (partition in claims.get(member, ()))

    arcs: dict[tuple[int, int], int] = {}
    for one, giver in enumerate(members):
        for partition in given[giver]:
            loss = worth(giver, partition)
            for other, taker in enumerate(members):
                if other != one and partition.topic in group[taker].topics:
                    cost = loss - worth(taker, partition)
                    if cost < arcs.get((one, other), cost + 1):
                        arcs[one, other] = cost
    return arcs


def _negative_cycle(arcs: dict[tuple[int, int], int], count: int) -> list[int]:
    """Returns a cycle of negative cost among that many nodes (Bellman and Ford); empty if there is none."""
    cost, before = [0] * count, [-1] * count
    changed = -1
    for _ in range(count):
        changed = -1
        for (start, end), price in arcs.items():
            if cost[start] + price < cost[end]:
                cost[end], before[end] = cost[start] + price, start
                changed = end
        if changed < 0:
            return []
    for _ in range(count):  # to a node that is on the cycle, not only reached from it
        changed = before[changed]
    cycle = [changed]
    while before[cycle[-1]] != changed:
        cycle.append(before[cycle[-1]])
    return cycle[::-1]
