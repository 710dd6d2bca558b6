"""The engine's lock, and the context managers of what happens under it: `Section` changes the state, and `Waiting`
releases the lock while a thread waits for the network.

A thread that holds the lock runs no signal handler: a handler that waits for another thread, as `commit()` does, would
wait for ever if that thread needs the lock.
"""

cimport cython


import os
import sys

from kconsumer.errors import ForkedConsumerError, KafkaError


cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident()


EXPECTED = (KafkaError, TypeError, ValueError, LookupError)
"""Argument checks and managers raise these errors only before they change any state."""

cdef tuple expected = EXPECTED

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

    def __init__(self, lock, HeldHandlers signals not None):
        self.acquire_inner, self.release_inner, self.is_owned = lock.acquire, lock.release, lock._is_owned
        self.signals, self.forks = signals, forks

    def acquire(self, bint blocking=True, timeout=-1):
        """Acquire the lock. Returns False if that was not possible.

        Raises ForkedConsumerError in a forked child if `blocking` is True.
        """
        return self.take(blocking, timeout)

    cdef bint take(self, bint blocking, object timeout) except -1:
        cdef bint defers
        if self.forks != forks:
            if not blocking:
                return False
            raise ForkedConsumerError("this consumer belongs to the process that has forked; make a new one")
        defers = self.signals.begin(None)
        try:
            if not (self.acquire_inner() if blocking and timeout == -1 else self.acquire_inner(blocking, timeout)):
                if defers:
                    self.signals.end()
                return False
            self.depth += 1
            self.version += 1
            if defers:
                self.deferred_at = self.depth
        except BaseException:     # of a signal handler, while this thread waited
            if defers:
                self.signals.end()
            raise
        return True

    def release(self):
        """Release the lock. Then runs the signal handlers that were deferred since it was acquired."""
        self.drop()

    cdef int drop(self) except -1:
        cdef bint deferred = self.deferred_at == self.depth and self.depth > 0
        if not self.is_owned():
            self.release_inner()     # raises RuntimeError
        self.depth -= 1
        if deferred:
            self.deferred_at = 0
        self.release_inner()
        if deferred:
            self.signals.end()
        return 0

    def __enter__(self):
        self.take(True, -1)

    def __exit__(self, kind, error, trace):
        # Not owned: an exception has prevented `Unlocked` from acquiring the lock again.
        if self.is_owned():
            self.drop()

    def _is_owned(self):
        return self.is_owned()


@cython.final
cdef class Step:
    """Records whether a thread is changing the state of an engine.

    `unfinished` is True during a change. It stays True if an exception ends the change in the middle, because the state
    may then be inconsistent. Examples are a MemoryError, an exception set with PyThreadState_SetAsyncExc, and an
    exception raised by a signal handler that is not deferred. `shared_by` is the id of the thread that holds the lock
    for a shared call (see `engine/shared_calls.py`), or 0. `waiting` is True while the thread inside a call waits for
    the network: it does not hold the lock then, but no other thread may use the network. `interrupted` is True if an
    exception has ended a shared call in the middle of a change: then `unfinished` stays True.
    """

    def begin(self):
        """Mark the beginning of a change."""
        self.unfinished = True

    def begin_shared(self):
        """Mark the calling thread as the one that holds the lock for a shared call."""
        self.shared_by = PyThread_get_thread_ident()

    def end_shared(self):
        """Undo `begin_shared`."""
        self.shared_by = 0

    cpdef int end(self) except -1:
        """Mark the end of a change, after which the state is consistent, unless a change of another thread was not."""
        self.unfinished = self.interrupted
        return 0

    cpdef int resume(self, bint changing) except -1:
        """Mark that this thread holds the lock again, and whether it is `changing` the state."""
        self.unfinished = changing or self.interrupted
        return 0

    def interrupt(self):
        """Mark that an exception has interrupted a change in the middle. It stays unfinished."""
        self.unfinished = self.interrupted = True


cdef class ClientState:
    """What each section of a client uses. It is the base of `ClientComponents`."""


@cython.final
cdef class Section:
    """A context manager that holds the engine's lock and defers signal handlers. Sections may be nested.

    If the body raises an exception that is not in EXPECTED, the change may be incomplete. `Step.unfinished` then stays
    set, and every later call except close() raises StateError.
    """

    def __init__(self, ClientState parts not None, HeldHandlers signals not None):
        self.parts, self.signals = parts, signals

    def __enter__(self):
        self.enter()

    cdef int enter(self) except -1:
        cdef ClientState parts = self.parts
        cdef Step step = parts.step
        self.holds = self.signals.begin(parts.end_wait)
        # Set before the lock is acquired. If an asynchronous exception hits between the acquisition and the body,
        # the lock stays acquired. Later calls then raise StateError, and close() releases the lock.
        # A shared call holds the lock already. The thread that polls may have set the flag, and wait for the lock: then
        # the flag belongs to that thread, and is not changed here.
        self.nested = step.unfinished or (step.shared_by != 0 and step.shared_by == PyThread_get_thread_ident())
        if not self.nested:
            step.unfinished = True
        parts.lock.take(True, -1)
        parts.changes.now = parts.clock.now()
        return 0

    def __exit__(self, kind, error, trace):
        self.leave(kind is None or issubclass(kind, expected))

    cdef int leave(self, bint consistent) except -1:
        """End the section. Its change is not complete if the state is not `consistent`."""
        cdef ClientState parts = self.parts
        if not self.nested and consistent:
            parts.step.end()
        parts.lock.drop()
        if parts.user_calls.waiting:
            parts.user_calls.run()
            if not self.holds:
                self.signals.look_again()
        if self.holds:
            self.signals.end()
        return 0


@cython.final
cdef class Waiting:
    """A wait inside a section. It releases the lock, and keeps signal handlers deferred.

    The thread must hold the lock exactly once, and the state must be consistent. An exception that ends the wait, such
    as one set with PyThreadState_SetAsyncExc, leaves it consistent.
    """

    def __init__(self, EngineLock lock not None, Step step not None):
        self.lock, self.step = lock, step

    cdef int begin(self) except -1:
        """Release the lock."""
        self.step.waiting = True
        self.step.unfinished = False
        return self.lock.drop()

    cdef int end(self, bint changing) except -1:
        """Acquire the lock again. `changing` is False if an exception has ended the wait."""
        self.lock.take(True, -1)
        self.step.waiting = False
        return self.step.resume(changing)
