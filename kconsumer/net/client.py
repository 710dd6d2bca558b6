"""The network client: all connections of one consumer.

Keeps the list of brokers. Decides when to connect to a broker, whether a request may be sent to it now, and which
broker is least loaded. Managers decide which requests to send; the event loop does the I/O.

Only one thread at a time may use a client, except that any thread or signal handler may call `wakeup()`. Descriptors
are opened at the first use. Only `poll` blocks.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kconsumer._core.lock import Clock, Waiting
from kconsumer._core.net import MAX_IN_FLIGHT
from kconsumer._version import VERSION
from kconsumer.errors import AuthenticationError, BrokerConnectionError, KafkaError, StateError, UnsupportedVersionError
from kconsumer.net.attempts import ConnectionAttempts, ConnectionSetup
from kconsumer.net.background import Start, in_thread
from kconsumer.net.connection import Connection
from kconsumer.net.connector import Connector, make_connector
from kconsumer.net.describe import ConnectionReport, address_text, broker_id, broker_role
from kconsumer.net.event_loop import FOREVER, ConnectionLoop
from kconsumer.net.interest import Selector, make_selector
from kconsumer.net.node import READY, NodeConnection
from kconsumer.net.transport import Connect, Resolve, connect_tcp, resolve
from kconsumer.net.wakeup import Waker
from kconsumer.schema.dsl import Api
from kconsumer.types import Node

if TYPE_CHECKING:
    from collections.abc import Callable

    from kconsumer.config.options import ConsumerConfig
    from kconsumer.net.metrics import ConnectionMetrics
    from kconsumer.net.sasl.authenticator import NewAuthenticator
    from kconsumer.net.sasl.credentials import CredentialsProvider


class NetworkClient:
    """The connections of one consumer. Each has a connection id, which the methods call `node_id`:

        "3"         the connection to broker 3 for metadata and ordinary fetches
        "+3"        a separate connection to broker 3 for requests to the group coordinator
        "*3"        a separate connection to broker 3 for requests that must not wait behind a fetch
        "-1", "-2"  the connections to the first and the second bootstrap server

    All times are in ms; `now` is the clock's present time.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        clock: Clock,
        *,
        selector_factory: Callable[[], Selector] = make_selector,
        connector: Connector | None = None,
        connect_plain: Connect = connect_tcp,
        resolve: Resolve = resolve,
        start_thread: Start = in_thread,
        make_waker: Callable[[], Waker] = Waker,
        rng: random.Random | None = None,
        metrics: ConnectionMetrics | None = None,
    ) -> None:
        """Read certificates and keys, but open no connection yet. Raises ConfigError if they cannot be used. Tests pass
        their own `selector_factory`, `connector` and other keyword arguments."""
        self._config = config
        self._clock = clock
        self._rng = rng or random.Random()
        self._nodes_by_id: dict[str, NodeConnection] = {}
        self._loop = ConnectionLoop(clock, self._nodes_by_id, selector_factory, start_thread, make_waker(), metrics)
        self._setup = ConnectionSetup(
            config,
            self._rng,
            new_connection=self._new_connection,
            connector=connector or make_connector(config),
            connect_plain=connect_plain,
            resolve=resolve,
        )
        self.receiver = self._loop.background_receiver.receiver
        # What every step calls is bound here, so that it costs one call.
        self.poll = self._loop.poll
        self.flush = self._loop.flush
        self.idle = self._loop.idle
        self.wakeup = self._loop.waker.wake  # any thread or signal handler may call this
        self.end_poll = self._loop.connection_changed  # lets the running `poll` return; its own thread calls this
        self._credentials = self._make_credentials() if config.security_protocol.startswith("SASL") else None
        self._cluster_id: str | None = None
        self._nodes: dict[int, Node] = {}
        self.rebootstrap()

    # --- the list of brokers ---

    def set_nodes(self, nodes: Iterable[Node], cluster_id: str | None = None) -> None:
        """Replace the list of brokers. Closes connections to brokers that are not in the new list, except those with
        requests in flight.

        New connections send `cluster_id` in ApiVersions. A broker of another cluster can then respond with an error
        (KIP-1242).
        """
        self._nodes = {node.id: node for node in nodes}
        self._cluster_id = cluster_id
        for node in list(self._nodes_by_id.values()):
            broker = self._nodes.get(broker_id(node.id))
            if broker is not None:
                node.move(broker)
            elif node.connection is None or not node.connection.in_flight:
                node.close_quietly(self._clock.now())
                del self._nodes_by_id[node.id]

    def rebootstrap(self, *, close_connections: bool = False) -> None:
        """Replace the list of brokers by `bootstrap_servers` (KIP-899).

        With `close_connections` all connections are closed first, which fails the requests in flight (KIP-1102).
        """
        self._loop.rebootstrapped()
        if close_connections:
            now = self._clock.now()
            for node in list(self._nodes_by_id.values()):
                node.give_up(now)
        self.set_nodes(self.bootstrap_nodes())

    def bootstrap_nodes(self) -> list[Node]:
        """Returns the `bootstrap_servers`. Their ids are negative, because their broker ids are unknown."""
        servers = self._config.bootstrap_servers
        return [Node(-index, host, port) for index, (host, port) in enumerate(servers, start=1)]

    @property
    def needs_rebootstrap(self) -> bool:
        """Returns whether the client should rebootstrap, because a broker has returned REBOOTSTRAP_REQUIRED (KIP-1242)
        and `metadata_recovery_strategy` allows it. False again after a call of `rebootstrap`."""
        return self._loop.rebootstrap_required and self._config.metadata_recovery_strategy == "rebootstrap"

    def least_loaded_node(self, now: float) -> str | None:
        """Returns the connection id for a request that any broker can serve, or None if no broker can be used now.

        Prefers a ready connection without requests in flight, then the ready connection with the fewest requests, then
        one that is being established or must authenticate again, and last the broker whose last connection attempt is
        the oldest. Leaves out brokers in backoff, and ready connections that are throttled or have MAX_IN_FLIGHT
        requests.
        """
        ids = [str(broker) for broker in self._nodes]
        if not ids:
            return None
        start = self._rng.randrange(len(ids))
        busy: tuple[int, str] | None = None
        connecting: str | None = None
        idle: tuple[float, str] | None = None
        for node_id in ids[start:] + ids[:start]:
            node = self._nodes_by_id.get(node_id)
            connection = node.connection if node is not None else None
            if node is not None and node.preparing:
                connecting = node_id
            elif node is None or connection is None:
                attempted = node.last_attempt if node is not None else -FOREVER
                if (node is None or node.backoff_until <= now) and (idle is None or attempted < idle[0]):
                    idle = attempted, node_id
            elif connection.state is not READY or now >= connection.session.blocked_since:
                connecting = node_id
            elif node.may_send(now):
                load = connection.in_flight
                if load == 0:
                    return node_id
                if busy is None or load < busy[0]:
                    busy = load, node_id
        if busy is not None:
            return busy[1]
        return connecting or (idle[1] if idle is not None else None)

    def least_loaded_ready(self, api: Api, now: float, preferred: str | None = None) -> str | None:
        """Returns the connection id for a request that any broker can serve, or None if no connection is ready.

        Opens no connection, in contrast to `least_loaded_node`. Returns `preferred` if its connection is ready,
        otherwise the connection with the fewest requests in flight. Raises UnsupportedVersionError if connections are
        ready, but no broker of them supports the API.
        """
        best: tuple[int, str] | None = None
        refused = False
        for node_id in map(str, self._nodes):
            node = self._nodes_by_id.get(node_id)
            connection = None if node is None else node.connection
            if node is None or connection is None or connection.api_versions is None or not node.may_send(now):
                continue
            if api.key not in connection.api_versions:
                refused = True
            elif node_id == preferred:
                return node_id
            elif best is None or connection.in_flight < best[0]:
                best = connection.in_flight, node_id
        if best is None and refused:
            raise UnsupportedVersionError(f"the brokers do not support {api.name}")
        return None if best is None else best[1]

    @property
    def any_ready(self) -> bool:
        """True if there is a connection over which requests can be sent now or later, also one to a coordinator."""
        nodes = self._nodes_by_id.values()
        return any(node.connection is not None and node.connection.state is READY for node in nodes)

    # --- one connection ---

    def ready(self, node_id: str, now: float) -> NodeConnection | None:
        """Returns the connection `node_id` if a request may be sent now, else None. Its method `send` sends a request.

        If there is no connection, starts to connect, unless an attempt is in progress or the backoff has not ended. If
        the session is about to expire, starts to authenticate again.
        """
        node = self._nodes_by_id.get(node_id)
        if node is None or node.connection is None:
            self._connect(node, node_id, now)
            return None
        if now >= node.connection.session.renew_at:
            node.reauthenticate(now)
        return node if node.may_send(now) else None

    def _connect(self, node: NodeConnection | None, node_id: str, now: float) -> None:
        """Start to connect to a broker in the list, unless an attempt is in progress or the backoff has not ended."""
        broker = self._nodes.get(broker_id(node_id))
        if broker is None:
            return
        if node is None:
            node = NodeConnection(node_id, broker.host, broker.port, self._loop, self._setup)
            self._nodes_by_id[node_id] = node
        if node.backoff_until <= now and not node.preparing:
            node.connect(now)

    def delay_ms(self, node_id: str, now: float) -> float:
        """Returns how long (ms) to wait before `ready` is called again. Returns infinity if only I/O in `poll` can make
        the connection ready."""
        node = self._nodes_by_id.get(node_id)
        if node is None:
            return 0.0
        if node.connection is None:
            return FOREVER if node.preparing else max(0.0, node.backoff_until - now)
        if node.connection.state is not READY:
            return FOREVER
        if node.throttled_until > now:
            return node.throttled_until - now
        busy = node.connection.in_flight >= MAX_IN_FLIGHT or now >= node.connection.session.blocked_since
        return FOREVER if busy else 0.0

    def throttled_ms(self, node_id: str, now: float) -> float:
        """Returns for how long (ms) the broker still throttles this client (KIP-219); 0 if it does not."""
        node = self._nodes_by_id.get(node_id)
        return 0.0 if node is None else max(0.0, node.throttled_until - now)

    def is_healthy(self, node_id: str, now: float) -> bool:
        """Returns True if the connection was never tried, or is ready and not throttled."""
        return self.throttled_ms(node_id, now) <= 0 and not self.last_error(node_id, now)

    def connection_failed(self, node_id: str, now: float) -> KafkaError | None:
        """Returns the error of the last connection or attempt, if the connection `node_id` is in backoff.

        If the broker is not in the list of brokers any more, returns an error that says so. Otherwise returns None.
        """
        node = self._nodes_by_id.get(node_id)
        if node is not None and node.connection is not None:
            return None
        if broker_id(node_id) not in self._nodes:
            return BrokerConnectionError(f"broker {broker_id(node_id)} is no longer part of the cluster")
        return node.error if node is not None and now < node.backoff_until else None

    def authentication_error(self, now: float) -> AuthenticationError | None:
        """Returns an authentication or TLS error that ended the last connection of some broker, or None.

        Ignores brokers that have a connection again, and those that are not backed off: their errors are old, as that
        of a former coordinator.
        """
        nodes = self._nodes_by_id.values()
        errors = (node.error for node in nodes if node.connection is None and now < node.backoff_until)
        return next((error for error in errors if isinstance(error, AuthenticationError)), None)

    def take_bootstrap_error(self, now: float) -> KafkaError | None:
        """Returns the error that the user's call must raise because no bootstrap server can be resolved, or None."""
        return self._setup.bootstrap.take_error(now)

    def connection_errors(self, now: float) -> str:
        """Returns the errors of all connections that are not ready, in one line for users. Empty if there are none."""
        return "; ".join(dict.fromkeys(map(str, self.failures(now))))

    def failures(self, now: float) -> list[KafkaError]:
        """Returns the errors of all connections that are not ready, and the last errors at other addresses, such as one
        that a broker advertises, before the client started again from the bootstrap servers."""
        found = [self._failure_of(node, now) for node in list(self._nodes_by_id.values())]
        return [error for error in found if error is not None] + self._setup.records.recent_errors(now)

    def last_error(self, node_id: str, now: float) -> str:
        """Returns in one line why this connection is not ready. Returns "" if it is ready or was never tried."""
        node = self._nodes_by_id.get(node_id)
        return "" if node is None else self._error_of(node, now)

    def report(self, now: float) -> list[ConnectionReport]:
        """Returns a report of each connection, including lost ones."""
        return [self._report_of(node, now) for node in list(self._nodes_by_id.values())]

    def _report_of(self, node: NodeConnection, now: float) -> ConnectionReport:
        connection, transport = node.connection, node.transport
        oldest = None if connection is None else connection.oldest()
        failure = self._failure_of(node, now)
        return ConnectionReport(
            node.name,
            node.state,
            0 if connection is None else connection.in_flight,
            "" if oldest is None else oldest.api.name,
            0.0 if oldest is None else now - oldest.sent_at,
            str(failure or ""),
            "" if transport is None else transport.encryption,
            broker_role(node.id),
            address_text(node.host, node.port),
            max(0.0, now - node.since),
            failure,
        )

    def _error_of(self, node: NodeConnection, now: float) -> str:
        """Returns the result of `_failure_of` in one line; empty if there is none."""
        return str(self._failure_of(node, now) or "")

    def _failure_of(self, node: NodeConnection, now: float) -> KafkaError | None:
        """Returns the reason why a connection is not ready, or None if it is ready or was never tried.

        After a connection was lost, this is its error, until the connection is ready again.
        """
        connection = node.connection
        if connection is not None and connection.state is READY:
            return None
        error = node.error or self.connection_failed(node.id, now)
        waiting = node.waits_for(now) if error is None else ""
        return BrokerConnectionError(waiting) if waiting else error

    def defer_writes(self, deferred: bool) -> None:
        """Set whether `send` only queues requests, which `flush` or `poll` then writes."""
        self._loop.defer_writes(deferred)

    def disconnect(self, node_id: str, now: float) -> None:
        """Close a connection and fail its requests in flight. `ready` may open it again after the backoff."""
        node = self._nodes_by_id.get(node_id)
        if node is not None:
            node.give_up(now)

    def free_connection(self, node_id: str) -> str:
        """Returns the id of a connection to the same broker on which no response is delayed by a fetch in flight.

        Prefers a connection that is ready: `node_id`, or the one to the coordinator. Otherwise it is "*3", which is
        opened if necessary.
        """
        broker = broker_id(node_id)
        for candidate in (node_id, f"+{broker}"):
            if self.api_versions(candidate) is not None and not self.in_flight(candidate):
                return candidate
        return f"*{broker}"

    def in_flight(self, node_id: str | None = None) -> int:
        """Returns the number of requests without a response on one connection, or on all connections if `node_id` is
        None."""
        if node_id is None:
            connections = [node.connection for node in self._nodes_by_id.values()]
        else:
            connections = [self._nodes_by_id[node_id].connection] if node_id in self._nodes_by_id else []
        return sum(connection.in_flight for connection in connections if connection is not None)

    def api_versions(self, node_id: str) -> Mapping[int, tuple[int, int]] | None:
        """Returns a dict of API key -> (lowest version, highest version) that the broker supports.

        Returns None if there is no connection, or if the connection has not received its ApiVersions response yet.
        """
        node = self._nodes_by_id.get(node_id)
        return node.connection.api_versions if node is not None and node.connection is not None else None

    def negotiated(self, node_id: str, api: Api, min_version: int = 0, max_version: int = 32767) -> int:
        """Returns the version that a request would be sent with. Raises StateError if the connection is not ready, and
        UnsupportedVersionError if there is no common version."""
        node = self._nodes_by_id.get(node_id)
        if node is None or node.connection is None or node.connection.state is not READY:
            raise StateError(f"the versions of connection {node_id} are not known yet")
        return node.connection.negotiated(api, min_version, max_version)

    # --- the loop ---

    def wait_inside(self, waiting: Waiting | None) -> None:
        """Let `poll` release the lock of its caller while it waits."""
        self._loop.wait_inside(waiting)

    def limit_waits(self, max_wait_ms: float) -> None:
        """Divide longer waits of `poll` (ms), see `Environment.max_wait_ms`."""
        self._loop.limit_waits(max_wait_ms)

    @property
    def receiving(self) -> bool:
        """Returns whether a response has arrived in part, on a connection that the background receiver does not read,
        such as one with TLS. The caller should poll soon, because the broker cannot send the rest once the socket's
        buffers are full."""
        return self._loop.receiving

    def close(self) -> None:
        """Close every connection. Requests in flight are dropped without a response. Never blocks; may be called twice.

        Sends nothing, so a forked child may call it without affecting its parent's connections; see `abandon`.
        """
        self._loop.close()
        self._nodes_by_id.clear()
        self._nodes.clear()

    def abandon(self) -> None:
        """Close the descriptors that a forked child has inherited. The parent can still use its own."""
        self.close()

    def __repr__(self) -> str:
        connections = [node.connection for node in self._nodes_by_id.values() if node.connection is not None]
        connected = sum(connection.ready for connection in connections)
        state = f"{len(self._nodes)} brokers known, {connected} connected"
        return f"<NetworkClient: {'closed' if self._loop.closed else state}, {self.in_flight()} in flight>"

    def _new_connection(self, node: ConnectionAttempts) -> Connection:
        """Returns a Connection for an attempt, with the fields that it will send in ApiVersions."""
        config, probe = self._config, node.probe
        node_id = broker_id(node.id)
        checked = (
            config.metadata_cluster_check_enable
            and config.metadata_recovery_strategy != "none"
            and self._cluster_id is not None
            and node_id >= 0
        )
        api_versions_fields: dict[str, Any] = {
            "client_software_name": "kconsumer",
            "client_software_version": VERSION,
            "cluster_id": self._cluster_id if checked else None,
            "node_id": node_id if checked else -1,
        }
        return Connection(
            node.name,
            client_id="" if probe is not None and probe.without_tls else config.client_id,  # not sent in clear text
            request_timeout_ms=config.request_timeout_ms,
            api_versions_fields=api_versions_fields,
            max_frame_bytes=config.receive_message_max_bytes,
            new_authenticator=self._new_authenticator(node.known_as),
            rng=self._rng,
            probe=probe,
            security_protocol=config.security_protocol,
            node_id=node.id,
        )

    def _make_credentials(self) -> CredentialsProvider:
        from kconsumer.net.sasl.credentials import CredentialsProvider  # imported on demand: most consumers need none

        return CredentialsProvider(self._config, self._clock, self._loop.background)

    def _new_authenticator(self, host: str) -> NewAuthenticator | None:
        """Returns a function that creates the authenticator of a connection to this host. Returns None without SASL."""
        credentials, timeout_ms = self._credentials, self._config.request_timeout_ms
        if credentials is None:
            return None
        from kconsumer.net.sasl.authenticator import SaslAuthenticator

        return lambda channel: SaslAuthenticator(channel, credentials, host, timeout_ms)
