"""Names, labels, kinds and values of pushed metrics, and their encoding."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kconsumer.metrics.registry import Metrics, Stat
from kconsumer.telemetry.collector import TelemetryCollector, telemetry_name
from kconsumer.telemetry.otlp import CUMULATIVE, DELTA, DataPoint, Metric, encode_metrics, varint
from kconsumer.testing.otlp import MetricPoint, decode_metrics

GROUP = "consumer-fetch-manager-metrics"
PREFIX = "org.apache.kafka.consumer.fetch.manager."
NS = 1_000_000
ROWS = (("records-consumed-total", Stat.TOTAL, ""), ("records-consumed-rate", Stat.RATE, ""))


class Case:
    """A collector and its wall clock."""

    def __init__(self) -> None:
        self.wall_ms = 1000
        self.labels = {"group_id": "g", "client_rack": "", "group_member_id": ""}
        self.metrics = Metrics(tags=(("client-id", "c"),))
        self.collector = TelemetryCollector(self.metrics, lambda: self.labels, lambda: self.wall_ms)

    def points(self, *, delta: bool = True) -> dict[tuple[str, frozenset[tuple[str, str]]], MetricPoint]:
        """Returns what is pushed now."""
        return decode_metrics(self.collector.collect(["*"], delta=delta, now=0.0)).points


def test_known_bytes() -> None:
    """The encoding of a gauge and of a sum, as the protobuf of OpenTelemetry has it."""
    gauge = Metric("g", None, [DataPoint([("k", "v")], 1.5, 2)])
    label = b"\x0a\x01k\x12\x03\x0a\x01v"
    point = b"\x19" + (2).to_bytes(8, "little") + b"\x21\x00\x00\x00\x00\x00\x00\xf8\x3f" + b"\x3a\x08" + label
    metric = b"\x0a\x01g\x2a\x1e\x0a\x1c" + point
    resource = b"\x0a\x0a\x0a\x08" + label
    expected = resource + b"\x12\x25\x12\x23" + metric
    assert b"\x0a" + bytes([len(expected)]) + expected == encode_metrics({"k": "v"}, [gauge])
    total = Metric("s", DELTA, [DataPoint([], 3, 2, 1)])
    point = (
        b"\x11" + (1).to_bytes(8, "little") + b"\x19" + (2).to_bytes(8, "little") + b"\x31" + (3).to_bytes(8, "little")
    )
    metric = b"\x0a\x01s\x3a\x21\x0a\x1b" + point + b"\x10\x01\x18\x01"
    assert b"\x0a\x2c\x0a\x00\x12\x28\x12\x26" + metric == encode_metrics({}, [total])


@given(
    resource=st.dictionaries(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8"))),
    values=st.lists(st.floats() | st.integers(-(1 << 53), 1 << 53), max_size=5),
    time_ns=st.integers(0, (1 << 64) - 1),
    temporality=st.sampled_from([None, DELTA, CUMULATIVE]),
)
def test_round_trip(resource: dict[str, str], values: list[float], time_ns: int, temporality: int | None) -> None:
    """Whatever is encoded can be decoded again."""
    points = [DataPoint([("i", str(index))], value, time_ns) for index, value in enumerate(values)]
    decoded = decode_metrics(encode_metrics(resource, [Metric("m", temporality, points)]))
    assert resource == decoded.resource
    assert [repr(float(value)) for value in values] == [repr(point.value) for point in decoded.points.values()]
    assert all((temporality, 0, time_ns) == point[1:] for point in decoded.points.values())


@given(st.binary(max_size=40))
def test_any_bytes(data: bytes) -> None:
    """Any bytes are decoded, or raise ValueError or KeyError."""
    with suppress(ValueError, KeyError):
        decode_metrics(data)


def test_varint() -> None:
    """Integers have seven bits in each byte."""
    assert [b"\x00", b"\x7f", b"\x80\x01", b"\xac\x02"] == [varint(value) for value in (0, 127, 128, 300)]


@pytest.mark.parametrize(
    ("group", "name", "expected"),
    [
        (GROUP, "records-lag-max", PREFIX + "records.lag.max"),
        ("consumer-metrics", "poll-idle-ratio-avg", "org.apache.kafka.consumer.poll.idle.ratio.avg"),
        ("kafka-metrics-count", "count", "org.apache.kafka.kafka.count.count"),
        ("app-info", "start-time-ms", "org.apache.kafka.app.info.start.time.ms"),
        ("app-info", "version", None),
        ("consumer-fetch-manager-metrics", "records-filtered-total", None),
    ],
)
def test_names(group: str, name: str, expected: str | None) -> None:
    """Names are those of Java. Texts are not pushed."""
    assert expected == telemetry_name(group, name)


def test_increases_begin_at_the_last_confirmed_push() -> None:
    """The interval of an increase begins at the last confirmed push, or when the metric was added."""
    case = Case()
    sensor = case.metrics.sensor(GROUP, ROWS[:1])
    sensor.record(4, 0.0)
    case.wall_ms = 2000
    assert [(4.0, DELTA, 1000 * NS, 2000 * NS)] == list(case.points().values())
    sensor.record(1, 0.0)
    case.wall_ms = 3000
    assert [(5.0, DELTA, 1000 * NS, 3000 * NS)] == list(case.points().values())
    case.collector.confirm()
    sensor.record(2, 0.0)
    case.wall_ms = 4000
    assert [(2.0, DELTA, 3000 * NS, 4000 * NS)] == list(case.points().values())
    case.collector.confirm()
    assert [(7.0, CUMULATIVE, 1000 * NS, 4000 * NS)] == list(case.points(delta=False).values())
