"""Signal handlers that are deferred until a public call has a consistent state."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from kconsumer import Consumer
from kconsumer._internal import deferred_signals
from kconsumer._internal.deferred_signals import SIGNALS, HandlersRunning
from support.harnesses.inside import engine_of

SENT = [signal.SIGINT, signal.SIGALRM, signal.SIGUSR1, signal.SIGRTMIN]


@pytest.fixture(autouse=True)
def handlers_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check that the signal handlers are unchanged after each test, and let frames of this file count as
    the library's.
    """
    monkeypatch.setattr(deferred_signals, "_in_our_code", lambda _frame: True)
    before = {number: signal.getsignal(number) for number in SENT}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def nothing(_number: int, _frame: Any) -> None:
    """A signal handler of the user."""


def held() -> bool:
    """Defer the currently installed handlers."""
    return SIGNALS.hold()


@pytest.mark.parametrize("number", SENT, ids=lambda number: number.name)
def test_handler_runs_at_release(number: signal.Signals) -> None:
    """The handler of a signal with a Python handler runs once at the release, and is installed again then."""
    seen: list[int] = []

    def handler(got: int, frame: Any) -> None:
        assert frame is not None
        seen.append(got)

    signal.signal(number, handler)
    assert held()
    assert not SIGNALS.hold()  # nested: only the outermost release runs the handlers
    signal.raise_signal(number)
    signal.raise_signal(number)
    assert [] == seen
    SIGNALS.release()
    assert [number] == seen
    assert handler is signal.getsignal(number)


def test_all_handlers_run_although_one_raises() -> None:
    """If Ctrl-C and an alarm arrive, KeyboardInterrupt is raised and the other handler has run too."""
    seen: list[int] = []
    signal.signal(signal.SIGALRM, lambda number, _: seen.append(number))
    held()
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGALRM)
    with pytest.raises(KeyboardInterrupt):
        SIGNALS.release()
    assert [signal.SIGALRM] == seen
    assert signal.default_int_handler is signal.getsignal(signal.SIGINT)


def test_the_wait_ends_when_a_signal_arrives() -> None:
    """A signal wakes a waiting call, which runs the handlers and continues to defer later ones."""
    woken, seen = [], []
    signal.signal(signal.SIGUSR1, lambda *_: seen.append(SIGNALS.held))
    SIGNALS.hold(lambda: woken.append(1))
    signal.raise_signal(signal.SIGUSR1)
    assert [1] == woken
    SIGNALS.run_noted()
    assert [False] == seen
    assert SIGNALS.held
    SIGNALS.release()


def test_user_code_has_its_own_handlers() -> None:
    """During a callback the user's handlers are installed; a handler that the callback installs stays."""
    held()
    with HandlersRunning():
        assert signal.default_int_handler is signal.getsignal(signal.SIGINT)
        signal.signal(signal.SIGINT, nothing)
    assert nothing is not signal.getsignal(signal.SIGINT)
    SIGNALS.release()
    assert nothing is signal.getsignal(signal.SIGINT)


def test_a_handler_installed_by_surprise_stays() -> None:
    """A handler that a plugin installs in the middle of a step stays installed."""
    held()
    signal.signal(signal.SIGINT, nothing)
    SIGNALS.release()
    assert nothing is signal.getsignal(signal.SIGINT)


def test_ignored_signals_stay_ignored() -> None:
    """A signal that is ignored, as in a background job of a shell, stays ignored."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    held()
    assert signal.SIG_IGN is signal.getsignal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    SIGNALS.release()


def test_handler_reset_after_the_last_look() -> None:
    """A signal whose handler is ignored since the last section stays ignored."""
    signal.signal(signal.SIGUSR1, lambda *_: None)
    held()
    SIGNALS.release()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    SIGNALS.hold()
    signal.raise_signal(signal.SIGUSR1)
    SIGNALS.release()
    assert signal.SIG_IGN is signal.getsignal(signal.SIGUSR1)


@pytest.mark.parametrize("number", SENT, ids=lambda number: number.name)
def test_handlers_installed_between_sections(number: signal.Signals) -> None:
    """`hold` defers a handler that was installed, replaced, or reset and installed again since its last call."""
    seen: list[str] = []

    def another(name: str) -> Any:
        return lambda *_: seen.append(name)

    held()
    SIGNALS.release()
    for step, handler in enumerate([another("a"), another("b"), signal.SIG_IGN, another("c"), signal.SIG_IGN]):
        signal.signal(number, handler)
        for _ in range(2):  # the second section finds the handlers that the first one has seen
            seen.clear()
            held()
            signal.raise_signal(number)
            assert [] == seen, step
            SIGNALS.release()
            assert ([] if handler is signal.SIG_IGN else ["a", "b", "", "c"][step : step + 1]) == seen
            assert handler == signal.getsignal(number)


def test_a_section_replaces_only_known_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """While no handler changes, a section replaces and restores the known ones, and no other."""
    held()
    SIGNALS.release()
    calls: list[int] = []
    replace = SIGNALS.set_handler

    def counted(number: int, handler: Any) -> Any:
        calls.append(number)
        return replace(number, handler)

    monkeypatch.setattr(SIGNALS, "set_handler", counted)
    known = [int(number) for number in signal.valid_signals() if callable(signal.getsignal(number))]
    assert signal.SIGINT in known
    held()
    SIGNALS.release()
    assert sorted(2 * known) == sorted(calls)


def test_a_thread_that_only_seems_to_be_the_main_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """If Python refuses to replace a handler because the thread is not the main one, no section defers handlers."""
    held()
    SIGNALS.release()
    results: list[object] = []

    def run() -> None:
        monkeypatch.setattr(SIGNALS, "main", threading.get_ident())
        results.extend([SIGNALS.hold(), SIGNALS.held, SIGNALS.main])

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert [False, False, 0] == results
    assert signal.default_int_handler is signal.getsignal(signal.SIGINT)


def test_the_main_thread_of_a_forked_child_defers_handlers() -> None:
    """The thread that called fork() is the main thread of the child, whichever it was in the parent."""
    status: list[int] = []

    def run() -> None:
        child = os.fork()
        if child == 0:
            os._exit(3 if held() and SIGNALS.held else 4)
        status.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork with several threads
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert [3] == status


def test_handler_that_raises_while_handlers_are_replaced() -> None:
    """If a handler that is not replaced yet raises, no replaced handler is left behind."""

    def alarm(*_: object) -> None:
        raise LookupError

    signal.signal(signal.SIGALRM, alarm)
    held()
    SIGNALS.release()
    replace = SIGNALS.set_handler

    def arrives(number: int, handler: Any) -> Any:
        if number == signal.SIGALRM and handler is SIGNALS.note:
            signal.raise_signal(signal.SIGALRM)
        return replace(number, handler)

    SIGNALS.set_handler = arrives
    try:
        with pytest.raises(LookupError):
            SIGNALS.hold()
    finally:
        SIGNALS.set_handler = replace
    assert not SIGNALS.held
    assert [signal.default_int_handler, alarm] == [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGALRM)]


def test_handlers_left_behind_still_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C works after a call that never reached its release because of an asynchronous exception."""
    held()
    monkeypatch.setattr(deferred_signals, "_in_our_code", lambda _frame: False)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signal.default_int_handler is signal.getsignal(signal.SIGINT)
    assert not SIGNALS.held


def test_the_next_call_puts_handlers_back() -> None:
    """The next call restores handlers that a call did not restore because of an asynchronous exception."""
    with Consumer(bootstrap_servers="127.0.0.1:1") as consumer:
        held()
        assert signal.default_int_handler is not signal.getsignal(signal.SIGINT)
        consumer.assignment()
        assert not SIGNALS.active
        assert signal.default_int_handler is signal.getsignal(signal.SIGINT)


def test_other_threads_have_no_signals() -> None:
    """A call in another thread does nothing, and handlers that the main thread defers stay deferred."""
    results: list[object] = []

    def run() -> None:
        results.append(SIGNALS.hold())
        SIGNALS.release()
        results.append(SIGNALS.held)

    held()
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert [False, False] == results
    assert SIGNALS.held
    SIGNALS.release()


def test_a_handler_installed_by_a_deferred_call_of_user_code() -> None:
    """A log handler runs at the end of a section. If it installs a signal handler, the rest of the call defers it."""
    with Consumer(bootstrap_servers="127.0.0.1:1") as consumer:
        parts = engine_of(consumer).components
        held()
        with parts.changing():
            parts.user_calls.call(lambda: signal.signal(signal.SIGUSR1, nothing))
        assert SIGNALS.note == signal.getsignal(signal.SIGUSR1)
        SIGNALS.release()
        assert nothing is signal.getsignal(signal.SIGUSR1)
