"""The metrics bridge of examples/ produces output that is valid for OpenTelemetry."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from types import ModuleType

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


def example(name: str) -> ModuleType:
    """Returns a module of examples/."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
