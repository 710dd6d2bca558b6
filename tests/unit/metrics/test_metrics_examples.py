"""The metrics bridges of examples/ produce output that is valid for the other system."""

from __future__ import annotations

import importlib.util
import math
import re
import urllib.request
from pathlib import Path
from types import ModuleType

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Gauge, InMemoryMetricReader, Sum

from kconsumer import Metric, MetricName

EXAMPLES = Path(__file__).parents[3] / "examples"

LAG = "consumer-fetch-manager-metrics"
METRICS = {
    MetricName("records-lag", LAG, "Lag", (("client-id", "c"), ("topic", "t"), ("partition", "0"))): 3.0,
    MetricName("records-consumed-total", LAG, "Records", (("client-id", "c"),)): 12.0,
    MetricName("records-lag", LAG, "Lag", (("client-id", "c"), ("topic", "t"), ("partition", "1"))): 4.5,
    MetricName("fetch-latency-avg", LAG, "Two\nlines \\ here"): math.nan,
    MetricName("version", "app-info", "", (("version", 'a"b\\c\nd'),)): 1.0,
}

# The text format: a comment, or a name, labels and a number.
SAMPLE = re.compile(r'[a-zA-Z_:][a-zA-Z0-9_:]*(\{([a-zA-Z_]\w*="([^"\\\n]|\\[\\"n])*",?)*\})? (NaN|[+-]Inf|-?\d\S*)')
COMMENT = re.compile(r"# (HELP|TYPE) [a-zA-Z_:][a-zA-Z0-9_:]* ?.*")


def example(name: str) -> ModuleType:
    """Returns a module of examples/."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def prometheus() -> ModuleType:
    """Returns the module examples/metrics_prometheus.py."""
    return example("metrics_prometheus")


def test_prometheus_text(prometheus: ModuleType) -> None:
    """Samples of one metric are grouped under one HELP and TYPE; cumulative metrics are counters."""
    lines = prometheus.prometheus_text(METRICS).splitlines()
    family = "kconsumer_consumer_fetch_manager_metrics"
    assert [
        "# HELP kconsumer_app_info_version ",
        "# TYPE kconsumer_app_info_version gauge",
        r'kconsumer_app_info_version{version="a\"b\\c\nd"} 1.0',
        rf"# HELP {family}_fetch_latency_avg Two\nlines \\ here",
        f"# TYPE {family}_fetch_latency_avg gauge",
        f"{family}_fetch_latency_avg NaN",
        f"# HELP {family}_records_consumed_total Records",
        f"# TYPE {family}_records_consumed_total counter",
        f'{family}_records_consumed_total{{client_id="c"}} 12.0',
        f"# HELP {family}_records_lag Lag",
        f"# TYPE {family}_records_lag gauge",
        f'{family}_records_lag{{client_id="c",topic="t",partition="0"}} 3.0',
        f'{family}_records_lag{{client_id="c",topic="t",partition="1"}} 4.5',
    ] == lines
    assert [] == [line for line in lines if not (SAMPLE.fullmatch(line) or COMMENT.fullmatch(line))]


def test_prometheus_page(prometheus: ModuleType) -> None:
    """The page has the current values of all metrics, with the content type that a scraper expects."""
    reporter, value = prometheus.Latest(), 1.0
    come, gone = (Metric(MetricName(name, "g"), lambda _now: value, lambda: 0.0) for name in ("a", "b"))
    reporter.init([gone])
    reporter.metric_change(come)
    reporter.metric_removal(gone)
    with prometheus.Page(0, reporter) as page:
        for value in (1.0, 2.0):
            with urllib.request.urlopen(f"http://127.0.0.1:{page.server_port}/metrics", timeout=10) as response:
                text = response.read().decode()
                assert f"# TYPE kconsumer_g_a gauge\nkconsumer_g_a {value}\n" == text.partition("\n")[2]
                assert prometheus.CONTENT_TYPE == response.headers["Content-Type"]
        page.shutdown()


def test_opentelemetry() -> None:
    """Metrics become counters and gauges with attributes; metrics without a value are omitted."""
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
    bridge = example("metrics_opentelemetry").Bridge(provider.get_meter("test"))
    metrics = [Metric(name, lambda _now, value=value: value, lambda: 0.0) for name, value in METRICS.items()]
    bridge.init(metrics[1:])
    bridge.metric_change(metrics[0])
    exported = reader.get_metrics_data()
    assert exported is not None
    found = {m.name: m for r in exported.resource_metrics for s in r.scope_metrics for m in s.metrics}
    lag = found[f"kconsumer.{LAG}.records-lag"]
    assert (Gauge, "Lag") == (type(lag.data), lag.description)
    assert {("0", 3.0), ("1", 4.5)} == {(p.attributes["partition"], p.value) for p in lag.data.data_points}
    total = found[f"kconsumer.{LAG}.records-consumed-total"]
    assert isinstance(total.data, Sum)
    assert (True, [12.0]) == (total.data.is_monotonic, [point.value for point in total.data.data_points])
    assert f"kconsumer.{LAG}.fetch-latency-avg" not in found
    for metric in metrics:
        bridge.metric_removal(metric)
    assert reader.get_metrics_data() is None
    provider.shutdown()
