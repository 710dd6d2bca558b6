"""Evaluates alerting rules of Prometheus over the scrapes of a test. Knows only what examples/monitoring uses.

An expression is made of selectors such as `name{label="value"}`, `rate` and `increase` of a range, `max by` and
`sum by`, comparisons with a number, `and` and `or`. As in Prometheus, `rate` and `increase` extrapolate to the ends of
the range. All times are in s.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

Labels = frozenset[tuple[str, str]]  # without the name
Vector = dict[Labels, float]
Sample = tuple[float, float]  # time and value

LOOKBACK_S = 300.0  # a scrape that is older is not used
UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
TOKEN = re.compile(r'\s*([a-zA-Z_]\w*|\d+(?:\.\d+)?[smh]?|"[^"]*"|>=|<=|==|!=|[(){}\[\],=<>])')


@dataclass
class Scrapes:
    """What a Prometheus server has stored: the series of each scrape."""

    taken: list[tuple[float, dict[str, Vector]]] = field(default_factory=list)

    def add(self, at: float, series: Mapping[str, Vector]) -> None:
        """Store a scrape, which is later than all others."""
        self.taken.append((at, dict(series)))

    def now(self, name: str, at: float) -> Vector:
        """Returns the values of a metric. Series that are not in the last scrape are stale."""
        for taken_at, series in reversed(self.taken):
            if taken_at <= at:
                return series.get(name, {}) if at - taken_at < LOOKBACK_S else {}
        return {}

    def within(self, name: str, begin: float, end: float) -> dict[Labels, list[Sample]]:
        """Returns the samples of a metric in a range of time."""
        found: dict[Labels, list[Sample]] = {}
        for at, series in self.taken:
            if begin <= at <= end:
                for labels, value in series.get(name, {}).items():
                    found.setdefault(labels, []).append((at, value))
        return found


def duration_s(text: str) -> float:
    """Returns the seconds of a duration such as 5m."""
    return float(text[:-1]) * UNITS_S[text[-1]]


def increase(samples: list[Sample], begin: float, end: float) -> float:
    """Returns the increase of a counter with at least two samples, extrapolated to the whole range."""
    (first_at, first), (last_at, last) = samples[0], samples[-1]
    resets = sum(before for (_, before), (_, after) in pairwise(samples) if after < before)
    result = last - first + resets
    sampled = last_at - first_at
    average = sampled / (len(samples) - 1)
    to_start, to_end = first_at - begin, end - last_at
    if result > 0 and first >= 0:
        to_start = min(to_start, sampled * first / result)  # the counter was 0 then
    near = average * 1.1
    extrapolated = sampled + sum(gap if gap < near else average / 2 for gap in (to_start, to_end))
    return result * extrapolated / sampled


class Expression:
    """A parsed expression."""

    def __init__(self, text: str) -> None:
        self._tokens = TOKEN.findall(text)
        assert re.sub(r"\s", "", text) == re.sub(r"\s", "", "".join(self._tokens)), f"cannot be read: {text}"
        self._evaluate = self._or()
        assert not self._tokens, f"not understood: {self._tokens}"

    def value(self, scrapes: Scrapes, at: float) -> Vector:
        """Returns the value at a time: empty if no series fulfils the conditions."""
        return self._evaluate(scrapes, at)

    def _take(self, *expected: str) -> bool:
        """Take the next token if it is one of these. Returns whether it was."""
        if self._tokens and self._tokens[0] in expected:
            self._tokens.pop(0)
            return True
        return False

    def _must(self, expected: str) -> None:
        assert self._take(expected), f"expected {expected}, found {self._tokens[:3]}"

    def _or(self) -> Callable[[Scrapes, float], Vector]:
        left = self._and()
        while self._take("or"):
            left = _either(left, self._and())
        return left

    def _and(self) -> Callable[[Scrapes, float], Vector]:
        left = self._comparison()
        while self._take("and"):
            left = _both(left, self._comparison())
        return left

    def _comparison(self) -> Callable[[Scrapes, float], Vector]:
        term = self._term()
        if not self._tokens or self._tokens[0] not in COMPARISONS:
            return term
        compare, number = COMPARISONS[self._tokens.pop(0)], float(self._tokens.pop(0))
        return lambda scrapes, at: {k: v for k, v in term(scrapes, at).items() if compare(v, number)}

    def _term(self) -> Callable[[Scrapes, float], Vector]:
        if self._take("("):
            inner = self._or()
            self._must(")")
            return inner
        name = self._tokens.pop(0)
        if name in ("max", "sum"):
            return self._aggregate(max if name == "max" else sum)
        if name in ("rate", "increase"):
            return self._range(per_second=name == "rate")
        matchers = self._matchers()
        return lambda scrapes, at: {k: v for k, v in scrapes.now(name, at).items() if _matches(k, matchers)}

    def _aggregate(self, function: Callable[[list[float]], float]) -> Callable[[Scrapes, float], Vector]:
        self._must("by")
        self._must("(")
        kept = {self._tokens.pop(0)}
        while self._take(","):
            kept.add(self._tokens.pop(0))
        self._must(")")
        self._must("(")
        inner = self._or()
        self._must(")")

        def evaluate(scrapes: Scrapes, at: float) -> Vector:
            groups: dict[Labels, list[float]] = {}
            for labels, value in inner(scrapes, at).items():
                groups.setdefault(frozenset(row for row in labels if row[0] in kept), []).append(value)
            return {labels: function(values) for labels, values in groups.items()}

        return evaluate

    def _range(self, *, per_second: bool) -> Callable[[Scrapes, float], Vector]:
        self._must("(")
        name = self._tokens.pop(0)
        matchers = self._matchers()
        self._must("[")
        length = duration_s(self._tokens.pop(0))
        self._must("]")
        self._must(")")
        divisor = length if per_second else 1.0

        def evaluate(scrapes: Scrapes, at: float) -> Vector:
            found = scrapes.within(name, at - length, at)
            return {
                labels: increase(samples, at - length, at) / divisor
                for labels, samples in found.items()
                if len(samples) > 1 and _matches(labels, matchers)
            }

        return evaluate

    def _matchers(self) -> dict[str, str]:
        """Returns the values that labels must have. A label that is missing has the value ""."""
        found: dict[str, str] = {}
        if self._take("{"):
            while not self._take("}"):
                label = self._tokens.pop(0)
                self._must("=")
                found[label] = self._tokens.pop(0).strip('"')
                self._take(",")
        return found


def _matches(labels: Labels, matchers: Mapping[str, str]) -> bool:
    values = dict(labels)
    return all(values.get(label, "") == value for label, value in matchers.items())


def _both(
    left: Callable[[Scrapes, float], Vector], right: Callable[[Scrapes, float], Vector]
) -> Callable[[Scrapes, float], Vector]:
    def evaluate(scrapes: Scrapes, at: float) -> Vector:
        others = right(scrapes, at)
        return {labels: value for labels, value in left(scrapes, at).items() if labels in others}

    return evaluate


def _either(
    left: Callable[[Scrapes, float], Vector], right: Callable[[Scrapes, float], Vector]
) -> Callable[[Scrapes, float], Vector]:
    return lambda scrapes, at: right(scrapes, at) | left(scrapes, at)


@dataclass
class Rule:
    """An alerting rule. It fires if its expression has had a value for `for_s`."""

    alert: str
    text: str
    for_s: float

    def fires(self, scrapes: Scrapes) -> Iterator[tuple[float, Labels]]:
        """Yield each scrape after which the alert fires, and its labels. The rule is evaluated after each scrape."""
        expression = Expression(self.text)
        since: dict[Labels, float] = {}
        for at, _ in scrapes.taken:
            active = expression.value(scrapes, at)
            since = {labels: since.get(labels, at) for labels in active}
            for labels, began in since.items():
                if at - began >= self.for_s:
                    yield at, labels


def rules_of(text: str) -> list[Rule]:
    """Returns the rules in a file of alerting rules."""
    rules = []
    for part in text.split("- alert: ")[1:]:
        expression = re.search(r"^ +expr: (?:>\n((?: {10,}.*\n)+)|(.*)\n)", part, re.MULTILINE)
        assert expression is not None
        lasts = re.search(r"^ +for: (\w+)$", part, re.MULTILINE)
        name, for_s = part.split("\n")[0], duration_s(lasts[1]) if lasts else 0.0
        rules.append(Rule(name, " ".join((expression[1] or expression[2]).split()), for_s))
    return rules
