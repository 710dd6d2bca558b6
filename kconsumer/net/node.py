"""What the client remembers of one connection id, whether it is connected or not.

Decides when a connection may be tried again (reconnect backoff), how long an attempt may take (setup
timeout) and which of a name's addresses is next. Does no I/O: the client resolves, connects and reads.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from kconsumer.backoff import ExponentialBackoff
from kconsumer.errors import KafkaError
from kconsumer.net.background import BackgroundTask
from kconsumer.net.connection import Connection
from kconsumer.net.messages import broker_name, os_reason
from kconsumer.net.resolver import Lookup
from kconsumer.net.states import ConnectionState
from kconsumer.net.transport import Address, Transport
from kconsumer.repeated_failures import RepeatedFailures
from kconsumer.types import Node

if TYPE_CHECKING:
    from kconsumer.config.options import ConsumerConfig
    from kconsumer.net.probes import Probe

FOREVER = float("inf")


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
    """One connection id. `connection` and `transport` are set together while connecting or connected."""

    __slots__ = (
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
        "interest",
        "last_attempt",
        "last_used",
        "name",
        "next_probe",
        "node",
        "port",
        "prefetched",
        "probe",
        "progress_at",
        "receive_job",
        "refresh",
        "remaining_addresses",
        "repeats",
        "setup_deadline",
        "setup_failures",
        "throttled_until",
        "transport",
    )

    def __init__(self, node: str, host: str, port: int) -> None:
        self.node = node
        self.host = host
        self.port = port
        self.name = broker_name(node, host, port)
        self.connection: Connection | None = None
        self.transport: Transport | None = None
        self.interest = 0  # what the selector watches
        self.receive_job: int | None = None  # of the Receiver, if it is reading the socket
        self.address: Address | None = None  # of the last attempt
        self.dns_lookup: Lookup | None = None  # of the name, while it is waited for
        self.refresh: BackgroundTask[Any] | None = None  # reads changed certificates, while it is waited for
        self.remaining_addresses: list[Address] = []
        self.attempt_errors: list[str] = []  # why the addresses tried in this round failed
        self.error: KafkaError | None = None  # why the last connection or round of attempts ended
        self.failures = 0
        self.closed_before_use = 0  # connections in a row that the broker closed without an answer to a request
        self.closes = 0  # connections closed without a word since the last probe
        self.next_probe: Probe | None = None  # of the next round of attempts
        self.probe: Probe | None = None  # of the present round: its attempts are probes
        self.repeats = RepeatedFailures()
        self.setup_failures = 0
        self.backoff_until = 0.0
        self.setup_deadline = 0.0
        self.throttled_until = 0.0
        self.last_attempt = -FOREVER
        self.last_used = 0.0
        self.progress_at = -FOREVER  # when bytes of the connection arrived last
        self.prefetched = 0  # of the frame that the Receiver is at, when its job was checked last

    @property
    def is_bootstrap(self) -> bool:
        """Whether it is one of `bootstrap_servers`, and not a broker that metadata told of."""
        return self.node.startswith("-")

    @property
    def known_as(self) -> str:
        """What the broker is called where names matter: in certificates, and by Kerberos."""
        return (self.address and self.address.host) or self.host

    @property
    def preparing(self) -> bool:
        """Returns True while an attempt waits for a background task, before there is a socket."""
        return self.dns_lookup is not None or self.refresh is not None

    @property
    def state(self) -> str:
        """The state for people."""
        if self.connection is not None:
            return self.connection.state.value
        if self.refresh is not None:
            return "reading certificates"
        return "not connected" if self.dns_lookup is None else "resolving"

    def overdue_reason(self) -> str:
        """Returns why an attempt that is still `preparing` has failed at its deadline."""
        waited = f"within {self.setup_deadline - self.last_attempt:.0f} ms"
        if self.refresh is not None:
            return f"changed certificates were not read {waited} (does a callable such as ssl_password not return?)"
        return f"its name was not resolved {waited}"

    def move(self, node: Node) -> None:
        """The broker has a new address: what was learnt of the old one no longer counts."""
        if (node.host, node.port) == (self.host, self.port):
            return
        self.host, self.port = node.host, node.port
        self.name = broker_name(self.node, node.host, node.port)
        self.dns_lookup = self.refresh = None
        self.remaining_addresses.clear()
        self.failures = self.setup_failures = self.closes = self.closed_before_use = 0
        self.probe = self.next_probe = None
        self.repeats.reset()
        self.backoff_until = 0.0
        self.error = None

    def resolving(self, lookup: Lookup, now: float, setup_timeout_ms: float) -> None:
        """A round of attempts begins: the name is being looked up."""
        self.dns_lookup = lookup
        self.probe, self.next_probe = self.next_probe, None
        self.last_attempt = now
        self.setup_deadline = now + setup_timeout_ms

    def resolved(self, lookup: Lookup) -> None:
        """Start a round over these addresses; the one used last comes last, as it has just failed."""
        found = lookup.found
        self.dns_lookup = None
        self.remaining_addresses = [a for a in found if a != self.address] + [a for a in found if a == self.address]
        self.attempt_errors = [os_reason(lookup.error)] if lookup.error is not None else []

    def refreshing(self, task: BackgroundTask[Any], now: float, setup_timeout_ms: float) -> None:
        """Wait for a task that reads changed certificates."""
        self.refresh = task
        self.last_attempt = now
        self.setup_deadline = now + setup_timeout_ms

    def refreshed(self) -> None:
        """Stop waiting for it."""
        self.refresh = None

    def attempting(
        self,
        address: Address,
        transport: Transport,
        connection: Connection,
        now: float,
        setup_timeout_ms: float,
    ) -> None:
        """An attempt at `address` began."""
        self.address, self.transport, self.connection = address, transport, connection
        self.last_attempt = self.last_used = now
        self.setup_deadline = now + setup_timeout_ms

    def established(self) -> None:
        """The connection is ready: failures are forgotten, and another name lookup comes before the next
        attempt."""
        self.failures = self.setup_failures = 0
        self.repeats.reset()
        self.backoff_until = 0.0
        self.error = None
        self.remaining_addresses.clear()

    def detached(self) -> None:
        """The connection is gone."""
        self.connection = self.transport = None
        self.interest = 0
        self.progress_at = -FOREVER

    def back_off(self, policy: ReconnectPolicy, error: KafkaError | None, now: float) -> None:
        """Leave the broker alone for a while."""
        self.dns_lookup = self.refresh = None
        self.remaining_addresses.clear()  # the name may mean other addresses by then
        self.error = error
        self.last_attempt = now
        self.backoff_until = now + policy.backoff_ms(self.failures)
        self.failures += 1

    def next_timer(self, max_idle_ms: float) -> float:
        """When something may have to happen on this link if nothing else does."""
        connection = self.connection
        if connection is None:
            return self.setup_deadline if self.preparing else FOREVER
        if connection.state is ConnectionState.CONNECTING:
            return self.setup_deadline
        return min(connection.next_deadline, FOREVER if connection.in_flight else self.last_used + max_idle_ms)

    def __repr__(self) -> str:
        if self.connection is not None:
            return f"<NodeConnection {self.node}: {self.connection!r}>"
        if self.preparing:
            return f"<NodeConnection {self.node} to {self.name}: {self.state}>"
        return f"<NodeConnection {self.node} to {self.name}: not connected, {self.failures} failures>"
