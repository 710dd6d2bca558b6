"""All connections of one consumer, by connection id, and what may be sent where and when.

Decides which brokers there are, when to connect to one, whether it may be sent to, and which is least
loaded. Does not decide what to ask: managers do. One thread at a time may use a client; only `wakeup()` may
be called from any thread or a signal handler. Nothing is opened before the first use, and nothing blocks
but `poll`.
"""

from __future__ import annotations

import random
import selectors
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kconsumer._version import VERSION
from kconsumer.clock import Clock
from kconsumer.errors import AuthenticationError, BrokerConnectionError, KafkaError, StateError
from kconsumer.net.background import Start, in_thread
from kconsumer.net.connection import Connection
from kconsumer.net.event_loop import ConnectionLoop
from kconsumer.net.messages import ClientRequest, ClientResponse, ConnectionReport, NetworkMetrics, broker_id
from kconsumer.net.node import FOREVER, NodeConnection, ReconnectPolicy
from kconsumer.net.states import ConnectionState
from kconsumer.net.transport import Connect, Connector, Resolve, connect_tcp, make_connector, resolve
from kconsumer.schema.dsl import Api
from kconsumer.types import Node

if TYPE_CHECKING:
    from kconsumer.config.options import ConsumerConfig
    from kconsumer.net.sasl.authenticator import NewAuthenticator
    from kconsumer.net.sasl.credentials import CredentialsProvider

__all__ = ["ClientRequest", "ClientResponse", "NetworkClient", "NetworkMetrics"]

MAX_IN_FLIGHT = 100
READY = ConnectionState.READY


class NetworkClient:
    """Connections to brokers: "3", "+3" (the coordinator's own one to broker 3), "*3" (for fetches that do not wait),
    bootstrap "-1", "-2"…"""

    def __init__(
        self,
        config: ConsumerConfig,
        clock: Clock,
        *,
        selector_factory: Callable[[], selectors.BaseSelector] = selectors.DefaultSelector,
        connector: Connector | None = None,
        connect_plain: Connect = connect_tcp,
        resolve: Resolve = resolve,
        beside: Start = in_thread,
        rng: random.Random | None = None,
        metrics: NetworkMetrics | None = None,
    ) -> None:
        """Opens no connection; ConfigError for certificates and keys that cannot be used. `selector_factory`,
        `connector`, `connect_plain`, `resolve`, `beside` (where it runs) and `rng` are for tests."""
        self._config = config
        self._clock = clock
        self._rng = rng or random.Random()
        policy = ReconnectPolicy(config, self._rng)
        self._loop = ConnectionLoop(
            config,
            clock,
            policy,
            self._new_connection,
            selector_factory,
            connector or make_connector(config),
            connect_plain,
            resolve,
            beside,
            metrics,
        )
        self.receiver = self._loop.receiver
        self._nodes_by_id = self._loop.nodes
        self._credentials = self._make_credentials() if config.security_protocol.startswith("SASL") else None
        self._cluster_id: str | None = None
        self._nodes: dict[int, Node] = {}
        self.deferred_writes = False  # `send` leaves the system call to `flush` and `poll`
        self.rebootstrap()

    # --- which brokers there are ---

    def set_nodes(self, nodes: Iterable[Node], cluster_id: str | None = None) -> None:
        """Replace the known brokers; connections to those that are gone end when their requests are answered.

        `cluster_id`, when known, lets brokers refuse a client that takes them for another cluster's
        (KIP-1242).
        """
        self._nodes = {node.id: node for node in nodes}
        self._cluster_id = cluster_id
        for link in list(self._nodes_by_id.values()):
            node = self._nodes.get(broker_id(link.node))
            if node is not None:
                link.move(node)
            elif link.connection is None or not link.connection.in_flight:
                self._loop.close_quietly(link, self._clock.now())
                del self._nodes_by_id[link.node]

    def rebootstrap(self, *, close_connections: bool = False) -> None:
        """Back to `bootstrap_servers` (KIP-899); `close_connections` fails what is in flight (KIP-1102)."""
        self._loop.rebootstrap_required = False
        if close_connections:
            now = self._clock.now()
            for node in list(self._nodes_by_id):
                self.disconnect(node, now)
        servers = self._config.bootstrap_servers
        self.set_nodes(Node(-index, host, port) for index, (host, port) in enumerate(servers, start=1))

    @property
    def wants_rebootstrap(self) -> bool:
        """A broker says that it belongs to another cluster than we think; true until `rebootstrap`."""
        return self._loop.rebootstrap_required and self._config.metadata_recovery_strategy == "rebootstrap"

    def least_loaded_node(self, now: float) -> str | None:
        """The broker to ask what any broker knows: idle, else least busy, else connecting, else tried longest
        ago. None when all are in backoff, throttled or have `MAX_IN_FLIGHT` requests."""
        nodes = [str(node_id) for node_id in self._nodes]
        if not nodes:
            return None
        start = self._rng.randrange(len(nodes))
        busy: tuple[int, str] | None = None
        connecting: str | None = None
        idle: tuple[float, str] | None = None
        for node in nodes[start:] + nodes[:start]:
            link = self._nodes_by_id.get(node)
            connection = link.connection if link is not None else None
            if link is not None and link.preparing:
                connecting = node
            elif link is None or connection is None:
                attempted = link.last_attempt if link is not None else -FOREVER
                if (link is None or link.backoff_until <= now) and (idle is None or attempted < idle[0]):
                    idle = attempted, node
            elif connection.state is not READY:
                connecting = node
            elif _may_send(link, now):
                load = connection.in_flight
                if load == 0:
                    return node
                if busy is None or load < busy[0]:
                    busy = load, node
        if busy is not None:
            return busy[1]
        return connecting or (idle[1] if idle is not None else None)

    # --- one connection ---

    def ready(self, node: str, now: float) -> bool:
        """Whether a request may be sent; if not, start connecting unless that is under way or in backoff."""
        link = self._nodes_by_id.get(node)
        if link is not None and link.connection is not None:
            if link.connection.reauth_due(now) and link.transport is not None:
                self._loop.reauthenticate(link, link.connection, link.transport, now)
            return _may_send(link, now)
        broker = self._nodes.get(broker_id(node))
        if broker is None:
            return False
        if link is None:
            link = self._nodes_by_id[node] = NodeConnection(node, broker.host, broker.port)
        if link.backoff_until <= now and not link.preparing:
            self._loop.connect(link, now)
        return False

    def delay_ms(self, node: str, now: float) -> float:
        """How long until asking `ready` again makes sense: 0 for now, infinity when `poll` will tell."""
        link = self._nodes_by_id.get(node)
        if link is None:
            return 0.0
        if link.connection is None:
            return FOREVER if link.preparing else max(0.0, link.backoff_until - now)
        if link.connection.state is not READY:
            return FOREVER
        if link.throttled_until > now:
            return link.throttled_until - now
        return FOREVER if link.connection.in_flight >= MAX_IN_FLIGHT or link.connection.blocked_for_reauth(now) else 0.0

    def connection_failed(self, node: str, now: float) -> KafkaError | None:
        """Why the broker cannot be reached: while its connection is in backoff, or when nobody knows it."""
        link = self._nodes_by_id.get(node)
        if link is not None and link.connection is not None:
            return None
        if broker_id(node) not in self._nodes:
            return BrokerConnectionError(f"broker {broker_id(node)} is no longer part of the cluster")
        return link.error if link is not None and now < link.backoff_until else None

    def authentication_error(self) -> AuthenticationError | None:
        """A broker's refusal of a handshake or a login that is the last we know of it."""
        errors = (link.error for link in self._nodes_by_id.values() if link.connection is None)
        return next((error for error in errors if isinstance(error, AuthenticationError)), None)

    def connection_errors(self, now: float) -> str:
        """Why brokers cannot be reached, in one line; empty if all that were tried can be."""
        reasons = {self._error_of(link, now): None for link in self._nodes_by_id.values()}
        return "; ".join(reason for reason in reasons if reason)

    def last_error(self, node: str, now: float) -> str:
        """Why nothing can be sent to this broker, in one line; empty if it can, or was not tried."""
        link = self._nodes_by_id.get(node)
        return "" if link is None else self._error_of(link, now)

    def report(self, now: float) -> list[ConnectionReport]:
        """All connections there were, also those that are lost."""
        return [self._report_of(link, now) for link in self._nodes_by_id.values()]

    def _report_of(self, link: NodeConnection, now: float) -> ConnectionReport:
        connection = link.connection
        oldest = None if connection is None else connection.oldest()
        return ConnectionReport(
            link.name,
            link.state,
            0 if connection is None else connection.in_flight,
            "" if oldest is None else oldest.api.name,
            0.0 if oldest is None else now - oldest.sent_at,
            self._error_of(link, now),
        )

    def _error_of(self, link: NodeConnection, now: float) -> str:
        """The last error counts until the connection works again, also while the next attempt is under way."""
        connection = link.connection
        if connection is not None and connection.state is READY:
            return ""
        error = link.error or self.connection_failed(link.node, now)
        waited_ms = now - link.last_attempt
        if error is None and link.dns_lookup is not None:
            return f"{link.name} has not been resolved to an address for {waited_ms:.0f} ms"
        if error is None and link.refresh is not None:
            return f"{link.name} waits for changed certificates to be read, for {waited_ms:.0f} ms"
        if error is not None or connection is None:
            return str(error or "")
        return f"{link.name} ({link.address}) has not answered for {waited_ms:.0f} ms"

    def send(self, request: ClientRequest, now: float) -> None:
        """Write a request, as far as the socket takes it. The answer comes out of `poll`.

        Raises UnsupportedVersionError if the broker shares no version of it, StateError if the node is not
        `ready`.
        """
        link = self._nodes_by_id.get(request.node)
        if link is None or not _may_send(link, now):
            raise StateError(f"{request.api.name} cannot be sent: connection {request.node} is not ready")
        connection, transport = link.connection, link.transport
        assert connection is not None
        assert transport is not None
        connection.send(request, now)
        link.last_used = now
        if self.deferred_writes:
            self._loop.deferred_writes[link] = None
        else:
            self._loop.write(link, connection, transport, now)

    def flush(self, now: float) -> None:
        """Write what was sent while `deferred_writes`; `poll` begins with it, too."""
        self._loop.flush(now)

    def disconnect(self, node: str, now: float) -> None:
        """Close a connection; its requests in flight fail. It may be opened again after the backoff."""
        link = self._nodes_by_id.get(node)
        if link is None or link.connection is None:
            return
        error = BrokerConnectionError(f"the connection to {link.name} was closed by this client")
        self._loop.disconnect(link, link.connection, error, now)
        link.error = None

    def in_flight(self, node: str | None = None) -> int:
        """Requests without an answer: of one connection, or of all."""
        links = (
            self._nodes_by_id.values()
            if node is None
            else [self._nodes_by_id[node]]
            if node in self._nodes_by_id
            else []
        )
        return sum(link.connection.in_flight for link in links if link.connection is not None)

    def api_versions(self, node: str) -> Mapping[int, tuple[int, int]] | None:
        """What the broker supports, by api key; None unless connected."""
        link = self._nodes_by_id.get(node)
        return link.connection.api_versions if link is not None and link.connection is not None else None

    def negotiated(self, node: str, api: Api, min_version: int = 0, max_version: int = 32767) -> int:
        """The version a request would be sent with. Raises as `send` does."""
        link = self._nodes_by_id.get(node)
        if link is None or link.connection is None or link.connection.state is not READY:
            raise StateError(f"the versions of connection {node} are not known yet")
        return link.connection.negotiated(api, min_version, max_version)

    # --- the loop ---

    def poll(self, timeout_ms: float, now: float) -> list[ClientResponse]:
        """Do I/O until a request ends, a connection becomes ready or is lost, `wakeup` is called, or the
        timeout; the requests that ended."""
        return self._loop.poll(timeout_ms, now)

    def idle(self, now: float) -> bool:
        """Returns whether `poll` would find nothing to do now. Changes nothing."""
        return self._loop.idle(now)

    @property
    def responses_ready(self) -> int:
        """The number of large responses that have been received and that no `poll` has taken yet."""
        return self.receiver.ended

    @property
    def receiving(self) -> bool:
        """True if a response has arrived in part, and only `poll` can read the rest: a TLS connection has no other
        reader. Otherwise the broker would have to wait, and the response be late."""
        connections = (link.connection for link in self._nodes_by_id.values() if link.receive_job is None)
        return any(connection is not None and connection.receiving for connection in connections)

    def wakeup(self) -> None:
        """Make a `poll` that blocks, or else the next one, return at once. For any thread or signal handler."""
        self._loop.waker.wake()

    def close(self) -> None:
        """Close every connection; requests in flight get no answer. Never blocks; may be called twice.

        Sends nothing, so a forked child may call it without disturbing its parent: see `abandon`.
        """
        self._loop.close()
        self._nodes.clear()

    def abandon(self) -> None:
        """In a forked child: give up the descriptors inherited from the parent, which goes on using them."""
        self.close()

    def __repr__(self) -> str:
        connections = [link.connection for link in self._nodes_by_id.values() if link.connection is not None]
        connected = sum(connection.ready for connection in connections)
        state = f"{len(self._nodes)} brokers known, {connected} connected"
        return f"<NetworkClient: {'closed' if self._loop.closed else state}, {self.in_flight()} in flight>"

    def _new_connection(self, link: NodeConnection) -> Connection:
        """The protocol side of a connection, with what it tells the broker of us."""
        config, probe = self._config, link.probe
        node_id = broker_id(link.node)
        checked = (
            config.metadata_cluster_check_enable
            and config.metadata_recovery_strategy != "none"
            and self._cluster_id is not None
            and node_id >= 0
        )
        introduction: dict[str, Any] = {
            "client_software_name": "kconsumer",
            "client_software_version": VERSION,
            "cluster_id": self._cluster_id if checked else None,
            "node_id": node_id if checked else -1,
        }
        return Connection(
            link.name,
            client_id="" if probe is not None and probe.without_tls else config.client_id,  # others may listen
            request_timeout_ms=config.request_timeout_ms,
            api_versions_fields=introduction,
            max_frame_bytes=config.receive_message_max_bytes,
            new_login=self._new_authenticator(link.known_as),
            rng=self._rng,
            probe=probe,
            security_protocol=config.security_protocol,
        )

    def _make_credentials(self) -> CredentialsProvider:
        from kconsumer.net.sasl.credentials import CredentialsProvider  # for those who log in

        return CredentialsProvider(self._config, self._clock, self._loop.background)

    def _new_authenticator(self, host: str) -> NewAuthenticator | None:
        """How a connection to this host logs in, if it does."""
        accounts, timeout_ms = self._credentials, self._config.request_timeout_ms
        if accounts is None:
            return None
        from kconsumer.net.sasl.authenticator import SaslAuthenticator

        return lambda line: SaslAuthenticator(line, accounts, host, timeout_ms)


def _may_send(link: NodeConnection, now: float) -> bool:
    connection = link.connection
    return (
        connection is not None
        and connection.state is READY
        and link.throttled_until <= now
        and not connection.blocked_for_reauth(now)
        and connection.in_flight < MAX_IN_FLIGHT
    )
