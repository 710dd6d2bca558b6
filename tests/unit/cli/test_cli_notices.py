"""Warnings that the command prints: each once, and those of a wait only if the wait is long."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from kconsumer.cli import notices
from kconsumer.cli.notices import Notices, waiting
from kconsumer.testing.clock import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    """The clock of the handler."""
    return VirtualClock()


@pytest.fixture
def screen(clock: VirtualClock) -> Iterator[io.StringIO]:
    """The stream that a handler on the root logger writes to."""
    stream = io.StringIO()
    handler = Notices(stream, clock)
    root = logging.getLogger()
    root.addHandler(handler)
    yield stream
    root.removeHandler(handler)


def warn(text: str) -> None:
    logging.getLogger("kconsumer.net").warning(text)


def test_the_same_warning_once(screen: io.StringIO, clock: VirtualClock) -> None:
    """Warnings that differ only in numbers are printed once a minute, others and errors at once, infos never."""
    warn("no connection; next attempt in 41 ms")
    warn("no connection; next attempt in 97 ms")
    logging.getLogger("kconsumer").error("worse")
    logging.getLogger("kconsumer").info("nothing")
    assert "kconsumer: no connection; next attempt in 41 ms\nkconsumer: worse\n" == screen.getvalue()
    clock.advance(notices.REPEAT_MS)
    warn("no connection; next attempt in 5 ms")
    assert screen.getvalue().endswith("worse\nkconsumer: no connection; next attempt in 5 ms\n")


@pytest.mark.parametrize(("cause", "shown"), [("refused", ": refused"), (None, "")])
def test_a_long_wait(screen: io.StringIO, monkeypatch: pytest.MonkeyPatch, cause: str | None, shown: str) -> None:
    """After FIRST_NOTICE_S one line names the brokers that have not responded, with the last warning if there was
    one."""
    monkeypatch.setattr(notices.threading, "Timer", Timer)
    with waiting("b:1"):
        if cause is not None:
            warn("other")
            warn(cause)
        Timer.last.expire()
        warn("more")
        warn(f"{cause}; attempts: 3" if cause else "more")
    assert f"kconsumer: waiting for a response from b:1{shown}\nkconsumer: more\n" == screen.getvalue()


class Timer:
    """A threading.Timer that the test lets expire."""

    last: Timer

    def __init__(self, seconds: float, function: object, args: tuple[object, ...]) -> None:
        self.function, self.args = function, args
        Timer.last = self

    def start(self) -> None:
        assert self.function is not None

    def cancel(self) -> None:
        self.function = None

    def expire(self) -> None:
        self.function(*self.args)
