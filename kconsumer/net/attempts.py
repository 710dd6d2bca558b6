"""Attempts to connect to brokers: resolves a name, tries its addresses one after the other, and backs off.

Decides which address is tried next, and when an attempt has failed. The event loop reports when a name was resolved,
when a socket is ready, and when an attempt has timed out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from kconsumer.errors import BrokerConnectionError, KafkaError
from kconsumer.net.background import BackgroundExecutor, Start
from kconsumer.net.bootstrap import BootstrapResolution
from kconsumer.net.connection import Connection
from kconsumer.net.describe import os_reason, refresh_error
from kconsumer.net.disconnects import DisconnectClassifier
from kconsumer.net.interest import SelectorInterest
from kconsumer.net.node import NodeConnection, ReconnectPolicy
from kconsumer.net.resolver import Resolver
from kconsumer.net.transport import Connect, Connector, HandshakeClosedError, Resolve, resolve_canonical

if TYPE_CHECKING:
    from kconsumer.config.options import ConsumerConfig

CANONICAL = "resolve_canonical_bootstrap_servers_only"


class ConnectionOwner(Protocol):
    """The event loop, as attempts use it."""

    def run_timers_by(self, due: float) -> None:
        """Handle timeouts at `due` (ms), or earlier."""

    def connection_changed(self) -> None:
        """Let `poll` return, because a connection is ready or lost."""

    def detach(self, node: NodeConnection, now: float) -> None:
        """Close the socket of a node."""

    def disconnect(self, node: NodeConnection, error: KafkaError, now: float) -> None:
        """Close a connection because of an error, and start the backoff."""

    def write(self, node: NodeConnection, now: float) -> None:
        """Write the queued requests of a node."""


class ConnectionAttempts:
    """Connects nodes. Uses threads only to resolve names and to read certificates."""

    def __init__(
        self,
        config: ConsumerConfig,
        policy: ReconnectPolicy,
        owner: ConnectionOwner,
        interest: SelectorInterest,
        background: BackgroundExecutor,
        disconnects: DisconnectClassifier,
        *,
        new_connection: Callable[[NodeConnection], Connection],
        connector: Connector,
        connect_plain: Connect,
        resolve: Resolve,
        wake: Callable[[], None],
        start_thread: Start,
    ) -> None:
        """`wake` ends the wait of the event loop. It is called when a name was resolved."""
        self._config = config
        self._policy = policy
        self._owner = owner
        self._interest = interest
        self._background = background
        self._disconnects = disconnects
        self._new_connection = new_connection
        self._connector = connector
        self._connect_plain = connect_plain
        self._resolve = resolve
        self.resolver = Resolver(wake, start_thread)
        self.bootstrap = BootstrapResolution(config.bootstrap_servers, config.bootstrap_resolve_timeout_ms)

    def connect(self, node: NodeConnection, now: float) -> None:
        """Start to connect to the next address of the broker. If all have been tried, resolve the name again first."""
        if not node.remaining_addresses:
            lookup = self.resolver.look_up(self._resolution(node), node.host, node.port)
            node.start_round(lookup, self._policy, now)
            if node.is_bootstrap:
                self.bootstrap.began(now)
            self._owner.run_timers_by(min(node.setup_deadline, node.slow_at))
        if node.dns_lookup is None or node.dns_lookup.completed:
            self._start(node, now)

    def _resolution(self, node: NodeConnection) -> Resolve:
        """Returns the function that resolves a node's name. `client_dns_lookup` may require canonical names for
        bootstrap servers."""
        canonical = self._config.client_dns_lookup == CANONICAL and node.is_bootstrap
        return resolve_canonical if canonical else self._resolve

    def continue_resolved(self, nodes: Iterable[NodeConnection], now: float) -> None:
        """Continue the attempts whose lookups have completed."""
        self.resolver.acknowledge()
        for node in nodes:
            if node.dns_lookup is not None and node.dns_lookup.completed:
                self._start(node, now)

    def _start(self, node: NodeConnection, now: float) -> None:
        """Start to connect. If certificates have changed on disk, wait first until they have been read."""
        lookup = node.on_resolved()
        if lookup is not None and node.is_bootstrap:
            self.bootstrap.completed(node.host, node.port, lookup.error)
        task = self._connector.refresh(self._background) if node.remaining_addresses else None
        if task is None:
            self._try_addresses(node, now)
            return
        node.start_refresh(task, self._policy, now)
        self._owner.run_timers_by(min(node.setup_deadline, node.slow_at))
        self.continue_refreshed(node, now)

    def continue_refreshed(self, node: NodeConnection, now: float) -> None:
        """Continue an attempt that waits for certificates, if they have been read. Backs off if reading them failed."""
        task = node.refresh
        if task is None or not task.completed:
            return
        node.on_refreshed()
        if task.error is None:
            self._try_addresses(node, now)
            return
        error = refresh_error(node.name, task.error)
        node.back_off(self._policy, error, now)
        self._owner.connection_changed()
        node.record.failed([str(error)], error, now, node.backoff_until - now)

    def _try_addresses(self, node: NodeConnection, now: float) -> None:
        """Start to connect to the next address. If that fails at once, tries the following addresses. If the last one
        fails, too, backs off."""
        without_tls = node.probe is not None and node.probe.without_tls
        connect = self._connect_plain if without_tls else self._connector.connect
        while node.remaining_addresses:
            address = node.next_address()
            try:
                transport = connect(node.known_as, address, self._config)
            except OSError as error:
                node.attempt_failed(os_reason(error))
                continue
            node.start_attempt(transport, self._new_connection(node), self._policy, now)
            self._interest.update_connecting(node)
            self._owner.run_timers_by(min(node.setup_deadline, node.slow_at))
            return
        self._all_failed(node, now)

    def continue_connecting(self, node: NodeConnection, now: float) -> None:
        """Continue an attempt whose socket is ready: end the TCP connect, or continue the TLS handshake."""
        try:
            finished = node.finish_connect(now)
        except HandshakeClosedError as error:
            self._disconnects.on_closed_in_handshake(node)
            self.attempt_failed(node, os_reason(error), now)
            return
        except OSError as error:
            self.attempt_failed(node, os_reason(error), now)
            return
        except KafkaError as error:
            self._owner.disconnect(node, error, now)
            return
        if finished:
            self._owner.write(node, now)
        else:
            self._interest.update_connecting(node)

    # --- failures ---

    def attempt_failed(self, node: NodeConnection, reason: str, now: float) -> None:
        """Handle a failed attempt: try the next address at once, or back off if no address is left."""
        node.attempt_failed(reason)
        self._owner.detach(node, now)
        if node.remaining_addresses:
            self._start(node, now)
        else:
            self.round_failed(node, now)

    def round_failed(self, node: NodeConnection, now: float) -> None:
        """Back off, because no address is left, or because the preparation of an attempt has timed out."""
        node.round_failed()
        self._all_failed(node, now)

    def _all_failed(self, node: NodeConnection, now: float) -> None:
        reasons = "; ".join(node.attempt_errors)
        error = BrokerConnectionError(f"{node.name} cannot be reached: {reasons}{node.record.hint}")
        node.back_off(self._policy, error, now)
        self._owner.connection_changed()
        node.record.failed(node.attempt_errors, error, now, node.backoff_until - now)
