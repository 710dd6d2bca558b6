"""A partition that has a position but makes no progress is reported within 10 s, at most once a minute for a cause."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kconsumer.fetching.partition_monitor import PartitionMonitor
from support.harnesses.fetching import FetchHarness

OPEN_TRANSACTION: dict[str, Any] = {"high_watermark": 8, "last_stable_offset": 3}
MINUTE = 60_000


def monitored(partitions: int = 1, **options: Any) -> tuple[FetchHarness, PartitionMonitor]:
    """Returns a harness whose partitions have three records each, which were read, and a monitor of it."""
    harness = FetchHarness(partitions, **options)
    for log in harness.logs.values():
        log.append(3)
    harness.fetch()
    harness.collect()
    manager = harness.manager
    return harness, PartitionMonitor(
        harness.assignment, partial(manager.unusual, lambda _node, _now: True), manager.context
    )


def run(harness: FetchHarness, monitor: PartitionMonitor, ms: int, **response: Any) -> None:
    """Let this much time pass, in which each fetch gets this response."""
    end = harness.now + ms
    while harness.now < end:
        for request in harness.poll():
            harness.respond(request, **{f"p{tp.partition}": response for tp in harness.tps} if response else {})
        harness.collect()
        monitor.poll(harness.now)
        harness.now += 100


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Returns the warnings until now, and forgets them."""
    found = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    caplog.clear()
    return found


def test_an_open_transaction_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """The warning and partition_states() name the last stable offset and the high watermark; the warning is repeated
    after a minute, and ends with the transaction.
    """
    harness, monitor = monitored(isolation_level="read_committed")
    text = "at the last stable offset 3: a transaction is open (high watermark 8)"
    run(harness, monitor, 10_000, **OPEN_TRANSACTION)
    assert text in harness.status(harness.tps[0]).reason
    (warning,) = warnings(caplog)
    assert warning.startswith("no records of t-0 for ")
    assert warning.endswith(text)
    run(harness, monitor, MINUTE, **OPEN_TRANSACTION)
    assert 1 == len(warnings(caplog))
    harness.logs[harness.tps[0]].append(5)
    run(harness, monitor, 2 * MINUTE)
    assert [] == warnings(caplog)


def test_a_transaction_is_not_waited_for_with_read_uncommitted(caplog: pytest.LogCaptureFixture) -> None:
    """With read_uncommitted an open transaction does not matter."""
    harness, monitor = monitored()
    run(harness, monitor, 20_000, **OPEN_TRANSACTION)
    assert [] == warnings(caplog)


def test_a_consumer_that_has_read_everything_waits_for_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """An idle partition is not reported, and neither is a transaction that ends soon."""
    harness, monitor = monitored(isolation_level="read_committed")
    run(harness, monitor, 3 * MINUTE)
    run(harness, monitor, 3_000, **OPEN_TRANSACTION)
    run(harness, monitor, 10_000)
    assert [] == warnings(caplog)


def test_many_partitions_with_one_cause_are_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """The warning names some of the partitions, and how many more there are."""
    harness, monitor = monitored(8)
    run(harness, monitor, 10_000, error_code=75, records=None)
    (warning,) = warnings(caplog)
    assert "no records of t-0, t-1, t-2, t-3, t-4 and 3 more for " in warning
    assert "UNKNOWN_LEADER_EPOCH" in warning


def test_time_without_any_poll_is_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    """After an application has not polled for long, a check must find the stall twice before it is reported."""
    harness, monitor = monitored()
    run(harness, monitor, 3_000, error_code=75, records=None)
    harness.now += 10 * MINUTE
    run(harness, monitor, 3_000, error_code=75, records=None)
    assert [] == warnings(caplog)


def test_throttling_is_named() -> None:
    """The reason says for how long the broker throttles this client, and not that the broker does not respond."""
    harness, _ = monitored()
    harness.poll()
    harness.now += 20_000
    reason = harness.status(harness.tps[0], throttled_ms=1500.0).reason
    assert "throttles this client for 1.5 s more, because of a quota" in reason
    assert "without a response" not in reason
