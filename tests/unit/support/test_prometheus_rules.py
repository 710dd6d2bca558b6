"""The evaluator of alerting rules. Its results were compared with those of promtool 2.42 over random series."""

from __future__ import annotations

import pytest

from support.harnesses.prometheus_rules import Expression, Labels, Rule, Scrapes, rules_of

ONE: Labels = frozenset([("client_id", "one")])
TWO: Labels = frozenset([("client_id", "two"), ("topic", "t")])


def scrapes(counter: list[float | None], gauge: float = 1.0) -> Scrapes:
    """Returns scrapes 15 s apart of a counter of client one, and of a gauge of clients one and two."""
    found = Scrapes()
    for number, value in enumerate(counter):
        of_counter = {} if value is None else {ONE: value}
        found.add(number * 15.0, {"c_total": of_counter, "g": {ONE: gauge, TWO: 2.0}})
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("increase(c_total[1m])", {ONE: 6.0}),
        ("rate(c_total[1m])", {ONE: 0.1}),
        ("increase(c_total[1m]) > 6", {}),
        ("g", {ONE: 1.0, TWO: 2.0}),
        ('g{topic=""}', {ONE: 1.0}),
        ('g{topic="t"} >= 2', {TWO: 2.0}),
        ("max by (topic) (g)", {frozenset(): 1.0, frozenset([("topic", "t")]): 2.0}),
        ("sum by (client_id, instance) (g)", {ONE: 1.0, frozenset([("client_id", "two")]): 2.0}),
        ("increase(c_total[1m]) > 0 and g == 1", {ONE: 6.0}),
        ("increase(c_total[1m]) > 0 and g == 2", {}),
        ("increase(c_total[1m]) > 0 or g > 0", {ONE: 6.0, TWO: 2.0}),
        ("(g > 1) and g", {TWO: 2.0}),
        ("missing", {}),
    ],
)
def test_expressions(text: str, expected: dict[Labels, float]) -> None:
    """The counter grows by 1, 2 and 3 after resets; the range ends with the last scrape."""
    found = Expression(text).value(scrapes([7.0, 1.0, 3.0, 4.0, 6.0]), 60.0)
    assert {labels: pytest.approx(value) for labels, value in expected.items()} == found


def test_a_range_with_few_samples() -> None:
    """A series that began in the range is extrapolated by half an interval at most, and never below zero."""
    samples = [None] * 10 + [4.0, 5.0, 6.0]
    assert {ONE: pytest.approx(2.5)} == Expression("increase(c_total[5m])").value(scrapes(samples), 180.0)
    assert {ONE: pytest.approx(2.0)} == Expression("increase(c_total[5m])").value(
        scrapes([*[None] * 10, 0.0, 1.0, 2.0]), 180.0
    )
    assert {} == Expression("increase(c_total[5m])").value(scrapes([*[None] * 10, 4.0]), 150.0)


def test_stale_series() -> None:
    """A series that is missing in the last scrape has no value, and so has the last scrape after five minutes."""
    found = scrapes([1.0, None])
    assert [{ONE: 1.0}, {}] == [Expression("c_total").value(found, at) for at in (14.0, 15.0)]
    assert [2, 0] == [len(Expression("g").value(found, at)) for at in (314.0, 315.0)]


def test_for() -> None:
    """A rule with `for` fires after its expression has had a value for this time, without interruption."""
    found = scrapes([1.0, 1.0, None, 1.0, 1.0, 1.0, 1.0])
    assert [75.0, 90.0] == [at for at, _ in Rule("a", "c_total > 0", 30.0).fires(found)]


def test_files() -> None:
    """Rules are read from their file: expressions of one line and of several, with and without `for`."""
    text = """
groups:
  - rules:
      - alert: One
        expr: a > 1
        for: 5m
        labels: {severity: critical}
      - alert: Two
        expr: >
          a == 0
          and b{topic=""} > 0
        labels: {severity: warning}
"""
    assert [Rule("One", "a > 1", 300.0), Rule("Two", 'a == 0 and b{topic=""} > 0', 0.0)] == rules_of(text)


def test_other_expressions_are_refused() -> None:
    """An expression that is not understood fails, and is not evaluated in part."""
    for text in ("a > 1 unless b", "a[5m] offset 1h", 'a{b=~"c"}', "a + 1"):
        with pytest.raises(AssertionError):
            Expression(text)
