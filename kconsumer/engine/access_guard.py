"""AccessGuard: lets only one thread at a time use a consumer.

No thread may use the consumer after close(), in a forked child, or after an exception has interrupted a change of its
state.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from kconsumer._common.foreign_methods import check_arguments
from kconsumer._core.lock import GuardState, Step
from kconsumer._internal.deferred_signals import SIGNALS

P = ParamSpec("P")
R = TypeVar("R")


class AccessGuard(GuardState):
    """Lets only one thread at a time use methods of a consumer. A callback of this thread may call further methods.

    A method begins with `outer = guard.enter()` and ends with `guard.holder = outer`. The end is an assignment and not
    a call, because Ctrl-C may raise an exception after any call. The return value of the method would then be lost, or
    no thread could enter any more.
    """

    __slots__ = ()

    one_thread = False  # True if no other thread may call any method but `wakeup`

    def __init__(self, step: Step | None = None, end_wait: Callable[[], None] | None = None) -> None:
        super().__init__(SIGNALS, step or Step(), end_wait)


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
                return method(self, *args, **kwargs)
            finally:
                if holds:
                    SIGNALS.release()
        finally:
            guard.holder = outer

    return guarded
