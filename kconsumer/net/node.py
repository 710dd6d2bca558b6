"""The state of one connection id, connected or not: its socket, its backoff and the addresses to try.

To connect, a node starts a round of attempts: the broker's name is resolved, changed certificates are read, and then
the addresses are tried one after the other until one connects. If none does, the round has failed and the backoff
starts.

Decides when the next round may start (reconnect backoff), how long an attempt may take (setup timeout), which address
is next, and when to stop reading or writing. The event loop owns the selector and decides what to do after an error.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kconsumer.backoff import ExponentialBackoff
from kconsumer.errors import AuthenticationError, KafkaError
from kconsumer.net.address_failures import AddressRecords
from kconsumer.net.background import BackgroundTask
from kconsumer.net.connection import Connection, InFlight
from kconsumer.net.describe import broker_name, os_reason
from kconsumer.net.requests import ClientRequest, ClientResponse
from kconsumer.net.resolver import Lookup
from kconsumer.net.states import ConnectionState
from kconsumer.net.transport import WOULD_BLOCK, Address, Transport
from kconsumer.types import Node

if TYPE_CHECKING:
    from kconsumer.config.options import ConsumerConfig
    from kconsumer.net.metrics import ConnectionMetrics
    from kconsumer.net.probes import Probe

FOREVER = float("inf")
MAX_IN_FLIGHT = 100
READY = ConnectionState.READY

# If more bytes than this of a frame are missing, they are received in the background. The sockets' buffers hold about
# as many: the broker's send buffer is 100 KiB by default, which the system doubles. When the buffers are full, the
# broker waits until the client receives.
MIN_BACKGROUND_BYTES = 1 << 18

MAX_LOW_WATER_BYTES = 1 << 15  # with more, the broker's and the client's buffers could be full before the client reads

SLOW_MS = 8_000.0
"""An attempt to connect, or a request that waits longer than this (ms) for the broker, is logged as a warning."""

CLOSES_BETWEEN_PROBES = 4  # after a probe, the next one is due after this many disconnects

ReceivedBytes = tuple[bytes | None, int, int]
"""A result of the background receiver: the four-byte size prefix (or None, if it was received before), the number of
received bytes of the frame, and an errno (0: no error)."""


HELD_FOR_MEMBERS = frozenset({11, 14})
"""JoinGroup and SyncGroup. The coordinator responds when the other members have sent theirs."""


def _hold_ms(entry: InFlight) -> float:
    """Returns how long a broker may hold a request before it responds (ms), such as a fetch without records."""
    if entry.api.key in HELD_FOR_MEMBERS:
        return FOREVER
    return 0.0 if entry.request is None else float(getattr(entry.request.message, "max_wait_ms", 0))


class ReconnectPolicy:
    """Computes the reconnect backoff and the connection setup timeout, for all nodes."""

    def __init__(self, config: ConsumerConfig, rng: random.Random) -> None:
        self._backoff = ExponentialBackoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, rng)
        self._setup_timeout = ExponentialBackoff(
            config.socket_connection_setup_timeout_ms, config.socket_connection_setup_timeout_max_ms, rng
        )

    def backoff_ms(self, failures: int) -> float:
        """Returns the backoff (ms) after a failure. `failures`: the number of failures in a row before this one."""
        return self._backoff.delay_ms(failures)

    def setup_timeout_ms(self, failures: int) -> float:
        """Returns how long (ms) the next attempt may take. `failures`: the number of rounds in a row that failed."""
        return self._setup_timeout.delay_ms(failures)


class NodeConnection:
    """The state of one connection id. `connection` and `transport` are both set while there is a socket, else None."""

    __slots__ = (
        "_low_water",
        "_metrics",
        "_parts",
        "_records",
        "_slow_since",
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
        "record",
        "refresh",
        "remaining_addresses",
        "setup_deadline",
        "setup_failures",
        "since",
        "throttled_until",
        "transport",
    )

    def __init__(
        self,
        node_id: str,
        host: str,
        port: int,
        metrics: ConnectionMetrics | None = None,
        records: AddressRecords | None = None,
    ) -> None:
        self.id = node_id
        self.host = host
        self.port = port
        self.name = broker_name(node_id, host, port)
        self.connection: Connection | None = None
        self.transport: Transport | None = None
        self.address: Address | None = None  # the one tried last
        self.dns_lookup: Lookup | None = None  # set while an attempt waits for it
        self.refresh: BackgroundTask[Any] | None = None  # reads changed certificates; set while an attempt waits
        self.remaining_addresses: list[Address] = []  # the addresses that this round has not tried yet
        self.attempt_errors: list[str] = []  # why the addresses tried in this round failed
        self.error: KafkaError | None = None  # why the last connection or round of attempts ended
        self.failures = 0  # rounds and connections in a row that have failed; sets the backoff
        self.closed_before_use = 0  # connections in a row that the broker closed before its first response
        self.closes = 0  # connections that the broker closed without an error response since the last probe
        self.next_probe: Probe | None = None  # if set, the attempts of the next round are probes
        self.probe: Probe | None = None  # if set, the attempts of this round are probes
        self._records = records or AddressRecords()
        self.record = self._records.find(host, port)  # the failures of all connections to this address
        self.setup_failures = 0  # rounds in a row without a connection; sets the setup timeout
        self.backoff_until = 0.0
        self.setup_deadline = 0.0  # when the present attempt times out
        self.throttled_until = 0.0
        self.last_attempt = -FOREVER
        self.since = 0.0  # when the present state began (ms)
        self.last_used = 0.0  # when a request was sent or bytes arrived last
        self.progress_at = -FOREVER  # when bytes of the present connection arrived last
        self._metrics = metrics
        self._slow_since = -FOREVER  # the beginning of the wait that a warning was logged about
        self._parts = 0  # reads in a row that completed no response
        self._low_water = 1  # bytes that the socket must have before the selector reports it, or a larger number

    @property
    def is_bootstrap(self) -> bool:
        """Returns whether this is a connection to a bootstrap server, and not to a broker from metadata."""
        return self.id.startswith("-")

    @property
    def known_as(self) -> str:
        """The host name that TLS and Kerberos use for the broker: the canonical one, if it was looked up."""
        return (self.address and self.address.host) or self.host

    @property
    def preparing(self) -> bool:
        """Returns whether an attempt, which has no socket yet, waits for its DNS lookup or for certificates."""
        return self.dns_lookup is not None or self.refresh is not None

    @property
    def state(self) -> str:
        """The state as text, for reports."""
        if self.connection is not None:
            return self.connection.state.value
        if self.refresh is not None:
            return "reading certificates"
        return "not connected" if self.dns_lookup is None else "resolving"

    def move(self, node: Node) -> None:
        """Set the broker's host and port. If they have changed, forget all failures and the backoff."""
        if (node.host, node.port) == (self.host, self.port):
            return
        self.host, self.port = node.host, node.port
        self.name = broker_name(self.id, node.host, node.port)
        self.record = self._records.find(node.host, node.port)
        self.dns_lookup = self.refresh = None
        self.remaining_addresses.clear()
        self.failures = self.setup_failures = self.closes = self.closed_before_use = 0
        self.probe = self.next_probe = None
        self.backoff_until = 0.0
        self.error = None

    # --- attempts ---

    def start_round(self, lookup: Lookup, policy: ReconnectPolicy, now: float) -> None:
        """Start a round of attempts, which first waits for a DNS lookup."""
        self.dns_lookup = lookup
        self.probe, self.next_probe = self.next_probe, None
        self._start_waiting(policy, now)

    def on_resolved(self) -> Lookup | None:
        """If a DNS lookup has completed, store its addresses and remove the lookup. Returns the lookup.

        The address of the previous attempt is put last, so that the others are tried first.
        """
        lookup = self.dns_lookup
        if lookup is None:
            return None
        found = lookup.found
        self.dns_lookup = None
        self.remaining_addresses = [a for a in found if a != self.address] + [a for a in found if a == self.address]
        self.attempt_errors = [os_reason(lookup.error)] if lookup.error is not None else []
        return lookup

    def start_refresh(self, task: BackgroundTask[Any], policy: ReconnectPolicy, now: float) -> None:
        """Let the attempt wait for a task that reads changed certificates."""
        self.refresh = task
        self._start_waiting(policy, now)

    def on_refreshed(self) -> None:
        """End the wait for certificates."""
        self.refresh = None

    def _start_waiting(self, policy: ReconnectPolicy, now: float) -> None:
        self.last_attempt = self.since = now
        self.setup_deadline = now + policy.setup_timeout_ms(self.setup_failures)

    def next_address(self) -> Address:
        """Remove the first of the remaining addresses, and make it the present one. Returns it."""
        self.address = self.remaining_addresses.pop(0)
        return self.address

    def start_attempt(self, transport: Transport, connection: Connection, policy: ReconnectPolicy, now: float) -> None:
        """Store the socket and the protocol state of a new attempt, and start its setup timeout."""
        self.transport, self.connection = transport, connection
        self.last_used = now
        self._start_waiting(policy, now)

    def finish_connect(self, now: float) -> bool:
        """Continue to connect. Once the transport can send, queues the first request and returns True.

        Raises the errors of `Transport.finish_connect`, and a KafkaError if SASL cannot start.
        """
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
        """Store that the DNS lookup or the reading of certificates did not complete before the setup deadline."""
        waited = f"within {self.setup_deadline - self.last_attempt:.0f} ms"
        if self.refresh is not None:
            reason = f"changed certificates were not read {waited} (does a callable such as ssl_password not return?)"
        else:
            reason = f"its name was not resolved {waited}"
        self.attempt_errors = [reason]

    def round_failed(self) -> None:
        """Count a round of attempts that ended without a connection."""
        self.setup_failures += 1

    def established(self, now: float) -> None:
        """Forget all failures, because the connection is ready. The next round resolves the name again."""
        self.since = now
        self.failures = self.setup_failures = 0
        self.record.established()
        self.backoff_until = 0.0
        self.error = None
        self.remaining_addresses.clear()

    def back_off(self, policy: ReconnectPolicy, error: KafkaError | None, now: float) -> None:
        """Start the backoff, after a round of attempts has failed or a connection has ended with an error."""
        self.dns_lookup = self.refresh = None
        self.remaining_addresses.clear()  # after the backoff the name may have other addresses
        self.error = error
        self.last_attempt = self.since = now
        self.backoff_until = now + policy.backoff_ms(self.failures)
        self.failures += 1

    def cancel_attempts(self, now: float) -> None:
        """End the round of attempts, and ignore the background task that it waits for, if any."""
        self.since = now
        self.dns_lookup = self.refresh = None
        self.remaining_addresses.clear()

    def forget_error(self) -> None:
        """Forget the last error, because this client closed the connection itself."""
        self.error = None

    # --- bytes ---

    def may_send(self, now: float) -> bool:
        """Returns whether a request may be sent now.

        This is so if the connection is ready, is not throttled, does not wait for new credentials, and has fewer than
        MAX_IN_FLIGHT requests in flight.
        """
        connection = self.connection
        return (
            connection is not None
            and connection.state is READY
            and self.throttled_until <= now
            and not connection.blocked_for_reauth(now)
            and connection.in_flight < MAX_IN_FLIGHT
        )

    def send(self, request: ClientRequest, now: float) -> None:
        """Queue a request. Raises UnsupportedVersionError if the broker and this client have no version of the request
        in common, and ProtocolError if it cannot be encoded."""
        assert self.connection is not None
        self.connection.send(request, now)
        self.last_used = now

    def write(self, now: float) -> None:
        """Write queued requests until the socket takes no more bytes. Raises OSError if the socket fails, and an
        AuthenticationError if the broker has refused TLS."""
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
        """Read until the socket is empty or no request is in flight. Appends completed responses to `responses`, except
        those to the connection's own requests.

        The rest of a large frame is passed to `receive_in_background`, which returns True if the background receiver
        reads it.

        Returns the number of bytes of the last read, which is 0 if the broker has closed the connection. Returns
        WOULD_BLOCK if the socket has no more bytes, or if the background receiver reads the rest. Raises OSError if the
        socket fails, and a KafkaError if the broker has sent invalid bytes or an error that ends the connection.
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
                if self._parts > 1 or self._low_water > 1:
                    self._wait_for_rest(connection, transport)
                return count
            self.progress_at = now
            completed = connection.received(count, now, responses)
            self._parts = 0 if completed else self._parts + 1
            if self._metrics is not None:
                self._metrics.received(self.id, count, completed)
            # If the view is full, the socket may have more bytes. Another read costs less than another select. But if
            # every request has its response, no more bytes are expected.
            if (count < len(view) or not connection.has_in_flight) and (transport.plain or not transport.pending):
                if self._parts > 1 or self._low_water > 1:
                    self._wait_for_rest(connection, transport)
                return count

    def _wait_for_rest(self, connection: Connection, transport: Transport) -> None:
        """Let the selector report the socket when the rest of an incomplete response has arrived.

        A broker writes the records of each partition separately, and the fields before, between and after them. When it
        is busy, most responses arrive in one or two parts. Two changes of the socket then cost more here than they
        save, so they are made from the second part on.
        """
        missing = connection.missing if self._parts > 1 else 0
        self._set_low_water(transport, min(missing, MAX_LOW_WATER_BYTES) if missing else 1)

    def _set_low_water(self, transport: Transport, count: int) -> None:
        if count != self._low_water:
            self._low_water = max(count, self._low_water)  # the larger one if a signal handler interrupts the call
            transport.set_low_water(count)
            self._low_water = count

    def wait_for_any(self) -> None:
        """Let the selector report the socket when any bytes have arrived, before other code reads it."""
        if self.transport is not None:
            self._set_low_water(self.transport, 1)

    def on_background_data(self, received: ReceivedBytes, now: float, responses: list[ClientResponse]) -> int:
        """Process bytes that the background receiver has put into the frame buffer. Appends completed responses to
        `responses`, like `read`.

        Returns the number of bytes, which is 0 if the broker has closed the connection. Returns WOULD_BLOCK if there
        are none, and TLS has ended or must write: the next `read` then returns or raises the reason. Raises the errors
        of `read`.
        """
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
        if not count and self.transport is not None and self.transport.pending:
            return WOULD_BLOCK
        return count

    def is_arriving(self, since: float) -> bool:
        """Returns whether a response has arrived in part, or any bytes have arrived at `since` (ms) or later."""
        return self.progress_at >= since or (self.connection is not None and self.connection.receiving)

    def note_progress(self, now: float) -> None:
        """Record the time at which bytes have arrived."""
        self.progress_at = now

    def throttle(self, now: float) -> None:
        """Send no requests for the throttle time that the broker has returned (KIP-219)."""
        assert self.connection is not None
        self.throttled_until = max(self.throttled_until, now + self.connection.take_throttle())

    # --- endings ---

    def close(self) -> None:
        """Close the socket and remove the connection. Sends nothing."""
        if self.transport is not None:
            self.transport.close()
        self.connection = self.transport = None
        self.progress_at = -FOREVER
        self._parts, self._low_water = 0, 1

    def on_auth_refused_by_close(self, refusal: AuthenticationError, limit: int) -> AuthenticationError | None:
        """Count a disconnect that may mean a refused authentication. Returns the error `refusal` if it is at least the
        `limit`-th such disconnect in a row, else None."""
        self.closed_before_use += 1
        return refusal if self.closed_before_use >= limit else None

    def on_closed_before_use(self) -> None:
        """Count a disconnect before the first response. Also sets `failures` to this count, so that the backoff grows:
        `failures` was reset when the connection became ready."""
        self.closed_before_use += 1
        self.failures = self.closed_before_use

    def reset_closes(self) -> None:
        """Reset the counts of disconnects, because a request has had a response."""
        self.closed_before_use = self.closes = 0

    def probe_due(self, closes: int) -> bool:
        """Count a disconnect without an error response. Returns whether the next round should be a probe.

        The first probe is due after `closes` disconnects, and each later probe after CLOSES_BETWEEN_PROBES further
        disconnects.
        """
        self.closes += 1
        due = self.closes >= closes
        if due:
            self.closes = closes - CLOSES_BETWEEN_PROBES
        return due

    def probe_next(self, probe: Probe) -> None:
        """Make the next round of attempts a probe: its connections send only the request of `probe`."""
        self.next_probe = probe

    def next_timer(self, max_idle_ms: float) -> float:
        """Returns the earliest time (ms) at which a timeout of this connection may pass: for setup, requests or
        idleness."""
        connection = self.connection
        if connection is None:
            return min(self.setup_deadline, self.slow_at) if self.preparing else FOREVER
        if connection.state is ConnectionState.CONNECTING:
            return min(self.setup_deadline, self.slow_at)
        idle_at = FOREVER if connection.in_flight else self.last_used + max_idle_ms
        return min(connection.next_deadline, self.slow_at, idle_at)

    # --- waits ---

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

    def slow_reported(self) -> None:
        """Record that a warning was logged about the present wait."""
        self._slow_since, _ = self._waiting()

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

    def __repr__(self) -> str:
        if self.connection is not None:
            return f"<NodeConnection {self.id}: {self.connection!r}>"
        if self.preparing:
            return f"<NodeConnection {self.id} to {self.name}: {self.state}>"
        return f"<NodeConnection {self.id} to {self.name}: not connected, {self.failures} failures>"
