"""Encodes metrics as a `MetricsData` message of OpenTelemetry (OTLP metrics v1), which is the format of KIP-714.

OTLP is protobuf. This module writes the few messages that are needed, with three kinds of fields: varints,
fixed 64-bit numbers and length-delimited fields. A library is not used, because brokers may request metrics from every
consumer: with an optional package, most consumers would silently send nothing, and a required one would be the largest
dependency by far.

    MetricsData   1 ResourceMetrics
    ResourceMetrics   1 Resource   2 ScopeMetrics
    Resource   1 KeyValue (attributes)
    ScopeMetrics   2 Metric
    Metric   1 name   5 Gauge   7 Sum
    Gauge   1 NumberDataPoint
    Sum   1 NumberDataPoint   2 aggregation temporality   3 is monotonic
    NumberDataPoint   2 start time   3 time   4 value (double)   6 value (integer)   7 KeyValue (attributes)
    KeyValue   1 key   2 AnyValue
    AnyValue   1 string
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

VARINT, FIXED64, DELIMITED = 0, 1, 2  # wire types
DELTA, CUMULATIVE = 1, 2  # aggregation temporalities

Attributes = Iterable[tuple[str, str]]


class DataPoint(NamedTuple):
    """The value of one metric. An `int` value is encoded as an integer, and a `float` as a double."""

    attributes: Attributes
    value: float | int
    time_ns: int  # since the Unix epoch
    start_ns: int = 0  # of a sum: the beginning of the interval; 0 for a gauge


class Metric(NamedTuple):
    """The metrics with one name."""

    name: str
    temporality: int | None  # of a monotonic sum; None for a gauge
    points: list[DataPoint]


def encode_metrics(resource: Mapping[str, str], metrics: Iterable[Metric]) -> bytes:
    """Returns a MetricsData message with the metrics of one resource, which has these attributes."""
    attributes = b"".join(_key_value(1, name, value) for name, value in resource.items())
    scope = b"".join(_delimited(2, _metric(metric)) for metric in metrics)
    return _delimited(1, _delimited(1, attributes) + _delimited(2, scope))


def _metric(metric: Metric) -> bytes:
    points = b"".join(_delimited(1, _point(point)) for point in metric.points)
    name = _text(1, metric.name)
    if metric.temporality is None:
        return name + _delimited(5, points)
    return name + _delimited(7, points + _tag(2, VARINT) + varint(metric.temporality) + _tag(3, VARINT) + varint(1))


def _point(point: DataPoint) -> bytes:
    start = _tag(2, FIXED64) + struct.pack("<Q", point.start_ns) if point.start_ns else b""
    time = _tag(3, FIXED64) + struct.pack("<Q", point.time_ns)
    if isinstance(point.value, int):
        value = _tag(6, FIXED64) + struct.pack("<q", point.value)
    else:
        value = _tag(4, FIXED64) + struct.pack("<d", point.value)
    return start + time + value + b"".join(_key_value(7, name, text) for name, text in point.attributes)


def _key_value(number: int, key: str, value: str) -> bytes:
    return _delimited(number, _text(1, key) + _delimited(2, _text(1, value)))


def _text(number: int, text: str) -> bytes:
    return _delimited(number, text.encode("utf-8", "replace"))


def _delimited(number: int, data: bytes) -> bytes:
    return _tag(number, DELIMITED) + varint(len(data)) + data


def _tag(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)


def varint(value: int) -> bytes:
    """Returns the encoding of an integer that is not negative: 7 bits per byte, the lowest bits first."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
