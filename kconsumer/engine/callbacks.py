"""Running the user's code: rebalance callbacks and commit callbacks, on the caller's thread, outside the lock."""

from __future__ import annotations

import logging
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kconsumer.errors import KafkaError
from kconsumer.listener import RebalanceListener
from kconsumer.membership.steps import CallbackKind, RebalanceCallback
from kconsumer.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kconsumer.consumer import Consumer

log = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback = Callable[[Offsets, KafkaError | None], Any]


class Callbacks:
    """The listener of the current subscription, and commit callbacks that wait for the caller's thread."""

    def __init__(self) -> None:
        self._consumer: weakref.ref[Consumer] | None = None
        self.listener: RebalanceListener | None = None
        self._commits: deque[Callable[[], object]] = deque()

    def belong_to(self, consumer: Consumer) -> None:
        """Whom the listener is told of. Held weakly: a forgotten consumer is collected, and warns, at once."""
        self._consumer = weakref.ref(consumer)

    def run(self, callback: RebalanceCallback) -> None:
        """Call the listener's method; what it raises goes to the caller."""
        consumer = self._consumer() if self._consumer is not None else None
        if self.listener is None or consumer is None:
            return
        methods = {
            CallbackKind.ASSIGNED: self.listener.on_partitions_assigned,
            CallbackKind.REVOKED: self.listener.on_partitions_revoked,
            CallbackKind.LOST: self.listener.on_partitions_lost,
        }
        methods[callback.kind](consumer, callback.partitions)

    def commit_finished(self, callback: CommitCallback, offsets: Offsets, error: KafkaError | None) -> None:
        """Keep a commit's outcome until the caller's thread is inside a call."""
        self._commits.append(partial(callback, offsets, error))

    def committed(self, tell: Callable[[Offsets], object], offsets: Offsets) -> None:
        """Keep a successful commit until the caller's thread is inside a call."""
        self._commits.append(partial(tell, offsets))

    @property
    def commits_wait(self) -> bool:
        """Whether a commit's outcome waits to be told."""
        return bool(self._commits)

    def run_commits(self) -> None:
        """Call the commit callbacks in the order in which their commits finished."""
        while self._commits:
            self._commits.popleft()()
