"""Who may use a consumer: one thread at a time, not after close, not in a forked child."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

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


class Guard:
    """Lets one thread in; the same thread may come in again (from a callback)."""

    __slots__ = ("_depth", "_forks", "_lock", "_owner", "closed")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._depth = 0
        self._forks = _forks
        self.closed = False

    @property
    def forked(self) -> bool:
        """Whether the process forked since the consumer was made."""
        return self._forks != _forks

    def enter(self) -> None:
        """Come in, or raise ForkedConsumerError, ConcurrentAccessError or (after close) StateError at once."""
        if self._forks != _forks:
            raise ForkedConsumerError(
                "this consumer was made before the process forked; make a new one in the child"
                " (its connections belong to the parent)"
            )
        me = threading.get_ident()
        if self._owner != me:
            if not self._lock.acquire(blocking=False):
                raise ConcurrentAccessError(
                    "another thread is using this consumer; use one consumer per thread, or a lock around it"
                    " (only wakeup() may be called from any thread)"
                )
            self._owner = me
        if self.closed:
            self._release()
            raise StateError("this consumer is closed; make a new one")
        self._depth += 1

    def leave(self) -> None:
        """Go out again."""
        self._depth -= 1
        self._release()

    def _release(self) -> None:
        if self._depth == 0:
            self._owner = None
            self._lock.release()


class Guarded(Protocol):
    """Anything with a guard."""

    _guard: Guard


G = TypeVar("G", bound=Guarded)


def public(method: Callable[Concatenate[G, P], R]) -> Callable[Concatenate[G, P], R]:
    """Run a public method behind its object's guard."""

    @functools.wraps(method)
    def guarded(self: G, /, *args: P.args, **kwargs: P.kwargs) -> R:
        guard = self._guard
        guard.enter()
        try:
            return method(self, *args, **kwargs)
        finally:
            guard.leave()

    return guarded
