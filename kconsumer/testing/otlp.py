"""Decodes the metrics that clients push (KIP-714): a `MetricsData` message of OpenTelemetry, in protobuf.

Knows only the fields that clients of Kafka write. `kconsumer/telemetry/otlp.py` shows their numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

Labels = frozenset[tuple[str, str]]

VARINT, FIXED64, DELIMITED = 0, 1, 2  # wire types
GAUGE, SUM = 5, 7  # fields of a metric


class MetricPoint(NamedTuple):
    """One value that a client has pushed."""

    value: float
    temporality: int | None  # of a sum: 1 for its increase, 2 for its whole value; None for a gauge
    start_ns: int  # when the interval of a sum began, since the Unix epoch; 0 for a gauge
    time_ns: int


class DecodedMetrics(NamedTuple):
    """The metrics of one push."""

    resource: dict[str, str]  # the labels of the client
    points: dict[tuple[str, Labels], MetricPoint]  # by name and labels


def decode_metrics(data: bytes) -> DecodedMetrics:
    """Returns the metrics of a MetricsData message. Raises ValueError if the bytes are not such a message."""
    decoded = DecodedMetrics({}, {})
    for _, resource_metrics in _messages(data, 1):
        for number, content in _messages(resource_metrics, 1, 2):
            if number == 1:
                decoded.resource.update(_labels(content, 1))
            else:
                for _, metric in _messages(content, 2):
                    decoded.points.update(_points(metric))
    return decoded


def _points(metric: bytes) -> Iterator[tuple[tuple[str, Labels], MetricPoint]]:
    name = b"".join(content for _, content in _messages(metric, 1)).decode()
    for number, content in _messages(metric, GAUGE, SUM):
        fields = dict(_fields(content))
        temporality = fields.get(2) if number == SUM else None
        for _, point in _messages(content, 1):
            values = {field: value for field, value in _fields(point) if isinstance(value, int)}
            if 4 in values:
                (value,) = struct.unpack("<d", struct.pack("<Q", values[4]))
            else:
                (value,) = struct.unpack("<q", struct.pack("<Q", values[6]))
            labels = frozenset(_labels(point, 7))
            assert temporality is None or isinstance(temporality, int)
            yield (name, labels), MetricPoint(float(value), temporality, values.get(2, 0), values[3])


def _labels(data: bytes, field: int) -> Iterator[tuple[str, str]]:
    for _, pair in _messages(data, field):
        parts = dict(_messages(pair, 1, 2))
        text = b"".join(content for _, content in _messages(parts[2], 1))
        yield parts[1].decode(), text.decode()


def _messages(data: bytes, *numbers: int) -> Iterator[tuple[int, bytes]]:
    """Yields the number and the content of each length-delimited field with one of these numbers."""
    for number, content in _fields(data):
        if number in numbers and isinstance(content, bytes):
            yield number, content


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields the number and the value of each field."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        size = 8
        if wire_type == DELIMITED:
            size, at = _varint(data, at)
        elif wire_type != FIXED64:
            raise ValueError(f"field {number} has the unexpected wire type {wire_type}")
        if size > len(data) - at:
            raise ValueError(f"field {number} is truncated")
        content = data[at : at + size]
        at += size
        yield number, content if wire_type == DELIMITED else int.from_bytes(content, "little")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns an integer and the position after it."""
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("an integer is truncated")
