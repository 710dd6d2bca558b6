"""LoopEpoll: one epoll set for the leased sockets of all AsyncConsumers of an event loop.

The event loop watches one descriptor, however many consumers there are. What most sockets of idle consumers receive is
handled by compiled code (`_core/shared_epoll.pyx`), and only the rest by the consumer to which the socket belongs.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref

from kconsumer._core.shared_epoll import AVAILABLE, SharedEpoll

__all__ = ["AVAILABLE", "LoopEpoll"]

# By the id of the event loop. Only consumers keep a LoopEpoll alive, and it keeps its event loop alive.
_epolls: weakref.WeakValueDictionary[int, LoopEpoll] = weakref.WeakValueDictionary()


class LoopEpoll:
    """Watches the `epoll` of one event loop until no consumer uses it any more."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Raises NotImplementedError or ValueError if the event loop cannot watch descriptors; OSError if the system
        has no descriptors or memory."""
        self.epoll = SharedEpoll()
        self.loop = loop
        loop.add_reader(self.epoll, self.epoll.serve)
        _epolls[id(loop)] = self

    @staticmethod
    def of(loop: asyncio.AbstractEventLoop) -> LoopEpoll:
        """Returns the LoopEpoll of an event loop, which must be running. Raises what `__init__` raises."""
        return _epolls.get(id(loop)) or LoopEpoll(loop)

    def __del__(self) -> None:
        """Let the event loop stop watching. Any thread may run this. The set stays open until then, because its
        descriptor may become that of a file."""
        if hasattr(self, "loop"):  # not set if an exception has ended __init__
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(_end, self.loop, self.epoll)


def _end(loop: asyncio.AbstractEventLoop, epoll: SharedEpoll) -> None:
    if not loop.is_closed():
        loop.remove_reader(epoll)
    epoll.close()
