"""A selector of descriptors, for Linux.

`selectors.EpollSelector` also maps file objects to descriptors, in Python code that would take a tenth of the
instructions of a poll with one record.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from libc.errno cimport EINTR, errno
from libc.math cimport INFINITY, ceil

import select
from selectors import SelectorKey

cdef extern from *:
    """
    #ifdef __linux__
    #include <sys/epoll.h>
    #else   /* select.epoll does not exist either */
    struct epoll_event { unsigned int events; struct { int fd; } data; };
    #define epoll_wait(epoll, events, count, timeout) ((void) (epoll), (void) (count), (void) (timeout), -1)
    #endif
    """
    ctypedef union epoll_data_t:
        int fd
    struct epoll_event:
        unsigned int events
        epoll_data_t data
    int epoll_wait(int epoll, epoll_event* events, int count, int timeout) nogil

cdef enum:
    READ_EVENT = 1      # selectors.EVENT_READ
    WRITE_EVENT = 2     # selectors.EVENT_WRITE
    MAX_EVENTS = 64     # of one call; the next call reports the others
    MAX_WAIT_MS = 2_000_000_000     # epoll waits without end in place of a longer time

cdef int epoll_in = getattr(select, "EPOLLIN", 0)
cdef int epoll_out = getattr(select, "EPOLLOUT", 0)


@cython.final
cdef class EpollSelector:
    """Has those methods of `selectors.EpollSelector` that connections use. Accepts descriptors only."""

    cdef object epoll
    cdef int descriptor     # of `epoll`; -1: closed
    cdef dict keys          # the SelectorKey of each descriptor

    def __cinit__(self):
        self.epoll, self.keys = select.epoll(), {}
        self.descriptor = self.epoll.fileno()

    def register(self, int descriptor, int events, data=None):
        """Report these events of a descriptor, with `data`. Raises KeyError if it is registered."""
        if descriptor in self.keys:
            raise KeyError(f"descriptor {descriptor} is registered already")
        self.epoll.register(descriptor, epoll_events(events))
        return self.store(descriptor, events, data)

    def modify(self, int descriptor, int events, data=None):
        """Change the events and the data of a registered descriptor. Raises KeyError if it is not registered."""
        if descriptor not in self.keys:
            raise KeyError(f"descriptor {descriptor} is not registered")
        self.epoll.modify(descriptor, epoll_events(events))
        return self.store(descriptor, events, data)

    def unregister(self, int descriptor):
        """Report no more events of a descriptor. Raises KeyError if it is not registered."""
        key = self.keys.pop(descriptor)
        try:
            self.epoll.unregister(descriptor)
        except OSError:     # it is closed, which has removed it
            pass
        return key

    cdef object store(self, int descriptor, int events, object data):
        key = self.keys[descriptor] = SelectorKey(descriptor, descriptor, events, data)
        return key

    def get_map(self):
        """Returns the SelectorKey of each registered descriptor. Do not change it."""
        return self.keys

    def select(self, timeout=None):
        """Wait at most `timeout` seconds for events; None: without end. Returns (SelectorKey, events) of each."""
        return self.wait(INFINITY if timeout is None else <double> timeout * 1000)

    cdef list wait(self, double timeout_ms):
        """Wait at most `timeout_ms` for events. Returns the same as `select`, and nothing if a signal has arrived."""
        cdef epoll_event events[MAX_EVENTS]
        cdef int count, i, event, rounded_ms = -1 if timeout_ms > MAX_WAIT_MS else <int> ceil(max(timeout_ms, 0.0))
        cdef list found = []
        with nogil:
            count = epoll_wait(self.descriptor, events, MAX_EVENTS, rounded_ms)
        if count < 0 and errno == EINTR:
            PyErr_CheckSignals()    # runs their handlers
        elif count < 0:
            PyErr_SetFromErrno(OSError)
        for i in range(count):
            event = <int> events[i].events
            key = self.keys.get(events[i].data.fd)
            if key is not None:
                found.append((
                    key,
                    (READ_EVENT if event & ~epoll_out else 0) | (WRITE_EVENT if event & ~epoll_in else 0),
                ))
        return found

    def close(self):
        """Close the descriptor of the selector. Registered descriptors stay open."""
        self.descriptor = -1
        self.epoll.close()
        self.keys.clear()


cdef int epoll_events(int events):
    """Returns the events of epoll for those of a selector."""
    return <int> ((epoll_in if events & READ_EVENT else 0) | (epoll_out if events & WRITE_EVENT else 0))
