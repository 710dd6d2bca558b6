"""The selector and the state kept about it stay consistent when a signal handler raises at any point."""

from __future__ import annotations

import selectors
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from types import FrameType
from typing import Any

import pytest

from kconsumer.net import interest
from kconsumer.net.interest import READ, WRITE, Selector, SelectorInterest, make_selector
from kconsumer.net.wakeup import Waker
from support.harnesses.interruptions import Interruption, handler, raising

FILES = (interest.__file__, selectors.__file__)


class Interrupt(BaseException):
    """The exception that a signal handler raises."""


class Transport:
    """A socket that is readable and writable."""

    crossed = False

    def __init__(self) -> None:
        self.near, self.far = socket.socketpair()
        self.far.send(b"x")

    def fileno(self) -> int:
        return self.near.fileno()

    def wants_write(self) -> bool:
        return True

    def close(self) -> None:
        self.near.close()
        self.far.close()


def interrupted(at: int, call: Callable[..., object], *arguments: object) -> bool:
    """Raise at the `at`-th line that runs in the watch or its selector. Returns whether there was such a line."""
    left = at

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in FILES:
            return None
        if event == "line":
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise Interrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call(*arguments)
    except Interrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.fixture
def made() -> Iterator[SelectorInterest]:
    waker = Waker()
    found = SelectorInterest(make_selector, waker)
    found.open()
    yield found
    found.close()
    waker.close()


def reported(made: SelectorInterest) -> dict[int, int]:
    """Return the events that the selector reports, by descriptor."""
    assert made.selector is not None
    return {key.fd: events for key, events in made.selector.select(0)}


@pytest.mark.parametrize(
    "selector", [make_selector, selectors.DefaultSelector, selectors.PollSelector, selectors.SelectSelector]
)
@pytest.mark.parametrize(("before", "after"), [(0, READ), (READ, READ | WRITE), (WRITE, READ), (READ, 0)])
def test_a_change_that_is_interrupted_is_made_by_the_next(
    selector: Callable[[], Selector], before: int, after: int
) -> None:
    """After an exception at any line the next change, to the same events or to others, is applied and its events are
    reported.
    """
    for following in (READ, WRITE, READ | WRITE, 0):
        for at in count():
            waker, transport, other = Waker(), Transport(), Transport()
            made, link, bystander = (
                SelectorInterest(selector, waker),
                object(),
                object(),
            )
            made.open()
            made.set_events(other, READ, bystander)
            made.set_events(transport, before, link)
            over = not interrupted(at, made.set_events, transport, after, link)
            made.set_events(transport, following, link)
            expected = {other.fileno(): READ} | ({transport.fileno(): following} if following else {})
            assert expected == reported(made)
            for one in (transport, other):
                one.close()
            made.close()
            waker.close()
            if over:
                break
        assert at > 5


def test_a_socket_that_was_closed_in_the_middle(made: SelectorInterest) -> None:
    """If the selector still has the descriptor of a closed socket, another socket with this descriptor is watched
    correctly.
    """
    for at in count():
        link, transport = object(), Transport()
        made.set_events(transport, READ, link)
        over = not interrupted(at, made.set_events, transport, 0, link)
        descriptor = transport.fileno()
        transport.close()
        again = Transport()
        assert descriptor in (again.near.fileno(), again.far.fileno())
        made.set_events(again, READ, link)
        assert {again.fileno(): READ} == reported(made)
        made.set_events(again, 0, link)
        again.close()
        if over:
            break


def select_until_alarm(selector: Selector) -> None:
    """Let SIGALRM arrive soon, and wait for much longer."""
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    selector.select(20)


def test_a_signal_ends_a_wait() -> None:
    """A handler of a signal that arrives during a wait runs at once, and its exception ends the wait."""
    selector = make_selector()
    with handler(signal.SIGALRM, raising), closing(selector), pytest.raises(Interruption):
        select_until_alarm(selector)
