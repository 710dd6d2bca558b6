"""Metrics of polls and blocking commits (`consumer-metrics`), and of the running version (`app-info`).

Polls are recorded by compiled code (`PollEvents`), because polls that find buffered data are frequent.
"""

from __future__ import annotations

from kconsumer._core.metrics import PollEvents, SensorPair
from kconsumer._version import VERSION
from kconsumer.metrics.registry import Metrics, Row, Stat

GROUP = "consumer-metrics"
APP_INFO = "app-info"
NS_PER_MS = 1e6

BETWEEN: tuple[Row, ...] = (("time-between-poll-avg", Stat.AVG, "Mean time between two polls, ms"),)
LONGEST: tuple[Row, ...] = (("time-between-poll-max", Stat.MAX, "Longest time between two polls, ms"),)
IDLE: tuple[Row, ...] = (
    ("poll-idle-ratio-avg", Stat.AVG, "Mean share of the time that polls waited, the caller's work being the rest"),
)
COMMIT_SYNC: tuple[Row, ...] = (("commit-sync-time-ns-total", Stat.TOTAL, "Time spent in commit(), ns"),)
COMMITTED: tuple[Row, ...] = (("committed-time-ns-total", Stat.TOTAL, "Time spent in committed(), ns"),)


class ConsumerMetrics:
    """Records when polls began and how long commits took. All arguments are times in ms."""

    def __init__(self, metrics: Metrics) -> None:
        self.polls = polls = PollEvents(
            SensorPair(metrics.sensor(GROUP, BETWEEN), metrics.sensor(GROUP, LONGEST)), metrics.sensor(GROUP, IDLE)
        )
        self._commit = metrics.sensor(GROUP, COMMIT_SYNC)
        self._committed = metrics.sensor(GROUP, COMMITTED)
        name = metrics.name("last-poll-seconds-ago", GROUP, "Time since the last poll, s; -1: there was none")
        metrics.seconds_since(name, lambda: polls.last_poll)

    def commit_ended(self, began: float, now: float) -> None:
        """Record how long a `commit` took, whether it succeeded or not."""
        self._commit.record((now - began) * NS_PER_MS, now)

    def committed_ended(self, began: float, now: float) -> None:
        """Record how long a call of `committed` took, whether it succeeded or not."""
        self._committed.record((now - began) * NS_PER_MS, now)


def add_app_info(metrics: Metrics, started_ms: int) -> None:
    """Add metrics for the version, the start time and the number of metrics.

    In Java the version is the value of a metric. Here a value must be a number, so the version is a tag and the value
    is 1.
    """
    for name, text in (("version", VERSION), ("commit-id", "unknown")):
        metrics.gauge(metrics.name(name, APP_INFO, f"Always 1; the {name} is a tag", (name, text)), lambda _now: 1.0)
    start = metrics.name("start-time-ms", APP_INFO, "When this consumer was created, ms since the epoch")
    metrics.gauge(start, lambda _now: float(started_ms))
    count = metrics.name("count", "kafka-metrics-count", "How many metrics there are")
    metrics.gauge(count, lambda _now: float(len(metrics)))
