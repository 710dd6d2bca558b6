"""The changes of the assigned partitions: which states changed, and how many need a position.

Partition states write this log, and managers read it. So a poll costs in proportion to what has changed, and not to
what is assigned.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

S = TypeVar("S")  # the state of a partition


class ChangeLog(Generic[S]):
    """The changes that the states of the assigned partitions have recorded. There is one for each consumer."""

    __slots__ = ("assignment_version", "dirty", "now", "unchecked_leaders", "without_position")

    def __init__(self, now: float = 0.0) -> None:
        self.now = now  # the current time of the managers (ms); changes are recorded with this time
        self.assignment_version = 0  # grows with each change of the assigned partitions
        self.dirty: dict[S, None] = {}  # states that changed since the last `take`
        self.without_position = 0  # the number of partitions without a valid position
        self.unchecked_leaders = False  # a position was set without a leader

    def set_now(self, now: float) -> None:
        """Set the time (ms) of the changes that follow."""
        self.now = now

    def take(self) -> Iterable[S]:
        """Returns the states whose fetchability, position or broker has changed since the last call.

        A new assignment is not reported here, but by `assignment_version`.
        """
        changed, self.dirty = self.dirty, {}
        return changed

    def add_without_position(self, count: int) -> None:
        """Add `count`, which may be negative, to the number of partitions without a valid position."""
        self.without_position += count

    def set_unchecked_leaders(self) -> None:
        """Record that a position was set without a leader."""
        self.unchecked_leaders = True

    def clear_unchecked_leaders(self) -> None:
        """Clear `unchecked_leaders`, after every position was compared with the cluster's leaders."""
        self.unchecked_leaders = False

    def begin_assignment(self) -> None:
        """Forget the states of the assignment before. Those of the new one are counted when they join it."""
        self.dirty = {}
        self.without_position = 0
        self.assignment_version += 1
