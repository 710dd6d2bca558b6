"""Metrics with the Java client's names: sampled averages, extremes and rates, totals, and gauges.

Decides how a value is sampled: as in Java (`SampledStat`, `Rate`) over `metrics_num_samples` windows of
`metrics_sample_window_ms`. Knows no names: each part of the client keeps its own table of rows and gets one
`Sensor` for a table. Recording costs a few attribute updates and happens per request or per fetch, never per
record. No clock is read here: a value is recorded with its `now` (ms) and a snapshot is taken at a `now`.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from math import inf, nan

from kconsumer.metrics.reporters import Reporters
from kconsumer.types import MetricName


class Stat(enum.Enum):
    """What a metric tells of the values recorded by its sensor."""

    VALUE = "the last value"
    AVG = "mean of the windows' values"
    MAX = "largest of the windows' values"
    MIN = "smallest of the windows' values"
    RATE = "sum per second over the windows"
    TOTAL = "sum since the start"
    COUNT_RATE = "recordings per second over the windows"
    COUNT_PER_HOUR = "recordings per hour over the windows"
    COUNT = "recordings since the start"
    RATIO = "share of the time over the windows that values in nanoseconds make up"


# What a rate counts per second of its windows.
_SUM_PER_S = {Stat.RATE: 1.0, Stat.RATIO: 1e-9}
_COUNT_PER_S = {Stat.COUNT_RATE: 1.0, Stat.COUNT_PER_HOUR: 3600.0}

Row = tuple[str, Stat, str]
"""Name, stat and description: one line of a table given to `Metrics.sensor`."""


class _Window:
    """What was recorded in one stretch of time."""

    __slots__ = ("count", "end", "largest", "smallest", "start", "sum")

    def __init__(self, now: float) -> None:
        self.start = self.end = now
        self.count = 0
        self.sum = 0.0
        self.largest = -inf
        self.smallest = inf


class Sensor:
    """Takes values; its windows answer every `Stat`. Made by `Metrics.sensor`."""

    __slots__ = ("_current", "_samples", "_window_ms", "_windows", "count", "names", "total", "value")

    def __init__(self, samples: int, window_ms: float) -> None:
        self._samples = samples
        self._window_ms = window_ms
        # One more than asked, since the oldest may still overlap the time that is watched (as in Java).
        self._windows: deque[_Window] = deque(maxlen=samples + 1)
        self._current: _Window | None = None
        self.names: list[MetricName] = []
        self.count = 0
        self.total = 0.0
        self.value = nan

    def record(self, value: float, now: float, count: int = 1) -> None:
        """Add one value seen at `now` (ms), or the sum of `count` values (an extreme then sees only the sum)."""
        window = self._current
        if window is None or now - window.start >= self._window_ms:
            window = self._current = _Window(now)
            self._windows.append(window)
        window.end = now
        window.count += count
        window.sum += value
        if value > window.largest:
            window.largest = value
        if value < window.smallest:
            window.smallest = value
        self.count += count
        self.total += value
        self.value = value

    def measure(self, stat: Stat, now: float) -> float:
        """One stat at `now`; NaN for the value, mean and extremes of nothing, as in Java."""
        if stat is Stat.VALUE:
            return self.value
        if stat is Stat.TOTAL:
            return self.total
        if stat is Stat.COUNT:
            return float(self.count)
        watched = now - self._samples * self._window_ms
        return self._sampled(stat, [window for window in list(self._windows) if window.end > watched], now)

    def _sampled(self, stat: Stat, windows: list[_Window], now: float) -> float:
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

    def _elapsed_s(self, windows: list[_Window], now: float) -> float:
        """The time a rate is over: from the oldest window, but at least all windows save the one being
        filled, so that the first second of work is not read as a high rate."""
        elapsed = now - windows[0].start if windows else 0.0
        full, wanted = int(elapsed / self._window_ms), self._samples - 1
        if full < wanted:
            elapsed += (wanted - full) * self._window_ms
        return max(elapsed, 1.0) / 1000.0

    def __repr__(self) -> str:
        return f"<Sensor {[name.name for name in self.names]} count={self.count} total={self.total}>"


class Metrics:
    """All metrics of one consumer. `tags` (such as client-id) are on every name."""

    def __init__(
        self, *, samples: int = 2, window_ms: float = 30_000.0, tags: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self._samples = samples
        self._window_ms = max(1.0, window_ms)
        self._tags = tags
        self._measures: dict[MetricName, Callable[[float], float]] = {}
        self._reporters: Reporters | None = None

    def report_to(self, reporters: Reporters) -> None:
        """Have the user's reporters told of what is there, and of every change."""
        reporters.begin(self._measures.items())
        self._reporters = reporters

    def name(self, name: str, group: str, description: str = "", *tags: tuple[str, str]) -> MetricName:
        """A full name: the common tags, then these."""
        return MetricName(name, group, description, self._tags + tags)

    def sensor(self, group: str, rows: Iterable[Row], *tags: tuple[str, str]) -> Sensor:
        """A sensor answering for the metrics of a table; a name that exists already is replaced."""
        sensor = Sensor(self._samples, self._window_ms)
        self.publish(sensor, group, rows, *tags)
        return sensor

    def publish(self, sensor: Sensor, group: str, rows: Iterable[Row], *tags: tuple[str, str]) -> None:
        """Let a sensor answer for further names."""
        for name, stat, description in rows:
            metric = self.name(name, group, description, *tags)
            sensor.names.append(metric)
            self._add(metric, partial(sensor.measure, stat))

    def gauge(self, name: MetricName, read: Callable[[float], float]) -> None:
        """A metric read when asked: `read(now)`."""
        self._add(name, read)

    def seconds_since(self, name: MetricName, moment: Callable[[], float | None]) -> None:
        """Whole seconds since `moment()` (ms) as Java shows them; -1 while that is None."""

        def read(now: float) -> float:
            at = moment()
            return -1.0 if at is None else (now - at) // 1000

        self._add(name, read)

    def _add(self, name: MetricName, measure: Callable[[float], float]) -> None:
        self._measures[name] = measure
        if self._reporters is not None:
            self._reporters.added(name, measure)

    def remove(self, *gone: Sensor | MetricName) -> None:
        """Forget sensors with all their names, or single names; unknown ones are ignored."""
        for item in gone:
            for name in item.names if isinstance(item, Sensor) else (item,):
                if self._measures.pop(name, None) is not None and self._reporters is not None:
                    self._reporters.removed(name)

    def close(self) -> None:
        """Tell reporters that this is the end."""
        if self._reporters is not None:
            self._reporters.close()

    def snapshot(self, now: float) -> dict[MetricName, float]:
        """Every metric's value at `now`."""
        return {name: measure(now) for name, measure in list(self._measures.items())}

    def __len__(self) -> int:
        return len(self._measures)

    def __repr__(self) -> str:
        return f"<Metrics {len(self._measures)} names, {self._samples} windows of {self._window_ms:.0f} ms>"
