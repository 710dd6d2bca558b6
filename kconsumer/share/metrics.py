"""Metrics of a share consumer's polls, membership, fetches and acknowledgements, under Java's names."""

from __future__ import annotations

from kconsumer._core.metrics import PollEvents, ResponseTally, SensorPair
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
    """The sensors of fetches and acknowledgements. All times are in ms."""

    def __init__(self, metrics: Metrics) -> None:
        fetch, throttle, size, request_records, consumed_bytes, records, self.sent, self.failed = (
            metrics.sensor(GROUP, rows)
            for rows in (FETCH, THROTTLE, SIZE, REQUEST_RECORDS, BYTES, RECORDS, SENT, FAILED)
        )
        self.responses = SensorPair(fetch, throttle)  # the latency and the throttle time of ShareFetch responses
        self._registry = metrics
        self._filtered: Sensor | None = None  # created when a filter drops the first record
        self._requests = SensorPair(size, request_records)
        self._consumed = SensorPair(consumed_bytes, records)

    def filtered(self, count: int, now: float) -> None:
        """Record that a filter has dropped this many acquired records."""
        if self._filtered is None:
            self._filtered = self._registry.sensor(GROUP, FILTERED)
        self._filtered.record(count, now)

    def taken(self, tally: ResponseTally, topic: str, size: int, records: int, now: float) -> None:
        """Record that a poll has taken a part of a response, or that it was dropped, which is without any records.

        As in Java, bytes are the uncompressed size of acquired records. After the last part, also records the sums of
        the response.
        """
        self._consumed.record(size, records, now)
        tally.add(topic, size, records)
        if not tally.unread:
            self._requests.record(tally.bytes, tally.records, now)


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
