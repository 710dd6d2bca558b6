"""Signal handlers that wait until a public call is at a consistent point."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kconsumer import Consumer, deferred_signals
from kconsumer.deferred_signals import SIGNALS, HandlersRunning

SENT = [signal.SIGINT, signal.SIGALRM, signal.SIGUSR1, signal.SIGRTMIN]


@pytest.fixture(autouse=True)
def handlers_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Handlers are those of a program that changed nothing, and our own frames count as the library's."""
    monkeypatch.setattr(deferred_signals, "_in_our_code", lambda _frame: True)
    before = {number: signal.getsignal(number) for number in SENT}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def nothing(_number: int, _frame: Any) -> None:
    """A handler of the user's."""


def held() -> bool:
    """Hold back the handlers that there are now."""
    begun = SIGNALS.hold()
    SIGNALS.refresh()
    return begun


@pytest.mark.parametrize("number", SENT, ids=lambda number: number.name)
def test_handler_runs_at_release(number: signal.Signals) -> None:
    """Whichever signal has a Python handler: it is noted, its handler runs once at the release and is back then."""
    seen: list[int] = []

    def handler(got: int, frame: Any) -> None:
        assert frame is not None
        seen.append(got)

    signal.signal(number, handler)
    assert held()
    assert not SIGNALS.hold()  # again: it is the first one that releases
    signal.raise_signal(number)
    signal.raise_signal(number)
    assert [] == seen
    SIGNALS.release()
    assert [number] == seen
    assert handler is signal.getsignal(number)


def test_all_handlers_run_although_one_raises() -> None:
    """Ctrl-C and an alarm at the same time: KeyboardInterrupt is raised and the other handler has run."""
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
    """The call that waits is woken, and runs the handlers while it continues holding them back."""
    woken, seen = [], []
    signal.signal(signal.SIGUSR1, lambda *_: seen.append(SIGNALS.held))
    SIGNALS.hold(lambda: woken.append(1))
    SIGNALS.refresh()
    signal.raise_signal(signal.SIGUSR1)
    assert [1] == woken
    SIGNALS.run_noted()
    assert [False] == seen
    assert SIGNALS.held
    SIGNALS.release()


def test_user_code_has_its_own_handlers() -> None:
    """Inside a callback handlers are those of the user, who may install others: these stay."""
    held()
    with HandlersRunning():
        assert signal.default_int_handler is signal.getsignal(signal.SIGINT)
        signal.signal(signal.SIGINT, nothing)
    assert nothing is not signal.getsignal(signal.SIGINT)
    SIGNALS.release()
    assert nothing is signal.getsignal(signal.SIGINT)


def test_a_handler_installed_by_surprise_stays() -> None:
    """A plugin that installs a handler in the middle of a step does not lose it."""
    held()
    signal.signal(signal.SIGINT, nothing)
    SIGNALS.release()
    assert nothing is signal.getsignal(signal.SIGINT)


def test_ignored_signals_stay_ignored() -> None:
    """As in a job that a shell runs in the background."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    held()
    assert signal.SIG_IGN is signal.getsignal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    SIGNALS.release()


def test_handler_reset_after_the_last_look() -> None:
    """A signal whose handler was reset to the default since `refresh` has its default action at the release."""
    signal.signal(signal.SIGUSR1, lambda *_: None)
    held()
    SIGNALS.release()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    SIGNALS.hold()
    signal.raise_signal(signal.SIGUSR1)
    SIGNALS.release()
    assert signal.SIG_IGN is signal.getsignal(signal.SIGUSR1)


def test_handler_that_raises_on_the_way_in() -> None:
    """An exception of a handler that is not replaced yet leaves no replaced handler behind."""

    def alarm(*_: object) -> None:
        raise LookupError

    signal.signal(signal.SIGALRM, alarm)
    held()
    SIGNALS.release()
    replace = deferred_signals._set

    def arrives(number: int, handler: Any) -> Any:
        if number == signal.SIGALRM and handler is SIGNALS._note:
            signal.raise_signal(signal.SIGALRM)
        return replace(number, handler)

    deferred_signals._set = arrives
    try:
        with pytest.raises(LookupError):
            SIGNALS.hold()
    finally:
        deferred_signals._set = replace
    assert not SIGNALS.held
    assert [signal.default_int_handler, alarm] == [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGALRM)]


def test_handlers_left_behind_still_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that never came to its release (an asynchronous exception) leaves Ctrl-C working."""
    held()
    monkeypatch.setattr(deferred_signals, "_in_our_code", lambda _frame: False)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signal.default_int_handler is signal.getsignal(signal.SIGINT)
    assert not SIGNALS.held


def test_the_next_call_puts_handlers_back() -> None:
    """Handlers that an asynchronous exception kept a call from putting back are in place after the next call."""
    with Consumer(bootstrap_servers="127.0.0.1:1") as consumer:
        held()
        assert signal.default_int_handler is not signal.getsignal(signal.SIGINT)
        consumer.assignment()
        assert not SIGNALS.active
        assert signal.default_int_handler is signal.getsignal(signal.SIGINT)


def test_other_threads_have_no_signals() -> None:
    """There nothing is done, and the handlers that the main thread holds back stay so."""
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
