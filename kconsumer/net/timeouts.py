"""The timeouts of connections: of attempts, of requests, and of connections that are not used.

Decides what happens when the time of a connection has passed, and when the client warns about an attempt or a request
that has no response yet. The event loop decides when to run the timeouts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kconsumer.deferred_calls import get_logger
from kconsumer.errors import BrokerConnectionError, KafkaError
from kconsumer.net.attempts import ConnectionAttempts
from kconsumer.net.background_receive import BackgroundReceiver
from kconsumer.net.connection import Connection, InFlight
from kconsumer.net.node import FOREVER, NodeConnection
from kconsumer.net.states import ConnectionState

log = get_logger("kconsumer.net")


class Disconnector(Protocol):
    """The event loop, as timeouts use it."""

    def disconnect(self, node: NodeConnection, error: KafkaError, now: float, culprit: InFlight | None = None) -> None:
        """Close a connection because of an error, and start the backoff."""

    def close_quietly(self, node: NodeConnection, now: float) -> None:
        """Close a connection that has no requests in flight."""


class ConnectionTimeouts:
    """Runs the timeouts of all connections. All times are in ms."""

    def __init__(
        self, owner: Disconnector, attempts: ConnectionAttempts, receiver: BackgroundReceiver, max_idle_ms: float
    ) -> None:
        self._owner = owner
        self._attempts = attempts
        self._receiver = receiver
        self.max_idle_ms = max_idle_ms  # a connection that was not used for this time is closed

    def run(self, nodes: Iterable[NodeConnection], entered_at: float, now: float) -> float:
        """Handle all timeouts that have passed. Returns when the next one passes.

        `entered_at` is when the caller of the event loop called it: bytes may have waited in sockets until then.
        """
        nodes = list(nodes)
        for node in nodes:
            if node.next_timer(self.max_idle_ms) <= now:
                self._run(node, entered_at, now)
        return min((node.next_timer(self.max_idle_ms) for node in nodes), default=FOREVER)

    def _run(self, node: NodeConnection, entered_at: float, now: float) -> None:
        if node.slow_at <= now:
            self._report_slow(node, entered_at, now)
            if node.next_timer(self.max_idle_ms) > now:
                return
        if node.connection is not None:
            self._expire(node, node.connection, entered_at, now)
        else:
            node.preparation_timed_out()
            self._attempts.round_failed(node, now)

    def _report_slow(self, node: NodeConnection, entered_at: float, now: float) -> None:
        """Log a warning about the wait of a connection, unless bytes are arriving."""
        text = node.waits_for(now) + node.record.hint
        node.slow_reported()
        if not self._is_arriving(node, entered_at, now):
            node.record.slow(text, now)

    def _expire(self, node: NodeConnection, connection: Connection, entered_at: float, now: float) -> None:
        if connection.state is ConnectionState.CONNECTING:
            waited = node.setup_deadline - node.last_attempt
            self._attempts.attempt_failed(node, f"no connection within {waited:.0f} ms", now)
            return
        overdue = connection.auth_overdue(now)
        if overdue is not None:
            self._owner.disconnect(node, overdue, now)
            return
        entry = connection.expired(now)
        if entry is not None and self._is_arriving(node, entered_at, now):
            if connection.postpone(node.progress_at, now):
                return
            entry = connection.expired(now)
        if entry is None:
            log.debug("closing the connection to %s, idle for %.0f ms", node.name, now - node.last_used)
            self._owner.close_quietly(node, now)
        elif entry.request is None:
            which = "to authenticate again" if connection.established else "its first request"
            text = f"{connection.timeout_error(entry)}, {which} ({node.address}){node.record.hint}"
            self._owner.disconnect(node, BrokerConnectionError(text), now)
        else:
            self._owner.disconnect(node, connection.timeout_error(entry), now, entry)

    def _is_arriving(self, node: NodeConnection, entered_at: float, now: float) -> bool:
        """Returns whether a response has arrived in part, or any bytes have arrived since the event loop was called.

        A request must not time out then, because its response may be arriving. If the caller has not polled for a long
        time, a large response may be in the socket, and one read may take only a part of it.
        """
        if self._receiver.progressed(node):
            node.note_progress(now)
        return node.is_arriving(entered_at)
