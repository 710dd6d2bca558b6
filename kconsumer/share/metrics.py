"""Metrics of a share consumer's polls, membership, fetches and acknowledgements, under Java's names."""

from __future__ import annotations

from kconsumer._core.metrics import PollEvents, SensorPair
from kconsumer.coordinator.metrics import HeartbeatMetrics
from kconsumer.engine.metrics import BETWEEN, IDLE, LONGEST
from kconsumer.fetching.metrics import BYTES, FILTERED, RECORDS, SIZE, THROTTLE
from kconsumer.metrics.registry import Metrics, Row, Sensor, Stat

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
REQUEST_RECORDS: tuple[Row, ...] = (
    ("records-per-request-avg", Stat.AVG, "Mean records of a response"),
    ("records-per-request-max", Stat.MAX, "Most records of a response"),
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
        fetch, throttle, size, request_records, consumed_bytes, records, self._sent, self._failed = (
            metrics.sensor(GROUP, rows)
            for rows in (FETCH, THROTTLE, SIZE, REQUEST_RECORDS, BYTES, RECORDS, SENT, FAILED)
        )
        self._responses = SensorPair(fetch, throttle)
        self._registry = metrics
        self._filtered: Sensor | None = None  # created when a filter drops the first record
        self.requests = SensorPair(size, request_records)
        self.consumed = SensorPair(consumed_bytes, records)

    def fetched(self, latency_ms: float, throttle_ms: float, now: float) -> None:
        """Record the response to a ShareFetch."""
        self._responses.record(latency_ms, throttle_ms, now)

    def filtered(self, count: int, now: float) -> None:
        """Record that a filter has dropped this many acquired records."""
        if self._filtered is None:
            self._filtered = self._registry.sensor(GROUP, FILTERED)
        self._filtered.record(count, now)

    def acknowledgements_sent(self, count: int, now: float) -> None:
        """Record that this many offsets are being acknowledged."""
        self._sent.record(count, now)

    def acknowledgements_failed(self, count: int, now: float) -> None:
        """Record that the acknowledgements of this many offsets have failed."""
        self._failed.record(count, now)


class ShareResponseTally:
    """Adds up the records of one response to a ShareFetch, until all its data has been read or dropped.

    Each poll adds what it takes to the totals. As in Java, bytes are the uncompressed size of acquired records.
    """

    __slots__ = ("_bytes", "_metrics", "_now", "_records", "_unread")

    def __init__(self, metrics: ShareMetrics, now: float) -> None:
        self._metrics = metrics
        self._now = now  # when the response arrived, or the last poll took records of it
        self._unread = 0  # the number of parts that are neither read nor dropped yet
        self._bytes = self._records = 0

    def expect(self) -> None:
        """Count a part of the response that was buffered. `finish` must be called for it later."""
        self._unread += 1

    def take(self, size: int, records: int, now: float) -> None:
        """Record the bytes and the number of records that a poll has taken."""
        self._metrics.consumed.record(size, records, now)
        self._bytes += size
        self._records += records
        self._now = now

    def filtered(self, records: int, now: float) -> None:
        """Record the number of records that a filter has dropped."""
        if records:
            self._metrics.filtered(records, now)

    def finish(self) -> None:
        """Count a part as read or dropped. Records the sums of the response if it is the last one."""
        self._unread -= 1
        if not self._unread:
            self._metrics.requests.record(self._bytes, self._records, self._now)


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
        self.polls = polls = PollEvents(
            SensorPair(metrics.sensor(POLLS, BETWEEN), metrics.sensor(POLLS, LONGEST)), metrics.sensor(POLLS, IDLE)
        )
        self.poll_began, self.wait_ended, self.settle = polls.poll_began, polls.wait_ended, polls.settle
        name = metrics.name("last-poll-seconds-ago", POLLS, "Time since the last poll, s; -1: there was none")
        metrics.seconds_since(name, lambda: polls.last_poll)
