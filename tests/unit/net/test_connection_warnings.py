"""How often warnings about a broker that cannot be reached are logged."""

from __future__ import annotations

import errno
import re

import pytest

from kconsumer.repeated_failures import RepeatedFailures
from support.fakes.fake_network import NetworkHarness


def test_pauses_grow_to_a_minute() -> None:
    """The first three failures are each logged; then the pauses double up to a minute, and each warning has the number
    of failures that were not logged.
    """
    failures = RepeatedFailures()
    said = {second: failures.failed(["refused after 7 ms"], second * 1000.0) for second in range(300)}
    moments = {second: count for second, count in said.items() if count is not None}
    assert [0, 1, 2, 3, 5, 9, 17, 33, 65, 125, 185, 245] == list(moments)
    assert [0, 0, 0, 0, 1, 3, 7, 15, 31, 59, 59, 59] == list(moments.values())


def test_a_changed_cause_is_said_at_once() -> None:
    """Another cause, or a return to an earlier one, is logged at once; the order of addresses and numbers in the text
    are ignored.
    """
    failures = RepeatedFailures()
    for now in range(5):
        failures.failed(["refused (10.0.0.1)", "reset (10.0.0.2)"], now)
    assert failures.failed(["reset (10.0.0.7)", "refused (10.0.0.8)"], 6.0) is None
    assert 3 == failures.failed(["the name could not be resolved"], 7.0)
    assert 0 == failures.failed(["refused (10.0.0.1)"], 8.0)


def test_a_broker_that_is_down_for_ten_minutes(caplog: pytest.LogCaptureFixture) -> None:
    """About 800 failed attempts cause less than two warnings per minute; after a success the next failure is logged at
    once.
    """
    harness = NetworkHarness()
    harness.net.servers["10.0.0.1"] = errno.ECONNREFUSED
    attempts, end = 0, harness.clock.now() + 600_000
    while harness.clock.now() < end:
        harness.ready()
        harness.poll()
        harness.clock.advance(harness.delay())
        attempts += 1
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert attempts > 500
    assert len(warnings) < 20
    suppressed = [int(found[1]) for text in warnings if (found := re.search(r"since the last warning: (\d+)$", text))]
    assert 0 <= attempts - sum(suppressed) - len(warnings) < 200  # those since the last warning
    harness.net.servers["10.0.0.1"] = harness.broker
    harness.connect()
    harness.net.last.close_by_peer()
    harness.poll()
    harness.net.servers["10.0.0.1"] = errno.ECONNREFUSED
    caplog.clear()
    harness.clock.advance(2000)
    harness.ready()
    harness.poll()
    assert 1 == sum(record.levelname == "WARNING" for record in caplog.records)
