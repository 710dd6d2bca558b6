"""The selector, and what it is told to wait for of each link.

Knows which events a connection can go on with, and tells the selector only what changed. What is done when they come is
the ConnectionLoop's.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable
from contextlib import suppress

from kconsumer.net.connection import Connection
from kconsumer.net.node import NodeConnection
from kconsumer.net.transport import Transport
from kconsumer.net.wakeup import Waker

UNKNOWN = -1
"""A mask that equals no other."""

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class SelectorInterest:
    """The selector of one client; None before its first use, and after the end."""

    def __init__(self, factory: Callable[[], selectors.BaseSelector], waker: Waker) -> None:
        self.selector: selectors.BaseSelector | None = None
        self._factory = factory
        self._waker = waker

    def open(self) -> selectors.BaseSelector:
        """The selector, made if there is none; the waker's bell is heard by it."""
        if self.selector is None:
            self.selector = self._factory()
            self.selector.register(self._waker.open(), READ, None)
        return self.selector

    def close(self) -> None:
        """Forget everything. Nothing is unregistered: after a fork the epoll set is the parent's, too."""
        if self.selector is not None:
            self.selector.close()
            self.selector = None

    def update_connecting(self, link: NodeConnection, transport: Transport) -> None:
        """Wait for what a connection needs that is being made."""
        self.set_events(link, transport, WRITE if transport.wants_write() else READ)

    def update_connected(self, link: NodeConnection, connection: Connection, transport: Transport) -> None:
        """Wait for what an open connection can go on with."""
        if transport.crossed:
            self.update_connecting(link, transport)
            return
        reads = READ if link.receive_job is None else 0
        self.set_events(link, transport, reads | WRITE if connection.outgoing else reads)

    def set_events(self, link: NodeConnection, transport: Transport, mask: int) -> None:
        """Wait for these events; 0 for none.

        An exception from outside (no memory, a signal handler's) may end this, or a method of the selector, between two
        of its steps: the selector's map, the kernel and `link.mask` then disagree, and no method of the selector mends
        that. Until all is done the mask is UNKNOWN, so that the next call finds out and replaces the selector.
        """
        before = link.interest
        if mask == before or self.selector is None:
            return
        link.interest = UNKNOWN
        descriptor = transport.fileno()
        if before == UNKNOWN or (not before and descriptor in self.selector.get_map()):
            self._replace(self.selector, descriptor)
            before = 0
        if before and mask:
            self.selector.modify(descriptor, mask, link)
        elif before:
            self.selector.unregister(descriptor)
        elif mask:
            self._register(self.selector, descriptor, mask, link)
        link.interest = mask

    def _register(self, selector: selectors.BaseSelector, descriptor: int, mask: int, link: NodeConnection) -> None:
        try:
            selector.register(descriptor, mask, link)
        except FileExistsError:  # the kernel has it, and the map has not
            self._replace(selector, descriptor).register(descriptor, mask, link)

    def _replace(self, old: selectors.BaseSelector, descriptor: int) -> selectors.BaseSelector:
        """Make another selector, of what the old one has in its map but for this descriptor."""
        new = self._factory()
        for key in list(old.get_map().values()):
            if key.fd != descriptor:
                with suppress(OSError, ValueError):  # of a socket that is closed
                    new.register(key.fd, key.events, key.data)
        self.selector = new
        old.close()
        return new
