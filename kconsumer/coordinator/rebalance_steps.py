"""The queue of the steps of a rebalance: listener calls, and functions that change the state between them.

Decides only the order. Each step waits for the previous one, and all steps wait for the commit before the rebalance.
The membership managers of both protocols add the steps. The engine runs the listener calls on the calling thread.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from kconsumer._internal.managers import Promise
from kconsumer.coordinator.pending_offsets import Offsets
from kconsumer.types import TopicPartition


class CallbackKind(enum.Enum):
    """Which method of the user's rebalance listener to call: on_assign, on_revoke or on_lost."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


class RebalanceCallback(NamedTuple):
    """A call of the user's rebalance listener."""

    kind: CallbackKind
    partitions: tuple[TopicPartition, ...]  # sorted by topic and partition


Step = RebalanceCallback | Callable[[float], None]


class RebalanceSteps:
    """The queue of steps that have not run yet."""

    __slots__ = ("commit", "queue")

    def __init__(self) -> None:
        self.queue: deque[Step] = deque()
        self.commit: Promise[Offsets] | None = None  # all steps wait for this commit, if there is one

    def __bool__(self) -> bool:
        return bool(self.queue)

    @property
    def due_callback(self) -> RebalanceCallback | None:
        """The next step if it is a listener call, else None."""
        if self.queue and isinstance(self.queue[0], RebalanceCallback):
            return self.queue[0]
        return None

    def add(self, step: Step) -> None:
        """Append a step."""
        self.queue.append(step)

    def add_next(self, step: Step) -> None:
        """Insert a step before all others. A running step calls this to add the step that must follow it directly."""
        self.queue.appendleft(step)

    def callback_done(self, callback: RebalanceCallback, now: float) -> None:
        """Remove a listener call that has returned or raised, and run the steps after it.

        Does nothing if the call is not the next step.
        """
        if self.queue and self.queue[0] is callback:
            self.queue.popleft()
            self.advance(now)

    def advance(self, now: float) -> None:
        """Run steps until the next one is a listener call or has to wait for the commit."""
        while self.queue and not isinstance(self.queue[0], RebalanceCallback):
            if self.commit is not None and not self.commit.done:
                return
            step = self.queue.popleft()
            assert not isinstance(step, RebalanceCallback)
            step(now)

    def wait_for(self, commit: Promise[Offsets] | None) -> None:
        """Make all steps wait for this commit. With None, they wait for no commit."""
        self.commit = commit

    def take_commit(self) -> Promise[Offsets] | None:
        """Returns the commit that the steps wait for, or None, and removes it. The steps then wait for no commit."""
        commit, self.commit = self.commit, None
        return commit

    def clear(self) -> None:
        """Drop all steps and the commit."""
        self.queue.clear()
        self.commit = None
