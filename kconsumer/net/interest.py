"""The selector, and the events that it reports for each connection.

Decides which events a connection can continue with, and changes the selector only when these change. It does not handle
the events; that is the event loop's task.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable
from contextlib import suppress

from kconsumer.net.node import NodeConnection
from kconsumer.net.transport import Transport
from kconsumer.net.wakeup import Waker

UNKNOWN = -1
"""Events that equal no others."""

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class SelectorInterest:
    """The selector of one client, and the events it reports for each transport."""

    def __init__(self, factory: Callable[[], selectors.BaseSelector], waker: Waker) -> None:
        self.selector: selectors.BaseSelector | None = None  # before the first use, and after `close`
        self._factory = factory
        self._waker = waker
        # By transport and not by node: if an exception ends a disconnect halfway, the next transport of the node must
        # not inherit the events of the one before. A transport without events is absent.
        self._events: dict[Transport, int] = {}

    def open(self) -> selectors.BaseSelector:
        """Returns the selector. Creates it at the first use, with the waker registered."""
        if self.selector is None:
            self.selector = self._factory()
            self.selector.register(self._waker.open(), READ, None)
        return self.selector

    def close(self) -> None:
        """Close the selector. Unregisters nothing: after a fork the epoll set is still the parent's."""
        self._events.clear()
        if self.selector is not None:
            self.selector.close()
            self.selector = None

    def update_connecting(self, node: NodeConnection) -> None:
        """Wait for the event with which a transport continues to connect, or a `crossed` read or write."""
        transport = node.transport
        assert transport is not None
        self.set_events(node, transport, WRITE if transport.wants_write() else READ)

    def update_connected(self, node: NodeConnection, *, reads: bool) -> None:
        """Wait for writability while requests are queued, and for readability if `reads`."""
        connection, transport = node.connection, node.transport
        assert connection is not None
        assert transport is not None
        if transport.crossed:
            self.update_connecting(node)
            return
        events = (READ if reads else 0) | (WRITE if connection.outgoing else 0)
        before = self._events.get(transport, 0)
        if events != before:
            self._change(node, transport, before, events)

    def ignore(self, node: NodeConnection) -> None:
        """Wait for no event of a node, whose transport is about to be closed."""
        if node.transport is not None:
            self.set_events(node, node.transport, 0)

    def set_events(self, node: NodeConnection, transport: Transport, events: int) -> None:
        """Wait for these events, 0 for none."""
        before = self._events.get(transport, 0)
        if events != before:
            self._change(node, transport, before, events)

    def _change(self, node: NodeConnection, transport: Transport, before: int, events: int) -> None:
        """Change the events of a transport, if there is a selector.

        A signal handler or a failed allocation may raise between two steps of this method, or of the selector's. The
        selector's map, the kernel and our own record then disagree, and no method of the selector repairs that. So the
        events are UNKNOWN until all steps are done, and the next call after an exception replaces the selector.
        """
        if self.selector is None:
            return
        self._events[transport] = UNKNOWN
        descriptor = transport.fileno()
        if before == UNKNOWN or (not before and descriptor in self.selector.get_map()):
            self._replace(self.selector, descriptor)
            before = 0
        if before and events:
            self.selector.modify(descriptor, events, node)
        elif before:
            self.selector.unregister(descriptor)
        elif events:
            self._register(self.selector, descriptor, events, node)
        if events:
            self._events[transport] = events
        else:
            del self._events[transport]

    def _register(self, selector: selectors.BaseSelector, descriptor: int, events: int, node: NodeConnection) -> None:
        try:
            selector.register(descriptor, events, node)
        except FileExistsError:  # the kernel's set has it, the selector's map does not
            self._replace(selector, descriptor).register(descriptor, events, node)

    def _replace(self, old: selectors.BaseSelector, descriptor: int) -> selectors.BaseSelector:
        """Create another selector with everything in the old one's map but this descriptor. Returns it."""
        new = self._factory()
        for key in list(old.get_map().values()):
            if key.fd != descriptor:
                with suppress(OSError, ValueError):  # the socket is closed
                    new.register(key.fd, key.events, key.data)
        self.selector = new
        old.close()
        return new
