"""`kconsumer.prometheus` exports valid families, bounds the number of series, and unregisters at the end."""

from __future__ import annotations

import logging
import math
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kconsumer import Consumer, Metric, MetricName
from kconsumer.errors import ConfigError
from kconsumer.prometheus import PrometheusReporter
from kconsumer.testing import FakeCluster, MockConsumer

FETCH = "consumer-fetch-manager-metrics"
PREFIX = "kconsumer_consumer_fetch_manager_metrics_"
DROPPED = "kconsumer_exporter_dropped_series"


def metric(name: str, value: float = 1.0, group: str = FETCH, **tags: str) -> Metric:
    """Returns a metric of the client `c`."""
    named = tuple((key.replace("_", "-"), tag) for key, tag in {"client_id": "c", **tags}.items())
    return Metric(MetricName(name, group, f"About {name}", named), lambda _now: value, lambda: 0.0)


@pytest.fixture
def registry() -> CollectorRegistry:
    """An empty registry."""
    return CollectorRegistry()


def series(registry: CollectorRegistry) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Returns what a scrape contains. Fails if a series is there twice."""
    samples = [s for family in text_string_to_metric_families(scrape(registry)) for s in family.samples]
    found = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}
    assert len(samples) == len(found)
    return found


def scrape(registry: CollectorRegistry) -> str:
    """Returns the text of a scrape."""
    return generate_latest(registry).decode()


def named(registry: CollectorRegistry, name: str) -> list[dict[str, str]]:
    """Returns the labels of all series of this name."""
    return [dict(labels) for found, labels in series(registry) if found == name]


def test_families(registry: CollectorRegistry) -> None:
    """Java's names and tags become names and labels. Cumulative metrics are counters, others gauges."""
    reporter = PrometheusReporter(registry, max_partitions=5)
    reporter.init(
        [
            metric("records-consumed-total", 12.0),
            metric("records-consumed-total", 12.0, topic="t"),
            metric("records-lag", 3.0, topic="t", partition="0"),
            metric("fetch-latency-avg", math.nan),
            metric("version", 1.0, "app-info", version='a"b\\c\nd'),
        ]
    )
    assert [
        "# HELP kconsumer_app_info_version About version",
        "# TYPE kconsumer_app_info_version gauge",
        r'kconsumer_app_info_version{client_id="c",version="a\"b\\c\nd"} 1.0',
        f"# HELP {PREFIX}records_consumed_by_topic_total About records-consumed-total",
        f"# TYPE {PREFIX}records_consumed_by_topic_total counter",
        f'{PREFIX}records_consumed_by_topic_total{{client_id="c",topic="t"}} 12.0',
        f"# HELP {PREFIX}records_consumed_total About records-consumed-total",
        f"# TYPE {PREFIX}records_consumed_total counter",
        f'{PREFIX}records_consumed_total{{client_id="c"}} 12.0',
        f"# HELP {PREFIX}records_lag About records-lag",
        f"# TYPE {PREFIX}records_lag gauge",
        f'{PREFIX}records_lag{{client_id="c",partition="0",topic="t"}} 3.0',
        f"# HELP {DROPPED} Series that were left out because of a limit of PrometheusReporter",
        f"# TYPE {DROPPED} gauge",
        f'{DROPPED}{{client_id="c"}} 0.0',
    ] == scrape(registry).splitlines()


def test_sums_count_nothing_twice(registry: CollectorRegistry) -> None:
    """The sum of all series of a name counts each record once, also of a topic that has a second name in metrics."""
    with FakeCluster() as cluster:
        for topic, count in (("eu.orders", 3), ("returns", 4)):
            cluster.create_topic(topic)
            cluster.produce(topic, [b"v"] * count)
        reporter = PrometheusReporter(registry, max_partitions=9)
        options = {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest"}
        with Consumer(metrics_reporters=[reporter], **options) as consumer:
            consumer.assign([("eu.orders", 0), ("returns", 0)])
            left = 7
            while left:
                left -= len(consumer.poll(10))
            found = series(registry)
    for name in ("records_consumed_total", "records_consumed_by_topic_total"):
        assert 7 == sum(value for (of, _), value in found.items() if of == PREFIX + name)
    lags = {dict(labels)["topic"] for (of, labels) in found if of == PREFIX + "records_lag_max_by_partition"}
    assert {"eu.orders", "returns"} == lags


def test_partitions_and_brokers_have_no_series_by_default(registry: CollectorRegistry) -> None:
    """Their series are left out and counted. Topics have series."""
    reporter = PrometheusReporter(registry)
    reporter.init([metric("records-lag", topic="t", partition=str(n)) for n in range(3)])
    reporter.metric_change(metric("request-rate", group="consumer-node-metrics", node_id="node-1"))
    reporter.metric_change(metric("records-consumed-total", topic="t"))
    assert {
        (f"{PREFIX}records_consumed_total", frozenset({("client_id", "c"), ("topic", "t")})),
        (DROPPED, CLIENT),
    } == (series(registry).keys())
    assert 4.0 == series(registry)[DROPPED, CLIENT]


CLIENT = frozenset({("client_id", "c")})


@pytest.mark.parametrize(
    ("limit", "tags"),
    [("max_topics", ["topic"]), ("max_partitions", ["topic", "partition"]), ("max_nodes", ["node_id"])],
)
def test_limits(registry: CollectorRegistry, limit: str, tags: list[str]) -> None:
    """A limit counts topics, partitions or brokers, and not their metrics. A removed one makes room for a new one."""
    reporter = PrometheusReporter(registry, **{limit: 2})
    every = [[metric(name, **dict.fromkeys(tags, str(n))) for name in ("a", "b")] for n in range(3)]
    reporter.init([m for of_one in every for m in of_one])
    assert ["0", "1"] == sorted(labels[tags[0]] for labels in named(registry, PREFIX + "a"))
    assert 2.0 == series(registry)[DROPPED, CLIENT]
    for removed in (*every[0], *every[2]):
        reporter.metric_removal(removed)
    for added in every[2]:
        reporter.metric_change(added)
    assert ["1", "2"] == sorted(labels[tags[0]] for labels in named(registry, PREFIX + "b"))
    assert 0.0 == series(registry)[DROPPED, CLIENT]


def test_a_replaced_metric_counts_once(registry: CollectorRegistry) -> None:
    """A metric that replaces one of the same name is exported with its new value, and removed once."""
    reporter = PrometheusReporter(registry, max_topics=1)
    reporter.init([metric("a", 1.0, topic="t")])
    reporter.metric_change(metric("a", 2.0, topic="t"))
    assert [2.0] == [value for (name, _), value in series(registry).items() if name == PREFIX + "a"]
    reporter.metric_removal(metric("a", topic="t"))
    reporter.metric_change(metric("a", 3.0, topic="u"))
    assert [{"client_id": "c", "topic": "u"}] == named(registry, PREFIX + "a")


def consumers(registry: CollectorRegistry, client_ids: Iterable[str]) -> Iterator[Consumer]:
    """Yield consumers that export to the registry."""
    for client_id in client_ids:
        yield MockConsumer(
            bootstrap_servers="x:1", client_id=client_id, metrics_reporters=[PrometheusReporter(registry)]
        )


def test_several_consumers_share_families(registry: CollectorRegistry) -> None:
    """Each family is there once, with series of all consumers. A closed consumer has none; the last unregisters."""
    one, two = consumers(registry, ["one", "two"])
    name = "kconsumer_kafka_metrics_count_count"
    assert {"one", "two"} == {labels["client_id"] for labels in named(registry, name)}
    assert 1 == scrape(registry).count(f"# TYPE {name} gauge")
    one.close()
    assert ["two"] == [labels["client_id"] for labels in named(registry, name)]
    two.close()
    assert "" == scrape(registry)
    (again,) = consumers(registry, ["again"])
    assert ["again"] == [labels["client_id"] for labels in named(registry, name)]
    again.close()


def test_consumers_with_the_same_series(registry: CollectorRegistry, caplog: pytest.LogCaptureFixture) -> None:
    """Of two consumers with one client_id, one is exported, and a warning says so once. A label separates them."""
    with caplog.at_level(logging.WARNING):
        same = list(consumers(registry, ["same", "same"]))
        name = "kconsumer_kafka_metrics_count_count"
        assert [{"client_id": "same"}] == named(registry, name)
        assert [{"client_id": "same"}] == named(registry, name)
    (record,) = caplog.records
    assert "client_id 'same'" in record.getMessage()
    third = PrometheusReporter(registry, labels={"job_part": "3"})
    same.append(MockConsumer(bootstrap_servers="x:1", client_id="same", metrics_reporters=[third]))
    assert {"client_id": "same", "job_part": "3"} in named(registry, name)
    for consumer in same:
        consumer.close()


def test_scrapes_while_metrics_change(registry: CollectorRegistry) -> None:
    """A scrape may run on any thread while metrics are added and removed."""
    reporter = PrometheusReporter(registry, max_partitions=1000)
    reporter.init([])
    errors: list[BaseException] = []
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            try:
                series(registry)
            except BaseException as error:
                errors.append(error)
                return

    thread = threading.Thread(target=read)
    thread.start()
    for n in range(300):
        reporter.metric_change(metric("records-lag", topic="t", partition=str(n)))
        if n % 3:
            reporter.metric_removal(metric("records-lag", topic="t", partition=str(n - 1)))
    ended.set()
    thread.join()
    assert [] == errors
    reporter.close()
    reporter.close()
    assert "" == scrape(registry)


@pytest.mark.parametrize(
    "options", [{"max_topics": -1}, *({"labels": {name: "c"}} for name in ("a-b", "__name__", "client_id", "topic"))]
)
def test_invalid_options(registry: CollectorRegistry, options: dict[str, object]) -> None:
    """An invalid limit or label raises ConfigError at once."""
    with pytest.raises(ConfigError):
        PrometheusReporter(registry, **options)


def test_one_reporter_for_two_consumers(registry: CollectorRegistry, caplog: pytest.LogCaptureFixture) -> None:
    """The second consumer works, and an error in the log says what to change."""
    reporter = PrometheusReporter(registry)
    made = [MockConsumer(bootstrap_servers="x:1", metrics_reporters=[reporter]) for _ in range(2)]
    assert "make one for each consumer" in caplog.text
    for consumer in made:
        consumer.close()
    assert "" == scrape(registry)


def test_without_the_package() -> None:
    """The error names the extra. `import kconsumer` does not import prometheus_client."""
    program = (
        "import sys, kconsumer\n"
        "assert 'prometheus_client' not in sys.modules\n"
        "sys.modules['prometheus_client'] = None\n"
        "import kconsumer.prometheus\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "pip install '.[prometheus]'" in done.stderr
