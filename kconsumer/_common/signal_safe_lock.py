"""SignalSafeLock: a reentrant lock for `with` blocks whose beginning a signal handler may interrupt.

On the main thread, a signal handler may raise an exception between any two steps of the interpreter, such as
KeyboardInterrupt. Up to Python 3.13, `with lock:` runs no handler between the acquisition and the beginning of the
block. Python 3.14 calls `__enter__` like any other function, and runs handlers after it has returned. The block has not
begun then. So if `__enter__` is written in C, as those of the locks of `threading` are, an exception of a handler
leaves the lock locked for ever.

An `__enter__` that is written in Python closes this gap: handlers run while its own code runs, which catches their
exceptions, and not after it has returned. For `__exit__` it is the other way round. Before the first line of a function
that is written in Python, handlers run; their exceptions would skip the release. So `__exit__` stays the one in C,
which has released the lock before handlers run.
"""

from __future__ import annotations

import sys
from _thread import RLock  # `threading.RLock` is a function


class SignalSafeLock(RLock):  # type: ignore[misc]  # final in typeshed, but not in Python
    """A reentrant lock that is not left locked if a signal handler raises an exception at the edge of a `with` block.

    It guards state that the main thread shares with others while signal handlers are not deferred (deferred_signals).
    It does not help if `acquire` is called without a `with` block, nor in a block `with condition:`, because handlers
    run inside `__enter__` and `__exit__` of `threading.Condition`. So a condition of this lock needs `with lock:`.
    """

    __slots__ = ()

    if sys.version_info >= (3, 14):

        def __enter__(self) -> bool:  # type: ignore[override]  # its parameters, which `with` does not pass
            """Acquire the lock. Waits for other threads that hold it."""
            before = self._recursion_count()  # type: ignore[attr-defined]  # for `threading`, so not in typeshed
            try:
                return self.acquire()
            except BaseException:  # while this thread waited for the lock, or after it had acquired it
                if self._recursion_count() > before:  # type: ignore[attr-defined]
                    self.release()
                raise
