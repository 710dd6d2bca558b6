"""The metrics of a pipeline, and what exports them."""

from __future__ import annotations

import re
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest

from kconsumer._core.lock import Clock
from kconsumer.errors import ConfigError
from kconsumer.opentelemetry import OpenTelemetryReporter
from kconsumer.prometheus import PrometheusReporter
from kconsumer.spark.pipeline import parse
from kconsumer.spark.pipeline.checks import exporters
from kconsumer.spark.pipeline.pipeline_metrics import PipelineMetrics, exported_metrics
from kconsumer.spark.pipeline.reporting import BatchReport
from support.brokers.kafka import HOST, free_ports

FIRST = BatchReport("p rows", 0, 100, 0.5, 4, {"a": 7, "b": 0})
SECOND = BatchReport("p rows", 1, 20, 1.5, 1, {"a": 2})


class Steady(Clock):
    """A clock that the test sets."""

    ms = 60_000.0

    def now(self) -> float:
        """Returns the time that was set."""
        return self.ms


def document(**run: Any) -> dict[str, Any]:
    """Returns a pipeline with these keys of the section `run`."""
    return {
        "source": {"kafka.bootstrap.servers": "localhost:1", "subscribe": "a"},
        "decode": {"format": "raw"},
        "dead_letters": {"path": "/dead"},
        "sink": {"path": "/rows"},
        "run": {"name": "p", "checkpoint": "/checkpoint", **run},
    }


def series(text: str) -> dict[str, float]:
    """Returns the series of a text in the format of Prometheus, without the prefix and the labels of all of them."""
    found = re.findall(
        r'^kconsumer_pipeline_metrics_(\w+)\{client_id="p",query="p rows"(.*)\} (.*)$', text, re.MULTILINE
    )
    return {name + labels: float(value) for name, labels, value in found}


def test_what_prometheus_finds() -> None:
    """Records, invalid records, durations and the lag of topics are the series of a query; a topic that a micro-batch
    no longer reads has none.
    """
    registry, clock = CollectorRegistry(), Steady()
    metrics = PipelineMetrics("p", [PrometheusReporter(registry)], clock)
    metrics.record(FIRST)
    assert {',topic="a"', ',topic="b"'} == {
        name.removeprefix("records_lag") for name in series(generate_latest(registry).decode()) if "lag" in name
    }
    clock.ms += 10_000
    metrics.record(SECOND)
    clock.ms += 5_000
    found = series(generate_latest(registry).decode())
    assert 120 / 45 == pytest.approx(found.pop("records_rate"))  # of a window of 30 s, and 15 s of the next
    assert {
        "records_total": 120, "invalid_records_total": 5, 'records_lag,topic="a"': 2, "last_batch_seconds_ago": 5,
        "batch_duration_avg": 1000, "batch_duration_max": 1500, "batch_duration_total": 2000, "batch_total": 2,
    } == found  # fmt: skip
    metrics.close()
    assert b"" == generate_latest(registry)


def test_instruments_of_opentelemetry() -> None:
    """The same metrics are instruments, with the same tags."""
    reader = InMemoryMetricReader()
    metrics = PipelineMetrics("p", [OpenTelemetryReporter(MeterProvider([reader]))], Steady())
    metrics.record(FIRST)
    data: Any = reader.get_metrics_data()
    points = {
        (metric.name, point.attributes.get("topic")): (point.value, point.attributes["query"])
        for scope in data.resource_metrics[0].scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }
    assert (100, "p rows") == points["kconsumer.pipeline-metrics.records-total", None]
    assert (7, "p rows") == points["kconsumer.pipeline-metrics.records-lag", "a"]
    metrics.close()


def test_endpoint_and_file(tmp_path: Path, caplog: Any) -> None:
    """The endpoint serves the metrics while the pipeline runs, the file has those of the last micro-batch also
    afterwards; one that cannot be written stops nothing.
    """
    address, file = f"{HOST}:{free_ports(1)[0]}", tmp_path / "p.prom"
    run = parse(document(prometheus=address, prometheus_file=str(file))).run
    with exported_metrics(run, [], Steady()) as metrics:
        metrics.record(FIRST)
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as response:
            assert 100 == series(response.read().decode())["records_total"]
    assert 100 == series(file.read_text())["records_total"]
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://{address}/metrics", timeout=10)
    with exported_metrics(parse(document(prometheus_file=str(tmp_path))).run, [], Steady()) as metrics:
        metrics.record(FIRST)
    assert f"cannot write to {tmp_path}" in caplog.text


@pytest.mark.parametrize("address", [9404, "9404", "host:", ":9404", "host:http", "host:70000"])
def test_addresses(address: object) -> None:
    """A value that is no address is an error that shows one."""
    with pytest.raises(ConfigError, match=r"run\.prometheus = .*: it takes an address such as '127.0.0.1:9404'"):
        parse(document(prometheus=address))
    with pytest.raises(ConfigError, match=r"run\.opentelemetry = 'yes' is not allowed: it takes true or false"):
        parse(document(opentelemetry="yes"))


@pytest.mark.parametrize(
    ("key", "value", "module"),
    [
        ("prometheus", "127.0.0.1:1", "prometheus"),
        ("prometheus_file", "/p", "prometheus"),
        ("opentelemetry", True, "opentelemetry"),
    ],
)
def test_a_package_that_is_not_installed(key: str, value: object, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the start, a check fails with the command that installs the package."""
    config = parse(document(**{key: value}))
    assert [] == list(exporters(config, None))
    for name in [name for name in sys.modules if name.startswith(f"kconsumer.{module}")]:
        monkeypatch.delitem(sys.modules, name)
    package = {"prometheus": "prometheus_client", "opentelemetry": "opentelemetry.metrics"}[module]
    monkeypatch.setitem(sys.modules, package, None)
    (found,) = exporters(config, None)
    assert ("metrics", "fail") == (found.what, found.level)
    assert f"pip install '.[{module}]'" in found.text
