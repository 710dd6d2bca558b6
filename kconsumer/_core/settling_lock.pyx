"""The engine's lock, which settles the fast path of fetching before other code uses the state.

A thread that holds it runs no signal handler: a handler that waits for another thread, as `commit()` does, would wait
for ever if that thread needs the lock.
"""

cimport cython

from kconsumer._core.fast_path cimport FastPath, fork_number
from kconsumer._core.held_handlers cimport HeldHandlers

from kconsumer.errors import ForkedConsumerError


cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident()


@cython.final
cdef class SettlingLock:
    """The engine's lock. A thread that acquires it finds the state settled, because that disarms the fast path.

    `settle()` disarms the fast path and writes its state back. In a forked child the lock cannot be acquired: a thread
    of the parent may have held it during the fork, and the child must not touch what the parent uses.
    """

    cdef readonly object inner
    cdef public long version    # grows whenever a thread acquires the lock: the state may have changed
    cdef object settle
    cdef FastPath fast_path
    cdef HeldHandlers signals
    cdef long forks             # the value of `fork_number()` when the lock was created
    cdef int depth              # how often the owner has acquired the lock
    cdef int deferred_at        # the depth at which the owner began to defer signal handlers; 0: not here

    def __init__(self, lock, HeldHandlers signals not None):
        self.inner, self.signals, self.forks = lock, signals, fork_number()

    def settle_with(self, FastPath fast_path not None, settle):
        """Set the fast path, and the function that disarms it."""
        self.fast_path, self.settle = fast_path, settle

    def acquire(self, blocking=True, timeout=-1):
        """Acquire the lock. Returns False if that was not possible.

        While the fast path waits, its thread is inside a call, and does not hold the lock. As on the general path,
        another thread then gets the lock only if it is willing to wait for it. Raises ForkedConsumerError in a forked
        child if `blocking` is True.
        """
        cdef FastPath fast_path = self.fast_path
        cdef bint defers
        if self.forks != fork_number():
            if not blocking:
                return False
            raise ForkedConsumerError("this consumer belongs to the process that has forked; make a new one")
        if not blocking and fast_path is not None and fast_path.waiting:
            if fast_path.thread != PyThread_get_thread_ident():
                return False
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
                defers = False
        except BaseException:     # of a signal handler, while this thread waited
            if defers:
                self.signals.release()
            raise
        if fast_path is not None and fast_path.armed:
            try:
                self.settle()
            except BaseException:
                self.release()
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
