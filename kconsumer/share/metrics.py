"""Metrics of a share consumer's polls, membership, fetches and acknowledgements, under Java's names."""

from __future__ import annotations

from kconsumer._core.metric_events import PollEvents, SensorPair
from kconsumer.coordinator.metrics import HeartbeatMetrics
from kconsumer.engine.metrics import BETWEEN, IDLE, LONGEST
from kconsumer.metrics.registry import Metrics, Row, Stat

POLLS = "consumer-share-metrics"
MEMBERSHIP = "consumer-share-coordinator-metrics"
GROUP = "consumer-share-fetch-manager-metrics"

REBALANCE: tuple[Row, ...] = (
    ("rebalance-total", Stat.COUNT, "Assignments that differ from the one before"),
    ("rebalance-rate-per-hour", Stat.COUNT_PER_HOUR, "Assignments that differ from the one before, per hour"),
)

FETCH: tuple[Row, ...] = (
    ("fetch-latency-avg", Stat.AVG, "Mean time from a ShareFetch to its response, ms"),
    ("fetch-latency-max", Stat.MAX, "Longest time from a ShareFetch to its response, ms"),
    ("fetch-rate", Stat.COUNT_RATE, "ShareFetch responses per second"),
    ("fetch-total", Stat.COUNT, "ShareFetch responses"),
)
RECORDS: tuple[Row, ...] = (
    ("records-per-request-avg", Stat.AVG, "Mean number of records of one partition in one response"),
    ("records-per-request-max", Stat.MAX, "Largest number of records of one partition in one response"),
    ("records-consumed-rate", Stat.RATE, "Records returned by poll per second"),
    ("records-consumed-total", Stat.TOTAL, "Records returned by poll"),
)
SENT: tuple[Row, ...] = (
    ("acknowledgements-send-rate", Stat.RATE, "Acknowledgements sent per second"),
    ("acknowledgements-send-total", Stat.TOTAL, "Acknowledgements sent"),
)
FAILED: tuple[Row, ...] = (
    ("acknowledgements-error-rate", Stat.RATE, "Acknowledgements that failed per second"),
    ("acknowledgements-error-total", Stat.TOTAL, "Acknowledgements that failed"),
)


class ShareMetrics:
    """Records fetches and acknowledgements. All times are in ms."""

    def __init__(self, metrics: Metrics) -> None:
        self._fetch, self._records, self._sent, self._failed = (
            metrics.sensor(GROUP, rows) for rows in (FETCH, RECORDS, SENT, FAILED)
        )

    def fetched(self, latency_ms: float, now: float) -> None:
        """Record the response to a ShareFetch."""
        self._fetch.record(latency_ms, now)

    def records_returned(self, count: int, now: float) -> None:
        """Record how many records of one partition a poll has taken."""
        self._records.record(count, now)

    def acknowledgements_sent(self, count: int, now: float) -> None:
        """Record that this many offsets are being acknowledged."""
        self._sent.record(count, now)

    def acknowledgements_failed(self, count: int, now: float) -> None:
        """Record that the acknowledgements of this many offsets have failed."""
        self._failed.record(count, now)


class ShareGroupMetrics(HeartbeatMetrics):
    """Records the heartbeats and the assignments of one member of a share group."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__(metrics, MEMBERSHIP)
        self._rebalance = metrics.sensor(MEMBERSHIP, REBALANCE)

    def assigned(self, now: float) -> None:
        """Record that other partitions were assigned."""
        self._rebalance.record(1, now)


class SharePollMetrics:
    """Records when polls began and how long they waited. All times are in ms."""

    def __init__(self, metrics: Metrics) -> None:
        polls = PollEvents(
            SensorPair(metrics.sensor(POLLS, BETWEEN), metrics.sensor(POLLS, LONGEST)), metrics.sensor(POLLS, IDLE)
        )
        self.poll_began, self.wait_ended, self.settle = polls.poll_began, polls.wait_ended, polls.settle
        name = metrics.name("last-poll-seconds-ago", POLLS, "Time since the last poll, s; -1: there was none")
        metrics.seconds_since(name, lambda: polls.last_poll)
