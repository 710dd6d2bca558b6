"""Reporters: which changes of metrics they receive, and that their failures do no harm."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kconsumer import Consumer, Metric, MetricsReporter
from kconsumer.metrics.registry import Metrics, Stat
from kconsumer.metrics.reporters import Reporters


class Watcher(MetricsReporter):
    """A reporter that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str]]] = []
        self.metrics: dict[str, Metric] = {}

    def init(self, metrics: Sequence[Metric]) -> None:
        self.calls.append(("init", sorted(metric.name.name for metric in metrics)))
        self.metrics = {metric.name.name: metric for metric in metrics}

    def metric_change(self, metric: Metric) -> None:
        self.calls.append(("change", [metric.name.name]))
        self.metrics[metric.name.name] = metric

    def metric_removal(self, metric: Metric) -> None:
        self.calls.append(("removal", [metric.name.name]))
        assert self.metrics.pop(metric.name.name) is metric

    def close(self) -> None:
        self.calls.append(("close", []))


class OnlyChanges:
    """A reporter with only the required method."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def metric_change(self, metric: Metric) -> None:
        self.names.append(metric.name.name)


class Broken(MetricsReporter):
    """A reporter that fails in every method."""

    def init(self, metrics: Sequence[Metric]) -> None:
        raise LookupError

    def metric_change(self, metric: Metric) -> None:
        raise LookupError

    def metric_removal(self, metric: Metric) -> None:
        raise LookupError

    def close(self) -> None:
        raise LookupError


def test_metrics_come_and_go() -> None:
    """Reporters receive the initial metrics, then added, replaced and removed ones in order, each with its value."""
    metrics, watcher, only = Metrics(), Watcher(), OnlyChanges()
    now = 5.0
    metrics.gauge(metrics.name("first", "g"), lambda at: at * 2)
    metrics.report_to(Reporters([watcher, only], lambda: now))
    sensor = metrics.sensor("g", [("total", Stat.TOTAL, ""), ("last", Stat.VALUE, "")])
    sensor.record(3, now)
    sensor.record(4, now)
    assert {"first": 10, "total": 7, "last": 4} == {name: metric.value() for name, metric in watcher.metrics.items()}
    metrics.gauge(metrics.name("first", "g"), lambda at: -at)
    assert -5 == watcher.metrics["first"].value()
    metrics.remove(sensor, metrics.name("unknown", "g"))
    metrics.close()
    changes = [("change", ["total"]), ("change", ["last"]), ("change", ["first"])]
    removals = [("removal", ["total"]), ("removal", ["last"])]
    assert [("init", ["first"]), *changes, *removals, ("close", [])] == watcher.calls
    assert ["total", "last", "first"] == only.names


def test_a_broken_reporter_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    """The exception of a reporter is logged with its name, and other reporters are called."""
    metrics, watcher = Metrics(), Watcher()
    metrics.report_to(Reporters([Broken(), watcher], lambda: 0.0))
    name = metrics.name("n", "g")
    metrics.gauge(name, lambda _at: 1.0)
    metrics.remove(name)
    metrics.close()
    assert ["init", "change", "removal", "close"] == [what for what, _ in watcher.calls]
    assert ["init", "metric_change", "metric_removal", "close"] == [
        record.getMessage().split(": ")[-1].removesuffix(" failed") for record in caplog.records
    ]
    assert all("Broken" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("options", [{}, {"group_id": "g"}, {"group_id": "g", "group_protocol": "consumer"}], ids=str)
def test_a_reporter_knows_what_its_consumer_has(options: dict[str, str]) -> None:
    """The metrics passed to a reporter, together or one by one, are those of `Consumer.metrics()` with the same values;
    at the end it is closed.
    """
    watcher = Watcher()
    with Consumer(bootstrap_servers="127.0.0.1:1", metrics_reporters=watcher, **options) as consumer:
        mine, known = consumer.metrics(), watcher.metrics.values()
        assert set(mine) == {metric.name for metric in known}
        count = next(metric for metric in known if metric.name.name == "count")
        assert len(mine) == count.value() == mine[count.name]
        assert 40 < len(mine)
    assert ("close", []) == watcher.calls[-1]
    assert 1 == sum(what == "close" for what, _ in watcher.calls)
