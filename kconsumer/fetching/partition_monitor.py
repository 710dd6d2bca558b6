"""Logs a warning for partitions that make no progress, with the text of `partition_states()`.

The managers that look up positions report their own waits (see `progress.py`). This is about partitions that have a
position: a leader that refuses every fetch, a transaction that stays open, a broker that throttles the client.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kconsumer._common.deferred_calls import get_logger
from kconsumer._internal.managers import FOREVER, PollResult
from kconsumer._internal.progress import WARNING_INTERVAL_MS
from kconsumer.fetching.partition_status import FetchContext, stall_of
from kconsumer.state.assignment import Assignment
from kconsumer.state.partition import PartitionState
from kconsumer.types import TopicPartition

CHECK_INTERVAL_MS = 4_000.0  # two checks must find a stall, so that a warning follows within 8 s
MAX_NAMED = 5  # partitions that a warning names

_log = get_logger(__name__)


class Stall(NamedTuple):
    """A partition without progress."""

    state: PartitionState
    offset: int | None  # where it stands
    since: float  # when a check found it first (ms)
    reason: str


class PartitionMonitor:
    """Compares the partitions with an earlier check, some seconds ago."""

    def __init__(
        self,
        assignment: Assignment,
        unusual: Callable[[float], Iterable[tuple[TopicPartition, PartitionState]]],
        context_of: Callable[[TopicPartition, PartitionState, float], FetchContext],
    ) -> None:
        """`unusual(now)` returns the partitions that may be without progress, and `context_of` what is known of one."""
        self._assignment = assignment
        self._unusual = unusual
        self._context_of = context_of
        self._stalls: dict[TopicPartition, Stall] = {}
        self._warned: dict[str, float] = {}  # when each cause was logged last (ms)
        self._next_check = 0.0
        self._checked_at = 0.0

    def poll(self, now: float) -> PollResult:
        """Check all partitions if this is due at `now` (ms). Returns no requests, and the time until the next check."""
        states = self._assignment.states()
        if not states:
            self._stalls.clear()
            return PollResult(wait_ms=FOREVER)
        if now >= self._next_check:
            if now > self._next_check + CHECK_INTERVAL_MS:  # nothing ran meanwhile: the application did not call poll()
                self._stalls.clear()
            self._next_check = now + CHECK_INTERVAL_MS
            self._check(now)
        return PollResult(wait_ms=self._next_check - now)

    def _check(self, now: float) -> None:
        before, self._stalls = self._stalls, {}
        lasting: dict[str, dict[TopicPartition, Stall]] = {}
        for tp, state in self._unusual(now):
            reason = stall_of(self._context_of(tp, state, now))
            if not reason:
                continue
            offset = _offset_of(state)
            last = before.get(tp)
            same = last is not None and last.state is state and last.offset == offset
            stall = self._stalls[tp] = Stall(state, offset, last.since if last is not None and same else now, reason)
            if same:
                lasting.setdefault(_cause(tp, reason), {})[tp] = stall
        for cause, stalls in lasting.items():
            self._warn(cause, stalls, now)

    def _warn(self, cause: str, stalls: dict[TopicPartition, Stall], now: float) -> None:
        if now < self._warned.get(cause, -FOREVER) + WARNING_INTERVAL_MS:
            return
        self._warned = {each: at for each, at in self._warned.items() if now < at + WARNING_INTERVAL_MS} | {cause: now}
        names = sorted(stalls)
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        first = stalls[names[0]]
        _log.warning(
            "no records of %s%s for %.0f s: %s",
            ", ".join(map(str, names[:MAX_NAMED])) if len(names) > 1 else names[0],
            more,
            (now - first.since) / 1000,
            first.reason,
        )


def _offset_of(state: PartitionState) -> int | None:
    """Returns where a partition stands. A partition whose positions are refused again and again stands still."""
    return None if state.position is None or state.out_of_range > 1 else state.position.offset


def _cause(tp: TopicPartition, reason: str) -> str:
    """Returns a reason without what differs between partitions: names and numbers."""
    return re.sub(r"\d+", "", reason.replace(str(tp), ""))
