"""Who may use a consumer: one thread at a time, not after close, not in a forked child, not after an interruption in
the middle of a step."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from kconsumer.deferred_signals import SIGNALS
from kconsumer.errors import ConcurrentAccessError, ForkedConsumerError, StateError

P = ParamSpec("P")
R = TypeVar("R")

_forks = 0


def _forked() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_forked)


def fork_count() -> int:
    """How many forks lie between this process and the one that imported kconsumer."""
    return _forks


INTERRUPTED = (
    "this consumer was interrupted in the middle of a step, so its state may be incomplete: close() it and make a new"
    " one"
)


class Step:
    """Whether the calling thread is changing the state of an engine.

    An exception that ends the change in the middle (PyThreadState_SetAsyncExc, MemoryError, the handler of a signal
    that is not held back) leaves `unfinished` set: the state cannot be relied on any more.
    """

    __slots__ = ("unfinished",)

    def __init__(self) -> None:
        self.unfinished = False


class AccessGuard:
    """Lets one thread in; the same thread may come in again (from a callback).

    `outer = guard.enter()` comes in, and `guard.holder = outer` goes out. That is a plain store because Ctrl-C raises
    between calls: neither does what a method returns get lost on its way out, nor does anybody stay in who has left.
    """

    __slots__ = ("_forks", "closed", "end_wait", "holder", "step")

    def __init__(self, step: Step | None = None, end_wait: Callable[[], None] | None = None) -> None:
        self._forks = _forks
        self.closed = False
        self.step = step or Step()
        self.end_wait = end_wait  # ends the wait of a call when a signal arrives
        self.holder: dict[None, int] = {}  # one key, whose value is the thread that is in; empty: nobody is

    @property
    def forked(self) -> bool:
        """Whether the process forked since the consumer was made."""
        return self._forks != _forks

    def enter(self, *, closing: bool = False) -> dict[None, int]:
        """Come in, or raise ForkedConsumerError, ConcurrentAccessError or StateError (after close; after an
        interruption, unless `closing`) at once. What `holder` is to be when we go out."""
        if self._forks != _forks:
            raise ForkedConsumerError(
                "this consumer was made before the process forked; make a new one in the child"
                " (its connections belong to the parent)"
            )
        me = threading.get_ident()
        holder = self.holder
        outer = holder if holder.get(None) == me else {}
        try:
            owner = holder.setdefault(None, me)  # of several threads one comes in
        except BaseException:  # Ctrl-C just after it
            if holder.get(None) == me:
                self.holder = outer
            raise
        if owner != me:
            raise ConcurrentAccessError(
                "another thread is using this consumer; use one consumer per thread, or a lock around it"
                " (only wakeup() may be called from any thread)"
            )
        if SIGNALS.active and not outer:
            SIGNALS.recover()
        if self.closed or (self.step.unfinished and not closing):
            self.holder = outer
            raise StateError("this consumer is closed; make a new one" if self.closed else INTERRUPTED)
        return outer


class Guarded(Protocol):
    """Anything with a guard."""

    _guard: AccessGuard


G = TypeVar("G", bound=Guarded)


def guarded(method: Callable[Concatenate[G, P], R]) -> Callable[Concatenate[G, P], R]:
    """Run a public method behind its object's guard, with signal handlers held back."""

    @functools.wraps(method)
    def guarded(self: G, /, *args: P.args, **kwargs: P.kwargs) -> R:
        guard = self._guard
        outer = guard.enter()
        try:
            holds = SIGNALS.hold(guard.end_wait)
            try:
                SIGNALS.refresh()
                return method(self, *args, **kwargs)
            finally:
                if holds:
                    SIGNALS.release()
        finally:
            guard.holder = outer

    return guarded
