"""Metrics of polls and blocking commits (`consumer-metrics`), and of the running version (`app-info`).

Polls that find buffered data (quick polls) are too frequent to be recorded one by one. The engine only stores when they
began. The next poll that may have to wait records all of them together.
"""

from __future__ import annotations

from operator import sub

from kconsumer._core.metric_events import SensorPair
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
        self._between = metrics.sensor(GROUP, BETWEEN)
        self._longest = metrics.sensor(GROUP, LONGEST)
        self._both = SensorPair(self._between, self._longest)
        self._idle = metrics.sensor(GROUP, IDLE)
        self._commit = metrics.sensor(GROUP, COMMIT_SYNC)
        self._committed = metrics.sensor(GROUP, COMMITTED)
        self._last: float | None = None  # when the last recorded poll began
        self._work_ms = 0.0  # the time between the last two recorded polls
        self.quick: list[float] = []  # when each quick poll since the last recorded poll began; the engine appends
        self.waited_until = 0.0  # when the last recorded poll ended its wait
        name = metrics.name("last-poll-seconds-ago", GROUP, "Time since the last poll, s; -1: there was none")
        metrics.seconds_since(name, lambda: self._last)

    def poll_began(self, now: float) -> None:
        """Record a poll that may have to wait, and the time since the poll before it.

        For the first poll, this time is 0, as in Java.
        """
        self.settle()
        self._work_ms = 0.0 if self._last is None else now - self._last
        self._both.record(self._work_ms, self._work_ms, now)
        self._last = now

    def wait_ended(self, now: float) -> None:
        """Record when the last recorded poll stopped waiting. If it waits several times, the last end counts."""
        self.waited_until = now

    def settle(self) -> None:
        """Record how long the last recorded poll waited, and the quick polls (see the module) after it.

        Called before metrics are read, and before the next poll is recorded.
        """
        if self._last is not None and self.waited_until > self._last:
            waited_ms = self.waited_until - self._last
            self._idle.record(waited_ms / (waited_ms + self._work_ms), self.waited_until)
            self.waited_until = 0.0
        if self.quick:
            first, last, count = self.quick[0], self.quick[-1], len(self.quick)
            before = first if self._last is None else self._last
            self._between.record(last - before, last, count)
            self._longest.record(max(map(sub, self.quick, [before, *self.quick])), last)
            self._idle.record(0.0, last, count)
            self._last = last
            self.quick.clear()

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
