"""The selector and every open connection: connects, reads, writes, expires.

Decides what happens to a connection when bytes come, when they do not, and when it ends. Which brokers
there are, and when one may be tried, is the NetworkClient's. Nothing is opened before the first use.
"""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable
from typing import TYPE_CHECKING

from kconsumer.clock import Clock
from kconsumer.deferred_calls import get_logger
from kconsumer.error_codes import Errors
from kconsumer.errors import AuthenticationError, BrokerConnectionError, KafkaError, ProtocolError, StateError
from kconsumer.net.background import BackgroundExecutor, Start
from kconsumer.net.background_receive import MIN_BACKGROUND_BYTES, BackgroundReceiver
from kconsumer.net.connection import Connection, InFlight
from kconsumer.net.disconnects import DisconnectClassifier, connection_lost_error
from kconsumer.net.interest import READ, WRITE, SelectorInterest
from kconsumer.net.messages import ClientResponse, NetworkMetrics, os_reason, refresh_error
from kconsumer.net.node import FOREVER, NodeConnection, ReconnectPolicy
from kconsumer.net.resolver import Resolver
from kconsumer.net.states import ConnectionState
from kconsumer.net.transport import (
    WOULD_BLOCK,
    Connect,
    Connector,
    HandshakeClosedError,
    Resolve,
    Transport,
    resolve_canonical,
)
from kconsumer.net.wakeup import Waker

if TYPE_CHECKING:
    from kconsumer.config.options import ConsumerConfig

ReceivedBytes = tuple[bytes | None, int, int]
"""What the Receiver took: the size before the frame, bytes of the frame, and an errno."""

CONNECTING, READY = ConnectionState.CONNECTING, ConnectionState.READY
REAUTHENTICATING = ConnectionState.REAUTHENTICATING
CANONICAL = "resolve_canonical_bootstrap_servers_only"

log = get_logger("kconsumer.net")


class ConnectionLoop:
    """Does the I/O of all links, those in `nodes`; one thread at a time, but for `waker.ring`."""

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
        beside: Start,
        metrics: NetworkMetrics | None,
    ) -> None:
        self.nodes: dict[str, NodeConnection] = {}
        self.deferred_writes: dict[NodeConnection, None] = {}  # with requests that no socket was asked to take yet
        self.waker = Waker()
        self.closed = False
        self.rebootstrap_required = False  # a broker said that it is not the one we take it for (KIP-1242)
        self._config = config
        self._clock = clock
        self._policy = policy
        self._new_connection = new_connection
        self._connector = connector
        self._connect_plain = connect_plain
        self._resolve = resolve
        self._resolver = Resolver(self.waker.wake_nowait, beside)
        self._metrics = metrics
        idle_ms = config.connections_max_idle_ms
        self._max_idle_ms = float(idle_ms) if idle_ms >= 0 else FOREVER
        self._interest = SelectorInterest(selector_factory, self.waker)
        self.background = BackgroundExecutor(self.waker.wake_nowait, beside)
        self._background_receiver = BackgroundReceiver(self._interest)
        self.receiver = self._background_receiver.receiver
        self._done: list[ClientResponse] = []
        self._disconnects = DisconnectClassifier(self.nodes)
        self._changed = False  # a connection became ready or was lost: the caller may want to act
        self._entered_at = 0.0  # when `poll` was called last
        self._next_timer = FOREVER  # no timer is due before this moment; it may be early, never late

    def poll(self, timeout_ms: float, now: float) -> list[ClientResponse]:
        """I/O until a request ends, a connection becomes ready or is lost, the waker rings, or the
        timeout."""
        if self._interest.selector is None:
            self._open()
        self._entered_at = now
        if self.deferred_writes:
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
            selector = self._interest.selector or self._open()  # another one, perhaps, than in the last round
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
                self._metrics.answered(response)
            self._metrics.polled(selects, waited_ms, busy_ms, now)
        return done

    def idle(self, now: float) -> bool:
        """Returns whether `poll` would find nothing to do now. Changes nothing, so a signal handler may run in the
        middle of it, and even close the loop."""
        selector = self._interest.selector
        if selector is None or self.deferred_writes or self._done or self._changed or self.waker.is_set:
            return False
        if self._resolver.completed_tasks or self.background.completed_tasks or now >= self._next_timer:
            return False
        try:
            return not selector.select(0)
        except (OSError, ValueError, KeyError):
            if self.closed:
                return False
            raise

    def close(self) -> None:
        """Give every descriptor back; sends nothing and never blocks."""
        self.closed = True
        self._interest.close()  # first: nothing may be unregistered
        self._resolver.close()
        self.background.close()
        self._background_receiver.close()
        for link in self.nodes.values():
            if link.transport is not None:
                link.transport.close()
            link.detached()
        self.nodes.clear()
        self.deferred_writes.clear()
        self._done.clear()
        self.waker.close()

    def _open(self) -> selectors.BaseSelector:
        if self.closed:
            raise StateError("the network client is closed")
        return self._interest.open()

    # --- connecting ---

    def connect(self, link: NodeConnection, now: float) -> None:
        """Try the next address of the broker's name, resolving it first when all were tried."""
        self._open()
        if not link.remaining_addresses:
            setup_timeout_ms = self._policy.setup_timeout_ms(link.setup_failures)
            lookup = self._resolver.look_up(self._resolution(link), link.host, link.port)
            link.resolving(lookup, now, setup_timeout_ms)
            self._next_timer = min(self._next_timer, link.setup_deadline)
        if link.dns_lookup is None or link.dns_lookup.completed:
            self._start_attempt(link, now)

    def _resolution(self, link: NodeConnection) -> Resolve:
        """Names that the user gave may stand for others; those that brokers advertise are right."""
        canonical = self._config.client_dns_lookup == CANONICAL and link.is_bootstrap
        return resolve_canonical if canonical else self._resolve

    def _continue_resolved(self, now: float) -> None:
        """Some names have been resolved."""
        self._resolver.completed_tasks = False
        for link in self.nodes.values():
            if link.dns_lookup is not None and link.dns_lookup.completed:
                self._start_attempt(link, now)

    def _start_attempt(self, link: NodeConnection, now: float) -> None:
        """Start to connect, once certificates that have changed have been read."""
        if link.dns_lookup is not None:
            link.resolved(link.dns_lookup)
        task = self._connector.refresh(self.background) if link.remaining_addresses else None
        if task is None:
            self._try_addresses(link, now)
            return
        link.refreshing(task, now, self._policy.setup_timeout_ms(link.setup_failures))
        self._next_timer = min(self._next_timer, link.setup_deadline)
        self._continue_refreshed(link, now)

    def _continue_refreshed(self, link: NodeConnection, now: float) -> None:
        """Connect if the certificates have been read."""
        task = link.refresh
        if task is None or not task.completed:
            return
        link.refreshed()
        if task.error is None:
            self._try_addresses(link, now)
            return
        error = refresh_error(link.name, task.error)
        link.back_off(self._policy, error, now)
        self._changed = True
        log.info("%s", error)

    def _try_addresses(self, link: NodeConnection, now: float) -> None:
        """Start to connect to the first address that does not fail at once."""
        without_tls = link.probe is not None and link.probe.without_tls
        connect = self._connect_plain if without_tls else self._connector.connect
        while link.remaining_addresses:
            address = link.address = link.remaining_addresses.pop(0)
            try:
                transport = connect(link.known_as, address, self._config)
            except OSError as error:
                link.attempt_errors.append(f"{os_reason(error)} ({address})")
                continue
            setup_timeout_ms = self._policy.setup_timeout_ms(link.setup_failures)
            link.attempting(address, transport, self._new_connection(link), now, setup_timeout_ms)
            self._interest.update_connecting(link, transport)
            self._next_timer = min(self._next_timer, link.setup_deadline)
            return
        self._connect_failed(link, now)

    def _continue_connecting(
        self, link: NodeConnection, connection: Connection, transport: Transport, now: float
    ) -> None:
        try:
            finished = transport.finish_connect()
        except HandshakeClosedError as error:
            self._disconnects.in_handshake(link)
            self._attempt_failed(link, os_reason(error), now)
            return
        except OSError as error:
            self._attempt_failed(link, os_reason(error), now)
            return
        except KafkaError as error:
            self.disconnect(link, connection, error, now)
            return
        if not finished:
            self._interest.update_connecting(link, transport)
            return
        link.setup_failures = 0
        try:
            connection.transport_ready(now)
        except KafkaError as error:
            self.disconnect(link, connection, error, now)
            return
        self.write(link, connection, transport, now)

    # --- logins ---

    def reauthenticate(self, link: NodeConnection, connection: Connection, transport: Transport, now: float) -> None:
        """Before something is sent: if the broker's session is to be prolonged, that comes first."""
        try:
            connection.reauthenticate(now)
        except KafkaError as error:
            self.disconnect(link, connection, error, now)
            return
        if connection.outgoing:
            self.write(link, connection, transport, now)
        self._next_timer = min(self._next_timer, connection.next_deadline)

    def _continue_after_background(self, now: float) -> None:
        """Some background tasks have completed: resume the attempts and logins that waited for them."""
        self.background.completed_tasks = False
        for link in self.nodes.values():
            self._continue_refreshed(link, now)
            connection, transport = link.connection, link.transport
            if connection is None or transport is None:
                continue
            try:
                news = connection.resume_auth(now)
            except KafkaError as error:
                self.disconnect(link, connection, error, now)
                continue
            if news:
                self._changed |= connection.state is READY
                self.write(link, connection, transport, now)

    def _attempt_failed(self, link: NodeConnection, reason: str, now: float) -> None:
        """One address did not work: try the next at once, or back off after the last."""
        link.attempt_errors.append(f"{reason} ({link.address})")
        self._detach(link, now)
        if link.remaining_addresses:
            self._start_attempt(link, now)
        else:
            self._attempts_failed(link, now)

    def _attempts_failed(self, link: NodeConnection, now: float) -> None:
        link.setup_failures += 1
        self._connect_failed(link, now)

    def _connect_failed(self, link: NodeConnection, now: float) -> None:
        error = BrokerConnectionError(f"{link.name} cannot be reached: {'; '.join(link.attempt_errors)}")
        link.back_off(self._policy, error, now)
        self._changed = True
        suppressed = link.repeats.failed(link.attempt_errors, now)
        if suppressed is not None:
            since = f"; attempts that failed since the last warning: {suppressed}" if suppressed else ""
            log.warning("%s; next attempt in %.0f ms%s", error, link.backoff_until - now, since)

    # --- bytes ---

    def flush(self, now: float) -> None:
        """Hand sockets what was left for later."""
        while self.deferred_writes:
            link, _ = self.deferred_writes.popitem()
            if link.connection is not None and link.transport is not None:
                self.write(link, link.connection, link.transport, now)

    def write(self, link: NodeConnection, connection: Connection, transport: Transport, now: float) -> None:
        """Hand the socket what it takes, and watch for the rest; called whenever something is to be sent."""
        if connection.next_deadline < self._next_timer:
            self._next_timer = connection.next_deadline
        outgoing = connection.outgoing
        try:
            while outgoing:
                taken = transport.send(outgoing[0])
                if not taken:
                    break
                request_size = connection.sent(taken)
                if self._metrics is not None:
                    self._metrics.sent(link.node, taken, request_size, now)
                if not request_size:
                    break
        except OSError as error:
            self.disconnect(link, connection, connection_lost_error(link, connection, os_reason(error)), now)
            return
        except KafkaError as error:
            self._refuse(link, connection, error, now)
            return
        except BaseException as error:
            self._interrupted(link, connection, error, now)
            raise
        self._receive_prefetched(link, connection, now)
        self._interest.update_connected(link, connection, transport)

    def _serve(self, link: NodeConnection, mask: int, now: float) -> None:
        """The selector reported a link. Writing comes first: what ends a connection there is seen reading,
        too."""
        connection, transport = link.connection, link.transport
        if connection is None or transport is None:
            return
        if connection.state is CONNECTING:
            self._continue_connecting(link, connection, transport, now)
            return
        crossed = transport.crossed
        if mask & WRITE or crossed:
            self.write(link, connection, transport, now)
        if (mask & READ or crossed) and link.connection is connection:
            self._read(link, connection, transport, now)
        if (crossed or transport.crossed) and link.connection is connection:
            self._interest.update_connected(link, connection, transport)

    def _read(
        self,
        link: NodeConnection,
        connection: Connection,
        transport: Transport,
        now: float,
        beside: ReceivedBytes | None = None,
    ) -> None:
        """Take what has arrived, or what the Receiver took, and see what it means for the connection."""
        state = connection.state
        link.last_used = now
        try:
            if beside is None:
                count = self._receive(link, connection, transport, now)
            else:
                count = self._on_background_data(link, connection, now, *beside)
        except OSError as error:
            self.disconnect(link, connection, connection_lost_error(link, connection, os_reason(error)), now)
            return
        except KafkaError as error:
            self._refuse(link, connection, error, now)
            return
        except BaseException as error:
            self._interrupted(link, connection, error, now)
            raise
        if count == 0:
            self.disconnect(link, connection, self._disconnects.explain(link, connection), now)
            return
        if connection.throttle_ms:
            link.throttled_until = max(link.throttled_until, now + connection.throttle_ms)
            connection.throttle_ms = 0
        if state is not READY:
            self._after_handshake_data(link, connection, transport, state, now)

    def _receive(self, link: NodeConnection, connection: Connection, transport: Transport, now: float) -> int:
        """Read until the socket is empty, nothing more is expected, or the Receiver goes on with it; 0 when the broker
        closed."""
        while True:
            view = connection.recv_view()
            if len(view) > MIN_BACKGROUND_BYTES and self._background_receiver.start(link, view, framed=False):
                self._interest.update_connected(link, connection, transport)
                return WOULD_BLOCK
            count = transport.recv_into(view)
            if count <= 0:
                return count
            link.progress_at = now
            answers = connection.received(count, now, self._done)
            if self._metrics is not None:
                self._metrics.received(link.node, count, answers)
            # A view that was filled may have left bytes behind; asking again costs less than another select,
            # but not when every request is answered.
            if (count < len(view) or not connection.has_in_flight) and not transport.pending:
                return count

    # --- beside the caller ---

    def _receive_prefetched(self, link: NodeConnection, connection: Connection, now: float) -> None:
        """Have the next answer received beside, if that is worth it and possible."""
        try:
            if not self._background_receiver.start_prefetch(link, connection):
                connection.received_prefetched(b"", 0, 0.0, self._done)
        except BaseException as error:
            self._interrupted(link, connection, error, now)
            raise

    def _collect_background(self, now: float) -> None:
        """The Receiver has ended with some frames: go on with their connections."""
        try:
            while (taken := self._background_receiver.receiver.take()) is not None:
                link, prefix, count, code = taken
                connection, transport = link.connection, link.transport
                link.receive_job = None
                self._read(link, connection, transport, now, (prefix, count, code))
                if link.connection is connection:
                    self._receive_prefetched(link, connection, now)
                    self._interest.update_connected(link, connection, transport)
        except BaseException as error:
            self._lose_orphans(error, now)
            raise

    def _lose_orphans(self, error: BaseException, now: float) -> None:
        """End connections whose job the Receiver no longer has, or has under another name: an exception came between
        its method and the line that notes the job, so bytes are lost, or two would read the same socket."""
        held = {link: job for job, link in self._background_receiver.receiver.held().items()}
        for link in list(self.nodes.values()):
            if link.connection is not None and link.receive_job != held.get(link):
                link.receive_job = held.get(link)
                self._interrupted(link, link.connection, error, now)

    def _on_background_data(
        self, link: NodeConnection, connection: Connection, now: float, prefix: bytes | None, count: int, code: int
    ) -> int:
        """Account for what the Receiver took: how much; 0 when the broker closed."""
        if code:
            raise OSError(code, os.strerror(code))
        link.progress_at = now
        if prefix is None:
            answers = connection.received(count, now, self._done)
        else:
            answers = connection.received_prefetched(prefix, count, now, self._done)
            count += len(prefix)
        if self._metrics is not None:
            self._metrics.received(link.node, count, answers)
        return count

    def _after_handshake_data(
        self, link: NodeConnection, connection: Connection, transport: Transport, before: ConnectionState, now: float
    ) -> None:
        """After bytes outside READY: ready now, or something more is to be said."""
        if connection.state is not READY:
            self.write(link, connection, transport, now)
            return
        self._disconnects.worked = self._changed = True
        if before is REAUTHENTICATING:
            log.debug("%s has prolonged the session", link.name)
            if self._metrics is not None:
                self._metrics.authenticated(connection.auth_ms, now)
            return
        link.established()
        log.debug("%s is ready (%s)", link.name, link.address)
        if self._metrics is not None:
            self._metrics.connected(link.node, now)
            if self._config.security_protocol != "PLAINTEXT":
                self._metrics.authenticated(None, now)

    # --- endings ---

    def disconnect(
        self,
        link: NodeConnection,
        connection: Connection,
        error: KafkaError,
        now: float,
        culprit: InFlight | None = None,
    ) -> None:
        """End a connection with an error, fail its requests and back off. If it was a probe that proved nothing, only
        the attempt has failed."""
        if connection.probe is not None:
            if error is not connection.verdict:
                connection.close(error, now)
                self._attempt_failed(link, connection.probe.unanswered, now)
                return
            link.next_probe = connection.probe  # another attempt would only be closed again
        if self._metrics is not None and isinstance(error, AuthenticationError):
            self._metrics.refused(connection.established, now)
        self._done += connection.close(error, now, culprit)
        self._detach(link, now)
        link.back_off(self._policy, error, now)
        self._changed = True
        log.info("%s", error)

    def close_quietly(self, link: NodeConnection, now: float) -> None:
        """Close a connection that nobody waits for: no error, no backoff."""
        link.dns_lookup = link.refresh = None
        if link.connection is not None:
            self._detach(link, now)
            link.remaining_addresses.clear()

    def _refuse(self, link: NodeConnection, connection: Connection, error: KafkaError, now: float) -> None:
        """The broker's bytes end the connection."""
        if getattr(error, "code", None) == Errors.REBOOTSTRAP_REQUIRED:
            self.rebootstrap_required = True
        self.disconnect(link, connection, error, now, connection.oldest() if isinstance(error, ProtocolError) else None)

    def _interrupted(self, link: NodeConnection, connection: Connection, error: BaseException, now: float) -> None:
        """An exception came from outside (a signal handler's, no memory): bytes may be lost, so the
        connection is."""
        self.disconnect(
            link, connection, connection_lost_error(link, connection, f"interrupted by {type(error).__name__}"), now
        )

    def _detach(self, link: NodeConnection, now: float) -> None:
        transport = link.transport
        self.deferred_writes.pop(link, None)
        if link.connection is not None:
            self._disconnects.record(link.connection)
        if transport is not None:
            self._background_receiver.cancel(link)
            self._interest.set_events(link, transport, 0)
            transport.close()
        link.detached()
        if self._metrics is not None:
            self._metrics.disconnected(link.node, now)

    def _run_timers(self, now: float) -> None:
        """Expire attempts, requests and idle connections."""
        for link in self.nodes.values():
            if link.next_timer(self._max_idle_ms) > now:
                continue
            if link.connection is not None:
                self._expire(link, link.connection, now)
            else:
                link.attempt_errors = [link.overdue_reason()]
                self._attempts_failed(link, now)
        timers = (link.next_timer(self._max_idle_ms) for link in self.nodes.values())
        self._next_timer = min(timers, default=FOREVER)

    def _is_arriving(self, link: NodeConnection, connection: Connection, now: float) -> bool:
        """Returns True if the peer is in the middle of a response, or bytes came in this very step. A caller that was
        away for longer than the timeout finds in the socket what arrived meanwhile, and reads no more than a part of a
        large response in one step."""
        if self._background_receiver.progressed(link):
            link.progress_at = now
        return connection.receiving or link.progress_at >= self._entered_at

    def _expire(self, link: NodeConnection, connection: Connection, now: float) -> None:
        if connection.state is CONNECTING:
            waited = link.setup_deadline - link.last_attempt
            self._attempt_failed(link, f"no connection within {waited:.0f} ms", now)
            return
        overdue = connection.auth_overdue(now)
        if overdue is not None:
            self.disconnect(link, connection, overdue, now)
            return
        entry = connection.expired(now)
        if entry is not None and self._is_arriving(link, connection, now):
            if connection.postpone(link.progress_at, now):
                return
            entry = connection.expired(now)
        if entry is None:
            log.debug("closing the connection to %s, idle for %.0f ms", link.name, now - link.last_used)
            self.close_quietly(link, now)
        elif entry.request is None:
            which = "to log in again" if connection.established else "its first request"
            silent = BrokerConnectionError(f"{connection.timeout_error(entry)}, {which} ({link.address})")
            self.disconnect(link, connection, silent, now)
        else:
            self.disconnect(link, connection, connection.timeout_error(entry), now, entry)
