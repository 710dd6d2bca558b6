"""The engine's lock. A thread that holds it runs no signal handler: a handler that waits for another thread, as
`commit()` does, would wait for ever if that thread needs the lock.
"""

cimport cython

from kconsumer._core.held_handlers cimport HeldHandlers

import os
import sys

from kconsumer.errors import ForkedConsumerError


cdef long forks = 0     # how often this process and its parents have forked


def fork_count():
    """Returns the number of forks between the process that imported kconsumer and this process."""
    return forks


def _count_fork():
    global forks
    forks += 1


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_count_fork)


@cython.final
cdef class EngineLock:
    """A reentrant lock that defers signal handlers while it is held, and counts how often it was acquired.

    In a forked child the lock cannot be acquired: a thread of the parent may have held it during the fork, and the
    child must not touch what the parent uses.
    """

    cdef object inner           # a `threading.RLock`, or that of a test
    cdef public long version    # grows whenever a thread acquires the lock: the state may have changed
    cdef HeldHandlers signals
    cdef long forks             # the value of `forks` when the lock was created
    cdef int depth              # how often the owner has acquired the lock
    cdef int deferred_at        # the depth at which the owner began to defer signal handlers; 0: not here

    def __init__(self, lock, HeldHandlers signals not None):
        self.inner, self.signals, self.forks = lock, signals, forks

    def acquire(self, blocking=True, timeout=-1):
        """Acquire the lock. Returns False if that was not possible.

        Raises ForkedConsumerError in a forked child if `blocking` is True.
        """
        cdef bint defers
        if self.forks != forks:
            if not blocking:
                return False
            raise ForkedConsumerError("this consumer belongs to the process that has forked; make a new one")
        defers = self.signals.hold_all()
        try:
            if not self.inner.acquire(blocking, timeout):
                if defers:
                    self.signals.release()
                return False
            self.depth += 1
            self.version += 1
            if defers:
                self.deferred_at = self.depth
        except BaseException:     # of a signal handler, while this thread waited
            if defers:
                self.signals.release()
            raise
        return True

    def release(self):
        """Release the lock. Then runs the signal handlers that were deferred since it was acquired."""
        cdef bint deferred = self.deferred_at == self.depth and self.depth > 0
        if not self.inner._is_owned():
            self.inner.release()     # raises RuntimeError
        self.depth -= 1
        if deferred:
            self.deferred_at = 0
        self.inner.release()
        if deferred:
            self.signals.release()

    def __enter__(self):
        self.acquire()

    def __exit__(self, kind, error, trace):
        # Not owned: an exception has prevented `Unlocked` from acquiring the lock again.
        if self.inner._is_owned():
            self.release()

    def _is_owned(self):
        return self.inner._is_owned()
