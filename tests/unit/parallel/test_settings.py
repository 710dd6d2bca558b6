"""Arguments of kconsumer.parallel: retries by error and attempt, and values that are not possible."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from kconsumer import ConsumerRecord
from kconsumer.errors import ConfigError
from kconsumer.parallel import Attempt, CircuitBreaker, Retry
from kconsumer.parallel.settings import Settings, positional_arguments

RECORD = ConsumerRecord("t", 0, 7)


def test_errors_that_are_tried_again() -> None:
    """`never` excludes classes, and `on` all others."""
    retry = Retry(on=(OSError, ValueError), never=FileNotFoundError)  # type: ignore[arg-type]  # one class is enough
    errors = (OSError(), ConnectionError(), UnicodeError(), KeyError(), FileNotFoundError())
    assert [True, True, True, False, False] == [retry.delay_ms(1, error) is not None for error in errors]


def test_delays_by_a_function() -> None:
    """A function gets the number of failures, and if it takes them the error and the record. The limit is its own."""
    error = OSError("busy")
    assert 40_000.0 == Retry(backoff_s=lambda failures: 20 * failures).delay_ms(2)
    assert 4000.0 == Retry(backoff_s=lambda failures, error: len(str(error))).delay_ms(2, error)
    assert 7000.0 == Retry(backoff_s=lambda failures, error, record: record.offset).delay_ms(2, error, RECORD)
    assert None is Retry(attempts=2, backoff_s=lambda failures: 1).delay_ms(2)
    with pytest.raises(ConfigError, match="result of backoff_s must be a number of seconds"):
        Retry(backoff_s=lambda failures: None).delay_ms(1)  # type: ignore[arg-type,return-value]


def test_an_attempt_is_its_number() -> None:
    """It knows how many follow, also in another process."""
    attempt = pickle.loads(pickle.dumps(Attempt(2, 3)))
    assert (2, 1) == (attempt, attempt.remaining)


def test_positional_arguments_that_are_required() -> None:
    """Arguments with a default value are not required."""
    functions: list[Any] = [lambda record: 0, lambda record, attempt: 0, lambda record, client=1: 0, print, dict]
    assert [1, 2, 1, 1, 1] == [positional_arguments(function, 2) for function in functions]


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (lambda: Retry(on=("OSError",)), "on must be a tuple of exception classes"),  # type: ignore[arg-type]
        (lambda: CircuitBreaker(0), "failures must be an integer of at least 1"),
        (lambda: CircuitBreaker(1, -1), "pause_s must be a number of seconds"),
        (lambda: Settings(rate_limit=0), "rate_limit must be a number above 0"),
        (lambda: Settings(handler_timeout_s=-1), "handler_timeout_s must be a number above 0"),
        (lambda: Settings(circuit_breaker=3), "circuit_breaker must be a CircuitBreaker"),  # type: ignore[arg-type]
    ],
)
def test_values_that_are_not_possible(create: Any, message: str) -> None:
    """A ConfigError names the argument."""
    with pytest.raises(ConfigError, match=message):
        create()
