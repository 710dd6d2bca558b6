"""The event loop: the selector and every open connection. Connects, reads, writes, expires.

Decides what happens to a connection when bytes arrive, when none arrive in time, and when it ends. It does not decide
which brokers there are and when one may be tried; that is the NetworkClient's task. Nothing is opened before the first
use.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable
from typing import TYPE_CHECKING

from kconsumer.clock import Clock
from kconsumer.deferred_calls import get_logger
from kconsumer.error_codes import Errors
from kconsumer.errors import AuthenticationError, BrokerConnectionError, KafkaError, ProtocolError, StateError
from kconsumer.net.background import BackgroundExecutor, Start
from kconsumer.net.background_receive import BackgroundReceiver
from kconsumer.net.connection import Connection, InFlight
from kconsumer.net.describe import os_reason, refresh_error
from kconsumer.net.disconnects import DisconnectClassifier, connection_lost_error
from kconsumer.net.interest import READ, WRITE, SelectorInterest
from kconsumer.net.node import FOREVER, READY, NodeConnection, ReceivedBytes, ReconnectPolicy
from kconsumer.net.requests import ClientRequest, ClientResponse
from kconsumer.net.resolver import Resolver
from kconsumer.net.states import ConnectionState
from kconsumer.net.transport import Connect, Connector, HandshakeClosedError, Resolve, resolve_canonical
from kconsumer.net.wakeup import Waker

if TYPE_CHECKING:
    from kconsumer.config.options import ConsumerConfig
    from kconsumer.net.metrics import ConnectionMetrics

CONNECTING, REAUTHENTICATING = ConnectionState.CONNECTING, ConnectionState.REAUTHENTICATING
CANONICAL = "resolve_canonical_bootstrap_servers_only"

log = get_logger("kconsumer.net")


class ConnectionLoop:
    """Does the I/O of the connections in `nodes`. One thread at a time may use it, except for `waker.wake`."""

    def __init__(
        self,
        config: ConsumerConfig,
        clock: Clock,
        policy: ReconnectPolicy,
        new_connection: Callable[[NodeConnection], Connection],
        selector_factory: Callable[[], selectors.BaseSelector],
        connector: Connector,
        connect_plain: Connect,
        resolve: Resolve,
        start_thread: Start,
        metrics: ConnectionMetrics | None,
    ) -> None:
        self.nodes: dict[str, NodeConnection] = {}
        self.waker = Waker()
        self.closed = False
        self.rebootstrap_required = False  # a broker says that it is not the one this client expects (KIP-1242)
        self._config = config
        self._clock = clock
        self._policy = policy
        self._new_connection = new_connection
        self._connector = connector
        self._connect_plain = connect_plain
        self._resolve = resolve
        self._resolver = Resolver(self.waker.wake_nowait, start_thread)
        self._metrics = metrics
        idle_ms = config.connections_max_idle_ms
        self._max_idle_ms = float(idle_ms) if idle_ms >= 0 else FOREVER
        self._interest = SelectorInterest(selector_factory, self.waker)
        self.background = BackgroundExecutor(self.waker.wake_nowait, start_thread)
        self._background_receiver = BackgroundReceiver(self._interest)
        self.receiver = self._background_receiver.receiver
        self._deferred_writes: dict[NodeConnection, None] = {}  # with requests that no socket was offered yet
        self._done: list[ClientResponse] = []
        self._disconnects = DisconnectClassifier(self.nodes)
        self._changed = False  # a connection became ready or was lost: the caller may want to act
        self._entered_at = 0.0  # when `poll` was called last
        self._next_timer = FOREVER  # no timer is due before this moment; it may be early, never late

    @property
    def receiving(self) -> bool:
        """Returns whether part of a response has arrived and only `poll` can read the rest."""
        jobs = self._background_receiver.jobs
        connections = (node.connection for node in self.nodes.values() if node not in jobs)
        return any(connection is not None and connection.receiving for connection in connections)

    def poll(self, timeout_ms: float, now: float) -> list[ClientResponse]:
        """Do I/O until a request ends, a connection becomes ready or is lost, the waker is set, or the timeout.

        Returns the requests that have ended.
        """
        if self._interest.selector is None:
            self._open()
        self._entered_at = now
        if self._deferred_writes:
            self.flush(now)
        deadline = now + timeout_ms
        selects, waited_ms, busy_ms = 0, 0.0, 0.0
        while True:
            wait_ms = min(deadline, self._next_timer) - now
            if (
                wait_ms < 0
                or self._done
                or self._changed
                or self.waker.is_set
                or self._resolver.completed_tasks
                or self.background.completed_tasks
            ):
                wait_ms = 0
            selector = self._interest.selector or self._open()  # it may have been replaced in the last round
            found = selector.select(wait_ms / 1000 if wait_ms != FOREVER else None)
            woken = self._clock.now()
            for key, mask in found:
                if key.data is None:
                    self.waker.drain()
                elif key.data is self._background_receiver.receiver:
                    self._collect_background(woken)
                else:
                    self._serve(key.data, mask, woken)
            selects, waited_ms = selects + 1, waited_ms + woken - now
            now = self._clock.now() if found else woken
            busy_ms += now - woken
            if self._resolver.completed_tasks:
                self._continue_resolved(now)
            if self.background.completed_tasks:
                self._continue_after_background(now)
            if now >= self._next_timer:
                self._run_timers(now)
            if self._done or self._changed or self.waker.is_set or now >= deadline:
                break
        self._changed = False
        self.waker.clear()
        done, self._done = self._done, []
        if self._metrics is not None:
            for response in done:
                self._metrics.completed(response)
            self._metrics.polled(selects, waited_ms, busy_ms, now)
        return done

    def idle(self, now: float) -> bool:
        """Returns whether `poll` would find nothing to do now. Changes nothing, so a signal handler may run in the
        middle of it, and even close the loop."""
        selector = self._interest.selector
        if selector is None or self._deferred_writes or self._done or self._changed or self.waker.is_set:
            return False
        if self._resolver.completed_tasks or self.background.completed_tasks or now >= self._next_timer:
            return False
        try:
            return not selector.select(0)
        except (OSError, ValueError, KeyError):
            if self.closed:
                return False
            raise

    def rebootstrapped(self) -> None:
        """Clear `rebootstrap_required`: the client has returned to the bootstrap servers."""
        self.rebootstrap_required = False

    def close(self) -> None:
        """Close every descriptor. Sends nothing and never blocks."""
        self.closed = True
        self._interest.close()  # first: nothing may be unregistered
        self._resolver.close()
        self.background.close()
        self._background_receiver.close()
        for node in self.nodes.values():
            node.close()
        self.nodes.clear()
        self._deferred_writes.clear()
        self._done.clear()
        self.waker.close()

    def _open(self) -> selectors.BaseSelector:
        if self.closed:
            raise StateError("the network client is closed")
        return self._interest.open()

    # --- connecting ---

    def connect(self, node: NodeConnection, now: float) -> None:
        """Try the next address of the broker's name. Resolves the name first when all have been tried."""
        self._open()
        if not node.remaining_addresses:
            lookup = self._resolver.look_up(self._resolution(node), node.host, node.port)
            node.start_round(lookup, self._policy, now)
            self._next_timer = min(self._next_timer, node.setup_deadline)
        if node.dns_lookup is None or node.dns_lookup.completed:
            self._start_attempt(node, now)

    def _resolution(self, node: NodeConnection) -> Resolve:
        """Returns how to resolve a name: bootstrap servers may be aliases, advertised names are canonical."""
        canonical = self._config.client_dns_lookup == CANONICAL and node.is_bootstrap
        return resolve_canonical if canonical else self._resolve

    def _continue_resolved(self, now: float) -> None:
        """Continue the attempts whose lookups have completed."""
        self._resolver.acknowledge()
        for node in self.nodes.values():
            if node.dns_lookup is not None and node.dns_lookup.completed:
                self._start_attempt(node, now)

    def _start_attempt(self, node: NodeConnection, now: float) -> None:
        """Start to connect, once certificates that have changed have been read."""
        node.on_resolved()
        task = self._connector.refresh(self.background) if node.remaining_addresses else None
        if task is None:
            self._try_addresses(node, now)
            return
        node.start_refresh(task, self._policy, now)
        self._next_timer = min(self._next_timer, node.setup_deadline)
        self._continue_refreshed(node, now)

    def _continue_refreshed(self, node: NodeConnection, now: float) -> None:
        """Continue an attempt that waited for certificates, if they have been read."""
        task = node.refresh
        if task is None or not task.completed:
            return
        node.on_refreshed()
        if task.error is None:
            self._try_addresses(node, now)
            return
        error = refresh_error(node.name, task.error)
        node.back_off(self._policy, error, now)
        self._changed = True
        log.info("%s", error)

    def _try_addresses(self, node: NodeConnection, now: float) -> None:
        """Start to connect to the first address that does not fail at once."""
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
            self._next_timer = min(self._next_timer, node.setup_deadline)
            return
        self._connect_failed(node, now)

    def _continue_connecting(self, node: NodeConnection, now: float) -> None:
        try:
            finished = node.finish_connect(now)
        except HandshakeClosedError as error:
            self._disconnects.on_closed_in_handshake(node)
            self._attempt_failed(node, os_reason(error), now)
            return
        except OSError as error:
            self._attempt_failed(node, os_reason(error), now)
            return
        except KafkaError as error:
            self.disconnect(node, error, now)
            return
        if finished:
            self.write(node, now)
        else:
            self._interest.update_connecting(node)

    def _attempt_failed(self, node: NodeConnection, reason: str, now: float) -> None:
        """Try the next address at once, or back off after the last."""
        node.attempt_failed(reason)
        self._detach(node, now)
        if node.remaining_addresses:
            self._start_attempt(node, now)
        else:
            self._round_failed(node, now)

    def _round_failed(self, node: NodeConnection, now: float) -> None:
        node.round_failed()
        self._connect_failed(node, now)

    def _connect_failed(self, node: NodeConnection, now: float) -> None:
        error = BrokerConnectionError(f"{node.name} cannot be reached: {'; '.join(node.attempt_errors)}")
        node.back_off(self._policy, error, now)
        self._changed = True
        suppressed = node.repeats.failed(node.attempt_errors, now)
        if suppressed is not None:
            since = f"; attempts that failed since the last warning: {suppressed}" if suppressed else ""
            log.warning("%s; next attempt in %.0f ms%s", error, node.backoff_until - now, since)

    # --- authentication ---

    def reauthenticate(self, node: NodeConnection, now: float) -> None:
        """Authenticate again over a connection in use, before its session ends and before the next request."""
        connection = node.connection
        if connection is None:
            return
        try:
            connection.reauthenticate(now)
        except KafkaError as error:
            self.disconnect(node, error, now)
            return
        if connection.outgoing:
            self.write(node, now)
        self._next_timer = min(self._next_timer, connection.next_deadline)

    def _continue_after_background(self, now: float) -> None:
        """Continue the attempts and authentications whose background tasks have completed."""
        self.background.acknowledge()
        for node in self.nodes.values():
            self._continue_refreshed(node, now)
            connection = node.connection
            if connection is None:
                continue
            try:
                resumed = connection.resume_auth(now)
            except KafkaError as error:
                self.disconnect(node, error, now)
                continue
            if resumed:
                self._changed |= connection.state is READY
                self.write(node, now)

    # --- bytes ---

    def send(self, node: NodeConnection, request: ClientRequest, now: float, *, deferred: bool) -> None:
        """Queue a request, and write it unless that is `deferred` to `flush`."""
        node.send(request, now)
        if deferred:
            self._deferred_writes[node] = None
        else:
            self.write(node, now)

    def flush(self, now: float) -> None:
        """Write what was deferred."""
        while self._deferred_writes:
            node, _ = self._deferred_writes.popitem()
            self.write(node, now)

    def write(self, node: NodeConnection, now: float) -> None:
        """Write what is queued as far as the socket takes it, and wait for room for the rest. Must be called whenever
        something has been queued."""
        connection = node.connection
        if connection is None:
            return
        if connection.next_deadline < self._next_timer:
            self._next_timer = connection.next_deadline
        try:
            node.write(now)
            self._background_receiver.start_prefetch(node)
        except (OSError, KafkaError) as error:
            self._io_failed(node, connection, error, now)
            return
        except BaseException as error:
            self._interrupted(node, connection, error, now)
            raise
        self._interest.update_connected(node, reads=node not in self._background_receiver.jobs)

    def _serve(self, node: NodeConnection, mask: int, now: float) -> None:
        """Handle the events that the selector reported. Writes first: if that ends the connection, there is nothing to
        read any more."""
        connection, transport = node.connection, node.transport
        if connection is None or transport is None:
            return
        if connection.state is CONNECTING:
            self._continue_connecting(node, now)
            return
        crossed = transport.crossed
        if mask & WRITE or crossed:
            self.write(node, now)
        # `write` may have handed the socket to the background receiver, which must be its only reader.
        if (mask & READ or crossed) and node.connection is connection and node not in self._background_receiver.jobs:
            self._read(node, connection, now)
        if (crossed or transport.crossed) and node.connection is connection:
            self._interest.update_connected(node, reads=node not in self._background_receiver.jobs)

    def _read(
        self, node: NodeConnection, connection: Connection, now: float, received: ReceivedBytes | None = None
    ) -> None:
        """Read what has arrived, or take what was `received` in the background, and act on what it means."""
        state = connection.state
        try:
            if received is None:
                count = node.read(now, self._done, self._background_receiver.receive_rest)
            else:
                count = node.on_background_data(received, now, self._done)
        except (OSError, KafkaError) as error:
            self._io_failed(node, connection, error, now)
            return
        except BaseException as error:
            self._interrupted(node, connection, error, now)
            raise
        if count == 0:
            self.disconnect(node, self._disconnects.explain(node, connection), now)
            return
        if connection.throttle_ms:
            node.throttle(now)
        if state is not READY:
            self._after_handshake_data(node, connection, state, now)

    def _after_handshake_data(
        self, node: NodeConnection, connection: Connection, before: ConnectionState, now: float
    ) -> None:
        """Continue after bytes that arrived before the connection was READY: it is ready now, or writes more."""
        if connection.state is not READY:
            self.write(node, now)
            return
        self._changed = True
        self._disconnects.on_ready()
        if before is REAUTHENTICATING:
            log.debug("%s has prolonged the session", node.name)
            if self._metrics is not None:
                self._metrics.reauthenticated(connection.auth_ms, now)
            return
        node.established()
        log.debug("%s is ready (%s)", node.name, node.address)
        if self._metrics is not None:
            self._metrics.connected(node.id, now)
            if self._config.security_protocol != "PLAINTEXT":
                self._metrics.authenticated(now)

    # --- receiving in the background ---

    def _collect_background(self, now: float) -> None:
        """Continue the connections for which the background receiver has received something."""
        try:
            while (taken := self._background_receiver.take()) is not None:
                node, received = taken
                connection = node.connection
                if connection is None:
                    continue
                self._read(node, connection, now, received)
                if node.connection is not connection:
                    continue
                try:
                    self._background_receiver.start_prefetch(node)
                except BaseException as error:
                    self._interrupted(node, connection, error, now)
                    raise
                self._interest.update_connected(node, reads=node not in self._background_receiver.jobs)
        except BaseException as error:
            for node in self._background_receiver.find_lost_jobs():
                if node.connection is not None:
                    self._interrupted(node, node.connection, error, now)
            raise

    # --- endings ---

    def disconnect(self, node: NodeConnection, error: KafkaError, now: float, culprit: InFlight | None = None) -> None:
        """End a connection with an error, fail its requests and back off. If it was a probe that proved nothing, only
        the attempt has failed."""
        connection = node.connection
        if connection is None:
            return
        if connection.probe is not None:
            if error is not connection.verdict:
                connection.close(error, now)
                self._attempt_failed(node, connection.probe.no_response, now)
                return
            node.probe_next(connection.probe)  # an ordinary attempt would only be closed again
        if self._metrics is not None and isinstance(error, AuthenticationError):
            self._metrics.authentication_failed(now, reauthentication=connection.established)
        self._done += connection.close(error, now, culprit)
        self._detach(node, now)
        node.back_off(self._policy, error, now)
        self._changed = True
        log.info("%s", error)

    def close_quietly(self, node: NodeConnection, now: float) -> None:
        """Close a connection without requests: no error, no backoff."""
        if node.connection is not None:
            self._detach(node, now)
        node.cancel_attempts()

    def _io_failed(self, node: NodeConnection, connection: Connection, error: OSError | KafkaError, now: float) -> None:
        """End a connection whose socket failed, or whose broker sent bytes that end it."""
        if isinstance(error, OSError):
            self.disconnect(node, connection_lost_error(node, connection, os_reason(error)), now)
            return
        if getattr(error, "code", None) == Errors.REBOOTSTRAP_REQUIRED:
            self.rebootstrap_required = True
        self.disconnect(node, error, now, connection.oldest() if isinstance(error, ProtocolError) else None)

    def _interrupted(self, node: NodeConnection, connection: Connection, error: BaseException, now: float) -> None:
        """End a connection in whose I/O an exception came from outside, such as a signal handler's: bytes were perhaps
        received and not noted."""
        reason = f"interrupted by {type(error).__name__}"
        self.disconnect(node, connection_lost_error(node, connection, reason), now)

    def _detach(self, node: NodeConnection, now: float) -> None:
        """Close the socket and remove the connection from everything that knows it."""
        self._deferred_writes.pop(node, None)
        if node.connection is not None:
            self._disconnects.on_detach(node.connection)
        self._background_receiver.cancel(node)
        self._interest.ignore(node)
        node.close()
        if self._metrics is not None:
            self._metrics.disconnected(node.id, now)

    # --- timeouts ---

    def _run_timers(self, now: float) -> None:
        """Expire attempts, requests and idle connections."""
        for node in self.nodes.values():
            if node.next_timer(self._max_idle_ms) > now:
                continue
            if node.connection is not None:
                self._expire(node, node.connection, now)
            else:
                node.preparation_timed_out()
                self._round_failed(node, now)
        timers = (node.next_timer(self._max_idle_ms) for node in self.nodes.values())
        self._next_timer = min(timers, default=FOREVER)

    def _expire(self, node: NodeConnection, connection: Connection, now: float) -> None:
        if connection.state is CONNECTING:
            waited = node.setup_deadline - node.last_attempt
            self._attempt_failed(node, f"no connection within {waited:.0f} ms", now)
            return
        overdue = connection.auth_overdue(now)
        if overdue is not None:
            self.disconnect(node, overdue, now)
            return
        entry = connection.expired(now)
        if entry is not None and self._is_arriving(node, now):
            if connection.postpone(node.progress_at, now):
                return
            entry = connection.expired(now)
        if entry is None:
            log.debug("closing the connection to %s, idle for %.0f ms", node.name, now - node.last_used)
            self.close_quietly(node, now)
        elif entry.request is None:
            which = "to authenticate again" if connection.established else "its first request"
            silent = BrokerConnectionError(f"{connection.timeout_error(entry)}, {which} ({node.address})")
            self.disconnect(node, silent, now)
        else:
            self.disconnect(node, connection.timeout_error(entry), now, entry)

    def _is_arriving(self, node: NodeConnection, now: float) -> bool:
        """Returns whether a response is arriving: part of it is here, or bytes came in this very step. A caller that
        was away for longer than the timeout finds in the socket what arrived meanwhile, and reads no more than a part
        of a large response in one step."""
        if self._background_receiver.progressed(node):
            node.note_progress(now)
        return node.is_arriving(self._entered_at)
