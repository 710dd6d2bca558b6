"""Attempts to connect to brokers: resolves a name, tries its addresses one after the other, and backs off.

To connect, a node starts a round of attempts: the broker's name is resolved, changed certificates are read, and then
the addresses are tried one after the other until one connects. If none does, the round has failed and the backoff
starts.

Decides when the next round may start (reconnect backoff), how long an attempt may take (setup timeout), which address
is next, and when an attempt has failed. Uses threads only to resolve names and to read certificates.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kconsumer._common.backoff import ExponentialBackoff
from kconsumer._core.net import ConnectionIo
from kconsumer.errors import BootstrapResolutionError, BrokerConnectionError, KafkaError
from kconsumer.net.address_failures import AddressRecords
from kconsumer.net.address_map import Redirect, redirect
from kconsumer.net.background import BackgroundTask
from kconsumer.net.connection import Connection
from kconsumer.net.connector import Connector
from kconsumer.net.describe import broker_name, os_reason, refresh_error
from kconsumer.net.event_loop import FOREVER, ConnectionLoop
from kconsumer.net.interest import READ, WRITE
from kconsumer.net.resolver import Lookup
from kconsumer.net.transport import Address, Connect, HandshakeClosedError, Resolve, Transport, resolve_canonical
from kconsumer.types import Node

if TYPE_CHECKING:
    from kconsumer.config.options import ConsumerConfig
    from kconsumer.net.probes import Probe


class BootstrapResolution:
    """The lookups of the bootstrap servers, until the first of them succeeds (KIP-909).

    Java resolves the names in the constructor, or, with a positive `bootstrap.resolve.timeout.ms`, for this time in
    `poll`. Its client then cannot be used any more. Here the constructor does no I/O. The first call that waits raises
    the error, and the client continues to try: the next call raises it only if all names have failed again.
    """

    def __init__(self, servers: Sequence[tuple[str, int]], timeout_ms: float) -> None:
        """Begin without lookups. `timeout_ms` is `bootstrap_resolve_timeout_ms`."""
        self._servers = list(dict.fromkeys(servers))
        self._timeout_ms = timeout_ms
        self._due: float | None = None  # when unresolved names become an error (ms); None before the first lookup
        self._failed: dict[tuple[str, int], str] = {}  # why lookups have failed since the last error
        self._raised = False
        self._resolved = False

    def began(self, now: float) -> None:
        """Record that a lookup begins. The timeout counts from the first one."""
        if self._due is None:
            self._due = now + self._timeout_ms

    def completed(self, host: str, port: int, error: Exception | None) -> None:
        """Record the end of a lookup. `error` is None if it has found addresses."""
        if error is None:
            self._resolved = True
        else:
            self._failed[host, port] = os_reason(error)

    def take_error(self, now: float) -> BootstrapResolutionError | None:
        """Returns the error that the user's call must raise, or None. Each error is returned once."""
        if self._resolved or self._due is None or now < self._due:
            return None
        all_failed = len(self._failed) == len(self._servers)
        if not all_failed and (self._raised or not self._timeout_ms):
            return None
        error = self._error()
        self._raised = True
        self._failed.clear()
        return error

    def _error(self) -> BootstrapResolutionError:
        names = ", ".join(
            f"{host}:{port}: {self._failed.get((host, port), 'the name server has not responded')}"
            for host, port in self._servers
        )
        waited = f" within {self._timeout_ms:.0f} ms (bootstrap_resolve_timeout_ms)" if self._timeout_ms else ""
        return BootstrapResolutionError(
            f"no name in bootstrap_servers could be resolved{waited}: {names}; check the names, and the name server "
            "of this machine"
        )


CANONICAL = "resolve_canonical_bootstrap_servers_only"

CLOSES_IN_HANDSHAKE = 2
"""The first probe follows after this many disconnects during the TLS handshake."""

CLOSES_BETWEEN_PROBES = 4  # after a probe, the next one is due after this many disconnects


class ConnectionSetup:
    """How the connections of one client are made, and what has been seen on all of them."""

    def __init__(
        self,
        config: ConsumerConfig,
        rng: random.Random,
        *,
        new_connection: Callable[[ConnectionAttempts], Connection],
        connector: Connector,
        connect_plain: Connect,
        resolve: Resolve,
    ) -> None:
        self.config = config
        self.new_connection = new_connection
        self.connector = connector
        self.connect_plain = connect_plain
        self.resolve = redirect(config, resolve)
        self.records = AddressRecords(config.bootstrap_servers)
        self.bootstrap = BootstrapResolution(config.bootstrap_servers, config.bootstrap_resolve_timeout_ms)
        self.backoff = ExponentialBackoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, rng)
        self.setup_timeout = ExponentialBackoff(
            config.socket_connection_setup_timeout_ms, config.socket_connection_setup_timeout_max_ms, rng
        )
        idle_ms = config.connections_max_idle_ms
        self.max_idle_ms = float(idle_ms) if idle_ms >= 0 else FOREVER  # a connection not used for this time is closed
        self.any_ready = False  # a connection has been ready
        self.any_response = False  # a connection that has ended received a response to a request

    def on_ready(self) -> None:
        """Record that a connection became ready. This shows that `security_protocol` is right, so no TLS failure needs
        a plaintext probe any more."""
        self.any_ready = True

    def on_response(self) -> None:
        """Record that a connection ends on which the broker has responded to a request."""
        self.any_response = True


class ConnectionAttempts(ConnectionIo, ABC):
    """How one connection id gets a socket. `connection` and `transport` are both set while there is one, else None."""

    __slots__ = (
        "_setup",
        "address",
        "attempt_errors",
        "backoff_until",
        "closed_before_use",
        "closes",
        "dns_lookup",
        "error",
        "failures",
        "host",
        "last_attempt",
        "name",
        "next_probe",
        "port",
        "probe",
        "record",
        "refresh",
        "remaining_addresses",
        "setup_deadline",
        "setup_failures",
        "since",
    )

    connection: Connection | None
    transport: Transport | None
    _loop: ConnectionLoop

    def __init__(self, node_id: str, host: str, port: int, loop: ConnectionLoop, setup: ConnectionSetup) -> None:
        super().__init__(node_id, loop)
        self._setup = setup
        self.host = host
        self.port = port
        self.name = broker_name(node_id, host, port)
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
        self.record = setup.records.find(host, port)  # the failures of all connections to this address
        self.setup_failures = 0  # rounds in a row without a connection; sets the setup timeout
        self.backoff_until = 0.0
        self.setup_deadline = 0.0  # when the present attempt times out
        self.last_attempt = -FOREVER
        self.since = 0.0  # when the present state began (ms)

    # --- what a connection does with its socket ---

    @abstractmethod
    def detach(self, now: float) -> None:
        """Close the socket, if there is one."""

    @abstractmethod
    def disconnect(self, error: KafkaError, now: float) -> None:
        """Close the connection because of an error, and start the backoff."""

    @property
    @abstractmethod
    def slow_at(self) -> float:
        """When a warning is due because the broker is awaited (ms)."""

    # --- state ---

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
        self.record = self._setup.records.find(node.host, node.port)
        self.dns_lookup = self.refresh = None
        self.remaining_addresses.clear()
        self.failures = self.setup_failures = self.closes = self.closed_before_use = 0
        self.probe = self.next_probe = None
        self.backoff_until = 0.0
        self.error = None

    # --- a round ---

    def connect(self, now: float) -> None:
        """Start to connect to the next address of the broker. If all have been tried, resolve the name again first."""
        self._loop.open()
        if not self.remaining_addresses:
            self.dns_lookup = self._loop.resolver.look_up(self._resolution(), self.host, self.port)
            self.probe, self.next_probe = self.next_probe, None
            if self.is_bootstrap:
                self._setup.bootstrap.began(now)
            self.start_setup_timeout(now)
        if self.dns_lookup is None or self.dns_lookup.completed:
            self._start(now)

    def start_setup_timeout(self, now: float) -> None:
        """Start the setup timeout, again if it is running."""
        self.last_attempt = self.since = now
        self.setup_deadline = now + self._setup.setup_timeout.delay_ms(self.setup_failures)
        self._loop.run_timers_by(min(self.setup_deadline, self.slow_at))

    def _resolution(self) -> Resolve:
        """Returns the function that resolves the name. `client_dns_lookup` may require canonical names for bootstrap
        servers, but brokers behind other addresses keep the advertised name."""
        canonical = self._setup.config.client_dns_lookup == CANONICAL and self.is_bootstrap
        found = self._setup.resolve
        return resolve_canonical if canonical and not isinstance(found, Redirect) else found

    def continue_resolved(self, now: float) -> None:
        """Continue the attempt if its lookup has completed."""
        if self.dns_lookup is not None and self.dns_lookup.completed:
            self._start(now)

    def _start(self, now: float) -> None:
        """Start to connect. If certificates have changed on disk, wait first until they have been read."""
        self._take_addresses()
        task = self._setup.connector.refresh(self._loop.background) if self.remaining_addresses else None
        if task is None:
            self._try_addresses(now)
            return
        self.refresh = task
        self.start_setup_timeout(now)
        self.continue_refreshed(now)

    def _take_addresses(self) -> None:
        """If a DNS lookup has completed, store its addresses and remove the lookup.

        The address of the previous attempt is put last, so that the others are tried first.
        """
        lookup, self.dns_lookup = self.dns_lookup, None
        if lookup is None:
            return
        found = lookup.found
        self.remaining_addresses = [a for a in found if a != self.address] + [a for a in found if a == self.address]
        self.attempt_errors = [os_reason(lookup.error)] if lookup.error is not None else []
        if self.is_bootstrap:
            self._setup.bootstrap.completed(self.host, self.port, lookup.error)

    def continue_refreshed(self, now: float) -> None:
        """Continue an attempt that waits for certificates, if they have been read. Backs off if reading them failed."""
        task = self.refresh
        if task is None or not task.completed:
            return
        self.refresh = None
        if task.error is None:
            self._try_addresses(now)
        else:
            error = refresh_error(self.name, task.error)
            self._round_failed([str(error)], error, now)

    def _try_addresses(self, now: float) -> None:
        """Start to connect to the next address. If that fails at once, tries the following addresses. If the last one
        fails, too, backs off."""
        without_tls = self.probe is not None and self.probe.without_tls
        connect = self._setup.connect_plain if without_tls else self._setup.connector.connect
        while self.remaining_addresses:
            self.address = self.remaining_addresses.pop(0)
            try:
                transport = connect(self.known_as, self.address, self._setup.config)
            except OSError as error:
                self._address_failed(os_reason(error))
                continue
            self.transport, self.connection = transport, self._setup.new_connection(self)
            self.connection.belong_to(self)
            self.last_used = now
            self.start_setup_timeout(now)
            self._watch_one(transport)
            return
        self._all_failed(now)

    def _watch_one(self, transport: Transport) -> None:
        """Wait for one event only: writable if `wants_write` returns True, else readable.

        Used while the transport is connecting or `crossed` (see `Transport`).
        """
        self._loop.interest.set_events(transport, WRITE if transport.wants_write() else READ, self)

    def continue_connecting(self, connection: Connection, transport: Transport, now: float) -> None:
        """Continue an attempt whose socket is ready: end the TCP connect, or continue the TLS handshake. Once the
        transport can send, writes the first request."""
        self.last_used = now
        try:
            finished = transport.finish_connect()
            if finished:
                self.setup_failures = 0
                connection.transport_ready(now)
        except HandshakeClosedError as error:
            self._on_closed_in_handshake()
            self.attempt_failed(os_reason(error), now)
        except OSError as error:
            self.attempt_failed(os_reason(error), now)
        except KafkaError as error:
            self.disconnect(error, now)
        else:
            if finished:
                self.write(now)
            else:
                self._watch_one(transport)

    # --- failures ---

    def _address_failed(self, reason: str) -> None:
        self.attempt_errors.append(f"{reason} ({self.address})")

    def attempt_failed(self, reason: str, now: float) -> None:
        """Handle a failed attempt: try the next address at once, or back off if no address is left."""
        self._address_failed(reason)
        self.detach(now)
        if self.remaining_addresses:
            self._start(now)
        else:
            self.setup_failures += 1
            self._all_failed(now)

    def preparation_timed_out(self, now: float) -> None:
        """Back off, because the DNS lookup or the reading of certificates did not complete before the setup
        deadline."""
        waited = f"within {self.setup_deadline - self.last_attempt:.0f} ms"
        if self.refresh is not None:
            reason = f"changed certificates were not read {waited} (does a callable such as ssl_password not return?)"
        else:
            reason = f"its name was not resolved {waited}"
        self.attempt_errors = [reason]
        self.setup_failures += 1
        self._all_failed(now)

    def _all_failed(self, now: float) -> None:
        reasons = "; ".join(self.attempt_errors)
        error = BrokerConnectionError(f"{self.name} cannot be reached: {reasons}{self.record.hint}")
        self._round_failed(self.attempt_errors, error, now)

    def _round_failed(self, reasons: list[str], error: KafkaError, now: float) -> None:
        """Back off, because of these reasons."""
        self.back_off(error, now)
        self._loop.connection_changed()
        self.record.failed(reasons, error, now, self.backoff_until - now)

    def back_off(self, error: KafkaError | None, now: float) -> None:
        """Start the backoff, after a round of attempts has failed or a connection has ended with an error."""
        self.cancel_attempts(now)  # after the backoff the name may have other addresses
        self.error = error
        self.last_attempt = now
        self.backoff_until = now + self._setup.backoff.delay_ms(self.failures)
        self.failures += 1

    def cancel_attempts(self, now: float) -> None:
        """End the round of attempts, and ignore the background task that it waits for, if any."""
        self.since = now
        self.dns_lookup = self.refresh = None
        self.remaining_addresses.clear()

    def _on_closed_in_handshake(self) -> None:
        """Count a disconnect during the TLS handshake. If a probe is due, the next attempts to connect are probes
        without TLS."""
        if not self._setup.any_ready and self.probe_due(CLOSES_IN_HANDSHAKE):
            from kconsumer.net.probes import PLAINTEXT_PROBE

            self.next_probe = PLAINTEXT_PROBE

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
