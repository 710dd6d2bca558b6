"""The `metrics_reporters` option: the user's objects that are told which metrics there are (Java `MetricsReporter`).

Decides who is told. What a metric tells is decided in `metrics.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from kconsumer.metrics.plugins import notify_plugin
from kconsumer.types import MetricName


class Metric:
    """One metric of a consumer, from when it was made on (Java `KafkaMetric`)."""

    __slots__ = ("_measure", "_now", "name")

    def __init__(self, name: MetricName, measure: Callable[[float], float], now: Callable[[], float]) -> None:
        self.name = name
        self._measure = measure
        self._now = now

    def value(self) -> float:
        """What it is now, as `Consumer.metrics()` has it; NaN for the average of nothing. From any thread: what polls
        have done since is counted 50 ms later at most while the consumer polls."""
        return self._measure(self._now())

    def __repr__(self) -> str:
        return f"<Metric {self.name.group} {self.name.name}>"


class MetricsReporter:
    """For `metrics_reporters=[…]`: override what you need. Any object with `metric_change` will do.

    Methods are called as metrics come and go, by any thread of the consumer, which waits: keep the metrics, and read
    their values elsewhere. What a method raises is logged and goes no further.
    """

    def init(self, metrics: Sequence[Metric]) -> None:
        """The metrics that a consumer begins with, before the constructor returns."""

    def metric_change(self, metric: Metric) -> None:
        """There is a new metric, or another one of a name that was there."""

    def metric_removal(self, metric: Metric) -> None:
        """A metric is gone, as that of a partition that is no longer assigned."""

    def close(self) -> None:
        """The consumer is closed."""


class Reporters:
    """All reporters of a consumer, and the metrics they know."""

    def __init__(
        self,
        reporters: Iterable[object],
        now: Callable[[], float],
        call: Callable[[Callable[[], object]], object] = lambda function: function(),
    ) -> None:
        """`call` decides when a reporter's method is called: metrics come and go while a lock is held."""
        self._reporters = tuple(reporters)
        self._now = now
        self._call = call
        self._known: dict[MetricName, Metric] = {}

    def begin(self, measures: Iterable[tuple[MetricName, Callable[[float], float]]]) -> None:
        """These are there already."""
        self._known = {name: Metric(name, measure, self._now) for name, measure in measures}
        self._notify("init", list(self._known.values()))

    def added(self, name: MetricName, measure: Callable[[float], float]) -> None:
        """There is one more, or another one of its name."""
        metric = self._known[name] = Metric(name, measure, self._now)
        self._notify("metric_change", metric)

    def removed(self, name: MetricName) -> None:
        """One is gone."""
        metric = self._known.pop(name, None)
        if metric is not None:
            self._notify("metric_removal", metric)

    def close(self) -> None:
        """The consumer is closed."""
        self._notify("close")

    def _notify(self, method: str, *arguments: object) -> None:
        for reporter in self._reporters:
            self._call(partial(notify_plugin, reporter, method, *arguments))
