"""The selector, and which events it waits for on each connection.

Decides for which events (readable, writable) each socket is registered, and changes the selector only when they change.
The event loop handles the events.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable
from contextlib import suppress

from kconsumer.net.node import NodeConnection
from kconsumer.net.transport import Transport
from kconsumer.net.wakeup import Waker

UNKNOWN = -1
"""The recorded events of a transport while they may differ from those in the selector. Equals no real events."""

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class SelectorInterest:
    """Holds the selector of one client, and the events that are registered for each transport."""

    def __init__(self, factory: Callable[[], selectors.BaseSelector], waker: Waker) -> None:
        self.selector: selectors.BaseSelector | None = None  # before the first use, and after `close`
        self._factory = factory
        self._waker = waker
        # The keys are transports and not nodes. If an exception interrupts a disconnect, the events of the old
        # transport stay here, and they must not count for the node's next transport. A transport without events has no
        # entry.
        self._events: dict[Transport, int] = {}

    def open(self) -> selectors.BaseSelector:
        """Returns the selector. The first call creates it and registers the waker."""
        if self.selector is None:
            self.selector = self._factory()
            self.selector.register(self._waker.open(), READ, None)
        return self.selector

    def close(self) -> None:
        """Close the selector without unregistering sockets, because a forked child shares its epoll set with the
        parent."""
        self._events.clear()
        if self.selector is not None:
            self.selector.close()
            self.selector = None

    def update_connecting(self, node: NodeConnection) -> None:
        """Register a transport for one event only: writable if `wants_write` returns True, else readable.

        Used while the transport is connecting or `crossed` (see `Transport`).
        """
        transport = node.transport
        assert transport is not None
        self.set_events(node, transport, WRITE if transport.wants_write() else READ)

    def update_connected(self, node: NodeConnection, *, reads: bool) -> None:
        """Register a connected transport: for reads if `reads` is True, and for writes if requests are queued.

        If the transport is `crossed`, calls `update_connecting` instead.
        """
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
        """Unregister the transport of a node, before it is closed."""
        if node.transport is not None:
            self.set_events(node, node.transport, 0)

    def set_events(self, node: NodeConnection, transport: Transport, events: int) -> None:
        """Register a transport for exactly these events; 0 unregisters it."""
        before = self._events.get(transport, 0)
        if events != before:
            self._change(node, transport, before, events)

    def _change(self, node: NodeConnection, transport: Transport, before: int, events: int) -> None:
        """Change the events of a transport, if there is a selector.

        A signal handler or a failed allocation may raise an exception between two steps of this method or of a selector
        method. Then `_events`, the selector's map and the kernel's set may differ, and no method of the selector can
        repair that. So the events are set to UNKNOWN until all steps are done. A call that finds them UNKNOWN replaces
        the selector.
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
        except FileExistsError:  # the descriptor is in the kernel's set, but not in the selector's map
            self._replace(selector, descriptor).register(descriptor, events, node)

    def _replace(self, old: selectors.BaseSelector, descriptor: int) -> selectors.BaseSelector:
        """Replace the selector by a new one. Returns the new one.

        All sockets of `old` are registered with the new selector, except the one with the descriptor `descriptor`.
        """
        new = self._factory()
        for key in list(old.get_map().values()):
            if key.fd != descriptor:
                with suppress(OSError, ValueError):  # the socket is closed
                    new.register(key.fd, key.events, key.data)
        self.selector = new
        old.close()
        return new
