"""Polls the members of a group until their group has a state."""

from __future__ import annotations

import time
from collections.abc import Callable

from kconsumer import Consumer

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
