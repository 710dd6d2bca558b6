"""The engine's lock, which settles the fast path of fetching before other code uses the state."""

cimport cython

from kconsumer._core.fast_path cimport FastPath


cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident()


@cython.final
cdef class SettlingLock:
    """The engine's lock. A thread that acquires it finds the state settled, because that disarms the fast path.

    `settle()` disarms the fast path and writes its state back.
    """

    cdef readonly object inner
    cdef object settle
    cdef FastPath fast_path

    def __init__(self, lock):
        self.inner = lock

    def settle_with(self, FastPath fast_path not None, settle):
        """Set the fast path, and the function that disarms it."""
        self.fast_path, self.settle = fast_path, settle

    def acquire(self, blocking=True, timeout=-1):
        """Acquire the lock. Returns False if that was not possible.

        While the fast path waits, its thread is inside a call, and does not hold the lock. As on the general path,
        another thread then gets the lock only if it is willing to wait for it.
        """
        cdef FastPath fast_path = self.fast_path
        if not blocking and fast_path is not None and fast_path.waiting:
            if fast_path.thread != PyThread_get_thread_ident():
                return False
        if not self.inner.acquire(blocking, timeout):
            return False
        if fast_path is not None and fast_path.armed:
            try:
                self.settle()
            except BaseException:
                self.inner.release()
                raise
        return True

    def release(self):
        """Release the lock."""
        self.inner.release()

    def __enter__(self):
        self.acquire()

    def __exit__(self, kind, error, trace):
        self.inner.release()

    def _is_owned(self):
        return self.inner._is_owned()
