"""The selector, and what it is told to wait for of each link.

Knows which events a connection can go on with, and tells the selector only what changed. What is done when they come is
the ConnectionLoop's.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable

from kconsumer.net.connection import Connection
from kconsumer.net.link import Link
from kconsumer.net.transport import Transport
from kconsumer.net.wakeup import Waker

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Watch:
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

    def connecting(self, link: Link, transport: Transport) -> None:
        """Wait for what a connection needs that is being made."""
        self.set(link, transport, WRITE if transport.wants_write() else READ)

    def connected(self, link: Link, connection: Connection, transport: Transport) -> None:
        """Wait for what an open connection can go on with."""
        if transport.crossed:
            self.connecting(link, transport)
            return
        reads = READ if link.job is None else 0
        self.set(link, transport, reads | WRITE if connection.outgoing else reads)

    def set(self, link: Link, transport: Transport, mask: int) -> None:
        """Wait for these events; 0 for none."""
        selector, before = self.selector, link.mask
        if mask == before or selector is None:
            return
        link.mask = mask
        if not before:
            selector.register(transport.fileno(), mask, link)
        elif not mask:
            selector.unregister(transport.fileno())
        else:
            selector.modify(transport.fileno(), mask, link)
