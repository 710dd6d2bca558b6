"""Runs an iterator in a thread, a few items ahead of the code that uses the items.

While the caller writes a batch to Spark's socket, the thread fetches and decodes the next one. Both release the GIL.
`depth` limits the number of batches in memory.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator
from contextlib import closing
from typing import Generic, TypeVar

from kconsumer._common.signal_safe_lock import SignalSafeLock

__all__ = ["Prefetch"]

T = TypeVar("T")


class Prefetch(Generic[T]):
    """Iterates over the items of a generator that runs in a thread. They keep their order.

    If the generator raises an error, the error is raised after all items before it have been returned.

    The user must call `close`, for example with `contextlib.closing`. It can be called at any time.
    """

    def __init__(self, items: Generator[T, None, None], depth: int = 2) -> None:
        self._items = items
        self._ready: deque[T] = deque()
        self._lock = SignalSafeLock()
        self._changed = threading.Condition(self._lock)
        self._depth = depth
        self._ended = self._stopping = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="kconsumer-prefetch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with closing(self._items):  # in this thread: a client that the generator uses belongs to it
                while self._wait_for_room():
                    item = next(self._items)
                    with self._lock:
                        self._ready.append(item)
                        self._changed.notify_all()
        except StopIteration:
            pass
        except BaseException as error:
            self._error = error
        with self._lock:
            self._ended = True
            self._changed.notify_all()

    def _wait_for_room(self) -> bool:
        with self._lock:
            self._changed.wait_for(lambda: self._stopping or len(self._ready) < self._depth)
            return not self._stopping

    def __iter__(self) -> Prefetch[T]:
        return self

    def __next__(self) -> T:
        with self._lock:
            self._changed.wait_for(lambda: self._ready or self._ended)
            if self._ready:
                item = self._ready.popleft()
                self._changed.notify_all()
                return item
        if self._error is not None:
            raise self._error
        raise StopIteration

    def close(self) -> None:
        """End the thread, which closes the generator. Further calls do nothing."""
        with self._lock:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()
        self._ready.clear()
