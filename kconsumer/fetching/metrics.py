"""Records the metrics of the group `consumer-fetch-manager-metrics` (Java `FetchMetricsManager`).

Latency and throttle time are recorded when a response arrives. The lag of a partition is recorded when its data has
been read, and the sums of a response when all its data has been read or dropped. Nothing is recorded per record. Bytes
are counted as received; Java counts the uncompressed size of records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import nan

from kconsumer._core.metric_events import FetchEvents, SensorPair
from kconsumer.metrics.registry import Metrics, Row, Sensor, Stat
from kconsumer.state.partition import PartitionState
from kconsumer.state.subscription import SubscriptionState
from kconsumer.types import MetricName, TopicPartition

GROUP = "consumer-fetch-manager-metrics"

LATENCY: tuple[Row, ...] = (
    ("fetch-latency-avg", Stat.AVG, "Mean time from a fetch request to its response, ms"),
    ("fetch-latency-max", Stat.MAX, "Longest time from a fetch request to its response, ms"),
    ("fetch-rate", Stat.COUNT_RATE, "Fetch responses per second"),
    ("fetch-total", Stat.COUNT, "Fetch responses"),
)
THROTTLE: tuple[Row, ...] = (
    ("fetch-throttle-time-avg", Stat.AVG, "Mean throttle time, ms"),
    ("fetch-throttle-time-max", Stat.MAX, "Longest throttle time, ms"),
)
SIZE: tuple[Row, ...] = (
    ("fetch-size-avg", Stat.AVG, "Mean bytes fetched per request"),
    ("fetch-size-max", Stat.MAX, "Most bytes fetched by a request"),
    ("bytes-consumed-rate", Stat.RATE, "Bytes consumed per second"),
    ("bytes-consumed-total", Stat.TOTAL, "Bytes consumed"),
)
RECORDS: tuple[Row, ...] = (
    ("records-per-request-avg", Stat.AVG, "Mean records per request"),
    ("records-consumed-rate", Stat.RATE, "Records consumed per second"),
    ("records-consumed-total", Stat.TOTAL, "Records consumed"),
)
LAG_MAX: tuple[Row, ...] = (("records-lag-max", Stat.MAX, "Largest lag of any partition, records"),)
LEAD_MIN: tuple[Row, ...] = (("records-lead-min", Stat.MIN, "Smallest lead of any partition, records"),)
PARTITION_LAG: tuple[Row, ...] = (
    ("records-lag-max", Stat.MAX, "Largest lag"),
    ("records-lag-avg", Stat.AVG, "Mean lag"),
)
PARTITION_LEAD: tuple[Row, ...] = (
    ("records-lead-min", Stat.MIN, "Smallest lead"),
    ("records-lead-avg", Stat.AVG, "Mean lead"),
)

# (name, description, function of state and time). Gauges are computed when they are read, so that they change with
# every poll and not only with every fetch.
Gauge = tuple[str, str, Callable[[PartitionState, float], float | None]]
PREFERRED_REPLICA: Gauge = (
    "preferred-read-replica",
    "Broker fetched from in place of the leader, -1 for none",
    lambda state, now: state.preferred_replica(now),
)
LAG: Gauge = (
    "records-lag",
    "Records from the position to the end of the partition",
    lambda state, _now: state.lag(),
)
COMMITTED_LAG: Gauge = (LAG[0], LAG[1], lambda state, _now: state.lag(read_committed=True))
LEAD: Gauge = (
    "records-lead",
    "Records from the start of the partition to the position",
    lambda state, _now: state.lead(),
)


class FetchMetrics:
    """The fetch sensors of one consumer: for the consumer, for each topic, and for each assigned partition."""

    def __init__(self, metrics: Metrics, *, read_committed: bool = False) -> None:
        self._metrics = metrics
        self._read_committed = read_committed
        self._lag_max = metrics.sensor(GROUP, LAG_MAX)
        self._lead_min = metrics.sensor(GROUP, LEAD_MIN)
        # Events that each response causes are recorded by compiled code.
        events = FetchEvents(
            SensorPair(metrics.sensor(GROUP, LATENCY), metrics.sensor(GROUP, THROTTLE)),
            SensorPair(metrics.sensor(GROUP, SIZE), metrics.sensor(GROUP, RECORDS)),
            self._new_topic,
            read_committed,
        )
        self.events = events  # the fast path records without the methods
        self.record_response, self.record_read, self.record_consumed = (
            events.record_response,
            events.record_read,
            events.record_consumed,
        )
        self._lags = events.partitions
        self._gauges: dict[TopicPartition, list[MetricName]] = {}

    def add_partitions(self, partitions: Iterable[TopicPartition], subscription: SubscriptionState) -> None:
        """Publish the lag and lead of those of `partitions` that are assigned. The partitions are those of one
        response."""
        for tp in partitions:
            if tp not in self._lags and tp in self._gauges:
                self._new_partition(tp)
                self._publish(tp, subscription, COMMITTED_LAG if self._read_committed else LAG, nan)
                self._publish(tp, subscription, LEAD, nan)

    def update_assignment(self, subscription: SubscriptionState) -> None:
        """Remove the metrics of revoked partitions, and publish the preferred read replica of new ones."""
        states = subscription.states()
        for tp in [tp for tp in self._gauges if tp not in states]:
            self._metrics.remove(*self._gauges.pop(tp))
            sensors = self._lags.pop(tp, None)
            if sensors is not None:
                self._metrics.remove(sensors.first, sensors.second)
        for tp in states:
            if tp not in self._gauges:
                self._publish(tp, subscription, PREFERRED_REPLICA, -1)

    def _publish(self, tp: TopicPartition, subscription: SubscriptionState, gauge: Gauge, unknown: float) -> None:
        metric, text, value_of = gauge
        read = partial(_read, subscription, tp, value_of, unknown)
        for topic in _topic_tags(tp.topic):
            tags = ("topic", topic), ("partition", str(tp.partition))
            name = self._metrics.name(metric, GROUP, text, *tags)
            self._gauges.setdefault(tp, []).append(name)
            self._metrics.gauge(name, read)

    def _new_topic(self, topic: str) -> SensorPair:
        return SensorPair(self._sensor(SIZE, topic), self._sensor(RECORDS, topic))

    def _new_partition(self, tp: TopicPartition) -> None:
        partition = ("partition", str(tp.partition))
        self._lags[tp] = SensorPair(
            self._sensor(PARTITION_LAG, tp.topic, partition, parent=self._lag_max),
            self._sensor(PARTITION_LEAD, tp.topic, partition, parent=self._lead_min),
        )

    def _sensor(
        self, rows: tuple[Row, ...], topic: str, *tags: tuple[str, str], parent: Sensor | None = None
    ) -> Sensor:
        first, *others = _topic_tags(topic)
        sensor = self._metrics.sensor(GROUP, rows, ("topic", first), *tags, parent=parent)
        for tag in others:
            self._metrics.publish(sensor, GROUP, rows, ("topic", tag), *tags)
        return sensor


def _read(
    subscription: SubscriptionState,
    tp: TopicPartition,
    value_of: Callable[[PartitionState, float], float | None],
    unknown: float,
    now: float,
) -> float:
    """Returns the value of a gauge, or `unknown` if the partition is not assigned or the value is not known."""
    state = subscription.find(tp)
    value = None if state is None else value_of(state, now)
    return unknown if value is None else value


def _topic_tags(topic: str) -> list[str]:
    """Returns the values of the topic tag for a topic.

    These are the name and, if it contains dots, also the name with underscores in place of dots, as older Java clients
    write it (KIP-1109).
    """
    return [topic, topic.replace(".", "_")] if "." in topic else [topic]
