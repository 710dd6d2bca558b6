"""Methods that any thread may call while another thread polls, such as `pause` and `commit_async`.

Such a call does not enter the access guard, so it never causes a ConcurrentAccessError, here or in the thread that
polls. It holds the engine's lock while it reads or changes the state. Decides how the call gets this lock from a thread
that waits for the network.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

from kconsumer._core.lock import EXPECTED
from kconsumer._internal.deferred_signals import SIGNALS
from kconsumer.engine.access_guard import AccessGuard, guarded
from kconsumer.errors import StateError

if TYPE_CHECKING:
    from kconsumer.engine.client_engine import ClientEngine
    from kconsumer.engine.components import ClientComponents

CHECK_INTERVAL_S = 1.0
"""How often a call that waits for the lock checks that the consumer was not interrupted."""


class Shared(Protocol):
    """A consumer whose methods other threads may call."""

    _guard: AccessGuard
    _closing: bool

    @property
    def _engine(self) -> ClientEngine: ...


P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=Shared)


def _call(
    consumer: S, method: Callable[Concatenate[S, P], R], changes: bool, /, *args: P.args, **kwargs: P.kwargs
) -> R:
    """Call a method with the engine's lock, while signal handlers are deferred. Returns its result.

    With `changes`, the running call of another thread continues afterwards, because what it waits for may have changed.
    `Step.unfinished` is only set by an exception in the middle: otherwise it belongs to the thread inside the guard,
    which may have set it while it waits for the lock.
    """
    guard, parts = consumer._guard, consumer._engine.components
    guard.check_usable()  # before the lock: after a fork, a thread of the parent may hold it for ever
    if parts.lock._is_owned():
        raise StateError("an assignor cannot call methods of the consumer")
    if SIGNALS.active:
        SIGNALS.recover()
    holds = SIGNALS.hold(parts.end_wait)
    try:
        try:
            _acquire(parts, guard)
            guard.check_usable()
            if consumer._closing:
                raise StateError("another thread closes this consumer; make a new one")
            parts.changes.set_now(parts.clock.now())
            parts.step.begin_shared()
            result = method(consumer, *args, **kwargs)
            parts.step.end_shared()
        except BaseException as error:
            if parts.lock._is_owned():
                if not isinstance(error, EXPECTED):
                    parts.step.interrupt()  # the change may be incomplete
                parts.step.end_shared()
                parts.lock.release()
            raise
        parts.lock.release()
    finally:
        if parts.user_calls.waiting:
            parts.user_calls.run()
        if changes and guard.holder:
            parts.end_wait()
        if holds:
            SIGNALS.release()
    return result


def _acquire(parts: ClientComponents, guard: AccessGuard) -> None:
    """Acquire the engine's lock.

    With the classic engine, a thread that polls holds the lock while it waits for the network, and acquires it again
    soon after it has released it. So this thread takes the turnstile, and then ends that wait. The thread that polls
    waits at the turnstile before it acquires the lock again, so this thread gets the lock first.
    """
    if parts.lock.acquire(blocking=False):
        return
    try:
        parts.turnstile.enter()
        parts.client.wakeup()
        while not parts.lock.acquire(timeout=CHECK_INTERVAL_S):
            guard.check_usable()  # a thread that an exception has interrupted may have kept the lock
    finally:
        parts.turnstile.leave()


def _shared(
    method: Callable[Concatenate[S, P], R], *, changes: bool, loops: bool = False
) -> Callable[Concatenate[S, P], R]:
    nested = guarded(method)

    @functools.wraps(method)
    def shared(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        guard = self._guard
        if guard.holder == get_ident() or (guard.one_thread and not loops):
            return nested(self, *args, **kwargs)
        return _call(self, method, changes, *args, **kwargs)

    return shared


def shared(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Decorate a method that changes the state, and that any thread may call. It must not run user code."""
    return _shared(method, changes=True)


def shared_read(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Decorate a method that only reads the state, and that any thread may call. It must not run user code."""
    return _shared(method, changes=False)


def loop_read(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Decorate a method as `shared_read` does. Any thread may call it even if the consumer belongs to an event loop.

    It holds the lock as the network thread does, so the state is consistent. It must not use a `Section`.
    """
    return _shared(method, changes=False, loops=True)
