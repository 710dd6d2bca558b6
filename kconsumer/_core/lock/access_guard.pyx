"""Lets only one thread at a time use a consumer. `kconsumer/engine/access_guard.py` has the rest of the class."""

cimport cython

from kconsumer.errors import ConcurrentAccessError, StateError

FORKED = (
    "this consumer was made before the process forked; make a new one in the child"
    " (its connections belong to the parent)"
)
cdef str CLOSED = "this consumer is closed; make a new one"
cdef str INTERRUPTED = (
    "this consumer was interrupted in the middle of a step, so its state may be incomplete: close() it and make a new"
    " one"
)
cdef str IN_USE = (
    "another thread is using this consumer; use one consumer per thread, or a lock around it (from any"
    " thread: commit_async(), pause(), resume(), metrics(), assignment() and others that do not wait)"
)


cdef class GuardState:
    """The fields of an `AccessGuard`, and what each public call does first."""

    def __init__(self, HeldHandlers signals not None, Step step not None, end_wait):
        self._signals, self.step, self.end_wait = signals, step, end_wait
        self._forks = forks

    @property
    def forked(self):
        """True if the process has forked since the consumer was created."""
        return self._forks != forks

    @cython.critical_section
    def check_usable(self):
        """Raise the errors of `enter` that do not depend on which thread has entered."""
        if self._forks != forks:
            raise ForkedConsumerError(FORKED)
        if self.closed:
            raise StateError(CLOSED)
        # While a thread is inside a call, it may set `unfinished` at any moment. No thread can enter between these two
        # reads: without the GIL, `enter` and the assignment of `holder` lock this object, too.
        if not self.holder and self.step.unfinished:
            raise StateError(INTERRUPTED)

    @cython.critical_section
    def enter(self, *, bint closing=False):
        """Enter the guard without waiting. Returns the value to assign to `holder` at the end of the method.

        Raises ForkedConsumerError in a forked child, ConcurrentAccessError if another thread has entered, and
        StateError after close(). Unless `closing`, also raises StateError after an interruption (see `Step`).
        """
        cdef unsigned long me = PyThread_get_thread_ident(), outer
        if self._forks != forks:
            raise ForkedConsumerError(FORKED)
        outer = self.holder
        if outer != 0 and outer != me:
            raise ConcurrentAccessError(IN_USE)
        self.holder = me
        try:
            if self._signals.active and outer == 0:
                self._signals.recover()
            if self.closed:
                raise StateError(CLOSED)
            if self.step.unfinished and not closing:
                raise StateError(INTERRUPTED)
        except BaseException:
            self.holder = outer
            raise
        return outer
