"""Waits for the leased sockets of all AsyncConsumers of an event loop, which watches one descriptor for them.

Most of what arrives are empty responses of idle consumers. They are handled here, one after the other, without Python
code and without a task of the event loop for each. Everything else is left to the consumer to which the socket belongs.

Brokers respond to idle consumers when `fetch_max_wait_ms` has passed. If there are several, the next wait ends at the
same time for all of them, as `fast_empty.pyx` says. So the event loop wakes up less often.

The GIL is held from the system call that reports the sockets until their empty responses are handled. So no other
thread settles a fast path meanwhile. A socket is watched only while a poll waits for it.
"""

cimport cython
from libc.errno cimport EINTR

from kconsumer._core.fast_connection cimport FastConnection
from kconsumer._core.fast_path cimport DONE, MAX_READY, FastPath

import os


cdef extern from "fast_wait.h" nogil:
    const int KC_SYSTEM_WAITS
    int kc_wait(int selector, int* readable, int limit, int timeout_ms)
    double kc_monotonic_ms()


cdef extern from "shared_epoll.h" nogil:
    int kc_open_epoll()
    int kc_add(int selector, int descriptor)
    void kc_remove_descriptor(int selector, int descriptor)
    void kc_close_epoll(int selector)
    int kc_process()


AVAILABLE = bool(KC_SYSTEM_WAITS)


@cython.final
cdef class WatchedSocket:
    """A leased socket for which a poll waits. `ready()` processes what has arrived on the sockets of its consumer."""

    cdef FastPath path
    cdef FastConnection connection
    cdef object ready


@cython.final
cdef class SharedEpoll:
    """An epoll set with the sockets of several consumers. Raises OSError if the system refuses it."""

    cdef int descriptor         # of the epoll set; -1: it was closed
    cdef int process            # the process that has opened it: a child of a fork must not change it
    cdef int watched            # the number of sockets
    cdef list sockets           # the WatchedSocket of each descriptor, or None; the index is the descriptor

    def __cinit__(self):
        self.descriptor = -1
        self.sockets = []
        if not KC_SYSTEM_WAITS:
            raise NotImplementedError("this system has no epoll")
        self.descriptor = kc_open_epoll()
        if self.descriptor < 0:
            raise OSError(-self.descriptor, os.strerror(-self.descriptor))
        self.process = kc_process()

    def __dealloc__(self):
        if self.descriptor >= 0:
            kc_close_epoll(self.descriptor)

    def fileno(self):
        """Returns the descriptor of the epoll set, which is readable while any of the sockets is."""
        if self.descriptor < 0:
            raise ValueError("the epoll set is closed")
        return self.descriptor

    def close(self):
        """Close the epoll set. The sockets stay open."""
        if self.descriptor >= 0:
            kc_close_epoll(self.descriptor)
        self.descriptor = -1
        self.sockets = []

    def watch(self, FastPath path not None, ready):
        """Watch the sockets of a fast path for the poll that `begin_poll` has begun.

        `serve` calls `ready()` when more than an empty response has arrived. Returns False if the fast path was settled
        since the poll began. Nothing is watched then. Raises OSError if the system has no memory for this.
        """
        cdef FastConnection connection
        cdef WatchedSocket watched
        cdef int result
        if not path.is_waiting() or self.process != kc_process():
            return False
        for connection in path.connections:
            watched = WatchedSocket.__new__(WatchedSocket)
            watched.path, watched.connection, watched.ready = path, connection, ready
            while len(self.sockets) <= connection.descriptor:
                self.sockets.append(None)
            result = kc_add(self.descriptor, connection.descriptor)
            if result < 0:
                self.unwatch(path)
                raise OSError(-result, os.strerror(-result))
            self.watched += self.sockets[connection.descriptor] is None
            self.sockets[connection.descriptor] = watched
        return True

    def unwatch(self, FastPath path not None):
        """Stop watching the sockets of a fast path."""
        cdef FastConnection connection
        cdef WatchedSocket watched
        for connection in path.connections:
            watched = self.find(connection.descriptor)
            # Another consumer may have a socket with this descriptor by now.
            if watched is not None and watched.path is path:
                self.sockets[connection.descriptor] = None
                self.watched -= 1
                if self.process == kc_process():
                    kc_remove_descriptor(self.descriptor, connection.descriptor)

    def serve(self):
        """Handle the empty responses that have arrived, then call `ready` for each socket that has received more."""
        cdef int descriptors[MAX_READY]
        cdef int count, index
        cdef double now
        cdef bint align
        cdef WatchedSocket watched
        cdef list others = []
        count = kc_wait(self.descriptor, descriptors, MAX_READY, 0)
        if count < 0:
            if count == -EINTR:
                return
            raise OSError(-count, os.strerror(-count))
        now, align = kc_monotonic_ms(), self.watched > 1
        for index in range(count):
            watched = self.find(descriptors[index])
            if watched is None:
                continue
            if not watched.path.is_waiting() or watched.path.exchange(watched.connection, now, align) != DONE:
                others.append(watched)
        for watched in others:
            watched.ready()

    cdef WatchedSocket find(self, int descriptor):
        """Returns the watched socket with this descriptor, or None."""
        if not 0 <= descriptor < len(self.sockets):
            return None
        return <WatchedSocket> self.sockets[descriptor]
