"""The rules for the journals of share groups: each finds what it is there for, and excuses what is allowed."""

from __future__ import annotations

import pytest

from support.harnesses.parallel_journal import Entry
from support.harnesses.share_journal import not_accepted, repeated

KEY = (0, 7)


def entries(*lines: str) -> list[Entry]:
    """Returns entries of one record, from lines such as "start a"."""
    return [Entry(kind, member, 1, *KEY, "") for kind, member in (line.split() for line in lines)]


ONCE = ("start a", "end a", "accepted a")
KILLED = ("start a", "killed a", "start b", "end b", "accepted b")
KILLED_LATE = ("start a", "start b", "killed a", "end b", "accepted b")  # written after the next start
KILLED_AFTER = ("start a", "end a", "killed a")  # before it knew that the record is accepted
LOST = ("start a", "start b", "lost a", "end a", "end b", "accepted b")
REFUSED = ("start a", "end a", "lost a", "start b", "end b", "accepted b")
RETRIED = ("start a", "fail a", "start a", "end a", "accepted a")
RELEASED = ("start a", "fail a", "start b", "end b", "accepted b")


@pytest.mark.parametrize("lines", [ONCE, KILLED, KILLED_LATE, KILLED_AFTER, LOST, REFUSED, RETRIED, RELEASED])
def test_what_is_allowed(lines: tuple[str, ...]) -> None:
    """Records are accepted once. Killed members and lost locks excuse repetitions."""
    assert ([], []) == (repeated(entries(*lines)), not_accepted(entries(*lines), [KEY]))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((*ONCE, "start b"), "kind='start', member='b'"),
        ((*ONCE, "accepted b"), "kind='accepted', member='b'"),
        ((*ONCE, "killed a", "start b"), "after Entry(kind='accepted', member='a'"),
        (("start a", "start b"), "while Entry(kind='start', member='a'"),
    ],
)
def test_repetitions(lines: tuple[str, ...], words: str) -> None:
    """A record is started again after it was accepted, or by two members at a time."""
    [found] = repeated(entries(*lines))
    assert words in found


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("start a",), "(0, 7) was not accepted"),
        (("start a", "end a", "start b", "end b", "accepted b"), "(0, 7) was finished by a, which has no acceptance"),
        (("start a", "end a", "lost a"), "(0, 7) was not accepted"),
    ],
)
def test_records_that_were_not_accepted(lines: tuple[str, ...], words: str) -> None:
    """A record is not processed at all, or its member finishes it and does not accept it."""
    [found] = not_accepted(entries(*lines), [KEY])
    assert words in found
