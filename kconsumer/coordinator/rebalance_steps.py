"""The steps of a rebalance around its requests: listener calls, and what must happen between them, in order.

Decides only the order: a step waits for the one before it, and all wait for the commit that is awaited. What the steps
are is `classic.py`'s business; the listener calls are run by the engine, on the caller's thread.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from kconsumer.coordinator.pending_offsets import Offsets
from kconsumer.managers import Promise
from kconsumer.types import TopicPartition


class CallbackKind(enum.Enum):
    """Which of the listener's methods."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


@dataclass(frozen=True, slots=True, eq=False)
class RebalanceCallback:
    """A listener call that is due; `partitions` sorted by topic and partition."""

    kind: CallbackKind
    partitions: tuple[TopicPartition, ...]


Step = RebalanceCallback | Callable[[float], None]


class RebalanceSteps:
    """A queue of steps. `commit` is the commit that they wait for, if any."""

    __slots__ = ("_queue", "commit")

    def __init__(self) -> None:
        self._queue: deque[Step] = deque()
        self.commit: Promise[Offsets] | None = None

    def __bool__(self) -> bool:
        return bool(self._queue)

    @property
    def due_callback(self) -> RebalanceCallback | None:
        """The listener call to run now, before anything else can go on."""
        if self._queue and isinstance(self._queue[0], RebalanceCallback):
            return self._queue[0]
        return None

    def add(self, step: Step) -> None:
        """After all others."""
        self._queue.append(step)

    def add_next(self, step: Step) -> None:
        """Before all others: called by a step, for what must follow it at once."""
        self._queue.appendleft(step)

    def callback_done(self, callback: RebalanceCallback, now: float) -> None:
        """The callback returned or raised; either way the rebalance goes on."""
        if self._queue and self._queue[0] is callback:
            self._queue.popleft()
            self.advance(now)

    def advance(self, now: float) -> None:
        """Run the steps that are not callbacks; stop at a callback or while a commit is awaited."""
        while self._queue and not isinstance(self._queue[0], RebalanceCallback):
            if self.commit is not None and not self.commit.done:
                return
            step = self._queue.popleft()
            assert not isinstance(step, RebalanceCallback)
            step(now)

    def wait_for(self, commit: Promise[Offsets] | None) -> None:
        """Let all steps wait for a commit, if there is one."""
        self.commit = commit

    def take_commit(self) -> Promise[Offsets] | None:
        """Returns the commit that the steps waited for, and waits for none."""
        commit, self.commit = self.commit, None
        return commit

    def clear(self) -> None:
        """Forget them all, and the commit."""
        self._queue.clear()
        self.commit = None
