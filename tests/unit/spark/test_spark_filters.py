"""The constraints that the Spark source derives from pushed filters, and the filters that Spark must still apply."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kconsumer.spark.filters import Constraints, push


@dataclass
class Filter:
    """A class with the attributes of pyspark's filters."""

    attribute: tuple[str, ...]
    value: Any = None


def kind(name: str) -> Any:
    """Returns a class with the name of one of pyspark's filters."""
    return type(name, (Filter,), {})


@dataclass
class Not:
    """Replaces pyspark's negation."""

    child: Any


def f(name: str, column: str, value: Any = None) -> Any:
    """Returns a filter."""
    return kind(name)((column,), value)


def test_partitions_and_topics_are_settled() -> None:
    """Filters on topic and partition select partitions, and Spark need not apply them again."""
    constraints, rest = push(
        [
            f("EqualTo", "topic", "a"),
            f("In", "partition", [1, 2]),
            Not(f("EqualTo", "partition", 2)),
            f("StringStartsWith", "topic", "a"),
            f("IsNotNull", "partition"),
        ]
    )
    assert [] == rest
    wanted = [(t, p) for t in ("a", "b") for p in range(4) if constraints.wants(t, p)]
    assert [("a", 1)] == wanted


@pytest.mark.parametrize(
    ("name", "value", "start", "end"),
    [
        ("EqualTo", 5, 5, 6),
        ("EqualNullSafe", 5, 5, 6),
        ("GreaterThan", 5, 6, None),
        ("GreaterThanOrEqual", 5, 5, None),
        ("LessThan", 5, 0, 5),
        ("LessThanOrEqual", 5, 0, 6),
        ("In", [7], 7, 8),
    ],
)
def test_offsets_are_settled_exactly(name: str, value: Any, start: int, end: int | None) -> None:
    """A comparison of the offset becomes a range, and Spark need not apply it again."""
    assert (Constraints(start=start, end=end), []) == push([f(name, "offset", value)])


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_MS = 1767268800000


@pytest.mark.parametrize(
    ("name", "moment", "bounds"),
    [
        ("GreaterThanOrEqual", NOON, (NOON_MS, None)),
        ("GreaterThan", NOON, (NOON_MS + 1, None)),
        ("GreaterThanOrEqual", NOON + timedelta(microseconds=1), (NOON_MS + 1, None)),
        ("GreaterThan", NOON + timedelta(microseconds=1), (NOON_MS + 1, None)),
        ("LessThan", NOON, (None, NOON_MS)),
        ("LessThanOrEqual", NOON, (None, NOON_MS + 1)),
        ("LessThan", NOON + timedelta(microseconds=1), (None, NOON_MS + 1)),
        ("EqualTo", NOON, (NOON_MS, NOON_MS + 1)),
        ("LessThan", datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=UTC), (None, -500)),
    ],
)
def test_times_become_bounds_that_spark_checks_again(
    name: str, moment: datetime, bounds: tuple[int | None, int | None]
) -> None:
    """Filters on timestamps become bounds in whole milliseconds, and Spark applies them again."""
    item = f(name, "timestamp", moment)
    constraints, rest = push([item])
    assert (bounds, [item]) == ((constraints.from_ms, constraints.until_ms), rest)


@pytest.mark.parametrize(
    "item",
    [
        f("EqualTo", "key", b"x"),
        f("IsNull", "key"),
        f("IsNotNull", "value"),
        f("EqualTo", "topic", None),
        f("StringContains", "partition", "1"),
        Not(f("GreaterThan", "offset", 3)),
        f("Unheard", "offset", 3),
        kind("EqualTo")(("headers", "key"), "x"),
        f("GreaterThan", "timestamp", 5),
        f("IsNotNull", "timestamp"),  # it may be null with onBadTimestamp
        f("In", "offset", [5, None]),
        Not(f("In", "partition", [0, None])),
    ],
)
def test_other_filters_are_left_to_spark(item: Any) -> None:
    """Other filters change no range, and Spark applies them."""
    assert (Constraints(), [item]) == push([item])
