"""Turns filters that Spark pushes down into constraints on the topics, partitions, offsets and timestamps of a query.

Uses only class names and attributes of pyspark's Filter objects, and so does not import pyspark. A filter is dropped
if the choice of offset ranges excludes all rows that do not match it. Spark applies every other filter to the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

__all__ = ["Constraints", "push"]

NEVER_NULL = ("topic", "partition", "offset", "timestampType")  # columns that are never null


@dataclass(frozen=True)
class Constraints:
    """Conditions on the records of a query.

    They are fulfilled by the choice of the partitions and offset ranges to read, without a test of each record.
    """

    topics: tuple[tuple[str, Any], ...] = ()  # conditions (operator, operand) on the topic; all must hold
    partitions: tuple[tuple[str, Any], ...] = ()  # conditions (operator, operand) on the partition number
    start: int = 0  # minimum offset
    end: int | None = None  # all offsets are below this one
    from_ms: int | None = None  # minimum timestamp
    until_ms: int | None = None  # all timestamps are below this one

    def wants(self, topic: str, partition: int) -> bool:
        """Returns True if the partition fulfils all conditions in `topics` and `partitions`."""
        return all(TESTS[name](topic, operand) for name, operand in self.topics) and all(
            TESTS[name](partition, operand) for name, operand in self.partitions
        )


TESTS: Mapping[str, Callable[[Any, Any], bool]] = {
    "EqualTo": lambda a, b: bool(a == b),
    "EqualNullSafe": lambda a, b: bool(a == b),
    "In": lambda a, b: a in b,
    "GreaterThan": lambda a, b: bool(a > b),
    "GreaterThanOrEqual": lambda a, b: bool(a >= b),
    "LessThan": lambda a, b: bool(a < b),
    "LessThanOrEqual": lambda a, b: bool(a <= b),
    "StringStartsWith": lambda a, b: bool(a.startswith(b)),
    "StringEndsWith": lambda a, b: bool(a.endswith(b)),
    "StringContains": lambda a, b: b in a,
    "NotEqualTo": lambda a, b: bool(a != b),
    "NotIn": lambda a, b: a not in b,
}
STRINGS = ("StringStartsWith", "StringEndsWith", "StringContains")


def push(filters: Iterable[Any]) -> tuple[Constraints, list[Any]]:
    """Convert filters to constraints. Returns the constraints, and the filters that Spark must apply to the rows."""
    constraints, rest = Constraints(), []
    for item in filters:
        constraints, fulfilled = _apply(constraints, item)
        if not fulfilled:
            rest.append(item)
    return constraints, rest


def _apply(known: Constraints, item: Any) -> tuple[Constraints, bool]:
    """Add a filter to constraints. Returns the new constraints, and whether they replace the filter.

    If they do not replace it (False), Spark must apply the filter to the rows.
    """
    name, column, operand = _read(item)
    if name == "IsNotNull":
        return known, column in NEVER_NULL
    if name not in TESTS or operand is None or (name in ("In", "NotIn") and None in operand):
        return known, False  # a comparison with null is null, which Spark handles
    if column in ("topic", "partition"):
        if column == "partition" and name in STRINGS:
            return known, False
        operand = tuple(operand) if name in ("In", "NotIn") else operand
        if column == "topic":
            return _with(known, topics=(*known.topics, (name, operand))), True
        return _with(known, partitions=(*known.partitions, (name, operand))), True
    if column == "offset":
        return _offsets(known, name, operand)
    if column == "timestamp" and isinstance(operand, datetime):
        return _times(known, name, operand), False
    return known, False


def _read(item: Any) -> tuple[str, str, Any]:
    """Returns class name, column and operand of a filter. For negated filters the name is NotEqualTo or NotIn.

    Name and column are empty for a filter of another form, such as one on a field of a struct.
    """
    name, column = type(item).__name__, getattr(item, "attribute", None)
    if name == "Not":
        inner, where, operand = _read(item.child)
        return (f"Not{inner}", where, operand) if inner in ("EqualTo", "In") else ("", "", None)
    if not column or len(column) != 1:
        return "", "", None
    return name, column[0], getattr(item, "value", None)


def _offsets(known: Constraints, name: str, operand: Any) -> tuple[Constraints, bool]:
    if name in ("EqualTo", "EqualNullSafe"):
        low, high = operand, operand + 1
    elif name == "In":
        if not operand:
            return _with(known, end=0), True
        known, _ = _offsets(known, "GreaterThanOrEqual", min(operand))
        return _offsets(known, "LessThanOrEqual", max(operand))[0], len(set(operand)) == 1
    elif name in ("GreaterThan", "GreaterThanOrEqual"):
        low, high = operand + (name == "GreaterThan"), None
    elif name in ("LessThan", "LessThanOrEqual"):
        low, high = 0, operand + (name == "LessThanOrEqual")
    else:
        return known, False
    return _with(known, start=max(known.start, low), end=_min(known.end, high and max(high, 0))), True


def _times(known: Constraints, name: str, operand: datetime) -> Constraints:
    """Add a comparison with a time to constraints. Returns the new constraints.

    Timestamps in Kafka are in ms and operands in microseconds, so operands are rounded to a bound in ms.
    """
    moment = operand if operand.tzinfo else operand.replace(tzinfo=UTC)
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    micros = (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
    up, past = -(-micros // 1000), micros // 1000 + 1  # the first ms that is not before the operand; the first after it
    if name in ("EqualTo", "EqualNullSafe", "GreaterThanOrEqual"):
        known = _with(known, from_ms=max(up, known.from_ms if known.from_ms is not None else up))
    if name == "GreaterThan":
        known = _with(known, from_ms=max(past, known.from_ms if known.from_ms is not None else past))
    if name in ("EqualTo", "EqualNullSafe", "LessThanOrEqual"):
        known = _with(known, until_ms=_min(known.until_ms, past))
    if name == "LessThan":
        known = _with(known, until_ms=_min(known.until_ms, up))
    return known


def _min(one: int | None, other: int | None) -> int | None:
    return min((value for value in (one, other) if value is not None), default=None)


def _with(known: Constraints, **changed: Any) -> Constraints:
    return Constraints(**{**known.__dict__, **changed})
