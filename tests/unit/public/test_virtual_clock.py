"""The clock that tests advance."""

from __future__ import annotations

import pytest

from kconsumer._core.lock import Timer
from kconsumer.testing.clock import VirtualClock


def test_time_moves_only_when_advanced() -> None:
    """Both times change only by `advance`, and by the same amount."""
    clock = VirtualClock(now=10, wall_ms=1_000)
    assert (10.0, 1_000) == (clock.now(), clock.wall_ms())
    clock.advance(5)
    assert (15.0, 1_005) == (clock.now(), clock.wall_ms())


def test_time_does_not_go_back() -> None:
    """A negative advance is refused."""
    with pytest.raises(ValueError, match="go back"):
        VirtualClock().advance(-1)


def test_a_timer_expires_by_hand() -> None:
    """A Timer on a virtual clock expires without a sleep."""
    clock = VirtualClock()
    timer = Timer(clock, 100)
    clock.advance(99)
    assert not timer.expired
    clock.advance(1)
    assert timer.expired
