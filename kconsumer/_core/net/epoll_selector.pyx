"""A selector of descriptors, for Linux.

`selectors.EpollSelector` also maps file objects to descriptors, in Python code that would take a tenth of the
instructions of a poll with one record.
"""

cimport cython

import select
from selectors import SelectorKey

cdef enum:
    READ_EVENT = 1      # selectors.EVENT_READ
    WRITE_EVENT = 2     # selectors.EVENT_WRITE

cdef int epoll_in = getattr(select, "EPOLLIN", 0)
cdef int epoll_out = getattr(select, "EPOLLOUT", 0)


@cython.final
cdef class EpollSelector:
    """Has those methods of `selectors.EpollSelector` that connections use. Accepts descriptors only."""

    cdef object epoll
    cdef dict keys      # the SelectorKey of each descriptor

    def __cinit__(self):
        self.epoll, self.keys = select.epoll(), {}

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
        cdef list found = []
        cdef int event
        try:
            events = self.epoll.poll(-1 if timeout is None else max(timeout, 0), len(self.keys) or 1)
        except InterruptedError:
            return found
        for descriptor, event in events:
            key = self.keys.get(descriptor)
            if key is not None:
                found.append((
                    key,
                    (READ_EVENT if event & ~epoll_out else 0) | (WRITE_EVENT if event & ~epoll_in else 0),
                ))
        return found

    def close(self):
        """Close the descriptor of the selector. Registered descriptors stay open."""
        self.epoll.close()
        self.keys.clear()


cdef int epoll_events(int events):
    """Returns the events of epoll for those of a selector."""
    return (epoll_in if events & READ_EVENT else 0) | (epoll_out if events & WRITE_EVENT else 0)
