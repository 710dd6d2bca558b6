"""The state of one consumer: its subscription, the assigned partitions, their positions, and the log of changes."""

from __future__ import annotations

from kconsumer.state.assignment import Assignment
from kconsumer.state.positions import Positions
from kconsumer.state.subscription import SubscriptionState
from kconsumer.types import OffsetReset


class ConsumerState:
    """The objects that `Components` creates, without managers."""

    def __init__(self, reset: OffsetReset = OffsetReset.LATEST) -> None:
        self.assignment = Assignment()
        self.changes = self.assignment.changes
        self.subscription = SubscriptionState(self.assignment)
        self.positions = Positions(self.assignment, reset)

    def __repr__(self) -> str:
        return f"{self.subscription!r} {self.positions!r}"
