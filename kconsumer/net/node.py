"""The state of one connection id, connected or not: its socket, its backoff and the addresses to try.

Decides when a connection may be tried again (reconnect backoff), how long an attempt may take (setup timeout), which of
a name's addresses is next, and when to stop reading or writing. It does not decide what an error means for the
connection; that is left to the event loop, which also owns the selector.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kconsumer.backoff import ExponentialBackoff
from kconsumer.errors import AuthenticationError, KafkaError
from kconsumer.net.background import BackgroundTask
from kconsumer.net.connection import Connection
from kconsumer.net.describe import broker_name, os_reason
from kconsumer.net.requests import ClientRequest, ClientResponse
from kconsumer.net.resolver import Lookup
from kconsumer.net.states import ConnectionState
from kconsumer.net.transport import WOULD_BLOCK, Address, Transport
from kconsumer.repeated_failures import RepeatedFailures
from kconsumer.types import Node

if TYPE_CHECKING:
    from kconsumer.config.options import ConsumerConfig
    from kconsumer.net.metrics import ConnectionMetrics
    from kconsumer.net.probes import Probe

FOREVER = float("inf")
MAX_IN_FLIGHT = 100
READY = ConnectionState.READY

# The rest of a larger frame is received in the background. The sockets hold about as much as this (of the broker's send
# buffer, 100 KiB by default, the system makes the double); then the broker waits until the client receives.
MIN_BACKGROUND_BYTES = 1 << 18

CLOSES_BETWEEN_PROBES = 4

ReceivedBytes = tuple[bytes | None, int, int]
"""What the background receiver has received: the size before the frame, bytes of the frame, and an errno."""


class ReconnectPolicy:
    """Holds the reconnect backoff and the connection setup timeout of all nodes."""

    def __init__(self, config: ConsumerConfig, rng: random.Random) -> None:
        self._backoff = ExponentialBackoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, rng)
        self._setup_timeout = ExponentialBackoff(
            config.socket_connection_setup_timeout_ms, config.socket_connection_setup_timeout_max_ms, rng
        )

    def backoff_ms(self, failures: int) -> float:
        """Returns the pause before the next attempt, after one failure that followed `failures` others."""
        return self._backoff.delay_ms(failures)

    def setup_timeout_ms(self, failures: int) -> float:
        """Returns how long the next attempt may take, after `failures` attempts that failed."""
        return self._setup_timeout.delay_ms(failures)


class NodeConnection:
    """One connection id. `connection` and `transport` are set together, while connecting or connected."""

    __slots__ = (
        "_metrics",
        "address",
        "attempt_errors",
        "backoff_until",
        "closed_before_use",
        "closes",
        "connection",
        "dns_lookup",
        "error",
        "failures",
        "host",
        "id",
        "last_attempt",
        "last_used",
        "name",
        "next_probe",
        "port",
        "probe",
        "progress_at",
        "refresh",
        "remaining_addresses",
        "repeats",
        "setup_deadline",
        "setup_failures",
        "throttled_until",
        "transport",
    )

    def __init__(self, node_id: str, host: str, port: int, metrics: ConnectionMetrics | None = None) -> None:
        self.id = node_id
        self.host = host
        self.port = port
        self.name = broker_name(node_id, host, port)
        self.connection: Connection | None = None
        self.transport: Transport | None = None
        self.address: Address | None = None  # of the last attempt
        self.dns_lookup: Lookup | None = None  # while an attempt waits for it
        self.refresh: BackgroundTask[Any] | None = None  # reads changed certificates, while an attempt waits for it
        self.remaining_addresses: list[Address] = []  # that this round of attempts has not tried
        self.attempt_errors: list[str] = []  # why the addresses tried in this round failed
        self.error: KafkaError | None = None  # why the last connection or round of attempts ended
        self.failures = 0  # rounds and connections in a row that failed
        self.closed_before_use = 0  # connections in a row that the broker closed before its first response
        self.closes = 0  # connections that the broker closed without an error response since the last probe
        self.next_probe: Probe | None = None  # of the next round of attempts
        self.probe: Probe | None = None  # of the present round: its attempts are probes
        self.repeats = RepeatedFailures()
        self.setup_failures = 0  # rounds of attempts in a row that failed
        self.backoff_until = 0.0
        self.setup_deadline = 0.0  # of the present attempt
        self.throttled_until = 0.0
        self.last_attempt = -FOREVER
        self.last_used = 0.0  # when a request was sent or bytes arrived last
        self.progress_at = -FOREVER  # when bytes of the present connection arrived last
        self._metrics = metrics

    @property
    def is_bootstrap(self) -> bool:
        """Returns whether the connection is to one of `bootstrap_servers`, and not to a broker from metadata."""
        return self.id.startswith("-")

    @property
    def known_as(self) -> str:
        """The broker's host name for certificates and Kerberos."""
        return (self.address and self.address.host) or self.host

    @property
    def preparing(self) -> bool:
        """Returns whether an attempt waits for a background task, before there is a socket."""
        return self.dns_lookup is not None or self.refresh is not None

    @property
    def state(self) -> str:
        """The state for people."""
        if self.connection is not None:
            return self.connection.state.value
        if self.refresh is not None:
            return "reading certificates"
        return "not connected" if self.dns_lookup is None else "resolving"

    def move(self, node: Node) -> None:
        """Set the broker's address. If it has changed, the failures at the old one no longer count."""
        if (node.host, node.port) == (self.host, self.port):
            return
        self.host, self.port = node.host, node.port
        self.name = broker_name(self.id, node.host, node.port)
        self.dns_lookup = self.refresh = None
        self.remaining_addresses.clear()
        self.failures = self.setup_failures = self.closes = self.closed_before_use = 0
        self.probe = self.next_probe = None
        self.repeats.reset()
        self.backoff_until = 0.0
        self.error = None

    # --- attempts ---

    def start_round(self, lookup: Lookup, policy: ReconnectPolicy, now: float) -> None:
        """Start a round of attempts: wait for the name to be resolved."""
        self.dns_lookup = lookup
        self.probe, self.next_probe = self.next_probe, None
        self._start_waiting(policy, now)

    def on_resolved(self) -> None:
        """Take the addresses from the lookup, if there is one. The one used last has just failed, and comes last."""
        lookup = self.dns_lookup
        if lookup is None:
            return
        found = lookup.found
        self.dns_lookup = None
        self.remaining_addresses = [a for a in found if a != self.address] + [a for a in found if a == self.address]
        self.attempt_errors = [os_reason(lookup.error)] if lookup.error is not None else []

    def start_refresh(self, task: BackgroundTask[Any], policy: ReconnectPolicy, now: float) -> None:
        """Wait for a task that reads changed certificates."""
        self.refresh = task
        self._start_waiting(policy, now)

    def on_refreshed(self) -> None:
        """End this wait."""
        self.refresh = None

    def _start_waiting(self, policy: ReconnectPolicy, now: float) -> None:
        self.last_attempt = now
        self.setup_deadline = now + policy.setup_timeout_ms(self.setup_failures)

    def next_address(self) -> Address:
        """Returns the address to try next."""
        self.address = self.remaining_addresses.pop(0)
        return self.address

    def start_attempt(self, transport: Transport, connection: Connection, policy: ReconnectPolicy, now: float) -> None:
        """Own the socket and the protocol state of an attempt that began."""
        self.transport, self.connection = transport, connection
        self.last_used = now
        self._start_waiting(policy, now)

    def finish_connect(self, now: float) -> bool:
        """Continue to connect. Returns True once the connection can send. Raises as `Transport.finish_connect`."""
        connection, transport = self.connection, self.transport
        assert connection is not None
        assert transport is not None
        if not transport.finish_connect():
            return False
        self.setup_failures = 0
        connection.transport_ready(now)
        return True

    def attempt_failed(self, reason: str) -> None:
        """Store why the attempt at the present address failed."""
        self.attempt_errors.append(f"{reason} ({self.address})")

    def preparation_timed_out(self) -> None:
        """Store what did not finish in time before a connect: reading changed certificates or resolving the name."""
        waited = f"within {self.setup_deadline - self.last_attempt:.0f} ms"
        if self.refresh is not None:
            reason = f"changed certificates were not read {waited} (does a callable such as ssl_password not return?)"
        else:
            reason = f"its name was not resolved {waited}"
        self.attempt_errors = [reason]

    def round_failed(self) -> None:
        """Count a round of attempts without a connection."""
        self.setup_failures += 1

    def established(self) -> None:
        """Forget the failures: the connection is ready. The next round of attempts resolves the name again."""
        self.failures = self.setup_failures = 0
        self.repeats.reset()
        self.backoff_until = 0.0
        self.error = None
        self.remaining_addresses.clear()

    def back_off(self, policy: ReconnectPolicy, error: KafkaError | None, now: float) -> None:
        """End the round of attempts or the connection with an error, and start the backoff."""
        self.dns_lookup = self.refresh = None
        self.remaining_addresses.clear()  # the name may have other addresses by then
        self.error = error
        self.last_attempt = now
        self.backoff_until = now + policy.backoff_ms(self.failures)
        self.failures += 1

    def cancel_attempts(self) -> None:
        """Stop waiting for background tasks, and resolve the name again before the next attempt."""
        self.dns_lookup = self.refresh = None
        self.remaining_addresses.clear()

    def forget_error(self) -> None:
        """Forget the last error: this client closed the connection itself."""
        self.error = None

    # --- bytes ---

    def may_send(self, now: float) -> bool:
        """Returns whether a request may be sent."""
        connection = self.connection
        return (
            connection is not None
            and connection.state is READY
            and self.throttled_until <= now
            and not connection.blocked_for_reauth(now)
            and connection.in_flight < MAX_IN_FLIGHT
        )

    def send(self, request: ClientRequest, now: float) -> None:
        """Queue a request. Raises UnsupportedVersionError or ProtocolError if it cannot be encoded."""
        assert self.connection is not None
        self.connection.send(request, now)
        self.last_used = now

    def write(self, now: float) -> None:
        """Write queued requests as far as the socket takes them. Raises OSError or KafkaError."""
        connection, transport = self.connection, self.transport
        assert connection is not None
        assert transport is not None
        outgoing = connection.outgoing
        while outgoing:
            taken = transport.send(outgoing[0])
            if not taken:
                return
            request_size = connection.sent(taken)
            if self._metrics is not None:
                self._metrics.sent(self.id, taken, request_size, now)
            if not request_size:
                return

    def read(
        self,
        now: float,
        responses: list[ClientResponse],
        receive_in_background: Callable[[NodeConnection, memoryview], bool],
    ) -> int:
        """Read until the socket is empty or no response is due. Passes the rest of a large frame to the background
        receiver. Appends responses to the caller's requests to `responses`. Raises OSError or KafkaError.

        Returns the number of bytes of the last read, WOULD_BLOCK if it found none or the background receiver continues,
        or 0 if the broker has closed the connection.
        """
        connection, transport = self.connection, self.transport
        assert connection is not None
        assert transport is not None
        self.last_used = now
        while True:
            view = connection.recv_view()
            if len(view) > MIN_BACKGROUND_BYTES and receive_in_background(self, view):
                return WOULD_BLOCK
            count = transport.recv_into(view)
            if count <= 0:
                return count
            self.progress_at = now
            completed = connection.received(count, now, responses)
            if self._metrics is not None:
                self._metrics.received(self.id, count, completed)
            # A read that filled the view may have left bytes in the socket. Another read costs less than another
            # select, but none is worth it when every request has its response.
            if (count < len(view) or not connection.has_in_flight) and not transport.pending:
                return count

    def on_background_data(self, received: ReceivedBytes, now: float, responses: list[ClientResponse]) -> int:
        """Process bytes that the background receiver put into the frame buffer. Raises and returns as `read`."""
        connection = self.connection
        assert connection is not None
        self.last_used = now
        prefix, count, code = received
        if code:
            raise OSError(code, os.strerror(code))
        self.progress_at = now
        if prefix is None:
            completed = connection.received(count, now, responses)
        else:
            completed = connection.received_prefetched(prefix, count, now, responses)
            count += len(prefix)
        if self._metrics is not None:
            self._metrics.received(self.id, count, completed)
        return count

    def is_arriving(self, since: float) -> bool:
        """Returns whether part of a response has arrived, or any bytes arrived at `since` (ms) or later."""
        return self.progress_at >= since or (self.connection is not None and self.connection.receiving)

    def note_progress(self, now: float) -> None:
        """Record the time at which bytes have arrived."""
        self.progress_at = now

    def throttle(self, now: float) -> None:
        """Send nothing for as long as the broker has asked for (KIP-219)."""
        assert self.connection is not None
        self.throttled_until = max(self.throttled_until, now + self.connection.take_throttle())

    # --- endings ---

    def close(self) -> None:
        """Close the socket and forget the connection. Sends nothing."""
        if self.transport is not None:
            self.transport.close()
        self.connection = self.transport = None
        self.progress_at = -FOREVER

    def on_auth_refused_by_close(self, refusal: AuthenticationError, limit: int) -> AuthenticationError | None:
        """Count a disconnect that may mean a refused authentication. Returns the refusal from the `limit`-th on."""
        self.closed_before_use += 1
        return refusal if self.closed_before_use >= limit else None

    def on_closed_before_use(self) -> None:
        """Count a disconnect before the first response, for the backoff, too: the handshake had reset its count."""
        self.closed_before_use += 1
        self.failures = self.closed_before_use

    def reset_closes(self) -> None:
        """Forget such disconnects: a request had its response."""
        self.closed_before_use = self.closes = 0

    def probe_due(self, closes: int) -> bool:
        """Count a disconnect without an error response. Returns whether the next round of attempts should be a probe:
        after `closes` of them, and then after every `CLOSES_BETWEEN_PROBES`."""
        self.closes += 1
        due = self.closes >= closes
        if due:
            self.closes = closes - CLOSES_BETWEEN_PROBES
        return due

    def probe_next(self, probe: Probe) -> None:
        """Make the next round of attempts a probe."""
        self.next_probe = probe

    def next_timer(self, max_idle_ms: float) -> float:
        """Returns when a timeout of this connection may end, if nothing happens before."""
        connection = self.connection
        if connection is None:
            return self.setup_deadline if self.preparing else FOREVER
        if connection.state is ConnectionState.CONNECTING:
            return self.setup_deadline
        return min(connection.next_deadline, FOREVER if connection.in_flight else self.last_used + max_idle_ms)

    def __repr__(self) -> str:
        if self.connection is not None:
            return f"<NodeConnection {self.id}: {self.connection!r}>"
        if self.preparing:
            return f"<NodeConnection {self.id} to {self.name}: {self.state}>"
        return f"<NodeConnection {self.id} to {self.name}: not connected, {self.failures} failures>"
