"""Waits of managers: when they begin and end, and which of them are logged."""

from __future__ import annotations

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer._internal.progress import Progress, ProgressMonitor
from kconsumer.errors import error_for

LOADING = error_for(Errors.COORDINATOR_LOAD_IN_PROGRESS, "join")
MOVED = error_for(Errors.NOT_COORDINATOR, "join")


def progress(after: Progress | None = None) -> Progress:
    """Returns the progress of a manager that has a hint for one error."""
    return Progress("group 'g'", "a response", {Errors.NOT_COORDINATOR: "wait"}, after)


def fail(case: Progress, monitor: ProgressMonitor, seconds: range, error: Exception = LOADING) -> None:
    """Let an attempt fail at each second, and poll the monitor ten times a second."""
    for second in seconds:
        case.failed(error, second * 1000.0)  # type: ignore[arg-type]
        for tenth in range(10):
            monitor.poll(second * 1000.0 + tenth * 100.0)


def test_repeated_failures_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """The warning comes within 10 s, has the last error and its name, and is repeated after a minute."""
    case = progress()
    fail(case, ProgressMonitor([case]), range(130))
    text = "group 'g': waiting for a response for {} s: " + str(LOADING)
    assert [text.format(seconds) for seconds in (8, 68, 128)] == caplog.messages


def test_each_cause_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """If two errors alternate, each is logged once a minute."""
    case = progress()
    monitor = ProgressMonitor([case])
    for second in range(60):
        fail(case, monitor, range(second, second + 1), (LOADING, MOVED)[second % 2])
    assert ["LOAD_IN_PROGRESS" in text for text in caplog.messages] == [True, False]
    assert caplog.messages[1].endswith("; wait")


def test_a_request_without_a_response_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A request is reported after 8 s without a response, even if none has failed."""
    case = progress()
    monitor = ProgressMonitor([case])
    case.requested(0.0)
    assert 8000.0 == monitor.poll(0.0).wait_ms
    assert monitor.poll(8000.0).wait_ms < 100
    monitor.poll(8100.0)
    assert ["group 'g': waiting for a response for 8 s: no response yet"] == caplog.messages


def test_a_response_that_waited_to_be_read_is_not_missed(caplog: pytest.LogCaptureFixture) -> None:
    """After a long pause of the application, responses that have arrived are read before a warning is logged."""
    case = progress()
    monitor = ProgressMonitor([case])
    case.requested(0.0)
    monitor.poll(0.0)
    monitor.poll(60_000.0)
    case.done()
    monitor.poll(60_100.0)
    assert [] == caplog.messages


def test_a_success_must_last(caplog: pytest.LogCaptureFixture) -> None:
    """A success after failures is confirmed by `done`; until then, further failures count as the same wait."""
    case = progress()
    monitor = ProgressMonitor([case])
    for second in range(0, 12, 3):
        fail(case, monitor, range(second, second + 1))
        case.succeeded()
        assert case.status is None
        monitor.poll(second * 1000.0 + 2000.0)
    fail(case, monitor, range(12, 13))
    assert (1, 0.0, 5) == (len(caplog.messages), case.since, case.failures)
    case.succeeded()
    case.done()
    assert (None, 0, None) == (case.since, case.failures, case.last_error)


def test_only_the_first_cause_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """While the coordinator is unknown, what waits for it is not logged."""
    coordinator = progress()
    member = progress(after=coordinator)
    monitor = ProgressMonitor([coordinator, member])
    member.failed(LOADING, 0.0)
    member.failed(LOADING, 0.0)
    member.failed(LOADING, 0.0)
    fail(coordinator, monitor, range(20), MOVED)
    assert [True] == ["NOT_COORDINATOR" in text for text in caplog.messages]
    coordinator.done()
    monitor.poll(20_000.0)
    monitor.poll(20_100.0)
    assert "LOAD_IN_PROGRESS" in caplog.messages[1]


def test_the_end_of_a_reported_wait_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """When a wait ends that was logged as a warning, this is logged, too."""
    caplog.set_level("INFO")
    case = progress()
    monitor = ProgressMonitor([case])
    fail(case, monitor, range(10))
    case.done()
    monitor.poll(12_000.0)
    monitor.poll(13_000.0)
    assert "group 'g': no longer waiting for a response, after 12 s" == caplog.messages[-1]
    assert 2 == len(caplog.messages)
