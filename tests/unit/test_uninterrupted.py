"""Ctrl-C that waits for the end of a piece of work."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from kconsumer.engine.uninterrupted import Uninterrupted


@pytest.fixture(autouse=True)
def python_handles_ctrl_c() -> Iterator[None]:
    """As in a program that changed nothing, whoever started the tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_is_raised_on_the_way_out() -> None:
    """The work is done to its end, nested pieces too; then KeyboardInterrupt comes once, and the handler is back."""
    done = []

    def work() -> None:
        with Uninterrupted():
            with Uninterrupted():
                signal.raise_signal(signal.SIGINT)
                done.append("inner")
            done.append("outer")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert ["inner", "outer"] == done
    assert signal.default_int_handler is signal.getsignal(signal.SIGINT)
    with Uninterrupted():
        pass


def test_an_error_of_the_work_passes() -> None:
    """Without Ctrl-C nothing changes, and the handler is back all the same."""
    with pytest.raises(LookupError), Uninterrupted():
        raise LookupError
    assert signal.default_int_handler is signal.getsignal(signal.SIGINT)


def test_a_signal_that_is_ignored_stays_so() -> None:
    """As in a job that a shell runs in the background."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Uninterrupted():
        assert signal.SIG_IGN is signal.getsignal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)


def test_other_threads_have_no_signals() -> None:
    """There it does nothing."""
    seen: list[object] = []

    def run() -> None:
        with Uninterrupted():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert [signal.default_int_handler] == seen
