"""Sampling as in Java: windows, rates, totals, gauges."""

from __future__ import annotations

import tracemalloc
from functools import partial
from math import isnan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kconsumer._core.metrics import SensorPair
from kconsumer.metrics.registry import Metrics, Stat
from kconsumer.types import MetricName, MetricValues

ROWS = tuple((stat.name.lower(), stat, "a test") for stat in Stat)


def read(metrics: Metrics, name: str, now: float) -> float:
    values = {metric.name: value for metric, value in metrics.snapshot(now).items()}
    return values[name]


def test_rate_includes_windows_before_the_first_one() -> None:
    """After one second with two windows of 30 s the rate is over 31 s, as in Java."""
    metrics = Metrics()
    sensor = metrics.sensor("g", ROWS)
    sensor.record(310.0, 0.0)
    assert 10.0 == read(metrics, "rate", 1_000.0)
    assert pytest.approx(1 / 31) == read(metrics, "count_rate", 1_000.0)


def test_rate_over_all_windows() -> None:
    """Once the windows are full the rate covers the time since the oldest one began."""
    metrics = Metrics()
    sensor = metrics.sensor("g", ROWS)
    for second in range(0, 60, 10):
        sensor.record(100.0, second * 1000.0)
    assert pytest.approx(600 / 60) == read(metrics, "rate", 60_000.0)


def test_nothing_recorded() -> None:
    """Without a value, mean, extremes and value are NaN; rates and totals are 0."""
    metrics = Metrics()
    metrics.sensor("g", ROWS)
    got = {metric.name: value for metric, value in metrics.snapshot(5.0).items()}
    assert all(isnan(got[name]) for name in ("avg", "max", "min", "value"))
    assert (0.0, 0.0, 0.0, 0.0) == tuple(got[name] for name in ("rate", "count_rate", "total", "count"))


def test_recordings_per_hour_and_share_of_the_time() -> None:
    """Two recordings of 3 s (in ns) in windows of one minute are 120 per hour, and a ratio of a tenth."""
    metrics = Metrics()
    sensor = metrics.sensor("g", ROWS)
    for now in (0.0, 20_000.0):
        sensor.record(3e9, now)
    assert pytest.approx(120) == read(metrics, "count_per_hour", 60_000.0)
    assert pytest.approx(0.1) == read(metrics, "ratio", 60_000.0)


def test_a_window_has_a_minimum_length() -> None:
    """A window has at least a millisecond, whatever the option is."""
    metrics = Metrics(window_ms=0)
    metrics.sensor("g", ROWS).record(3.0, 5.0)
    assert 3.0 == read(metrics, "avg", 5.0)


def test_seconds_since() -> None:
    """The gauge has whole seconds since a moment, and -1 before there is one."""
    metrics = Metrics()
    moments: list[float] = []
    metrics.seconds_since(metrics.name("ago", "g"), lambda: moments[-1] if moments else None)
    assert -1.0 == read(metrics, "ago", 100.0)
    moments.append(100.0)
    assert (0.0, 2.0) == (read(metrics, "ago", 1_099.0), read(metrics, "ago", 2_100.0))


def test_values_are_recorded_by_parents() -> None:
    """What a sensor records is recorded by its parent and by the parent of that, each with its own windows."""
    metrics = Metrics()
    first = metrics.sensor("g", ROWS)
    second = metrics.sensor("g", ROWS, parent=first)
    third = metrics.sensor("g", ROWS, parent=second)
    third.record(3.0, 1.0, 2)
    second.record(9.0, 2.0)
    assert [(3, 12.0, 9.0), (3, 12.0, 9.0), (2, 3.0, 3.0)] == [
        (sensor.count, sensor.total, sensor.measure(Stat.MAX, 2.0)) for sensor in (first, second, third)
    ]
    assert 1 == len(third.windows_after(0.5))
    assert [] == third.windows_after(1.0)


def test_two_sensors_recorded_together() -> None:
    """One call records two values, with the same time and the same number of values."""
    metrics = Metrics()
    first, second = metrics.sensor("g", ROWS), metrics.sensor("g", ROWS)
    pair = SensorPair(first, second)
    pair.record(4, 6.0, 1_000.0)
    pair.record(1.0, 2.0, 2_000.0, 3)
    assert [(4, 5.0, 1.0), (4, 8.0, 2.0)] == [(s.count, s.total, s.value) for s in (first, second)]


def test_record_refuses_wrong_types() -> None:
    """A value that is not a number, and a sensor that is none, raise TypeError; nothing is recorded then."""
    sensor = Metrics().sensor("g", ROWS)
    wrong: Any
    for wrong in (None, "1"):
        with pytest.raises(TypeError):
            sensor.record(wrong, 0.0)
        with pytest.raises(TypeError):
            SensorPair(sensor, wrong)
        with pytest.raises(TypeError):
            SensorPair(sensor, sensor).record(1.0, wrong, 0.0)
    assert 0 == sensor.count


@given(
    st.lists(st.tuples(st.integers(-1_000_000, 1_000_000), st.floats(0, 25), st.integers(1, 5)), max_size=60),
    st.floats(0, 40),
    st.integers(1, 4),
)
def test_stats_agree_with_a_plain_computation(
    recordings: list[tuple[int, float, int]], later: float, samples: int
) -> None:
    """Each stat is what a plain computation over all recordings of the sampled windows gives."""
    window_ms = 10.0
    sensor = Metrics(samples=samples, window_ms=window_ms).sensor("g", ROWS)
    now, windows = 100.0, []
    for value, pause, count in recordings:
        now += pause
        sensor.record(value, now, count)
        if not windows or now - windows[-1][0][1] >= window_ms:
            windows.append([])
        windows[-1].append((value, now, count))
    now += later
    sampled = [window for window in windows if window[-1][1] > now - samples * window_ms]
    values = [value for window in sampled for value, _, _ in window]
    count = sum(count for window in sampled for _, _, count in window)
    total = sum(sum(value for value, _, _ in window) for window in sampled)
    elapsed = now - sampled[0][0][1] if sampled else 0.0
    elapsed += max(0, samples - 1 - int(elapsed / window_ms)) * window_ms
    seconds = max(elapsed, 1.0) / 1000
    near = partial(pytest.approx, abs=1e-9)
    assert near(total / seconds) == sensor.measure(Stat.RATE, now)
    assert near(count / seconds) == sensor.measure(Stat.COUNT_RATE, now)
    assert sum(count for _, _, count in recordings) == sensor.measure(Stat.COUNT, now)
    assert near(sum(value for value, _, _ in recordings)) == sensor.measure(Stat.TOTAL, now)
    if values:
        assert near(total / count) == sensor.measure(Stat.AVG, now)
        assert (max(values), min(values)) == (sensor.measure(Stat.MAX, now), sensor.measure(Stat.MIN, now))
    else:
        assert all(isnan(sensor.measure(stat, now)) for stat in (Stat.AVG, Stat.MAX, Stat.MIN))


def test_windows_are_bounded() -> None:
    """A sensor keeps at most one window more than configured."""
    sensor = Metrics(samples=3, window_ms=10.0).sensor("g", ROWS)
    for now in range(0, 10_000, 7):
        sensor.record(1.0, float(now))
    assert 4 == len(sensor.windows_after(-1.0))


def test_names_carry_common_and_own_tags() -> None:
    """A metric's name has the registry's tags first, then its own tags."""
    metrics = Metrics(tags=(("client-id", "c"),))
    metrics.sensor("g", [("lag", Stat.VALUE, "lag")], ("topic", "t"))
    assert [MetricName("lag", "g", "", (("client-id", "c"), ("topic", "t")))] == list(metrics.snapshot(0.0))


def test_gauges_are_read_at_the_snapshot() -> None:
    """A gauge is a function of the time of the snapshot."""
    metrics = Metrics()
    metrics.gauge(metrics.name("age", "g"), lambda now: now - 5)
    assert 7.0 == read(metrics, "age", 12.0)


def test_remove_sensor_and_gauge() -> None:
    """A removed sensor removes all its metrics; unknown names are ignored."""
    metrics = Metrics()
    sensor = metrics.sensor("g", ROWS)
    metrics.publish(sensor, "g", ROWS, ("topic", "a_b"))
    gauge = metrics.name("age", "g")
    metrics.gauge(gauge, lambda now: now)
    metrics.remove(sensor, gauge, gauge)
    assert 0 == len(metrics)


def test_memory_of_unused_sensors() -> None:
    """A sensor without values takes little memory, because a consumer has two of them for each partition."""
    metrics, rows = Metrics(tags=(("client-id", "c"),)), (("a", Stat.AVG, ""), ("b", Stat.MAX, ""))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = [metrics.sensor("g", rows, ("topic", "t"), ("partition", str(number))) for number in range(1_000)]
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert 2_000 == len(metrics)
    assert used < 1_500 * len(kept)


def test_names_share_their_tags() -> None:
    """Names with equal tags share one tuple."""
    metrics = Metrics(tags=(("client-id", "c"),))
    first, second, other = (metrics.name(name, "g", "", ("partition", "0")) for name in "abc")
    assert first.tags is second.tags is other.tags
    assert (("client-id", "c"), ("partition", "1")) == metrics.name("a", "g", "", ("partition", "1")).tags
    assert (("client-id", "c"), ("partition", "0")) == first.tags


def test_plain_names() -> None:
    """A plain name finds the metric of the whole consumer. It is refused if several metrics could be meant."""
    whole, part = MetricName("lag", "g", tags=(("c", "1"),)), MetricName("lag", "g", tags=(("c", "1"), ("t", "a")))
    first, second = MetricName("rate", "g", tags=(("n", "1"),)), MetricName("rate", "g", tags=(("n", "2"),))
    values = MetricValues({part: 1.0, whole: 2.0, first: 3.0, second: 4.0})
    assert (2.0, 1.0, 2.0, None) == (values["lag"], values[part], values.get("lag"), values.get("other"))
    with pytest.raises(KeyError, match="rate is the name of 2 metrics; give a MetricName"):
        _ = values["rate"]
    with pytest.raises(KeyError, match="other"):
        _ = values["other"]
