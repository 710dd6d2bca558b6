"""Records the metrics of the group `consumer-fetch-manager-metrics` (Java `FetchMetricsManager`).

Latency and throttle time are recorded when a response arrives, the sums of a response when all its data has been read
or dropped. Each poll that takes data of a partition records its lag and lead, and the bytes and records taken. Nothing
is recorded per record. As in Java, bytes are the uncompressed size of records.

Some things are better than in Java. There, records are added to `records-consumed-total` when the last one of their
response has been read, so that a slow consumer seems to read nothing for minutes. And `records-lag-max` has no value
after a minute without records, so that an alert does not notice a consumer that is stuck. Here, the largest lag and the
smallest lead of any partition include the present values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import isnan, nan

from kconsumer._core.metrics import DataSensors, FetchEvents, SensorPair
from kconsumer.metrics.registry import Metrics, Row, Sensor, Stat
from kconsumer.state.assignment import Assignment
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
    ("fetch-size-avg", Stat.AVG, "Mean bytes of the records of a request, uncompressed"),
    ("fetch-size-max", Stat.MAX, "Most bytes of the records of a request, uncompressed"),
)
BYTES: tuple[Row, ...] = (
    ("bytes-consumed-rate", Stat.RATE, "Bytes of consumed records per second, uncompressed"),
    ("bytes-consumed-total", Stat.TOTAL, "Bytes of consumed records, uncompressed"),
)
REQUEST_RECORDS: tuple[Row, ...] = (("records-per-request-avg", Stat.AVG, "Mean records per request"),)
RECORDS: tuple[Row, ...] = (
    ("records-consumed-rate", Stat.RATE, "Records consumed per second"),
    ("records-consumed-total", Stat.TOTAL, "Records consumed"),
)
FILTERED: tuple[Row, ...] = (
    ("records-filtered-rate", Stat.RATE, "Records dropped by record_filter per second; not among those consumed"),
    ("records-filtered-total", Stat.TOTAL, "Records dropped by record_filter; not among those consumed"),
)
# Name and description of the extremes of all partitions.
LAG_MAX = "records-lag-max", "Largest lag of any partition, at recent polls or now, records"
AGE = "records-lag-seconds", "Age of the last record returned, by its timestamp, s; 0 without lag"
AGE_MAX = "records-lag-seconds-max", "Largest records-lag-seconds of any partition"
LEAD_MIN = "records-lead-min", "Smallest lead of any partition, at recent polls or now, records"
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
    lambda state, now: state.replica.preferred(now),
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

    def __init__(
        self,
        metrics: Metrics,
        subscription: SubscriptionState,
        wall_ms: Callable[[], int],
        *,
        read_committed: bool = False,
    ) -> None:
        self._metrics = metrics
        self._wall_ms = wall_ms
        self._subscription = subscription
        self._assignment = subscription.assignment
        self._lag = COMMITTED_LAG if read_committed else LAG
        self._lag_max = self._extreme(LAG_MAX, max, Stat.MAX, self._lag)
        self._lead_min = self._extreme(LEAD_MIN, min, Stat.MIN, LEAD)
        # Events that each response causes are recorded by compiled code.
        events = FetchEvents(
            SensorPair(metrics.sensor(GROUP, LATENCY), metrics.sensor(GROUP, THROTTLE)),
            _data_sensors(partial(metrics.sensor, GROUP)),
            self._new_topic,
            read_committed,
        )
        self.events = events  # the collector records without the methods
        self.record_response, self.record_drained = events.record_response, events.record_drained
        self._lags, self._topics, self._returned = events.partitions, events.topics, events.returned
        self._gauges: dict[TopicPartition, list[MetricName]] = {}
        #: The topics that have metrics: those that are assigned or subscribed. So a topic that another member reads for
        #: a while keeps its totals. Java never removes those of any topic.
        self._current: set[str] = set()
        metrics.gauge(metrics.name(AGE_MAX[0], GROUP, AGE_MAX[1]), self._largest_age)

    def publish_filtered(self) -> None:
        """Publish how many records the filter of the consumer has dropped."""
        self.events.filtered = self._metrics.sensor(GROUP, FILTERED)

    def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Publish the lag and lead of those of `partitions` that are assigned. The partitions are those of one
        response."""
        for tp in partitions:
            if tp not in self._lags and tp in self._gauges:
                self._new_partition(tp)
                self._publish(tp, self._lag, nan)
                self._publish(tp, LEAD, nan)
                self._add_gauge(tp, *AGE, partial(self._age, tp))

    def update_assignment(self) -> None:
        """Remove the metrics of revoked partitions and of topics that are gone. Publish the preferred read replica of
        new partitions."""
        states = self._assignment.states()
        for tp in [tp for tp in self._gauges if tp not in states]:
            self._metrics.remove(*self._gauges.pop(tp))
            self._returned.pop(tp, None)
            lags = self._lags.pop(tp, None)
            if lags is not None:
                self._metrics.remove(lags.first, lags.second)
        self._current = {*self._subscription.subscribed_topics(), *(tp.topic for tp in states)}
        for topic in [topic for topic in self._topics if topic not in self._current]:
            removed = self._topics.pop(topic)
            for pair in (removed.requests, removed.consumed):
                self._metrics.remove(pair.first, pair.second)
        for tp in states:
            if tp not in self._gauges:
                self._publish(tp, PREFERRED_REPLICA, -1)

    def _extreme(
        self, row: tuple[str, str], choose: Callable[[Iterable[float]], float], stat: Stat, gauge: Gauge
    ) -> Sensor:
        """Publish the extreme of what the sensors of partitions record, and of their gauges now. Returns the parent of
        these sensors."""
        sensor = self._metrics.sensor(GROUP, ())

        def read(now: float) -> float:
            *_, value_of = gauge
            present = (_read(self._assignment, tp, value_of, nan, now) for tp in list(self._gauges))
            known = [value for value in (sensor.measure(stat, now), *present) if not isnan(value)]
            return choose(known) if known else nan

        name, description = row
        self._metrics.gauge(self._metrics.name(name, GROUP, description), read)
        return sensor

    def _publish(self, tp: TopicPartition, gauge: Gauge, unknown: float) -> None:
        metric, text, value_of = gauge
        self._add_gauge(tp, metric, text, partial(_read, self._assignment, tp, value_of, unknown))

    def _age(self, tp: TopicPartition, now: float) -> float:
        """Returns the age (s) of the last record that a poll has returned. It is 0 if the partition has no lag, and NaN
        if no record with a timestamp was returned yet."""
        lag = _read(self._assignment, tp, self._lag[2], nan, now)
        returned = self._returned.get(tp, -1)
        if isnan(lag) or lag <= 0:
            return nan if isnan(lag) else 0.0
        return nan if returned < 0 else max(0.0, (self._wall_ms() - returned) / 1000)

    def ages(self, now: float) -> dict[TopicPartition, float]:
        """Returns `records-lag-seconds` of the partitions for which it is known."""
        return {tp: age for tp in list(self._gauges) if not isnan(age := self._age(tp, now))}

    def _largest_age(self, now: float) -> float:
        return max(self.ages(now).values(), default=nan)

    def _add_gauge(self, tp: TopicPartition, metric: str, text: str, read: Callable[[float], float]) -> None:
        for topic in _topic_tags(tp.topic):
            tags = ("topic", topic), ("partition", str(tp.partition))
            name = self._metrics.name(metric, GROUP, text, *tags)
            self._gauges.setdefault(tp, []).append(name)
            self._metrics.gauge(name, read)

    def _new_topic(self, topic: str) -> DataSensors | None:
        """Returns the sensors of a topic. Returns None if it is gone, because its last records were counted late."""
        if topic not in self._current:
            return None
        return _data_sensors(partial(self._sensor, topic))

    def _new_partition(self, tp: TopicPartition) -> None:
        partition = ("partition", str(tp.partition))
        self._lags[tp] = SensorPair(
            self._sensor(tp.topic, PARTITION_LAG, partition, parent=self._lag_max),
            self._sensor(tp.topic, PARTITION_LEAD, partition, parent=self._lead_min),
        )

    def _sensor(
        self, topic: str, rows: tuple[Row, ...], *tags: tuple[str, str], parent: Sensor | None = None
    ) -> Sensor:
        first, *others = _topic_tags(topic)
        sensor = self._metrics.sensor(GROUP, rows, ("topic", first), *tags, parent=parent)
        for tag in others:
            self._metrics.publish(sensor, GROUP, rows, ("topic", tag), *tags)
        return sensor


def _data_sensors(new: Callable[[tuple[Row, ...]], Sensor]) -> DataSensors:
    """Returns the sensors of fetched data. `new` creates one from its rows."""
    return DataSensors(SensorPair(new(SIZE), new(REQUEST_RECORDS)), SensorPair(new(BYTES), new(RECORDS)))


def _read(
    assignment: Assignment,
    tp: TopicPartition,
    value_of: Callable[[PartitionState, float], float | None],
    unknown: float,
    now: float,
) -> float:
    """Returns the value of a gauge, or `unknown` if the partition is not assigned or the value is not known."""
    state = assignment.find(tp)
    value = None if state is None else value_of(state, now)
    return unknown if value is None else value


def _topic_tags(topic: str) -> list[str]:
    """Returns the values of the topic tag for a topic.

    These are the name and, if it contains dots, also the name with underscores in place of dots, as older Java clients
    write it (KIP-1109).
    """
    return [topic, topic.replace(".", "_")] if "." in topic else [topic]
