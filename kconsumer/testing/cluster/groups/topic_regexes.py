"""Regular expressions to which members of a group subscribe, and the topics that match them.

The broker uses RE2, whose syntax is nearly a part of Python's. Expressions are resolved after a heartbeat that adds
one, and again when topics were created or after `group.consumer.regex.refresh.interval.ms`. All expressions of a group
are resolved together, but not within 10 s after the last time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from kconsumer._common.error_codes import Errors
from kconsumer.testing.cluster.requests import GroupError

MIN_REFRESH_INTERVAL_MS = 10_000

#: Python's syntax that RE2 lacks: lookaround, conditions, atomic groups, comments, back references.
NOT_IN_RE2 = re.compile(r"\(\?(?:<?[=!]|[(>#]|P[=>])|\\(?:[1-9]|Z)|[*+?}]\+")
#: RE2's syntax that Python lacks.
POSIX_CLASSES = {
    "[:alnum:]": "0-9A-Za-z",
    "[:alpha:]": "A-Za-z",
    "[:digit:]": "0-9",
    "[:lower:]": "a-z",
    "[:punct:]": r"!-/:-@\[-`{-~",
    "[:space:]": r"\t\n\v\f\r ",
    "[:upper:]": "A-Z",
    "[:word:]": "0-9A-Za-z_",
    "[:xdigit:]": "0-9A-Fa-f",
}


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that matched an expression."""

    topics: frozenset[str]
    resolved_at: float  # ms
    topics_version: int  # counts the changes of topics that were known then


class TopicRegexes:
    """The resolved expressions of a group."""

    def __init__(self) -> None:
        self._resolved: dict[str, ResolvedRegex] = {}

    def topics(self, regex: str) -> frozenset[str]:
        """Returns the topics that matched an expression, when it was resolved last."""
        found = self._resolved.get(regex)
        return frozenset() if found is None else found.topics

    def is_resolved(self, regex: str) -> bool:
        """Returns whether an expression has been resolved."""
        return regex in self._resolved

    def remove(self, regex: str) -> None:
        """Remove an expression to which no member subscribes any more."""
        self._resolved.pop(regex, None)

    def needs_refresh(
        self, subscribed: int, *, is_new: bool, now: float, new_topics_version: int, interval_ms: int
    ) -> bool:
        """Returns whether the expressions must be resolved.

        `subscribed`: the number of expressions to which members subscribe. `is_new`: True if the present heartbeat has
        added an expression. `new_topics_version`: the version of the topics when the last topic was created.
        """
        last = next(iter(self._resolved.values()), None)
        if last is None or not subscribed:
            return subscribed > 0
        if now <= last.resolved_at + MIN_REFRESH_INTERVAL_MS:
            return False
        return (
            is_new
            or subscribed != len(self._resolved)
            or last.topics_version < new_topics_version
            or now > last.resolved_at + interval_ms
        )

    def resolve(self, regexes: Iterable[str], topics: Iterable[str], now: float, topics_version: int) -> bool:
        """Store which of `topics` match each expression. Returns whether the topics of any expression have changed."""
        changed = False
        topics = list(topics)
        for regex in regexes:
            pattern = compile_regex(regex)
            found = frozenset(topic for topic in topics if pattern.fullmatch(topic))
            changed |= found != self.topics(regex)
            self._resolved[regex] = ResolvedRegex(found, now, topics_version)
        return changed


def validate_regex(regex: str) -> None:
    """Raise GroupError with INVALID_REGULAR_EXPRESSION if an expression is not valid."""
    try:
        compile_regex(regex)
    except re.error as error:
        raise GroupError(
            Errors.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error.msg}.",
        ) from None


@lru_cache(maxsize=256)
def compile_regex(regex: str) -> re.Pattern[str]:
    """Returns the compiled form of an expression in RE2's syntax. Raises `re.error` if it is not valid."""
    if NOT_IN_RE2.search(regex):
        raise re.error("invalid or unsupported Perl syntax")
    for name, characters in POSIX_CLASSES.items():
        regex = regex.replace(name, characters)
    return re.compile(regex.replace(r"\z", r"\Z"), re.ASCII)
