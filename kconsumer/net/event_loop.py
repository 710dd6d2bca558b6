"""The event loop: waits for the sockets of all connections, and lets each connection do its I/O.

Owns the selector, the waker, the time of the next timeout, and the list of requests that have ended. A connection does
its own reads, writes and timeouts (`node.py`). The NetworkClient decides which brokers there are and when to connect to
one. Descriptors are opened at the first use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from kconsumer._core.lock import Clock
from kconsumer._core.net import IoLoop
from kconsumer.errors import StateError
from kconsumer.net.background import BackgroundExecutor, Start
from kconsumer.net.background_receive import BackgroundReceiver
from kconsumer.net.connection import Connection
from kconsumer.net.interest import Selector, SelectorInterest
from kconsumer.net.resolver import Resolver
from kconsumer.net.wakeup import Waker

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


def run_python() -> None:
    """Do nothing. What `_thread.interrupt_main()` or another thread has requested is raised only while the interpreter
    runs Python code, and all other code of a wait is compiled."""


class ConnectionLoop(IoLoop):
    """Does the I/O of the connections in `nodes`. Only one thread at a time may use it, except for `waker.wake`."""

    nodes: Mapping[str, LoopConnection]
    waker: Waker
    interest: SelectorInterest
    background: BackgroundExecutor
    resolver: Resolver
    background_receiver: BackgroundReceiver

    def __init__(
        self,
        clock: Clock,
        nodes: Mapping[str, LoopConnection],
        selector_factory: Callable[[], Selector],
        start_thread: Start,
        waker: Waker,
        metrics: ConnectionMetrics | None,
    ) -> None:
        interest = SelectorInterest(selector_factory, waker)
        super().__init__(
            clock,
            nodes,
            waker,
            metrics,
            interest,
            BackgroundExecutor(waker.wake_nowait, start_thread),
            Resolver(waker.wake_nowait, start_thread),
            BackgroundReceiver(interest),
            run_python,
        )
        self.closed = False
        self.rebootstrap_required = False  # a broker has returned REBOOTSTRAP_REQUIRED (KIP-1242)

    @property
    def receiving(self) -> bool:
        """Returns whether a response has arrived in part, on a connection that the background receiver is not reading.

        The rest of the response is read by the next calls of `poll`.
        """
        return any(node.receiving for node in self.nodes.values())

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

    def require_rebootstrap(self) -> None:
        """Record that a broker has returned REBOOTSTRAP_REQUIRED."""
        self.rebootstrap_required = True

    def rebootstrapped(self) -> None:
        """Clear `rebootstrap_required`: the client has returned to the bootstrap servers."""
        self.rebootstrap_required = False

    def defer_writes(self, deferred: bool) -> None:
        """Set whether connections only queue their requests, which `flush` or `poll` then writes."""
        self.defers_writes = deferred

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

    def limit_waits(self, max_wait_ms: float) -> None:
        """Divide waits for the network that are longer (ms): between two parts, the interpreter runs what interrupts no
        system call."""
        self._max_wait_ms = max_wait_ms

    def open(self) -> Selector:
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
