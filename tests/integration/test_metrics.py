"""The metrics of a consumer compared with those of Kafka's own consumer, and interceptors of a consumer that reads and
commits.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kconsumer import (
    Consumer,
    ConsumerRecords,
    Metric,
    MetricName,
    MetricsReporter,
    OffsetAndMetadata,
    TopicPartition,
)
from kconsumer.errors import TimeoutError
from support.brokers.kafka import Kafka
from support.brokers.kafka_jars import DEFAULT_VERSION, kafka_jars, program
from support.harnesses.polling import numbered, poll_until, read, tps
from support.harnesses.threads import meanwhile

New = Callable[..., Consumer]
Name = tuple[str, str, str]  # group, name, keys of the tags

SOURCE = Path(__file__).parent.parent / "support" / "java" / "MetricNames.java"

# A metric's value is a number here, so Java's metrics with text values are tags.
TEXTS = {("app-info", "version", "client-id"), ("app-info", "commit-id", "client-id")}
AS_TAGS = {("app-info", "version", "client-id,version"), ("app-info", "commit-id", "client-id,commit-id")}

FETCHES = "consumer-fetch-manager-metrics"
OWN = {
    (FETCHES, "records-lag-seconds", "client-id,partition,topic"),
    (FETCHES, "records-lag-seconds-max", "client-id"),
}


class Keeper(MetricsReporter):
    """A reporter that holds the present metrics."""

    def __init__(self) -> None:
        self.metrics: dict[MetricName, Metric] = {}
        self.closed = False

    def init(self, metrics: Sequence[Metric]) -> None:
        """Add the metrics that exist at the start."""
        self.metrics = {metric.name: metric for metric in metrics}

    def metric_change(self, metric: Metric) -> None:
        """Add or replace a metric."""
        self.metrics[metric.name] = metric

    def metric_removal(self, metric: Metric) -> None:
        """Remove a metric."""
        del self.metrics[metric.name]

    def close(self) -> None:
        """Do nothing."""
        self.closed = True


def java_metrics(kafka: Kafka, topic: str, protocol: str) -> list[tuple[Name, str, str]]:
    """Returns the metrics of Kafka's own consumer after it has read and committed in its own group: each with the value
    of its tag node-id, or "-", and its value.
    """
    class_path = os.pathsep.join(map(str, kafka_jars(DEFAULT_VERSION)))
    command = [program("java"), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", class_path, str(SOURCE)]
    command += [kafka.bootstrap_servers, topic, f"{topic}-java", protocol]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    rows = [line.split(" ", 4) for line in done.stdout.splitlines()]
    return [((group, name, tags), node, value) for group, name, tags, node, value in rows]


def metric(consumer: Consumer, name: str, group: str = "consumer-coordinator-metrics") -> float:
    """Returns the only metric of this name and group whose tags are only the client's."""
    (value,) = (v for m, v in consumer.metrics().items() if (m.name, m.group, len(m.tags)) == (name, group, 1))
    return value


def test_a_reporter_reads_while_the_consumer_polls(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """A reporter's thread reads values while the consumer polls; when the consumer is idle they equal those of
    `metrics()`. Metrics of partitions and connections are added and removed with these.
    """
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(10))
    reporter = Keeper()
    consumer = new_consumer(topic_name, group_id=topic_name, metrics_reporters=[reporter])
    seen: set[float] = set()

    def watch(ended: threading.Event) -> None:
        while not ended.wait(0.001):
            seen.update(
                metric.value()
                for name, metric in reporter.metrics.copy().items()  # a copy is atomic
                if name.name == "records-consumed-total"
            )

    with meanwhile(watch):
        read(consumer, 10)
        poll_until(consumer, lambda: 10.0 in seen)
        consumer.commit()
    assert set(reporter.metrics) == set(consumer.metrics())
    lag = next(
        name for name in reporter.metrics if name.name == "records-lag" and dict(name.tags)["topic"] == topic_name
    )
    assert 0 == reporter.metrics[lag].value() == consumer.metrics()[lag]
    consumer.unsubscribe()
    consumer.subscribe([topic_name + "-none"])
    poll_until(consumer, lambda: lag not in reporter.metrics)
    assert not reporter.closed
    consumer.close()
    assert reporter.closed


def test_names_are_kafkas(kafka: Kafka, topic_name: str, new_consumer: New, engine: dict[str, Any]) -> None:
    """Names, groups and tags equal those of Kafka's own consumer, apart from the exceptions listed above. So do the ids
    of connections, and what was read.
    """
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(10))
    consumer = new_consumer(topic_name, group_id=topic_name, enable_auto_commit=False)
    read(consumer, 10)
    consumer.commit()
    consumer.committed(consumer.assignment())
    consumer.poll(0.1)
    ours = {(m.group, m.name, ",".join(sorted(dict(m.tags)))) for m in consumer.metrics()}
    protocol = engine.get("group_protocol", "classic")
    rows = java_metrics(kafka, topic_name, protocol)
    java = {name for name, _, _ in rows}
    assert [] == sorted(java - TEXTS - ours)
    if engine.get("engine") != "threaded":  # in Java only the consumer protocol has a network thread to measure
        assert [] == sorted(ours - AS_TAGS - OWN - java)
    nodes = {dict(m.tags)["node-id"] for m in consumer.metrics() if m.group == "consumer-node-metrics"}
    assert {node for _, node, _ in rows} - {"-"} == {node for node in nodes if "*" not in node}  # an expedited fetch
    for name in ("records-consumed-total", "bytes-consumed-total", "records-lag-max", "records-lead-min"):
        (value,) = (value for found, _, value in rows if found == (FETCHES, name, "client-id"))
        assert float(value) == metric(consumer, name, FETCHES), name


@pytest.mark.network_thread
@pytest.mark.consumer_protocol
def test_values_of_the_network_thread(kafka: Kafka, topic_name: str) -> None:
    """Each transfer between the threads takes some time, and the queues are empty in the end (KIP-1068)."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(10))
    options: dict[str, Any] = {"group_protocol": "consumer", "group_id": topic_name, "auto_offset_reset": "earliest"}
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, **options) as consumer:
        consumer.subscribe([topic_name], on_assign=lambda *_: time.sleep(0.02))
        read(consumer, 10)
        for _ in range(2):
            with pytest.raises(TimeoutError):
                consumer.offsets_for_times(dict.fromkeys(tps(f"{topic_name}-none", 0), 0), timeout=0.05)
        poll_until(consumer, lambda: metric(consumer, "heartbeat-total") >= 3)
        values = {m.name: v for m, v in consumer.metrics().items() if m.group == "consumer-metrics"}
    for name in (
        "time-between-network-thread-poll",
        "application-event-queue-time",
        "application-event-queue-processing-time",
        "background-event-queue-time",
        "background-event-queue-processing-time",
        "unsent-requests-queue-time",
    ):
        assert 0 < values[f"{name}-avg"] <= values[f"{name}-max"] < 20_000, name
    assert values["background-event-queue-processing-time-max"] >= 20, "of on_assign"
    assert 2 == values["application-events-expired-count"]
    for queue in ("application-event", "background-event", "unsent-requests"):
        assert 0 <= values[f"{queue}-queue-size"] <= 1, queue


class Watcher:
    """An interceptor that records its arguments."""

    def __init__(self) -> None:
        self.consumed: list[ConsumerRecords] = []
        self.committed: list[Mapping[TopicPartition, OffsetAndMetadata]] = []
        self.closed = 0

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        """Record a batch."""
        self.consumed.append(records)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Record a successful commit."""
        self.committed.append(offsets)

    def close(self) -> None:
        """Do nothing."""
        self.closed += 1


class Broken:
    """An interceptor whose methods raise."""

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        """Fail."""
        raise RuntimeError("broken")

    def on_commit(self, offsets: object) -> None:
        """Fail."""
        raise RuntimeError("broken")


@pytest.mark.parametrize("auto_commit", [True, False])
def test_interceptors(kafka: Kafka, topic_name: str, new_consumer: New, auto_commit: bool) -> None:
    """Interceptors are called with every non-empty batch and every kind of successful commit, and not for failed
    commits; close() closes them (Java testInterceptors, testAutoCommitIntercept).
    """
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(10))
    (tp,) = tps(topic_name, 0)
    watcher = Watcher()
    consumer = new_consumer(
        topic_name,
        group_id=topic_name,
        interceptors=[Broken(), watcher],
        enable_auto_commit=auto_commit,
        auto_commit_interval_ms=60_000,
        max_poll_records=4,
    )
    assert numbered(10) == [record.value for record in read(consumer, 10)]
    assert [4, 4, 2] == [len(records) for records in watcher.consumed]
    consumer.poll(0.1)
    assert 3 == len(watcher.consumed)
    consumer.commit({tp: 5})
    assert [5] == [offsets[tp].offset for offsets in watcher.committed]
    consumer.commit_async({tp: 6})
    poll_until(consumer, lambda: len(watcher.committed) == 2)
    consumer.close()
    assert [5, 6, *([10] if auto_commit else [])] == [offsets[tp].offset for offsets in watcher.committed]
    assert 1 == watcher.closed
