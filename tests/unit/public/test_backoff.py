"""Exponential backoff: the length of pauses, their jitter, and the timer that counts failures."""

from __future__ import annotations

import random

import pytest

from kconsumer._common.backoff import ExponentialBackoff, RetryTimer
from support.harnesses.manager_driver import NoJitter


def test_delays_double_up_to_the_maximum() -> None:
    """The delays are 100, 200, 400 and 800 ms, and then the maximum."""
    backoff = ExponentialBackoff(100, 1000, NoJitter())
    assert [100, 200, 400, 800, 1000, 1000] == [round(backoff.delay_ms(attempt), 6) for attempt in range(6)]
    assert 1000 == round(backoff.delay_ms(100_000), 6)


def test_jitter_is_a_fifth_and_never_exceeds_the_maximum() -> None:
    """Delays vary by 20 % in both directions, at the maximum only downwards, and a seed repeats them."""
    backoff = ExponentialBackoff(100, 1000, random.Random(1))
    first, last = ([backoff.delay_ms(attempt) for _ in range(500)] for attempt in (0, 9))
    assert 80 <= min(first) < 81
    assert 119 < max(first) <= 120
    assert 800 <= min(last) < 810
    assert max(last) == 1000
    again = ExponentialBackoff(100, 1000, random.Random(1))
    assert first == [again.delay_ms(0) for _ in range(500)]


@pytest.mark.parametrize("initial_ms", [300, 500])
def test_a_maximum_that_is_not_above_the_first_delay_is_constant(initial_ms: int) -> None:
    """If `max_ms` is not above the first delay, every delay is `max_ms` without jitter, as in Java."""
    backoff = ExponentialBackoff(initial_ms, 300)
    assert {300.0} == {backoff.delay_ms(attempt) for attempt in range(40)}


def test_a_first_delay_of_zero_is_allowed() -> None:
    """With `retry_backoff_ms=0` every delay is 0."""
    backoff = ExponentialBackoff(0, 1000)
    assert {0.0} == {backoff.delay_ms(attempt) for attempt in range(40)}


def test_partitions_of_one_response_share_a_factor() -> None:
    """`shared_delay` gives all partitions of one response the same jitter, and the next response another."""
    backoff = ExponentialBackoff(100, 1000, random.Random(1))
    one, other = backoff.shared_delay(), backoff.shared_delay()
    assert one(0) == one(0)
    assert 2 * one(0) == pytest.approx(one(1))
    assert one(0) != other(0)


def test_the_timer_counts_failures() -> None:
    """Each failure doubles the pause; a reset ends it and forgets the failures."""
    timer = RetryTimer(ExponentialBackoff(100, 1000, NoJitter()))
    assert 0 == timer.remaining_ms(0.0)
    timer.failed(10.0)
    assert (1, 110, 100) == (timer.attempts, timer.until, timer.remaining_ms(10.0))
    timer.failed(110.0)
    assert (2, 200, 0) == (timer.attempts, timer.remaining_ms(110.0), timer.remaining_ms(400.0))
    timer.reset()
    assert (0, 0) == (timer.attempts, timer.remaining_ms(111.0))
