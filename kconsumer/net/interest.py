"""The selector, and which events it waits for on each connection.

Decides for which events (readable, writable) each socket is registered, and changes the selector only when they change.
The event loop handles the events.
"""

from __future__ import annotations

import select
import selectors
from collections.abc import Callable
from contextlib import suppress

from kconsumer._core.net import EpollSelector
from kconsumer.net.transport import Transport
from kconsumer.net.wakeup import Waker

UNKNOWN = -1
"""The recorded events of a transport while they may differ from those in the selector. Equals no real events."""

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


Selector = selectors.BaseSelector | EpollSelector
"""Waits for descriptors."""


def make_selector() -> Selector:
    """Returns the fastest selector of this platform."""
    return EpollSelector() if hasattr(select, "epoll") else selectors.DefaultSelector()


class SelectorInterest:
    """Holds the selector of one client, and the events that are registered for each transport."""

    def __init__(self, factory: Callable[[], Selector], waker: Waker) -> None:
        self.selector: Selector | None = None  # before the first use, and after `close`
        self._factory = factory
        self._waker = waker
        # The keys are transports and not nodes. If an exception interrupts a disconnect, the events of the old
        # transport stay here, and they must not count for the node's next transport. A transport without events has no
        # entry.
        self.events: dict[Transport, int] = {}

    def open(self) -> Selector:
        """Returns the selector. The first call creates it and registers the waker."""
        if self.selector is None:
            self.selector = self._factory()
            self.selector.register(self._waker.open(), READ, None)
        return self.selector

    def close(self) -> None:
        """Close the selector without unregistering sockets, because a forked child shares its epoll set with the
        parent."""
        self.events.clear()
        if self.selector is not None:
            self.selector.close()
            self.selector = None

    def set_events(self, transport: Transport, events: int, data: object) -> None:
        """Register a transport for exactly these events; 0 unregisters it. The selector reports them with `data`."""
        before = self.events.get(transport, 0)
        if events != before:
            self._change(transport, before, events, data)

    def _change(self, transport: Transport, before: int, events: int, data: object) -> None:
        """Change the events of a transport, if there is a selector.

        A signal handler or a failed allocation may raise an exception between two steps of this method or of a selector
        method. Then `events`, the selector's map and the kernel's set may differ, and no method of the selector can
        repair that. So the events are set to UNKNOWN until all steps are done. A call that finds them UNKNOWN replaces
        the selector.
        """
        if self.selector is None:
            return
        self.events[transport] = UNKNOWN
        descriptor = transport.fileno()
        if before == UNKNOWN or (not before and descriptor in self.selector.get_map()):
            self._replace(self.selector, descriptor)
            before = 0
        if before and events:
            self.selector.modify(descriptor, events, data)
        elif before:
            self.selector.unregister(descriptor)
        elif events:
            self._register(self.selector, descriptor, events, data)
        if events:
            self.events[transport] = events
        else:
            del self.events[transport]

    def _register(self, selector: Selector, descriptor: int, events: int, data: object) -> None:
        try:
            selector.register(descriptor, events, data)
        except FileExistsError:  # the descriptor is in the kernel's set, but not in the selector's map
            self._replace(selector, descriptor).register(descriptor, events, data)

    def _replace(self, old: Selector, descriptor: int) -> Selector:
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
