"""The event loop: waits for the sockets of all connections, and lets each connection do its I/O.

Owns the selector, the waker, the time of the next timeout, and the list of requests that have ended. A connection does
its own reads, writes and timeouts (`node.py`). The NetworkClient decides which brokers there are and when to connect to
one. Descriptors are opened at the first use.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from kconsumer.clock import Clock
from kconsumer.errors import StateError
from kconsumer.net.background import BackgroundExecutor, Start
from kconsumer.net.background_receive import BackgroundReceiver
from kconsumer.net.connection import Connection
from kconsumer.net.interest import SelectorInterest
from kconsumer.net.resolver import Resolver
from kconsumer.net.wakeup import Waker
from kconsumer.requests import Ended

if TYPE_CHECKING:
    from kconsumer.net.metrics import ConnectionMetrics

FOREVER = float("inf")


class LoopConnection(Protocol):
    """A connection, as the event loop uses it (see `NodeConnection`)."""

    @property
    def connection(self) -> Connection | None:
        """The protocol state, or None if there is no connection."""

    @property
    def receiving(self) -> bool:
        """Returns whether a response has arrived in part, and the background receiver does not read the rest."""

    def serve(self, mask: int, now: float) -> None:
        """Handle the events that the selector has reported."""

    def write(self, now: float) -> None:
        """Write queued requests."""

    def next_timer(self) -> float:
        """Returns the earliest time (ms) at which a timeout may pass."""

    def expire(self, entered_at: float, now: float) -> None:
        """Handle the timeouts that have passed."""

    def continue_resolved(self, now: float) -> None:
        """Continue to connect, if the name was resolved."""

    def continue_after_background(self, now: float) -> None:
        """Continue what has waited for a background task that has completed."""

    def close(self) -> None:
        """Close the socket."""


class ConnectionLoop:
    """Does the I/O of the connections in `nodes`. Only one thread at a time may use it, except for `waker.wake`."""

    def __init__(
        self,
        clock: Clock,
        nodes: Mapping[str, LoopConnection],
        selector_factory: Callable[[], selectors.BaseSelector],
        start_thread: Start,
        waker: Waker,
        metrics: ConnectionMetrics | None,
    ) -> None:
        self.nodes = nodes
        self.waker = waker
        self.metrics = metrics
        self.closed = False
        self.rebootstrap_required = False  # a broker has returned REBOOTSTRAP_REQUIRED (KIP-1242)
        self.interest = SelectorInterest(selector_factory, waker)
        self.background = BackgroundExecutor(waker.wake_nowait, start_thread)
        self.resolver = Resolver(waker.wake_nowait, start_thread)
        self.background_receiver = BackgroundReceiver(self.interest)
        self.defers_writes = False  # True: connections do not write their requests, but wait for `flush`
        self.deferred: dict[LoopConnection, None] = {}  # the connections whose queued requests `flush` must write
        self.ended: list[Ended] = []  # what `poll` returns next
        self.changed = False  # a connection became ready or was lost, so `poll` must return
        self.next_timer = FOREVER  # when the next timeout passes, or earlier; never later
        self._clock = clock
        self._max_wait_ms = FOREVER  # see `limit_waits`
        self._waiting: AbstractContextManager[object] | None = None  # see `wait_inside`
        self._entered_at = 0.0  # when `poll` was called last

    @property
    def receiving(self) -> bool:
        """Returns whether a response has arrived in part, on a connection that the background receiver is not reading.

        The rest of the response is read by the next calls of `poll`.
        """
        return any(node.receiving for node in self.nodes.values())

    def poll(self, timeout_ms: float, now: float) -> list[Ended]:
        """Do I/O until a request ends, a connection is ready or lost, the waker is set, or the timeout passes.

        Returns each request that has ended, with its reply, which has a message or an error.
        """
        if self.interest.selector is None:
            self.open()
        self._entered_at = now
        if self.deferred:
            self.flush(now)
        deadline = now + timeout_ms
        selects, waited_ms, busy_ms = 0, 0.0, 0.0
        while True:
            wait_ms = (deadline if deadline < self.next_timer else self.next_timer) - now
            if (
                wait_ms < 0
                or self.ended
                or self.changed
                or self.waker.is_set
                or self.resolver.completed_tasks
                or self.background.completed_tasks
            ):
                wait_ms = 0
            elif wait_ms > self._max_wait_ms:
                wait_ms = self._max_wait_ms
            selector = self.interest.selector or self.open()  # it may have been replaced in the last round
            if wait_ms > 0 and self._waiting is not None:
                with self._waiting:
                    found = selector.select(wait_ms / 1000 if wait_ms != FOREVER else None)
            else:
                found = selector.select(wait_ms / 1000 if wait_ms != FOREVER else None)
            woken = self._clock.now()
            for key, mask in found:
                if key.data is None:
                    self.waker.drain()
                else:
                    key.data.serve(mask, woken)
            selects += bool(found) or wait_ms < self._max_wait_ms  # the parts of one wait count as one
            waited_ms += woken - now
            now = self._clock.now() if found else woken
            busy_ms += now - woken
            if self.resolver.completed_tasks or self.background.completed_tasks:
                self._continue_after_tasks(now)
            if now >= self.next_timer:
                self._run_timers(now)
            if self.ended or self.changed or self.waker.is_set or now >= deadline:
                break
        self.changed = False
        if self.waker.is_set:
            self.waker.clear()
        ended, self.ended = self.ended, []
        if self.metrics is not None:
            for _, reply in ended:
                self.metrics.completed(reply)
            self.metrics.polled(selects, waited_ms, busy_ms, now)
        return ended

    def _continue_after_tasks(self, now: float) -> None:
        """Continue what waits for names or for other background tasks that have completed."""
        if self.resolver.completed_tasks:
            self.resolver.acknowledge()
            for node in self.nodes.values():
                node.continue_resolved(now)
        if self.background.completed_tasks:
            self.background.acknowledge()
            for node in self.nodes.values():
                node.continue_after_background(now)

    def _run_timers(self, now: float) -> None:
        """Handle all timeouts that have passed, and find when the next one passes."""
        nodes = list(self.nodes.values())
        for node in nodes:
            if node.next_timer() <= now:
                node.expire(self._entered_at, now)
        self.next_timer = min((node.next_timer() for node in nodes), default=FOREVER)

    def run_timers_by(self, due: float) -> None:
        """Handle timeouts at `due` (ms), or earlier."""
        self.next_timer = min(self.next_timer, due)

    def connection_changed(self) -> None:
        """Let `poll` return, because a connection is ready or lost, or an exchange has changed the state."""
        self.changed = True

    def require_rebootstrap(self) -> None:
        """Record that a broker has returned REBOOTSTRAP_REQUIRED."""
        self.rebootstrap_required = True

    def rebootstrapped(self) -> None:
        """Clear `rebootstrap_required`: the client has returned to the bootstrap servers."""
        self.rebootstrap_required = False

    def defer_writes(self, deferred: bool) -> None:
        """Set whether connections only queue their requests, which `flush` or `poll` then writes."""
        self.defers_writes = deferred

    def flush(self, now: float) -> None:
        """Write the requests whose writes were deferred."""
        while self.deferred:
            node, _ = self.deferred.popitem()
            node.write(now)

    def idle(self, now: float) -> bool:
        """Returns True if `poll` would have nothing to do now. Changes no state, so a signal handler may run in the
        middle of it, and even close the loop."""
        selector = self.interest.selector
        if selector is None or self.deferred or self.ended or self.changed or self.waker.is_set:
            return False
        if self.resolver.completed_tasks or self.background.completed_tasks or now >= self.next_timer:
            return False
        try:
            return not selector.select(0)
        except (OSError, ValueError, KeyError):
            if self.closed:
                return False
            raise

    def wait_inside(self, waiting: AbstractContextManager[object] | None) -> None:
        """Let `poll` wait inside a context manager, which releases the lock of its caller."""
        self._waiting = waiting

    def limit_waits(self, max_wait_ms: float) -> None:
        """Divide waits for the network that are longer (ms): between two parts, the interpreter runs what interrupts no
        system call."""
        self._max_wait_ms = max_wait_ms

    def open(self) -> selectors.BaseSelector:
        """Returns the selector. The first call creates it."""
        if self.closed:
            raise StateError("the network client is closed")
        return self.interest.open()

    def close(self) -> None:
        """Close every descriptor. Sends nothing and never blocks."""
        self.closed = True
        self.interest.close()  # first, so that no socket is unregistered: a forked child shares the epoll set
        self.resolver.close()
        self.background.close()
        self.background_receiver.close()
        for node in self.nodes.values():
            node.close()
        self.deferred.clear()
        self.ended.clear()
        self.waker.close()
