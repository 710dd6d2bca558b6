"""The `consumer-coordinator-metrics` group: heartbeats, rebalances, callbacks and commits.

The names are those of Java's `AbstractCoordinator` and `ConsumerCoordinator`. Values are recorded once per response and
once per rebalance.
"""

from __future__ import annotations

from collections.abc import Callable, Sized

from kconsumer.metrics.registry import Metrics, Row, Stat

GROUP = "consumer-coordinator-metrics"

HEARTBEAT: tuple[Row, ...] = (
    ("heartbeat-response-time-max", Stat.MAX, "Longest time from a heartbeat to its response, ms"),
    ("heartbeat-rate", Stat.COUNT_RATE, "Heartbeat responses per second"),
    ("heartbeat-total", Stat.COUNT, "Heartbeat responses"),
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
    ("commit-latency-avg", Stat.AVG, "Mean time from a commit to its response, ms"),
    ("commit-latency-max", Stat.MAX, "Longest time from a commit to its response, ms"),
    ("commit-rate", Stat.COUNT_RATE, "Commit responses per second"),
    ("commit-total", Stat.COUNT, "Commit responses"),
)
CALLBACKS = ("assigned", "revoked", "lost")


def callback_rows(kind: str) -> tuple[Row, ...]:
    """Returns the metrics of one kind of listener call. `kind` is "assigned", "revoked" or "lost"."""
    return (
        (f"partition-{kind}-latency-avg", Stat.AVG, f"Mean time the listener took for {kind} partitions, ms"),
        (f"partition-{kind}-latency-max", Stat.MAX, f"Longest time the listener took for {kind} partitions, ms"),
    )


class HeartbeatMetrics:
    """Records the heartbeats of one member of a group of any type. All times are in ms."""

    def __init__(self, metrics: Metrics, group: str = GROUP) -> None:
        self._heartbeat = metrics.sensor(group, HEARTBEAT)
        self._heartbeat_at: float | None = None
        name = metrics.name("last-heartbeat-seconds-ago", group, "Time since a heartbeat was sent, s; -1: none was")
        metrics.seconds_since(name, lambda: self._heartbeat_at)

    def heartbeat_sent(self, now: float) -> None:
        self._heartbeat_at = now

    def on_heartbeat_response(self, latency_ms: float, now: float) -> None:
        """Record the response to a heartbeat, with or without an error code."""
        self._heartbeat.record(latency_ms, now)


class GroupMetrics(HeartbeatMetrics):
    """Records the coordinator metrics of one member. All times are in ms."""

    def __init__(self, metrics: Metrics, *, joins: bool = True) -> None:
        """Create the sensors. `joins` is False for the consumer protocol, which has no JoinGroup and SyncGroup."""
        super().__init__(metrics)
        self._metrics = metrics
        rebalance: tuple[tuple[Row, ...], ...] = (JOIN, SYNC) if joins else ((), ())
        self._join, self._sync, self._rebalance, self._failed, self._commit = (
            metrics.sensor(GROUP, rows) for rows in (*rebalance, REBALANCE, FAILED_REBALANCE, COMMIT)
        )
        self._callbacks = {kind: metrics.sensor(GROUP, callback_rows(kind)) for kind in CALLBACKS}
        self._rebalance_began: float | None = None
        self._rebalance_ended: float | None = None
        name = metrics.name("last-rebalance-seconds-ago", GROUP, "Time since a rebalance succeeded, s; -1: none did")
        metrics.seconds_since(name, lambda: self._rebalance_ended)

    def watch_assignment(self, assigned: Callable[[], Sized]) -> None:
        """Add a gauge for the number of assigned partitions. `assigned` returns these partitions."""
        name = self._metrics.name("assigned-partitions", GROUP, "Partitions assigned now")
        self._metrics.gauge(name, lambda _now: float(len(assigned())))

    def join_sent(self, now: float) -> None:
        """Record that a JoinGroup was sent. The latency of a rebalance begins with its first JoinGroup."""
        if self._rebalance_began is None:
            self._rebalance_began = now

    def joined(self, latency_ms: float, now: float) -> None:
        """Record that a JoinGroup succeeded."""
        self._join.record(latency_ms, now)

    def synced(self, latency_ms: float, now: float) -> None:
        """Record a SyncGroup response with an assignment, which ends the rebalance."""
        self._sync.record(latency_ms, now)
        self.rebalanced(now)

    def rebalance_began(self, now: float) -> None:
        """Record that a rebalance began, because the coordinator sent a new target assignment (KIP-848)."""
        if self._rebalance_began is None:
            self._rebalance_began = now

    def rebalanced(self, now: float) -> None:
        """Record that a rebalance succeeded."""
        if self._rebalance_began is not None:
            self._rebalance.record(now - self._rebalance_began, now)
        self._rebalance_began, self._rebalance_ended = None, now

    def rebalance_failed(self, now: float) -> None:
        """Record that a JoinGroup, a SyncGroup or the assignor failed, or that the member was fenced.

        Unlike in Java, a JoinGroup response that only requires a member id (KIP-394) is not counted.
        """
        self._failed.record(1, now)

    def left(self) -> None:
        """Discard the start time of an unfinished rebalance, because the member has left the group or was fenced."""
        self._rebalance_began = None

    def callback_ran(self, kind: str, latency_ms: float, now: float) -> None:
        """Record the duration of a listener call. `kind` is "assigned", "revoked" or "lost"."""
        self._callbacks[kind].record(latency_ms, now)

    def on_commit_response(self, latency_ms: float, now: float) -> None:
        """Record the response to an OffsetCommit, with or without error codes."""
        self._commit.record(latency_ms, now)
