"""Metrics of a share consumer's fetches and acknowledgements, under Java's names (`ShareFetchMetricsRegistry`)."""

from __future__ import annotations

from kconsumer.metrics.registry import Metrics, Row, Stat

GROUP = "consumer-share-fetch-manager-metrics"

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
