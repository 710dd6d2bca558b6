"""All connections of one consumer: a selector, and what may be sent where and when.

Decides when to connect, reconnect, give up on a request and close an idle connection, and which broker is
least loaded. Does not decide what to ask: managers do. One thread at a time may use a client; only
`wakeup()` may be called from any thread or a signal handler. Nothing is opened before the first use, and
nothing blocks but `poll` and the system's name resolver.
"""

from __future__ import annotations

import functools
import logging
import random
import re
import selectors
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Any, Protocol

from kconsumer.clock import Clock
from kconsumer.errors import BrokerConnectionError, KafkaError, ProtocolError, StateError
from kconsumer.net.connection import Connection, ConnectionState, InFlight
from kconsumer.net.link import FOREVER, Link, ReconnectPolicy
from kconsumer.net.messages import ClientRequest, ClientResponse, os_reason
from kconsumer.net.transport import Connect, Resolve, TcpTransport, Transport, resolve
from kconsumer.net.wakeup import Waker
from kconsumer.schema.dsl import Api
from kconsumer.types import Node

if TYPE_CHECKING:
    from kconsumer.config import ConsumerConfig

__all__ = ["ClientRequest", "ClientResponse", "NetworkClient", "NetworkMetrics"]

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
MAX_IN_FLIGHT = 100
REBOOTSTRAP_REQUIRED = 129
CONNECTING, READY = ConnectionState.CONNECTING, ConnectionState.READY

log = logging.getLogger("kconsumer.net")


class NetworkMetrics(Protocol):
    """What a client tells whoever measures it; called on the client's thread."""

    def connected(self, node: str) -> None:
        """A connection became ready."""
        ...

    def disconnected(self, node: str) -> None:
        """A connection ended, or an attempt failed."""
        ...

    def sent(self, node: str, size: int) -> None:
        """Bytes left."""
        ...

    def received(self, node: str, size: int) -> None:
        """Bytes came."""
        ...

    def answered(self, response: ClientResponse) -> None:
        """A request ended; `response.now - response.sent_at` is its latency."""
        ...


@functools.cache
def software_version() -> str:
    """Our version as ApiVersions allows it: letters, digits, dots and dashes."""
    try:
        version = metadata.version("kconsumer")
    except metadata.PackageNotFoundError:
        return "unknown"
    return re.sub(r"[^a-zA-Z0-9.\-]", "-", version).strip(".-") or "unknown"


class NetworkClient:
    """Connections to brokers by connection id: "3", "+3" (the coordinator's own one to broker 3), bootstrap
    "-1"…"""

    def __init__(
        self,
        config: ConsumerConfig,
        clock: Clock,
        *,
        selector_factory: Callable[[], selectors.BaseSelector] = selectors.DefaultSelector,
        connect: Connect = TcpTransport,
        resolve: Resolve = resolve,
        rng: random.Random | None = None,
        metrics: NetworkMetrics | None = None,
    ) -> None:
        """Opens nothing. `selector_factory`, `connect`, `resolve` and `rng` are for tests."""
        self._config = config
        self._clock = clock
        self._selector_factory = selector_factory
        self._connect_to = connect
        self._resolve = resolve
        self._rng = rng or random.Random()
        self._policy = ReconnectPolicy(config, self._rng)
        self._metrics = metrics
        self._max_idle_ms = float(config.connections_max_idle_ms)
        if self._max_idle_ms < 0:
            self._max_idle_ms = FOREVER
        self._selector: selectors.BaseSelector | None = None
        self._waker = Waker()
        self._closed = False
        self._cluster_id: str | None = None
        self._nodes: dict[int, Node] = {}
        self._links: dict[str, Link] = {}
        self._done: list[ClientResponse] = []
        self._changed = False  # a connection became ready or was lost: the caller may want to act
        self._next_timer = FOREVER  # no timer is due before this moment; may be early, never late
        self.wants_rebootstrap = False
        self.rebootstrap()

    # --- which brokers there are ---

    def set_nodes(self, nodes: Iterable[Node], cluster_id: str | None = None) -> None:
        """Replace the known brokers. Connections to brokers that are gone end when their requests are
        answered.

        `cluster_id`, when known, lets brokers refuse a client that took them for another cluster's
        (KIP-1242).
        """
        self._nodes = {node.id: node for node in nodes}
        self._cluster_id = cluster_id
        for link in list(self._links.values()):
            node = self._nodes.get(int(link.node))
            if node is not None:
                link.move(node)
            elif link.connection is None or not link.connection.in_flight:
                self._close_quietly(link)
                del self._links[link.node]

    def rebootstrap(self, *, close_connections: bool = False) -> None:
        """Back to `bootstrap_servers` (KIP-899); `close_connections` fails what is in flight (KIP-1102)."""
        self.wants_rebootstrap = False
        if close_connections:
            now = self._clock.now()
            for link in list(self._links.values()):
                self.disconnect(link.node, now)
        servers = self._config.bootstrap_servers
        self.set_nodes(Node(-index, host, port) for index, (host, port) in enumerate(servers, start=1))

    def least_loaded_node(self, now: float) -> str | None:
        """The broker to ask what any broker knows: idle, else least busy, else connecting, else tried
        longest ago.

        None when all are in backoff (or throttled, or have `MAX_IN_FLIGHT` requests).
        """
        nodes = [str(node_id) for node_id in self._nodes]
        if not nodes:
            return None
        start = self._rng.randrange(len(nodes))
        busy: tuple[int, str] | None = None
        connecting: str | None = None
        idle: tuple[float, str] | None = None
        for node in nodes[start:] + nodes[:start]:
            link = self._links.get(node)
            connection = link.connection if link is not None else None
            if link is None or connection is None:
                attempted = link.last_attempt if link is not None else -FOREVER
                if (link is None or link.backoff_until <= now) and (idle is None or attempted < idle[0]):
                    idle = attempted, node
            elif connection.state is not READY:
                connecting = node
            elif self._may_send(link, now):
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
        link = self._links.get(node)
        if link is not None and link.connection is not None:
            return self._may_send(link, now)
        if link is None:
            broker = self._nodes.get(int(node))
            if broker is None:
                return False
            link = self._links[node] = Link(node, broker.host, broker.port)
        if link.backoff_until <= now and int(node) in self._nodes:
            self._connect(link, now)
        return False

    def delay_ms(self, node: str, now: float) -> float:
        """How long until asking `ready` again makes sense: 0 for now, infinity when `poll` will tell."""
        link = self._links.get(node)
        if link is None:
            return 0.0
        if link.connection is None:
            return max(0.0, link.backoff_until - now)
        if link.connection.state is not READY:
            return FOREVER
        if link.throttled_until > now:
            return link.throttled_until - now
        return FOREVER if link.connection.in_flight >= MAX_IN_FLIGHT else 0.0

    def failed(self, node: str, now: float) -> KafkaError | None:
        """Why the broker cannot be reached, while its connection is in backoff or when nobody knows the
        broker."""
        link = self._links.get(node)
        if link is not None and link.connection is not None:
            return None
        if int(node) not in self._nodes:
            return BrokerConnectionError(f"broker {node.lstrip('+')} is no longer part of the cluster")
        return link.error if link is not None and now < link.backoff_until else None

    def trouble(self, now: float) -> str:
        """Why brokers cannot be reached, in one line; empty if none has failed lately."""
        reasons = {str(error): None for node in self._links if (error := self.failed(node, now)) is not None}
        return "; ".join(reasons)

    def send(self, request: ClientRequest, now: float) -> None:
        """Write a request, as far as the socket takes it. The answer comes out of `poll`.

        Raises UnsupportedVersionError if the broker shares no version of it, StateError if the node is not
        `ready`.
        """
        link = self._links.get(request.node)
        connection = link.connection if link is not None else None
        if link is None or connection is None or not self._may_send(link, now):
            raise StateError(f"{request.api.name} cannot be sent: connection {request.node} is not ready")
        connection.send(request, now)
        link.last_used = now
        if connection.next_deadline < self._next_timer:
            self._next_timer = connection.next_deadline
        if not link.mask & WRITE:
            self._write(link, now)

    def disconnect(self, node: str, now: float) -> None:
        """Close a connection; its requests in flight fail. It may be opened again after the reconnect
        backoff."""
        link = self._links.get(node)
        if link is None or link.connection is None:
            return
        self._lose(
            link, BrokerConnectionError(f"the connection to {link.name} was closed by this client"), now
        )
        link.error = None

    def in_flight(self, node: str | None = None) -> int:
        """Requests without an answer: of one connection, or of all."""
        links: Iterable[Link | None] = self._links.values() if node is None else (self._links.get(node),)
        return sum(
            link.connection.in_flight for link in links if link is not None and link.connection is not None
        )

    def api_versions(self, node: str) -> Mapping[int, tuple[int, int]] | None:
        """What the broker supports, by api key; None unless connected."""
        link = self._links.get(node)
        return link.connection.api_versions if link is not None and link.connection is not None else None

    def negotiated(self, node: str, api: Api, min_version: int = 0, max_version: int = 32767) -> int:
        """The version a request would be sent with. Raises as `send` does."""
        link = self._links.get(node)
        if link is None or link.connection is None or link.connection.state is not READY:
            raise StateError(f"the versions of connection {node} are not known yet")
        return link.connection.negotiated(api, min_version, max_version)

    # --- the loop ---

    def poll(self, timeout_ms: float, now: float) -> list[ClientResponse]:
        """Do I/O until a request ends, a connection becomes ready or is lost, `wakeup` is called, or the
        timeout."""
        selector = self._selector or self._open()
        deadline = now + timeout_ms
        while True:
            wait_ms = min(deadline, self._next_timer) - now
            if wait_ms < 0 or self._done or self._changed or self._waker.rung:
                wait_ms = 0
            for key, mask in selector.select(wait_ms / 1000 if wait_ms != FOREVER else None):
                link = key.data
                if link is None:
                    self._waker.drain()
                    continue
                now = self._clock.now()
                if mask & WRITE and link.connection is not None:
                    self._writable(link, now)
                if mask & READ and link.connection is not None:
                    self._readable(link, now)
            now = self._clock.now()
            if now >= self._next_timer:
                self._run_timers(now)
            if self._done or self._changed or self._waker.rung or now >= deadline:
                break
        self._changed = False
        self._waker.rest()
        done, self._done = self._done, []
        if self._metrics is not None:
            for response in done:
                self._metrics.answered(response)
        return done

    def wakeup(self) -> None:
        """Make a `poll` that blocks, or else the next one, return at once. For any thread or signal
        handler."""
        self._waker.ring()

    def close(self) -> None:
        """Close every connection; requests in flight get no answer. Never blocks; may be called twice.

        Sends nothing, so a forked child may call it without disturbing its parent: see `abandon`.
        """
        self._closed = True
        # The selector goes first and nothing is unregistered: after a fork the epoll set is the parent's,
        # too.
        if self._selector is not None:
            self._selector.close()
            self._selector = None
        for link in self._links.values():
            if link.transport is not None:
                link.transport.close()
            link.detached()
        self._links.clear()
        self._nodes.clear()
        self._done.clear()
        self._waker.close()

    def abandon(self) -> None:
        """In a forked child: give up the descriptors inherited from the parent, which goes on using them."""
        self.close()

    def __repr__(self) -> str:
        connected = sum(
            link.connection is not None and link.connection.ready for link in self._links.values()
        )
        state = "closed" if self._closed else f"{len(self._nodes)} brokers known, {connected} connected"
        return f"<NetworkClient: {state}, {self.in_flight()} in flight>"

    # --- connecting ---

    def _open(self) -> selectors.BaseSelector:
        if self._closed:
            raise StateError("the network client is closed")
        self._selector = self._selector_factory()
        self._selector.register(self._waker.open(), READ, None)
        return self._selector

    def _connect(self, link: Link, now: float) -> None:
        """Try the next address of the broker's name, resolving it first when all were tried."""
        selector = self._selector or self._open()
        if not link.untried:
            try:
                link.resolved(self._resolve(link.host, link.port))
            except OSError as error:
                link.reasons = [os_reason(error)]
        while link.untried:
            address = link.untried.pop(0)
            try:
                transport = self._connect_to(
                    address, self._config.send_buffer_bytes, self._config.receive_buffer_bytes
                )
            except OSError as error:
                link.reasons.append(f"{os_reason(error)} ({address})")
                continue
            link.setup_timeout_ms = self._policy.setup_timeout_ms(link.setup_failures)
            link.attempting(address, transport, self._new_connection(link), now)
            link.mask = WRITE if transport.wants_write() else READ
            selector.register(transport.fileno(), link.mask, link)
            self._next_timer = min(self._next_timer, link.setup_deadline)
            return
        self._gave_up(link, now)

    def _new_connection(self, link: Link) -> Connection:
        config = self._config
        node_id = int(link.node)
        checked = (
            config.metadata_cluster_check_enable
            and config.metadata_recovery_strategy != "none"
            and self._cluster_id is not None
            and node_id >= 0
        )
        fields: dict[str, Any] = {
            "client_software_name": "kconsumer",
            "client_software_version": software_version(),
            "cluster_id": self._cluster_id if checked else None,
            "node_id": node_id if checked else -1,
        }
        return Connection(
            link.name,
            client_id=config.client_id,
            request_timeout_ms=config.request_timeout_ms,
            api_versions_fields=fields,
        )

    def _attempt_failed(self, link: Link, reason: str, now: float) -> None:
        """One address did not work: try the next at once, or back off after the last."""
        link.reasons.append(f"{reason} ({link.address})")
        self._detach(link)
        if link.untried:
            self._connect(link, now)
        else:
            link.setup_failures += 1
            self._gave_up(link, now)

    def _gave_up(self, link: Link, now: float) -> None:
        error = BrokerConnectionError(f"{link.name} cannot be reached: {'; '.join(link.reasons)}")
        link.back_off(self._policy, error, now)
        self._changed = True
        log.warning("%s; next attempt in %.0f ms", error, link.backoff_until - now)

    # --- connected ---

    def _may_send(self, link: Link, now: float) -> bool:
        connection = link.connection
        return (
            connection is not None
            and connection.state is READY
            and link.throttled_until <= now
            and connection.in_flight < MAX_IN_FLIGHT
        )

    def _watch(self, link: Link, transport: Transport, mask: int) -> None:
        """Tell the selector what to wait for, if that changed."""
        if mask != link.mask:
            assert self._selector is not None
            self._selector.modify(transport.fileno(), mask, link)
            link.mask = mask

    def _writable(self, link: Link, now: float) -> None:
        connection, transport = link.connection, link.transport
        assert connection is not None
        assert transport is not None
        if connection.state is CONNECTING:
            self._go_on_connecting(link, connection, transport, now)
        else:
            self._write(link, now)

    def _go_on_connecting(self, link: Link, connection: Connection, transport: Transport, now: float) -> None:
        try:
            finished = transport.finish_connect()
        except OSError as error:
            self._attempt_failed(link, os_reason(error), now)
            return
        if not finished:
            self._watch(link, transport, WRITE if transport.wants_write() else READ)
            return
        connection.transport_ready(now)
        self._next_timer = min(self._next_timer, connection.next_deadline)
        link.setup_failures = 0
        self._write(link, now)

    def _write(self, link: Link, now: float) -> None:
        """Hand the socket what it takes, and watch for the rest."""
        connection, transport = link.connection, link.transport
        assert connection is not None
        assert transport is not None
        outgoing = connection.outgoing
        try:
            while outgoing:
                size = len(outgoing[0])
                taken = transport.send(outgoing[0])
                connection.sent(taken)
                if self._metrics is not None:
                    self._metrics.sent(link.node, taken)
                if taken < size:
                    break
        except OSError as error:
            self._lose(link, self._lost(link, connection, os_reason(error)), now)
            return
        self._watch(link, transport, READ | WRITE if outgoing else READ)

    def _readable(self, link: Link, now: float) -> None:
        connection, transport = link.connection, link.transport
        assert connection is not None
        assert transport is not None
        before = connection.state
        if before is CONNECTING:
            self._go_on_connecting(link, connection, transport, now)
            return
        link.last_used = now
        try:
            count = self._receive(link, connection, transport, now)
        except OSError as error:
            self._lose(link, self._lost(link, connection, os_reason(error)), now)
            return
        except KafkaError as error:
            self._refuse(link, connection, error, now)
            return
        if count == 0:
            self._lose(link, self._lost(link, connection, "it closed the connection"), now)
            return
        if connection.throttle_ms:
            link.throttled_until = max(link.throttled_until, now + connection.throttle_ms)
            connection.throttle_ms = 0
        if before is not READY:
            self._negotiating(link, connection, now)

    def _receive(self, link: Link, connection: Connection, transport: Transport, now: float) -> int:
        """Read until the socket is empty or nothing more is expected; 0 when the broker closed."""
        while True:
            view = connection.recv_view()
            count = transport.recv_into(view)
            if count <= 0:
                return count
            if self._metrics is not None:
                self._metrics.received(link.node, count)
            connection.received(count, now, self._done)
            # A view that was filled may have left bytes behind; asking again costs less than another
            # select, but not when every request is answered.
            if count < len(view) or not connection.expecting:
                return count

    def _negotiating(self, link: Link, connection: Connection, now: float) -> None:
        """After bytes during the first exchange: ready now, or a lower version is asked for."""
        if connection.state is READY:
            link.established()
            self._changed = True
            log.debug("%s is ready (%s)", link.name, link.address)
            if self._metrics is not None:
                self._metrics.connected(link.node)
        else:
            self._next_timer = min(self._next_timer, connection.next_deadline)
            self._write(link, now)

    # --- endings ---

    def _lost(self, link: Link, connection: Connection, reason: str) -> BrokerConnectionError:
        text = f"the connection to {link.name} ({link.address}) was lost: {reason}"
        if connection.state is not READY:
            text += (
                " before the first request was answered; a TLS or SASL listener does so to a PLAINTEXT "
                "client (check security_protocol and the port)"
            )
        return BrokerConnectionError(text)

    def _refuse(self, link: Link, connection: Connection, error: KafkaError, now: float) -> None:
        """The broker's bytes end the connection."""
        culprit = connection.oldest() if isinstance(error, ProtocolError) else None
        if getattr(error, "code", None) == REBOOTSTRAP_REQUIRED:
            self.wants_rebootstrap = self._config.metadata_recovery_strategy == "rebootstrap"
        self._lose(link, error, now, culprit)

    def _lose(self, link: Link, error: KafkaError, now: float, culprit: InFlight | None = None) -> None:
        """End a connection with an error, fail its requests and back off."""
        connection = link.connection
        assert connection is not None
        self._done += connection.close(error, now, culprit)
        self._detach(link)
        link.untried.clear()  # the name may mean other addresses by now
        link.back_off(self._policy, error, now)
        self._changed = True
        log.info("%s", error)

    def _close_quietly(self, link: Link) -> None:
        """Close a connection that nobody waits for: no error, no backoff."""
        if link.connection is not None:
            self._detach(link)
            link.untried.clear()

    def _detach(self, link: Link) -> None:
        transport = link.transport
        assert transport is not None
        if self._selector is not None:
            self._selector.unregister(transport.fileno())
        transport.close()
        link.detached()
        if self._metrics is not None:
            self._metrics.disconnected(link.node)

    def _run_timers(self, now: float) -> None:
        """Expire attempts, requests and idle connections."""
        for link in list(self._links.values()):
            if link.connection is not None and link.next_timer(self._max_idle_ms) <= now:
                self._expire(link, link.connection, now)
        self._next_timer = min(
            (link.next_timer(self._max_idle_ms) for link in self._links.values()), default=FOREVER
        )

    def _expire(self, link: Link, connection: Connection, now: float) -> None:
        if connection.state is CONNECTING:
            self._attempt_failed(link, f"no connection within {link.setup_timeout_ms:.0f} ms", now)
            return
        entry = connection.expired(now)
        if entry is None:
            log.debug("closing the connection to %s, idle since %.0f ms", link.name, now - link.last_used)
            self._close_quietly(link)
        elif entry.request is None:
            self._lose(link, self._lost(link, connection, str(connection.timeout_error(entry))), now)
        else:
            self._lose(link, connection.timeout_error(entry), now, entry)
