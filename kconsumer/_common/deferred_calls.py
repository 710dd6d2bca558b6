"""Defers calls of log handlers and metrics reporters, which are user code, while an engine's lock is held.

State changes, and log messages about them, are made under the lock. The calls are queued and made in order as soon as
the thread has released the lock, so that user code may block or use the consumer.

Log records also get fields here, which formatters can use: the consumer's `client_id`, `group` and `member`, and the
`topic` and `partition` of the message.
"""

from __future__ import annotations

import logging
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kconsumer.types import TopicPartition

_threads = threading.local()  # `calls`: the DeferredCalls of the engine to which the thread belongs
# Not a WeakSet: its iteration fails if another thread frees an instance at the wrong moment. A copy is atomic.
_instances: set[weakref.ref[DeferredCalls]] = set()


class DeferredCalls:
    """The queue of the deferred calls of one engine. They run when the thread has released the lock."""

    __slots__ = ("__weakref__", "_owned", "fields", "waiting")

    def __init__(self, lock: Any, fields: Callable[[], Mapping[str, str]] = dict) -> None:
        """Create the queue for an engine with this lock. `fields()` returns the fields of its log records."""
        self._owned: Callable[[], bool] = lock._is_owned  # of an RLock, as threading.Condition uses it
        self.fields = fields
        self.waiting: deque[Callable[[], object]] = deque()
        _instances.add(weakref.ref(self, _instances.discard))

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

    def bind_thread(self) -> None:
        """Give the log records of the calling thread the fields of this engine, also without the lock."""
        _threads.calls = self

    @property
    def locked(self) -> bool:
        """True if the calling thread holds the lock."""
        return self._owned()


def _hand_over(record: logging.LogRecord) -> bool:
    """Filter a log record. Returns True if its handlers may run now.

    If the calling thread holds an engine's lock, queues the record for later and returns False.
    """
    instances = [reference() for reference in _instances.copy()]
    held = [calls for calls in instances if calls is not None and calls.locked]
    _add_fields(record, held[0] if held else getattr(_threads, "calls", None))
    if not held:
        return True
    held[0].call(partial(logging.getLogger(record.name).handle, record))
    return False


def _add_fields(record: logging.LogRecord, calls: DeferredCalls | None) -> None:
    """Add the fields of an engine to a record, and those of a partition that is in the message."""
    fields: dict[str, object] = {} if calls is None else dict(calls.fields())
    for argument in record.args if isinstance(record.args, tuple) else ():
        if isinstance(argument, TopicPartition):
            fields["topic"], fields["partition"] = argument
    for name, value in fields.items():
        record.__dict__.setdefault(name, value)


def get_logger(name: str) -> logging.Logger:
    """Returns the logger of this name. Its handlers never run under the lock of an engine."""
    logger = logging.getLogger(name)
    logger.addFilter(_hand_over)
    return logger
