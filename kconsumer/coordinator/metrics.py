"""The `consumer-coordinator-metrics` group: heartbeats, rebalances, callbacks and commits (Java `AbstractCoordinator`,
`ConsumerCoordinator`). Recorded once per answer and per rebalance.
"""

from __future__ import annotations

from collections.abc import Callable, Sized

from kconsumer.metrics.registry import Metrics, Row, Stat

GROUP = "consumer-coordinator-metrics"

HEARTBEAT: tuple[Row, ...] = (
    ("heartbeat-response-time-max", Stat.MAX, "Longest time from a heartbeat to its answer, ms"),
    ("heartbeat-rate", Stat.COUNT_RATE, "Answered heartbeats per second"),
    ("heartbeat-total", Stat.COUNT, "Answered heartbeats"),
)
JOIN: tuple[Row, ...] = (
    ("join-time-avg", Stat.AVG, "Mean time of a JoinGroup, ms"),
    ("join-time-max", Stat.MAX, "Longest time of a JoinGroup, ms"),
    ("join-rate", Stat.COUNT_RATE, "JoinGroups per second"),
    ("join-total", Stat.COUNT, "JoinGroups"),
)
SYNC: tuple[Row, ...] = (
    ("sync-time-avg", Stat.AVG, "Mean time of a SyncGroup, ms"),
    ("sync-time-max", Stat.MAX, "Longest time of a SyncGroup, ms"),
    ("sync-rate", Stat.COUNT_RATE, "SyncGroups per second"),
    ("sync-total", Stat.COUNT, "SyncGroups"),
)
REBALANCE: tuple[Row, ...] = (
    ("rebalance-latency-avg", Stat.AVG, "Mean time from the first JoinGroup to the assignment, ms"),
    ("rebalance-latency-max", Stat.MAX, "Longest time from the first JoinGroup to the assignment, ms"),
    ("rebalance-latency-total", Stat.TOTAL, "Time spent in rebalances that succeeded, ms"),
    ("rebalance-total", Stat.COUNT, "Rebalances that succeeded, after one or more tries"),
    ("rebalance-rate-per-hour", Stat.COUNT_PER_HOUR, "Rebalances that succeeded, per hour"),
)
FAILED_REBALANCE: tuple[Row, ...] = (
    ("failed-rebalance-total", Stat.COUNT, "Tries to rebalance that failed"),
    ("failed-rebalance-rate-per-hour", Stat.COUNT_PER_HOUR, "Tries to rebalance that failed, per hour"),
)
COMMIT: tuple[Row, ...] = (
    ("commit-latency-avg", Stat.AVG, "Mean time from a commit to its answer, ms"),
    ("commit-latency-max", Stat.MAX, "Longest time from a commit to its answer, ms"),
    ("commit-rate", Stat.COUNT_RATE, "Answered commits per second"),
    ("commit-total", Stat.COUNT, "Answered commits"),
)
CALLBACKS = ("assigned", "revoked", "lost")


def callback_rows(kind: str) -> tuple[Row, ...]:
    """The rows of one kind of rebalance callback."""
    return (
        (f"partition-{kind}-latency-avg", Stat.AVG, f"Mean time the listener took for {kind} partitions, ms"),
        (f"partition-{kind}-latency-max", Stat.MAX, f"Longest time the listener took for {kind} partitions, ms"),
    )


class GroupMetrics:
    """What happens between one member and its coordinator. All times are ms."""

    def __init__(self, metrics: Metrics, *, joins: bool = True) -> None:
        """`joins`: the group protocol has JoinGroup and SyncGroup. The consumer protocol has not."""
        self._metrics = metrics
        rebalance: tuple[tuple[Row, ...], ...] = (JOIN, SYNC) if joins else ((), ())
        self._heartbeat, self._join, self._sync, self._rebalance, self._failed, self._commit = (
            metrics.sensor(GROUP, rows) for rows in (HEARTBEAT, *rebalance, REBALANCE, FAILED_REBALANCE, COMMIT)
        )
        self._callbacks = {kind: metrics.sensor(GROUP, callback_rows(kind)) for kind in CALLBACKS}
        self._heartbeat_at: float | None = None
        self._rebalance_began: float | None = None
        self._rebalance_ended: float | None = None
        name = metrics.name("last-heartbeat-seconds-ago", GROUP, "Time since a heartbeat was sent, s; -1: none was")
        metrics.seconds_since(name, lambda: self._heartbeat_at)
        name = metrics.name("last-rebalance-seconds-ago", GROUP, "Time since a rebalance succeeded, s; -1: none did")
        metrics.seconds_since(name, lambda: self._rebalance_ended)

    def watch_assignment(self, assigned: Callable[[], Sized]) -> None:
        """Show how many partitions `assigned()` has."""
        name = self._metrics.name("assigned-partitions", GROUP, "Partitions assigned now")
        self._metrics.gauge(name, lambda _now: float(len(assigned())))

    def heartbeat_sent(self, now: float) -> None:
        """A heartbeat is on its way."""
        self._heartbeat_at = now

    def on_heartbeat_response(self, latency_ms: float, now: float) -> None:
        """The coordinator answered a heartbeat, whatever it said."""
        self._heartbeat.record(latency_ms, now)

    def join_sent(self, now: float) -> None:
        """A JoinGroup is on its way: a rebalance begins, unless an earlier try of it failed."""
        if self._rebalance_began is None:
            self._rebalance_began = now

    def joined(self, latency_ms: float, now: float) -> None:
        """A JoinGroup succeeded."""
        self._join.record(latency_ms, now)

    def synced(self, latency_ms: float, now: float) -> None:
        """A SyncGroup brought an assignment: the rebalance is over."""
        self._sync.record(latency_ms, now)
        self.rebalanced(now)

    def rebalance_began(self, now: float) -> None:
        """The coordinator wants something else to be owned (KIP-848)."""
        if self._rebalance_began is None:
            self._rebalance_began = now

    def rebalanced(self, now: float) -> None:
        """What is assigned is owned."""
        if self._rebalance_began is not None:
            self._rebalance.record(now - self._rebalance_began, now)
        self._rebalance_began, self._rebalance_ended = None, now

    def rebalance_failed(self, now: float) -> None:
        """A JoinGroup or SyncGroup failed, or the assignor did. An answer that only hands out a member id (KIP-394) is
        none, unlike in Java."""
        self._failed.record(1, now)

    def left(self) -> None:
        """The member left: a rebalance under way will not end."""
        self._rebalance_began = None

    def callback_ran(self, kind: str, latency_ms: float, now: float) -> None:
        """The user's listener was called with partitions assigned, revoked or lost."""
        self._callbacks[kind].record(latency_ms, now)

    def on_commit_response(self, latency_ms: float, now: float) -> None:
        """The coordinator answered an OffsetCommit, whatever it said."""
        self._commit.record(latency_ms, now)
