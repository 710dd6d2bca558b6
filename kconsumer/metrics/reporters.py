"""The option `metrics_reporters`: objects of the application that are notified of metrics (Java `MetricsReporter`).

Decides when reporters are notified. The values of metrics are computed in `metrics/registry.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from kconsumer.metrics.plugins import notify_plugin
from kconsumer.types import MetricName


class Metric:
    """One metric of a consumer (Java `KafkaMetric`)."""

    __slots__ = ("_measure", "_now", "name")

    def __init__(self, name: MetricName, measure: Callable[[float], float], now: Callable[[], float]) -> None:
        self.name = name
        self._measure = measure
        self._now = now

    def value(self) -> float:
        """Returns the present value, as in `Consumer.metrics()`. An average of no values is NaN.

        May be called from any thread. The wait of a poll is part of `poll-idle-ratio-avg` from the next poll on.
        """
        return self._measure(self._now())

    def __repr__(self) -> str:
        return f"<Metric {self.name.group} {self.name.name}>"


class MetricsReporter:
    """A base class of objects for `metrics_reporters=[…]`: override the methods you need.

    Any other object with a method `metric_change` is accepted, too. The methods are called when metrics are added and
    removed, on any thread of the consumer. The thread waits until they return, so only store the metrics in them, and
    read the values elsewhere. An exception is logged and has no other effect.
    """

    def init(self, metrics: Sequence[Metric]) -> None:
        """Called with the metrics that exist when a consumer is created, before its constructor returns."""

    def metric_change(self, metric: Metric) -> None:
        """Called for a metric that is new, or that replaces a metric with the same name."""

    def metric_removal(self, metric: Metric) -> None:
        """Called for a metric that was removed, such as one of a partition that is no longer assigned."""

    def close(self) -> None:
        """Called when the consumer is closed."""


class Reporters:
    """All reporters of a consumer, and the metrics that they were notified of."""

    def __init__(
        self,
        reporters: Iterable[object],
        now: Callable[[], float],
        call: Callable[[Callable[[], object]], object] = lambda function: function(),
    ) -> None:
        """Store the reporters. `call` calls their methods, and may defer this while the consumer holds a lock."""
        self._reporters = tuple(reporters)
        self._now = now
        self._call = call
        self._known: dict[MetricName, Metric] = {}

    def begin(self, measures: Iterable[tuple[MetricName, Callable[[float], float]]]) -> None:
        """Notify the reporters of the metrics that exist when reporting starts."""
        self._known = {name: Metric(name, measure, self._now) for name, measure in measures}
        self._notify("init", list(self._known.values()))

    def added(self, name: MetricName, measure: Callable[[float], float]) -> None:
        """Notify the reporters of a metric that is new, or that replaces a metric with the same name."""
        metric = self._known[name] = Metric(name, measure, self._now)
        self._notify("metric_change", metric)

    def removed(self, name: MetricName) -> None:
        """Notify the reporters of a metric that was removed."""
        metric = self._known.pop(name, None)
        if metric is not None:
            self._notify("metric_removal", metric)

    def close(self) -> None:
        self._notify("close")

    def _notify(self, method: str, *arguments: object) -> None:
        for reporter in self._reporters:
            self._call(partial(notify_plugin, reporter, method, *arguments))
