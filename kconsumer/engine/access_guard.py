"""AccessGuard: lets only one thread at a time use a consumer.

No thread may use the consumer after close(), in a forked child, or after an exception has interrupted a change of its
state.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from threading import get_ident
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from kconsumer._common.foreign_methods import check_arguments
from kconsumer._core.lock import Step, fork_count
from kconsumer._internal.deferred_signals import SIGNALS
from kconsumer.errors import ConcurrentAccessError, ForkedConsumerError, StateError

P = ParamSpec("P")
R = TypeVar("R")

FORKED = (
    "this consumer was made before the process forked; make a new one in the child"
    " (its connections belong to the parent)"
)
CLOSED = "this consumer is closed; make a new one"
INTERRUPTED = (
    "this consumer was interrupted in the middle of a step, so its state may be incomplete: close() it and make a new"
    " one"
)


class AccessGuard:
    """Lets only one thread at a time run methods of a consumer. A callback of this thread may call further methods.

    A method begins with `outer = guard.enter()` and ends with `guard.holder = outer`. The end is an assignment and not
    a call, because Ctrl-C may raise an exception after any call. The return value of the method would then be lost, or
    no thread could enter any more.
    """

    __slots__ = ("_forks", "closed", "end_wait", "holder", "step")

    one_thread = False  # True if no other thread may call any method but `wakeup`

    def __init__(self, step: Step | None = None, end_wait: Callable[[], None] | None = None) -> None:
        self._forks = fork_count()
        self.closed = False
        self.step = step or Step()
        self.end_wait = end_wait  # called when a signal arrives; ends the wait of the running call
        self.holder: dict[None, int] = {}  # one entry: the id of the thread that has entered; empty if none has

    @property
    def forked(self) -> bool:
        """True if the process has forked since the consumer was created."""
        return self._forks != fork_count()

    def check_usable(self) -> None:
        """Raise the errors of `enter` that do not depend on which thread has entered."""
        if self._forks != fork_count():
            raise ForkedConsumerError(FORKED)
        if self.closed:
            raise StateError(CLOSED)
        # While a thread is inside a call, it may set `unfinished` at any moment. Each outermost call that ends makes a
        # new `holder`. So if it is the same one before and after, no thread was inside when `unfinished` was read.
        holder = self.holder
        if not holder and self.step.unfinished and not holder and self.holder is holder:
            raise StateError(INTERRUPTED)

    def enter(self, *, closing: bool = False) -> dict[None, int]:
        """Enter the guard without waiting. Returns the value to assign to `holder` at the end of the method.

        Raises ForkedConsumerError in a forked child, ConcurrentAccessError if another thread has entered, and
        StateError after close(). Unless `closing`, also raises StateError after an interruption (see `Step`).
        """
        if self._forks != fork_count():
            raise ForkedConsumerError(FORKED)
        me = get_ident()
        holder = self.holder
        outer = holder if holder and holder.get(None) == me else {}
        try:
            owner = holder.setdefault(None, me)  # atomic, so only one of several threads enters
        except BaseException:  # Ctrl-C just after setdefault
            if holder.get(None) == me:
                self.holder = outer
            raise
        if owner != me:
            raise ConcurrentAccessError(
                "another thread is using this consumer; use one consumer per thread, or a lock around it (from any"
                " thread: commit_async(), pause(), resume(), metrics(), assignment() and others that do not wait)"
            )
        if SIGNALS.active and not outer:
            SIGNALS.recover()
        if self.closed or (self.step.unfinished and not closing):
            self.holder = outer
            raise StateError(CLOSED if self.closed else INTERRUPTED)
        return outer


class Guarded(Protocol):
    """An object whose public methods an AccessGuard protects."""

    _guard: AccessGuard


G = TypeVar("G", bound=Guarded)


def guarded(method: Callable[Concatenate[G, P], R]) -> Callable[Concatenate[G, P], R]:
    """Decorate a public method. It enters the guard of its object, and defers signal handlers while it runs."""

    @functools.wraps(method)
    def guarded(self: G, /, *args: P.args, **kwargs: P.kwargs) -> R:
        guard = self._guard
        if kwargs:
            check_arguments(method, kwargs)
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
