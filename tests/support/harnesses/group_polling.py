"""Polls the members of a group until their group has a state."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from kconsumer import Consumer
from kconsumer.testing import FakeCluster

DEADLINE_S = 20


class Values(set[bytes | None]):
    """The values of all records that the members of a group have read."""

    def poll_until(self, condition: Callable[[], bool], *members: Consumer) -> None:
        """Poll the members in turns until a condition is true."""
        end = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < end, "the condition did not become true"
            for one in members:
                self.update(record.value for record in one.poll(0.02))


def balanced(partitions: int, *members: Consumer) -> bool:
    """Returns whether the members have equal shares of all partitions."""
    shares = [one.assignment() for one in members]
    owned = [tp for share in shares for tp in share]
    return len(owned) == len(set(owned)) == partitions and {partitions // len(members)} == set(map(len, shares))


def come_and_go(cluster: FakeCluster, partitions: int, first: Consumer, second: Consumer, third: Consumer) -> None:
    """Let three members of group `g` join and leave, and check that they read and commit all records of topic `t`.

    After each change of the group, the members must share the partitions equally, and read 60 new records.
    """
    values = Values()
    expected: set[bytes | None] = set()
    before: tuple[Consumer, ...] = ()
    for number, members in enumerate(((first,), (first, second), (first, second, third), (second, third), (third,))):
        for left in set(before) - set(members):
            left.close()
        before = members
        values.poll_until(partial(balanced, partitions, *members), *members)
        produced = [f"{number}-{i}".encode() for i in range(60)]
        cluster.produce("t", produced)
        expected.update(produced)
        values.poll_until(partial(values.issuperset, produced), *members)
    third.close()
    assert expected == values
    assert len(expected) == sum(offset.offset for offset in cluster.committed("g").values())
