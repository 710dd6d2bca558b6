"""Defers calls of log handlers and metrics reporters, which are user code, while an engine's lock is held.

State changes, and log messages about them, are made under the lock. The calls are queued and made in order as soon as
the thread has released the lock, so that user code may block or use the consumer.
"""

from __future__ import annotations

import logging
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

_instances: weakref.WeakSet[DeferredCalls] = weakref.WeakSet()
_registry = threading.RLock()  # a signal handler may log while it is held


class DeferredCalls:
    """The queue of the deferred calls of one engine. They run when the thread has released the lock."""

    __slots__ = ("__weakref__", "_owned", "waiting")

    def __init__(self, lock: Any) -> None:
        self._owned: Callable[[], bool] = lock._is_owned  # of an RLock, as threading.Condition uses it
        self.waiting: deque[Callable[[], object]] = deque()
        with _registry:
            _instances.add(self)

    def call(self, function: Callable[[], object]) -> None:
        """Call a function now. If the calling thread holds the lock, queue the function for `run` instead."""
        if self._owned():
            self.waiting.append(function)
        else:
            function()

    def run(self) -> None:
        """Make the queued calls, unless the calling thread still holds the lock."""
        while self.waiting and not self._owned():
            try:
                function = self.waiting.popleft()
            except IndexError:  # another thread has taken the last one
                return
            try:
                function()
            except Exception:  # handled as logging handles the errors of its handlers
                if logging.raiseExceptions:
                    traceback.print_exc()

    @property
    def locked(self) -> bool:
        """True if the calling thread holds the lock."""
        return self._owned()


def _hand_over(record: logging.LogRecord) -> bool:
    """Filter a log record. Returns True if its handlers may run now.

    If the calling thread holds an engine's lock, queues the record for later and returns False.
    """
    with _registry:
        held = [calls for calls in _instances if calls.locked]
    if not held:
        return True
    held[0].call(partial(logging.getLogger(record.name).handle, record))
    return False


def get_logger(name: str) -> logging.Logger:
    """Returns the logger of this name. Its handlers never run under the lock of an engine."""
    logger = logging.getLogger(name)
    logger.addFilter(_hand_over)
    return logger
