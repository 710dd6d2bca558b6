"""The checker of chaos in a share group finds each kind of violation."""

from __future__ import annotations

from typing import Any

import pytest

from support.soak.share_chaos import DELIVERY_LIMIT, Event, check


def received(at: float, member: str, offset: int, count: int = 1) -> Event:
    """Returns the event of a member that received a record, whose number is its offset."""
    return at, member, "received", [[0, offset, count, offset]]


def done(at: float, member: str, offset: int, kind: str = "ACCEPT") -> Event:
    """Returns the event of an acknowledgement that was confirmed."""
    return at, member, "done", [[0, offset, kind]]


CLOSED: Event = (99.0, "a", "closed", None)


def test_a_good_run() -> None:
    """Records are released, accepted and rejected, and one is left by a member that was killed."""
    events = [
        received(1, "a", 0),
        done(2, "a", 0, "RELEASE"),
        received(3, "b", 0, 2),
        done(4, "b", 0),
        received(5, "a", 1),
        done(6, "a", 1, "REJECT"),
        received(7, "killed", 2),
        CLOSED,
    ]
    found = check(events, 3)
    assert (3, 2, 1, 1, 1) == (*(found[k] for k in ("records", "settled", "accepted", "rejected", "redelivered")),)


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([done(2, "a", 0)], "no member received"),
        ([received(1, "a", 0), done(2, "a", 0), received(3, "b", 0, 2)], "after their acknowledgement"),
        ([received(1, "a", 0, DELIVERY_LIMIT + 1), done(2, "a", 0)], "too often"),
        ([received(1, "a", 0), CLOSED], "neither accepted nor rejected"),
    ],
)
def test_a_violation(events: list[Any], message: str) -> None:
    """The error names the rule."""
    with pytest.raises(AssertionError, match=message):
        check(events, 1)
