"""The event loop: does the I/O of all connections. It connects, reads, writes, and handles timeouts.

Decides what happens to a connection when bytes arrive, when none arrive in time, and when it ends. The NetworkClient
decides which brokers there are and when to connect to one. Descriptors are opened at the first use.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable
from typing import TYPE_CHECKING

from kconsumer.clock import Clock
from kconsumer.deferred_calls import get_logger
from kconsumer.error_codes import Errors
from kconsumer.errors import AuthenticationError, KafkaError, ProtocolError, StateError
from kconsumer.net.attempts import ConnectionAttempts
from kconsumer.net.background import BackgroundExecutor, Start
from kconsumer.net.background_receive import BackgroundReceiver
from kconsumer.net.connection import Connection, InFlight
from kconsumer.net.describe import os_reason
from kconsumer.net.disconnects import DisconnectClassifier, connection_lost_error
from kconsumer.net.interest import READ, WRITE, SelectorInterest
from kconsumer.net.node import FOREVER, READY, SLOW_MS, NodeConnection, ReceivedBytes, ReconnectPolicy
from kconsumer.net.requests import ClientRequest, ClientResponse
from kconsumer.net.states import ConnectionState
from kconsumer.net.timeouts import ConnectionTimeouts
from kconsumer.net.transport import Connect, Connector, Resolve
from kconsumer.net.wakeup import Waker

if TYPE_CHECKING:
    from kconsumer.config.options import ConsumerConfig
    from kconsumer.net.metrics import ConnectionMetrics

CONNECTING, REAUTHENTICATING = ConnectionState.CONNECTING, ConnectionState.REAUTHENTICATING

log = get_logger("kconsumer.net")


class ConnectionLoop:
    """Does the I/O of the connections in `nodes`. Only one thread at a time may use it, except for `waker.wake`."""

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
        waker: Waker,
        metrics: ConnectionMetrics | None,
    ) -> None:
        self.nodes: dict[str, NodeConnection] = {}
        self.waker = waker
        self.closed = False
        self._max_wait_ms = FOREVER  # see `limit_waits`
        self.rebootstrap_required = False  # a broker has returned REBOOTSTRAP_REQUIRED (KIP-1242)
        self._config = config
        self._clock = clock
        self._policy = policy
        self._metrics = metrics
        self._interest = SelectorInterest(selector_factory, self.waker)
        self.background = BackgroundExecutor(self.waker.wake_nowait, start_thread)
        self._background_receiver = BackgroundReceiver(self._interest)
        self.receiver = self._background_receiver.receiver
        self._deferred_writes: dict[NodeConnection, None] = {}  # nodes whose queued requests `flush` must write
        self._done: list[ClientResponse] = []  # what `poll` returns next
        self._disconnects = DisconnectClassifier(self.nodes)
        self._attempts = ConnectionAttempts(
            config,
            policy,
            self,
            self._interest,
            self.background,
            self._disconnects,
            new_connection=new_connection,
            connector=connector,
            connect_plain=connect_plain,
            resolve=resolve,
            wake=self.waker.wake_nowait,
            start_thread=start_thread,
        )
        self._resolver = self._attempts.resolver
        self.bootstrap = self._attempts.bootstrap
        idle_ms = config.connections_max_idle_ms
        max_idle_ms = float(idle_ms) if idle_ms >= 0 else FOREVER
        self._timeouts = ConnectionTimeouts(self, self._attempts, self._background_receiver, max_idle_ms)
        self._changed = False  # a connection became ready or was lost, so `poll` must return
        self._entered_at = 0.0  # when `poll` was called last
        self._next_timer = FOREVER  # when the next timeout passes, or earlier; never later

    @property
    def receiving(self) -> bool:
        """Returns whether a response has arrived in part, on a connection that the background receiver is not reading.

        The rest of the response is read by the next calls of `poll`.
        """
        jobs = self._background_receiver.jobs
        connections = (node.connection for node in self.nodes.values() if node not in jobs)
        return any(connection is not None and connection.receiving for connection in connections)

    def poll(self, timeout_ms: float, now: float) -> list[ClientResponse]:
        """Do I/O until a request ends, a connection is ready or lost, the waker is set, or the timeout passes.

        Returns a ClientResponse for each request that has ended.
        """
        if self._interest.selector is None:
            self._open()
        self._entered_at = now
        if self._deferred_writes:
            self.flush(now)
        deadline = now + timeout_ms
        selects, waited_ms, busy_ms = 0, 0.0, 0.0
        while True:
            wait_ms = (deadline if deadline < self._next_timer else self._next_timer) - now
            if (
                wait_ms < 0
                or self._done
                or self._changed
                or self.waker.is_set
                or self._resolver.completed_tasks
                or self.background.completed_tasks
            ):
                wait_ms = 0
            elif wait_ms > self._max_wait_ms:
                wait_ms = self._max_wait_ms
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
            selects += bool(found) or wait_ms < self._max_wait_ms  # the parts of one wait count as one
            waited_ms += woken - now
            now = self._clock.now() if found else woken
            busy_ms += now - woken
            if self._resolver.completed_tasks:
                self._attempts.continue_resolved(self.nodes.values(), now)
            if self.background.completed_tasks:
                self._continue_after_background(now)
            if now >= self._next_timer:
                self._next_timer = self._timeouts.run(self.nodes.values(), self._entered_at, now)
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
        """Returns True if `poll` would have nothing to do now. Changes no state, so a signal handler may run in the
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

    def limit_waits(self, max_wait_ms: float) -> None:
        """Divide waits for the network that are longer (ms): between two parts, the interpreter runs what interrupts no
        system call."""
        self._max_wait_ms = max_wait_ms

    def rebootstrapped(self) -> None:
        """Clear `rebootstrap_required`: the client has returned to the bootstrap servers."""
        self.rebootstrap_required = False

    def close(self) -> None:
        """Close every descriptor. Sends nothing and never blocks."""
        self.closed = True
        self._interest.close()  # first, so that no socket is unregistered: a forked child shares the epoll set
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
        """Start to connect to the next address of the broker. If all have been tried, resolve the name again first."""
        self._open()
        self._attempts.connect(node, now)

    def run_timers_by(self, due: float) -> None:
        """Handle timeouts at `due` (ms), or earlier."""
        self._next_timer = min(self._next_timer, due)

    def connection_changed(self) -> None:
        """Let `poll` return, because a connection is ready or lost."""
        self._changed = True

    # --- authentication ---

    def reauthenticate(self, node: NodeConnection, now: float) -> None:
        """Start to authenticate again over an open connection (KIP-368). Closes the connection if that fails."""
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
        self.run_timers_by(connection.next_deadline)

    def _continue_after_background(self, now: float) -> None:
        """Continue the attempts and authentications whose background tasks have completed."""
        self.background.acknowledge()
        for node in self.nodes.values():
            self._attempts.continue_refreshed(node, now)
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
        """Queue a request. If `deferred` is True, `flush` will write it. Otherwise writes it at once."""
        node.send(request, now)
        if deferred:
            self._deferred_writes[node] = None
        else:
            self.write(node, now)

    def flush(self, now: float) -> None:
        """Write the requests that `send` has deferred."""
        while self._deferred_writes:
            node, _ = self._deferred_writes.popitem()
            self.write(node, now)

    def write(self, node: NodeConnection, now: float) -> None:
        """Write a node's queued requests until the socket takes no more bytes. If some are left, the selector reports
        when the socket is writable. Must be called whenever a request has been queued."""
        connection = node.connection
        if connection is None:
            return
        self._next_timer = min(self._next_timer, connection.next_deadline, now + SLOW_MS)
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
        """Handle the events that the selector has reported for a node. Writes first and then reads, unless the write
        has ended the connection."""
        connection, transport = node.connection, node.transport
        if connection is None or transport is None:
            return
        if connection.state is CONNECTING:
            self._attempts.continue_connecting(node, now)
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
        """Process the bytes in the socket, or `received` if the background receiver has read them.

        Ends the connection after an error or a disconnect.
        """
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
        """Continue a handshake after a read. `before` is the state of the connection before the read, and not READY.

        If the connection is READY now, records this. Otherwise writes the next request of the handshake.
        """
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
        node.established(now)
        log.debug("%s is ready (%s)", node.name, node.address)
        if self._metrics is not None:
            self._metrics.connected(node.id, now)
            if self._config.security_protocol != "PLAINTEXT":
                self._metrics.authenticated(now)

    # --- receiving in the background ---

    def _collect_background(self, now: float) -> None:
        """Process what the background receiver has received, and start to receive the next responses."""
        try:
            while (taken := self._background_receiver.take()) is not None:
                node, received = taken
                connection = node.connection
                if connection is None:
                    continue
                self._read(node, connection, now, received)
                # TLS may have more than the job has received: the bytes behind the frame, which a selector does not
                # report, or the end of the connection. If the next job started first, it would end at once, again and
                # again.
                if node.connection is connection and node.transport is not None and node.transport.pending:
                    self._read(node, connection, now)
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

    def disconnect(
        self,
        node: NodeConnection,
        error: KafkaError,
        now: float,
        culprit: InFlight | None = None,
        *,
        by_client: bool = False,
    ) -> None:
        """Close a connection because of an error, fail its requests and start the backoff.

        The request that caused the error (`culprit`) fails with `error`, the others with a BrokerConnectionError. Set
        `by_client` if the cause is not at the address of the broker, so that no warning is necessary.

        A probe may end without showing that the configuration is wrong: `error` is not its `verdict`. Then only this
        attempt has failed. No error is stored, and the next address is tried.
        """
        connection = node.connection
        if connection is None:
            return
        if connection.probe is not None:
            if error is not connection.verdict:
                connection.close(error, now)
                self._attempts.attempt_failed(node, connection.probe.no_response, now)
                return
            node.probe_next(connection.probe)  # the listener would close an ordinary connection again
        if self._metrics is not None and isinstance(error, AuthenticationError):
            self._metrics.authentication_failed(now, reauthentication=connection.established)
        self._done += connection.close(error, now, culprit)
        self.detach(node, now)
        node.back_off(self._policy, error, now)
        self._changed = True
        if by_client:
            log.info("%s", error)
        else:
            pause_ms = node.backoff_until - now
            node.record.lost(error, now, pause_ms, has_served=connection.has_served_request)

    def close_quietly(self, node: NodeConnection, now: float) -> None:
        """Close a connection that has no requests in flight, and end its attempts. Sets no error and no backoff."""
        if node.connection is not None:
            self.detach(node, now)
        node.cancel_attempts(now)

    def _io_failed(self, node: NodeConnection, connection: Connection, error: OSError | KafkaError, now: float) -> None:
        """Close a connection after its socket has failed (OSError), or after the broker has sent invalid bytes or an
        error (KafkaError)."""
        if isinstance(error, OSError):
            self.disconnect(node, connection_lost_error(node, connection, os_reason(error)), now)
            return
        if getattr(error, "code", None) == Errors.REBOOTSTRAP_REQUIRED:
            self.rebootstrap_required = True
        self.disconnect(node, error, now, connection.oldest() if isinstance(error, ProtocolError) else None)

    def _interrupted(self, node: NodeConnection, connection: Connection, error: BaseException, now: float) -> None:
        """Close a connection whose I/O was interrupted by an exception, such as one of a signal handler. Bytes may have
        been received that were not recorded, so the connection cannot be used any more."""
        reason = f"interrupted by {type(error).__name__}"
        self.disconnect(node, connection_lost_error(node, connection, reason), now, by_client=True)

    def detach(self, node: NodeConnection, now: float) -> None:
        """Close a node's socket, after the selector and the background receiver have stopped using it."""
        self._deferred_writes.pop(node, None)
        if node.connection is not None:
            self._disconnects.on_detach(node.connection)
            if node.connection.has_served_request:
                node.record.served(now - node.last_attempt, now)
        self._background_receiver.cancel(node)
        self._interest.ignore(node)
        node.close()
        if self._metrics is not None:
            self._metrics.disconnected(node.id, now)
