"""A ShareFetch request that waits until records can be acquired, or `max_wait_ms` has passed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kconsumer.testing.cluster.requests import Pending
from kconsumer.testing.cluster.share.partition import SharePartition
from kconsumer.testing.cluster.timers import Timer

if TYPE_CHECKING:
    from kconsumer.testing.cluster.cluster import Cluster


class DelayedShareFetch:
    """A ShareFetch request that waits. Logs notify it of new records, and share partitions of released ones.

    `can_complete()`: returns whether the request need not wait any more. `complete(now)`: sends the response.
    """

    def __init__(
        self,
        cluster: Cluster,
        pending: Pending,
        shares: list[SharePartition],
        can_complete: Callable[[], bool],
        complete: Callable[[float], None],
    ) -> None:
        self._cluster, self._pending, self._shares = cluster, pending, shares
        self._can_complete, self._complete = can_complete, complete
        self._timeout: Timer | None = None
        self._check_timer: Timer | None = None

    def start(self, now: float, max_wait_ms: float) -> None:
        """Wait for changes, at most `max_wait_ms`."""
        self._timeout = self._cluster.timers.add(now + max_wait_ms, self._finish)
        for share in self._shares:
            share.add_listener(self._on_change)
            share.partition.log.add_listener(self._on_change)

    def _on_change(self) -> None:
        """Check, when the timers run next, whether the request can be completed. One check is for all changes."""
        if self._check_timer is None or not self._check_timer.active:
            self._check_timer = self._cluster.timers.soon(self._check)

    def _check(self, now: float) -> None:
        if self._pending.done or self._can_complete():
            self._finish(now)

    def _finish(self, now: float) -> None:
        """Stop waiting. If the request has no response yet, responds with what can be acquired now."""
        for timer in (self._timeout, self._check_timer):
            if timer is not None:
                timer.cancel()
        for share in self._shares:
            share.remove_listener(self._on_change)
            share.partition.log.remove_listener(self._on_change)
        if not self._pending.done:
            self._complete(now)
