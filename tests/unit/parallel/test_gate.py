"""Gate: pauses, rates and circuit breakers, in virtual time."""

from __future__ import annotations

import math
from typing import Any

from kconsumer.parallel import CircuitBreaker
from kconsumer.parallel.gate import Gate
from kconsumer.parallel.settings import Settings


def gate_of(**settings: Any) -> Gate:
    """Returns a gate."""
    return Gate(Settings(**settings))


def test_an_open_gate() -> None:
    """Without limits, any number of records may be started, except while the run is paused."""
    gate = gate_of()
    assert (math.inf, None, False) == (gate.allowance(0.0), gate.opens_at(0.0), gate.suspended(0.0))
    gate.paused = True
    assert (0, None, True) == (gate.allowance(0.0), gate.opens_at(0.0), gate.suspended(0.0))


def test_a_rate() -> None:
    """Over a time, no more records are started than the rate allows, and not more than a tenth of a second at once."""
    gate, started, now = gate_of(rate_limit=20), 0, 5000.0
    assert 2 == gate.allowance(now)
    while now < 15_000.0:
        count = int(gate.allowance(now))
        gate.started(count)
        started += count
        opens_at = gate.opens_at(now)
        assert not gate.suspended(now)
        assert opens_at is not None
        assert now < opens_at
        now = opens_at
    assert 201 <= started <= 202


def test_a_slow_rate() -> None:
    """A rate of less than one record in a second starts single records."""
    gate = gate_of(rate_limit=0.1)
    assert 1 == gate.allowance(0.0)
    gate.started(1)
    assert (0, 10_000.0) == (gate.allowance(0.0), gate.opens_at(0.0))
    assert 1 == gate.allowance(10_000.0)


def test_a_circuit_breaker() -> None:
    """After failures in a row none is started. After the pause one is tried, whose failure opens the circuit again."""
    gate = gate_of(circuit_breaker=CircuitBreaker(failures=3, pause_s=10))
    for now in (0.0, 1.0):
        gate.failed(now)
    gate.succeeded()
    for now in (2.0, 3.0):
        gate.failed(now)
    assert math.inf == gate.allowance(3.0)
    gate.failed(4.0)
    assert (0, 10_004.0, True) == (gate.allowance(4.0), gate.opens_at(4.0), gate.suspended(4.0))
    gate.succeeded()  # of a record that was started before
    gate.failed(5.0)
    assert (0, 1) == (gate.allowance(10_003.0), gate.allowance(10_004.0))
    gate.started(1)
    assert (0, None, False) == (gate.allowance(10_004.0), gate.opens_at(10_004.0), gate.suspended(10_004.0))
    gate.failed(10_100.0)
    assert (0, 1) == (gate.allowance(20_099.0), gate.allowance(20_100.0))
    gate.started(1)
    gate.dropped()  # its partition was revoked
    assert 1 == gate.allowance(20_101.0)
    gate.started(1)
    gate.succeeded()
    assert math.inf == gate.allowance(20_102.0)
