"""Client telemetry (KIP-714) with a real broker, whose plugin records what clients push."""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kconsumer import Consumer
from kconsumer.telemetry.collector import telemetry_name
from support.brokers.kafka_jars import DEFAULT_VERSION, kafka_jars, program
from support.brokers.telemetry_recorder import Push, TelemetryKafka
from support.harnesses.polling import numbered, poll_until, read

INTERVAL_MS = 200
RECORDS = 10
JAVA = Path(__file__).parents[1] / "support" / "java" / "MetricNames.java"
FETCHED = "org.apache.kafka.consumer.fetch.manager.records.consumed.total"
DELTA = "AGGREGATION_TEMPORALITY_DELTA,true"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TelemetryKafka]:
    """A broker that records what clients push."""
    with TelemetryKafka(tmp_path_factory.mktemp("telemetry")) as started:
        yield started


def total(pushes: list[Push], name: str) -> float:
    """Returns the sum of a metric over all pushes, which contain increases. Adds up only the client's own metric."""
    return sum(
        point.value
        for push in pushes
        for (found, labels), point in push.points.items()
        if (found, labels) == (name, frozenset())
    )


def test_pushed_metrics_are_those_of_the_consumer(
    broker: TelemetryKafka, topic_name: str, engine: dict[str, Any]
) -> None:
    """Names, labels and values of the pushed metrics are those of `metrics()`; sums are pushed as increases."""
    kafka = broker.kafka
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(RECORDS))
    broker.subscribe(topic_name, "*", INTERVAL_MS, topic_name)
    with Consumer(
        topic_name,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=topic_name,
        client_id=topic_name,
        client_rack="rack-1",
        auto_offset_reset="earliest",
        **engine,
    ) as consumer:
        assert RECORDS == len(read(consumer, RECORDS))
        instance_id = consumer.client_instance_id()
        poll_until(consumer, lambda: total(broker.pushes(topic_name), FETCHED) == RECORDS)
        metrics = consumer.metrics()
        member_id = consumer.group_metadata().member_id
    pushes = broker.pushes(topic_name)
    assert {instance_id} == {push.instance_id for push in pushes}
    assert [True] == [push.terminating for push in pushes if push.terminating] == [pushes[-1].terminating]
    last = pushes[-1]
    labels = {"client_rack": "rack-1", "group_id": topic_name, "group_member_id": member_id}
    assert labels == last.resource
    expected = {
        (name, frozenset((key.replace("-", "_"), value) for key, value in metric.tags if key != "client-id")): value
        for metric, value in metrics.items()
        if (name := telemetry_name(metric.group, metric.name)) is not None
    }
    assert set(expected) == set(last.points)
    assert RECORDS == total(pushes, FETCHED)
    received = {key: point.value for key, point in last.points.items() if point.kind == "GAUGE"}
    steady = [key for key in received if key[0].endswith((".records.lag", ".assigned.partitions", ".start.time.ms"))]
    assert 3 == len(steady)
    assert [expected[key] for key in steady] == [received[key] for key in steady]
    for key, point in last.points.items():
        assert point.kind in ("GAUGE", DELTA), key
        assert point.time_ns > point.start_ns
        assert (point.start_ns > 0) == (point.kind == DELTA)
    assert any(math.isnan(value) for value in received.values())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_kafkas_own_consumer_pushes_the_same_metrics(broker: TelemetryKafka, topic_name: str, protocol: str) -> None:
    """Names, labels, kinds and number types of pushed metrics are those of Kafka's own consumer."""
    kafka = broker.kafka
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(RECORDS))
    java_client = f"consumer-{topic_name}-java-1"
    broker.subscribe(topic_name, "*", INTERVAL_MS, f"{topic_name}|{java_client}")
    class_path = os.pathsep.join(map(str, kafka_jars(DEFAULT_VERSION)))
    command = [program("java"), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", class_path, str(JAVA)]
    command += [kafka.bootstrap_servers, topic_name, f"{topic_name}-java", protocol]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert 0 == done.returncode, done.stderr
    java = broker.wait_for_push(java_client)[-1]
    with Consumer(
        topic_name,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=topic_name,
        client_id=topic_name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        group_protocol=protocol,
    ) as consumer:
        read(consumer, RECORDS)
        consumer.commit()
        consumer.committed(consumer.assignment())
        poll_until(consumer, lambda: broker.pushes(topic_name))
    ours = broker.pushes(topic_name)[-1]
    assert (True, True) == (java.terminating, ours.terminating)
    assert set(java.resource) == set(ours.resource)
    assert kinds(java) == kinds(ours)


def kinds(push: Push) -> set[tuple[str, tuple[str, ...], str, bool]]:
    """Returns name, keys of the labels, kind and number type of each metric."""
    return {
        (name, tuple(sorted(key for key, _ in labels)), point.kind, point.integer)
        for (name, labels), point in push.points.items()
    }


def test_only_requested_metrics_are_pushed(broker: TelemetryKafka, topic_name: str) -> None:
    """A subscription names prefixes. A change of the subscription takes effect while the consumer runs."""
    prefix = "org.apache.kafka.consumer.coordinator."
    broker.subscribe(topic_name, prefix + "assigned", INTERVAL_MS, topic_name)
    kafka = broker.kafka
    kafka.create_topic(topic_name)
    with Consumer(
        topic_name, bootstrap_servers=kafka.bootstrap_servers, group_id=topic_name, client_id=topic_name
    ) as consumer:
        poll_until(consumer, lambda: broker.pushes(topic_name))
        broker.subscribe(topic_name, prefix + "commit", INTERVAL_MS, topic_name)
        poll_until(consumer, lambda: len({frozenset(push.names()) for push in broker.pushes(topic_name)}) == 2)
    before, *_, after = broker.pushes(topic_name)
    assert {prefix + "assigned.partitions"} == before.names()
    assert {prefix + "commit." + end for end in ("rate", "total", "latency.avg", "latency.max")} == after.names()
