"""One connection id, connected or not: reads and writes its socket, and handles its timeouts and its end.

Decides what happens when bytes arrive, when none arrive in time, and when the connection ends; when to stop reading or
writing; and which error a connection ends with. `attempts.py` decides how it gets a socket, and the event loop when it
is called.
"""

from __future__ import annotations

import os

from kconsumer._common.deferred_calls import get_logger
from kconsumer._common.error_codes import Errors
from kconsumer._core.net import SLOW_MS, InFlight
from kconsumer.errors import AuthenticationError, BrokerConnectionError, KafkaError, ProtocolError
from kconsumer.net.attempts import ConnectionAttempts, ConnectionSetup
from kconsumer.net.background_receive import ReceivedBytes
from kconsumer.net.connection import Connection
from kconsumer.net.describe import os_reason
from kconsumer.net.event_loop import FOREVER, ConnectionLoop
from kconsumer.net.states import ConnectionState
from kconsumer.net.transport import WOULD_BLOCK, Transport

CONNECTING, READY = ConnectionState.CONNECTING, ConnectionState.READY

CLOSES_OF_A_REFUSAL = 3
"""A broker without SaslAuthenticate can refuse credentials only by a disconnect. This many disconnects in a row are
treated as a refusal, and fewer as network errors."""

CLOSES_AT_FIRST_REQUEST = 3
"""The first probe follows after this many disconnects at the first request."""

CLOSED = "it closed the connection"

HELD_FOR_MEMBERS = frozenset({11, 14})
"""JoinGroup and SyncGroup. The coordinator responds when the other members have sent theirs."""

log = get_logger("kconsumer.net")


def _hold_ms(entry: InFlight) -> float:
    """Returns how long a broker may hold a request before it responds (ms), such as a fetch without records."""
    if entry.api.key in HELD_FOR_MEMBERS:
        return FOREVER
    return 0.0 if entry.request is None else float(getattr(entry.request.message, "max_wait_ms", 0))


class NodeConnection(ConnectionAttempts):
    """The state of one connection id, and its I/O. All times are in ms."""

    __slots__ = ("_slow_since",)

    def __init__(self, node_id: str, host: str, port: int, loop: ConnectionLoop, setup: ConnectionSetup) -> None:
        super().__init__(node_id, host, port, loop, setup)
        self._slow_since = -FOREVER  # the beginning of the wait that a warning was logged about

    # --- events ---

    def _continue_connecting(self, now: float) -> bool:
        """Continue to connect. Returns False if the socket is connected already."""
        connection, transport = self.connection, self.transport
        if connection is None or transport is None or connection.state is not CONNECTING:
            return False
        self.continue_connecting(connection, transport, now)
        return True

    # --- reading ---

    def wait_for_any(self) -> None:
        """Let the selector report the socket when any bytes have arrived, before other code reads it."""
        if self.transport is not None:
            self._set_low_water(self.transport, 1)

    def on_background_data(self, received: ReceivedBytes, now: float) -> None:
        """Process what the background receiver has received, and start to receive the next response."""
        connection = self.connection
        if connection is None:
            return
        self.read(now, received)
        # TLS may have more than the job has received: the bytes behind the frame, which a selector does not report, or
        # the end of the connection. If the next job started first, it would end at once, again and again.
        if self.connection is connection and self.transport is not None and self.transport.pending:
            self.read(now)
        if self.connection is connection:
            self.write(now)

    def _take_received(self, connection: Connection, transport: Transport, received: ReceivedBytes, now: float) -> int:
        """Process bytes that the background receiver has put into the frame buffer.

        Returns the number of bytes, which is 0 if the broker has closed the connection. Returns WOULD_BLOCK if there
        are none, and TLS has ended or must write: the next `read` then returns or raises the reason. Raises the errors
        of `_receive`.
        """
        loop = self._loop
        prefix, count, code = received
        if code:
            raise OSError(code, os.strerror(code))
        self.progress_at = now
        if prefix is None:
            completed = connection.received(count, now, loop.ended)
        else:
            completed = connection.received_prefetched(prefix, count, now, loop.ended)
            count += len(prefix)
        if loop.events is not None:
            loop.events.received(self.id, count, completed)
        return WOULD_BLOCK if not count and transport.pending else count

    # --- handshakes and authentication ---

    def _after_handshake_data(self, connection: Connection, before: ConnectionState, now: float) -> None:
        """Continue a handshake after a read. `before` is the state of the connection before the read, and not READY.

        If the connection is READY now, records this. Otherwise writes the next request of the handshake.
        """
        if connection.state is not READY:
            self.write(now)
            return
        self._loop.connection_changed()
        self._setup.on_ready()
        metrics = self._loop.metrics
        if before is ConnectionState.REAUTHENTICATING:
            log.debug("%s has prolonged the session", self.name)
            if metrics is not None:
                metrics.reauthenticated(connection.session.auth_ms, now)
            return
        self._established(now)
        log.debug("%s is ready (%s)", self.name, self.address)
        if metrics is not None:
            metrics.connected(self.id, now)
            if self._setup.config.security_protocol != "PLAINTEXT":
                metrics.authenticated(now)

    def _established(self, now: float) -> None:
        """Forget all failures, because the connection is ready. The next round resolves the name again."""
        self.since = now
        self.failures = self.setup_failures = 0
        self.record.established()
        self.backoff_until = 0.0
        self.error = None
        self.remaining_addresses.clear()

    def reauthenticate(self, now: float) -> None:
        """Start to authenticate again over an open connection (KIP-368). Closes the connection if that fails."""
        connection = self.connection
        if connection is None:
            return
        try:
            connection.authenticate(now)
        except KafkaError as error:
            self.disconnect(error, now)
            return
        if connection.outgoing:
            self.write(now)
        self._loop.run_timers_by(connection.next_deadline)

    def continue_after_background(self, now: float) -> None:
        """Continue the attempt or the authentication, if its background task has completed."""
        self.continue_refreshed(now)
        connection = self.connection
        if connection is None:
            return
        try:
            resumed = connection.resume_auth(now)
        except KafkaError as error:
            self.disconnect(error, now)
            return
        if resumed:
            if connection.state is READY:
                self._loop.connection_changed()
            self.write(now)

    # --- timeouts ---

    def next_timer(self) -> float:
        """Returns the earliest time (ms) at which a timeout of this connection may pass: for setup, requests or
        idleness."""
        connection = self.connection
        if connection is None:
            return min(self.setup_deadline, self.slow_at) if self.preparing else FOREVER
        if connection.state is CONNECTING:
            return min(self.setup_deadline, self.slow_at)
        idle_at = FOREVER if connection.in_flight else self.last_used + self._setup.max_idle_ms
        return min(connection.next_deadline, self.slow_at, idle_at)

    def expire(self, entered_at: float, now: float) -> None:
        """Handle the timeouts that have passed.

        `entered_at` is when the caller of the event loop called it: bytes may have waited in sockets until then.
        """
        if self.slow_at <= now:
            self._report_slow(entered_at, now)
            if self.next_timer() > now:
                return
        if self.connection is None:
            self.preparation_timed_out(now)
        elif self.connection.state is CONNECTING and self.setup_deadline <= entered_at <= self.last_used:
            self.start_setup_timeout(now)  # the loop was not called in time, and now the TLS handshake continues
        elif self.connection.state is CONNECTING:
            waited = self.setup_deadline - self.last_attempt
            self.attempt_failed(f"no connection within {waited:.0f} ms", now)
        else:
            self._expire(self.connection, entered_at, now)

    def _expire(self, connection: Connection, entered_at: float, now: float) -> None:
        """End a connection whose authentication, oldest request or use is overdue, unless bytes are arriving."""
        overdue = connection.session.overdue(now)
        if overdue is not None:
            self.disconnect(overdue, now)
            return
        entry = connection.expired(now)
        if entry is not None and self._is_arriving(connection, entered_at, now):
            if connection.postpone(self.progress_at, now):
                return
            entry = connection.expired(now)
        if entry is None:
            log.debug("closing the connection to %s, idle for %.0f ms", self.name, now - self.last_used)
            self.close_quietly(now)
        elif entry.request is None:
            which = "to authenticate again" if connection.established else "its first request"
            text = f"{connection.timeout_error(entry)}, {which} ({self.address}){self.record.hint}"
            self.disconnect(BrokerConnectionError(text), now)
        else:
            self.disconnect(connection.timeout_error(entry), now, entry)

    def _is_arriving(self, connection: Connection | None, entered_at: float, now: float) -> bool:
        """Returns whether a response has arrived in part, or any bytes have arrived since the event loop was called.

        A request must not time out then, because its response may be arriving. If the caller has not polled for a long
        time, a large response may be in the socket, and one read may take only a part of it.
        """
        if self._loop.background_receiver.progressed(self):
            self.progress_at = now
        return self.progress_at >= entered_at or (connection is not None and connection.receiving)

    def _report_slow(self, entered_at: float, now: float) -> None:
        """Log a warning about the wait for the broker, unless bytes are arriving."""
        text = self.waits_for(now) + self.record.hint
        self._slow_since, _ = self._waiting()
        if not self._is_arriving(self.connection, entered_at, now):
            self.record.slow(text, now)

    def _waiting(self) -> tuple[float, float]:
        """Returns since when the connection waits for the broker, and how long this may take, or FOREVER."""
        connection = self.connection
        if connection is None:
            return self.last_attempt, SLOW_MS if self.preparing else FOREVER
        oldest = connection.oldest()
        if oldest is not None:
            return oldest.sent_at, SLOW_MS + _hold_ms(oldest)
        return self.last_attempt, FOREVER if connection.state is READY else SLOW_MS

    @property
    def slow_at(self) -> float:
        """When a warning is due because the connection waits for the broker (ms). FOREVER if it was logged already."""
        since, limit_ms = self._waiting()
        return FOREVER if since == self._slow_since else since + limit_ms

    def waits_for(self, now: float) -> str:
        """Returns what an attempt or a connection waits for, for users. Returns "" if it waits for nothing."""
        since, _ = self._waiting()
        waited = f"for {now - since:.0f} ms"
        if self.dns_lookup is not None:
            return f"{self.name} has not been resolved to an address {waited}"
        if self.refresh is not None:
            return f"{self.name} waits for changed certificates to be read, {waited}"
        connection = self.connection  # another thread may remove it
        if connection is None:
            return ""
        oldest = connection.oldest()
        what = "" if oldest is None or oldest.request is None else f" to {oldest.api.name}"
        return f"{self.name} ({self.address}) has not responded{what} {waited}"

    # --- endings ---

    def disconnect(
        self, error: KafkaError, now: float, culprit: InFlight | None = None, *, by_client: bool = False
    ) -> None:
        """Close the connection because of an error, fail its requests and start the backoff.

        The request that caused the error (`culprit`) fails with `error`, the others with a BrokerConnectionError. Set
        `by_client` if the cause is not at the address of the broker, so that no warning is necessary.

        A probe may end without showing that the configuration is wrong: `error` is not its `verdict`. Then only this
        attempt has failed. No error is stored, and the next address is tried.
        """
        connection, metrics = self.connection, self._loop.metrics
        if connection is None:
            return
        if connection.probe is not None:
            if error is not connection.verdict:
                connection.close(error, now)
                self.attempt_failed(connection.probe.no_response, now)
                return
            self.next_probe = connection.probe  # the listener would close an ordinary connection again
        if metrics is not None and isinstance(error, AuthenticationError):
            metrics.authentication_failed(now, reauthentication=connection.established)
        self._loop.ended.extend(connection.close(error, now, culprit))
        self.detach(now)
        self.back_off(error, now)
        self._loop.connection_changed()
        if by_client:
            log.info("%s", error)
        else:
            pause_ms = self.backoff_until - now
            self.record.lost(error, now, pause_ms, has_served=connection.has_served_request)

    def give_up(self, now: float) -> None:
        """Close the connection, if there is one, and fail its requests in flight. Stores no error."""
        if self.connection is not None:
            error = BrokerConnectionError(f"the connection to {self.name} was closed by this client")
            self.disconnect(error, now, by_client=True)
            self.error = None

    def close_quietly(self, now: float) -> None:
        """Close a connection that has no requests in flight, and end its attempts. Sets no error and no backoff."""
        if self.connection is not None:
            self.detach(now)
        self.cancel_attempts(now)

    def interrupted(self, error: BaseException, now: float) -> None:
        """Close the connection, if there is one, because its I/O was interrupted by an exception."""
        if self.connection is not None:
            self._interrupted(self.connection, error, now)

    def _interrupted(self, connection: Connection, error: BaseException, now: float) -> None:
        """Close a connection whose I/O was interrupted by an exception, such as one of a signal handler. Bytes may have
        been received that were not recorded, so the connection cannot be used any more."""
        self.disconnect(self._lost(connection, f"interrupted by {type(error).__name__}"), now, by_client=True)

    def _io_failed(self, connection: Connection, error: OSError | KafkaError, now: float) -> None:
        """Close a connection after its socket has failed (OSError), or after the broker has sent invalid bytes or an
        error (KafkaError)."""
        if isinstance(error, OSError):
            self.disconnect(self._lost(connection, os_reason(error)), now)
            return
        if getattr(error, "code", None) == Errors.REBOOTSTRAP_REQUIRED:
            self._loop.require_rebootstrap()
        self.disconnect(error, now, connection.oldest() if isinstance(error, ProtocolError) else None)

    def _explain_close(self, connection: Connection) -> KafkaError:
        """Returns the error for a disconnect by the broker, with its likely cause. Also counts the disconnect.
        If a probe is due, the next attempts to connect are probes."""
        refusal = connection.session.on_peer_closed()
        if refusal is not None:
            self.closed_before_use += 1
            return refusal if self.closed_before_use >= CLOSES_OF_A_REFUSAL else self._lost(connection, CLOSED)
        if connection.has_served_request:
            self.closed_before_use = self.closes = 0
        elif connection.state is READY and connection.oldest() is not None:
            # To a client without SASL, a SASL listener responds to ApiVersions and closes the connection at the next
            # request. But a broker that is shutting down may do the same.
            self.closed_before_use += 1
            self.failures = self.closed_before_use  # it was 0 since the connection became ready; now the backoff grows
            may_need_auth = not (connection.session.required or self._any_request_served())
            if may_need_auth and self.probe_due(CLOSES_AT_FIRST_REQUEST):
                from kconsumer.net.probes import SASL_PROBE

                self.next_probe = SASL_PROBE
        return self._lost(connection, CLOSED)

    def _any_request_served(self) -> bool:
        """Returns whether any broker has ever responded to a request other than those of authentication and
        ApiVersions."""
        connections = (node.connection for node in self._loop.nodes.values())
        return self._setup.any_response or any(
            connection is not None and connection.has_served_request for connection in connections
        )

    def _lost(self, connection: Connection, reason: str) -> BrokerConnectionError:
        """Returns the error of a lost connection, with a hint if no request has had a response on it."""
        text = f"the connection to {self.name} ({self.address}) was lost: {reason}"
        if not connection.has_served_request and connection.session.required:
            text += " before the first response"
        elif not connection.has_served_request:
            text += (
                " before the first response; a TLS or SASL listener does so to a PLAINTEXT client (check "
                "security_protocol and the port)"
            )
        return BrokerConnectionError(text + self.record.hint)

    def detach(self, now: float) -> None:
        """Close the socket, after the selector and the background receiver have stopped using it."""
        self._loop.deferred.pop(self, None)
        connection, transport = self.connection, self.transport
        if connection is not None and connection.has_served_request:
            self._setup.on_response()
            self.record.served(now - self.last_attempt, now)
        self._loop.background_receiver.cancel(self)
        if transport is not None:
            self._loop.interest.set_events(transport, 0, self)
        self.close()
        if self._loop.metrics is not None:
            self._loop.metrics.disconnected(self.id, now)

    def close(self) -> None:
        """Close the socket and remove the connection. Sends nothing."""
        if self.transport is not None:
            self.transport.close()
        self.connection = self.transport = None
        self.progress_at = -FOREVER
        self._parts, self._low_water = 0, 1

    def __repr__(self) -> str:
        if self.connection is not None:
            return f"<NodeConnection {self.id}: {self.connection!r}>"
        if self.preparing:
            return f"<NodeConnection {self.id} to {self.name}: {self.state}>"
        return f"<NodeConnection {self.id} to {self.name}: not connected, {self.failures} failures>"
