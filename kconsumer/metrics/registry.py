"""Metrics with the Java client's names: sampled averages, extremes and rates, totals, and gauges.

Decides how values are sampled: as in Java (`SampledStat`, `Rate`), over `metrics_num_samples` windows of
`metrics_sample_window_ms`. The tables of metrics are in the components, which create one `Sensor` for each table.
Values are recorded in compiled code (`kconsumer._core.metrics`), once per request or fetch, never per record.
They are evaluated here when a metric is read. No clock is read here: callers pass the present time as `now` (ms).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from functools import partial
from math import nan

from kconsumer._core.metrics import SampledValues, Window
from kconsumer.metrics.reporters import Reporters
from kconsumer.types import MetricName, MetricValues


class Stat(enum.Enum):
    """How a metric is computed from the values that its sensor has recorded."""

    VALUE = "the last value"
    AVG = "mean of the windows' values"
    MAX = "largest of the windows' values"
    MIN = "smallest of the windows' values"
    RATE = "sum per second over the windows"
    TOTAL = "sum since the start"
    COUNT_RATE = "recordings per second over the windows"
    COUNT_PER_HOUR = "recordings per hour over the windows"
    COUNT = "recordings since the start"
    RATIO = "sum of values in nanoseconds, as a share of the time of the windows"


# Stats of the sum of the values per second, and of their number per second, each with a factor for its unit.
_SUM_PER_S = {Stat.RATE: 1.0, Stat.RATIO: 1e-9}
_COUNT_PER_S = {Stat.COUNT_RATE: 1.0, Stat.COUNT_PER_HOUR: 3600.0}

CUMULATIVE = frozenset({Stat.TOTAL, Stat.COUNT})
"""Stats that only grow (Java `CumulativeSum` and `CumulativeCount`)."""

Row = tuple[str, Stat, str]
"""Name, stat and description of a metric: a row of a table for `Metrics.sensor`."""


class Sensor(SampledValues):
    """Records values in windows, from which each `Stat` is computed. Created by `Metrics.sensor`."""

    __slots__ = ()

    def measure(self, stat: Stat, now: float) -> float:
        """Returns the value of a stat at `now` (ms).

        If nothing was recorded, the last value, mean, minimum and maximum are NaN, as in Java.
        """
        if stat is Stat.VALUE:
            return self.value
        if stat is Stat.TOTAL:
            return self.total
        if stat is Stat.COUNT:
            return float(self.count)
        return self._sampled(stat, self.windows_after(now - self.samples * self.window_ms), now)

    def _sampled(self, stat: Stat, windows: list[Window], now: float) -> float:
        if stat in _SUM_PER_S:
            return _SUM_PER_S[stat] * sum(window.sum for window in windows) / self._elapsed_s(windows, now)
        if stat in _COUNT_PER_S:
            return _COUNT_PER_S[stat] * sum(window.count for window in windows) / self._elapsed_s(windows, now)
        if not windows:
            return nan
        if stat is Stat.AVG:
            return sum(window.sum for window in windows) / sum(window.count for window in windows)
        if stat is Stat.MAX:
            return max(window.largest for window in windows)
        return min(window.smallest for window in windows)

    def _elapsed_s(self, windows: list[Window], now: float) -> float:
        """Returns the time (s) by which a sum is divided to compute a rate.

        This is the time since the oldest window began, but at least 1 ms. As in Java, at least `samples - 1` windows
        must have passed: for each window that is missing, the length of a window is added. Without this, the rate would
        be far too high during the first seconds.
        """
        elapsed = now - windows[0].start if windows else 0.0
        full, required = int(elapsed / self.window_ms), self.samples - 1
        if full < required:
            elapsed += (required - full) * self.window_ms
        return max(elapsed, 1.0) / 1000.0

    def __repr__(self) -> str:
        return f"<Sensor {[name.name for name in self.names]} count={self.count} total={self.total}>"


def is_cumulative(measure: Callable[[float], float]) -> bool:
    """Returns whether the metric with this function is a sum since it was added. All others are gauges."""
    return isinstance(measure, partial) and measure.args[0] in CUMULATIVE


class Metrics:
    """All metrics of one consumer. `tags`, such as client-id, are part of every name."""

    def __init__(
        self, *, samples: int = 2, window_ms: float = 30_000.0, tags: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self._samples = samples
        self._window_ms = max(1.0, window_ms)
        self._tags = self._last_tags = tags
        self._measures: dict[MetricName, Callable[[float], float]] = {}
        self._reporters: Reporters | None = None

    def report_to(self, reporters: Reporters) -> None:
        """Notify reporters of the metrics that exist, and of every change from now on."""
        reporters.begin(self._measures.items())
        self._reporters = reporters

    def name(self, name: str, group: str, description: str = "", *tags: tuple[str, str]) -> MetricName:
        """Returns a MetricName. Its tags are those that all metrics of the consumer have, followed by `tags`."""
        all_tags, last = self._tags + tags, self._last_tags
        # The metrics of one partition are named one after the other. They share the tuple of their tags, because a
        # consumer may have the metrics of many partitions.
        if all_tags != last:
            last = self._last_tags = all_tags
        return MetricName(name, group, description, last)

    def sensor(self, group: str, rows: Iterable[Row], *tags: tuple[str, str], parent: Sensor | None = None) -> Sensor:
        """Returns a new sensor with one metric for each of `rows`. Replaces metrics that have the same names.

        What the sensor records is also recorded by `parent` (as in Java), and by the parent of that sensor.
        """
        sensor = Sensor(self._samples, self._window_ms, parent)
        self.publish(sensor, group, rows, *tags)
        return sensor

    def publish(self, sensor: Sensor, group: str, rows: Iterable[Row], *tags: tuple[str, str]) -> None:
        """Add one metric for each of `rows` to a sensor. Replaces metrics that have the same names."""
        for name, stat, description in rows:
            metric = self.name(name, group, description, *tags)
            sensor.names.append(metric)
            self._add(metric, partial(sensor.measure, stat))

    def gauge(self, name: MetricName, read: Callable[[float], float]) -> None:
        """Add a metric whose value is computed by `read(now)` each time it is read."""
        self._add(name, read)

    def seconds_since(self, name: MetricName, moment: Callable[[], float | None]) -> None:
        """Add a metric with the whole seconds since the time (ms) that `moment()` returns. As in Java, the metric is -1
        while `moment()` returns None."""

        def read(now: float) -> float:
            at = moment()
            return -1.0 if at is None else (now - at) // 1000

        self._add(name, read)

    def _add(self, name: MetricName, measure: Callable[[float], float]) -> None:
        self._measures[name] = measure
        if self._reporters is not None:
            self._reporters.added(name, measure)

    def remove(self, *removed: SampledValues | MetricName) -> None:
        """Remove sensors with all their metrics, or single metrics. Unknown ones are ignored."""
        for item in removed:
            for name in item.names if isinstance(item, SampledValues) else (item,):
                if self._measures.pop(name, None) is not None and self._reporters is not None:
                    self._reporters.removed(name)

    def close(self) -> None:
        """Close the reporters."""
        if self._reporters is not None:
            self._reporters.close()

    def measures(self) -> list[tuple[MetricName, Callable[[float], float]]]:
        """Returns all metrics, each with the function that computes its value at a time (ms)."""
        return list(self._measures.items())

    def snapshot(self, now: float) -> MetricValues:
        """Returns the values of all metrics at `now` (ms)."""
        return MetricValues((name, measure(now)) for name, measure in list(self._measures.items()))

    def __len__(self) -> int:
        return len(self._measures)

    def __repr__(self) -> str:
        return f"<Metrics {len(self._measures)} names, {self._samples} windows of {self._window_ms:.0f} ms>"
