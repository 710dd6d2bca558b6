"""The runs of this process: one for a consumer at a time, and `stop` for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from kconsumer._common.signal_safe_lock import SignalSafeLock
from kconsumer.errors import StateError


class Run(Protocol):
    """A run that can be stopped."""

    def stop(self) -> None:
        """End the run."""


_lock = SignalSafeLock()
_running: dict[int, Run] = {}  # id of a consumer -> its run


@contextmanager
def registered(run: Run, consumer: object) -> Iterator[None]:
    """Note that a run uses the consumer. Raises StateError if another one does."""
    with _lock:
        if id(consumer) in _running:
            raise StateError("another process() call uses this consumer: stop it first, or use a consumer for each")
        _running[id(consumer)] = run
    try:
        yield
    finally:
        _running.pop(id(consumer))


def is_running(run: Run, consumer: object) -> bool:
    """Returns True if this run uses the consumer now."""
    return _running.get(id(consumer)) is run


def stop() -> None:
    """End all calls of `process` in this process as `Processor.stop` does. Returns at once.

    Any thread, handler or signal handler may call this.
    """
    for run in list(_running.values()):
        run.stop()
