"""Dispatcher: keeps the requests of managers until they can be sent, and passes each reply to the request's handler.

A request waits while its connection is opened. It fails if the connection fails, if no broker can be reached, or when
its timeout ends. The managers decide whether a failed request is retried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kconsumer._common.deferred_calls import get_logger
from kconsumer._core.cycle import DispatcherState
from kconsumer._core.lock import Clock
from kconsumer._internal.requests import Ended, Reply, UnsentRequest
from kconsumer.errors import BrokerConnectionError, KafkaError, TimeoutError, UnsupportedVersionError
from kconsumer.net.client import NetworkClient
from kconsumer.net.describe import broker_id
from kconsumer.net.event_loop import FOREVER

log = get_logger(__name__)


class Dispatcher(DispatcherState):
    """Sends the requests of managers. It is not thread-safe: callers hold the engine's lock."""

    def __init__(
        self,
        client: NetworkClient,
        clock: Clock,
        request_timeout_ms: float,
        no_node: Callable[[float], None],
    ) -> None:
        super().__init__(client, clock)
        self._request_timeout_ms = request_timeout_ms
        self._no_node = no_node  # called when no broker can be reached
        self.on_sent: list[Callable[[float, float], None]] = []  # called with how long a request waited (ms), and `now`

    @property
    def idle(self) -> bool:
        """True if no request waits and none is in flight."""
        return not self._waiting and not self._client.in_flight()

    @property
    def quiet(self) -> bool:
        """True if no request waits and none has failed.

        The next step then only has to handle what the network receives.
        """
        return not self._waiting and not self._failed

    @property
    def waiting(self) -> int:
        """The number of requests that wait for their connection."""
        return len(self._waiting)

    def submit(self, requests: Iterable[UnsentRequest], now: float) -> None:
        """Send the requests whose connections are ready. The others wait for the next `step`."""
        for request in requests:
            if not self._try(request, now, now):
                self._waiting.append((request, now))

    def enqueue(self, requests: Iterable[UnsentRequest], now: float) -> None:
        """Queue requests for the next `step`, which may run on another thread."""
        self._waiting += ((request, now) for request in requests)

    def begin_step(self, timeout_ms: float, now: float) -> float:
        """Send the waiting requests, as the first part of a step. Returns how long (ms) the network may then wait."""
        if self._waiting:
            self._flush(now, expire=False)  # the network is read first: it may make a connection ready
        if self._failed:
            return 0.0
        return min(timeout_ms, self._waiting_ms(now)) if self._waiting else timeout_ms

    def _end_step(self, ended: list[Ended]) -> bool:
        """Do what `end_step` does, if requests have ended, wait, or have failed."""
        if ended:
            woken_at = self._clock.now()
            for listener in self.on_woken:
                listener(woken_at)
        for request, reply in ended:
            self._hand(request, reply)
        if self._waiting:
            self._flush(self._clock.now())
        any_ended, self._failed = bool(ended) or self._failed, False
        error, self._error = self._error, None
        if error is not None:
            raise error
        return any_ended

    def disconnect(self, node: str, now: float) -> None:
        """Close a connection. Requests that wait for it fail at once, and requests in flight fail in the next step."""
        self._client.disconnect(node, now)
        waiting, self._waiting = self._waiting, []
        for request, since in waiting:
            if request.node == node:
                error = BrokerConnectionError(f"the connection to broker {broker_id(node)} was given up")
                self._fail(request, error, now, node)
            else:
                self._waiting.append((request, since))

    def _flush(self, now: float, *, expire: bool = True) -> None:
        # Handlers may submit further requests during the loop.
        waiting, self._waiting = self._waiting, []
        kept = [(request, since) for request, since in waiting if not self._try(request, since, now, expire)]
        self._waiting = kept + self._waiting

    def _try(self, request: UnsentRequest, since: float, now: float, expire: bool = False) -> bool:
        """Send a request that waits since `since`, or call its handler with an error. Returns False if it must wait.

        Its timeout fails it only with `expire`.
        """
        node_id = request.node or self._client.least_loaded_node(now)
        if node_id is None:
            # If one connection is ready, such as that to the coordinator, its broker is reachable, and only waits for
            # its backoff or for responses. To start again from the bootstrap servers would close this connection.
            if not self._client.any_ready:
                self._no_node(now)
            self._fail(request, self._client.authentication_error(now) or self._unreachable(now), now)
            return True
        node = self._client.ready(node_id, now)
        if node is None:
            return self._fail_if_over(request, node_id, now, self._deadline(request, since) if expire else FOREVER)
        try:
            node.send(request, now)
            for listener in self.on_sent:
                listener(max(0.0, now - since), now)
        except UnsupportedVersionError as error:
            advised = UnsupportedVersionError(f"{error.message}; {request.needs}") if request.needs else error
            self._fail(request, advised, now, node_id)
        except KafkaError as error:
            self._fail(request, error, now, node_id)
        return True

    def _fail_if_over(self, request: UnsentRequest, node_id: str, now: float, deadline: float) -> bool:
        """Fail a request whose connection has failed, or whose deadline has passed. Returns False if it must wait."""
        failure = self._client.connection_failed(node_id, now)
        if failure is None and now >= deadline:
            failure = TimeoutError(
                f"{request.api.name} could not be sent in time: connection {node_id} never became ready"
            )
        if failure is None:
            return False
        self._fail(request, failure, now, node_id)
        return True

    def _unreachable(self, now: float) -> BrokerConnectionError:
        reasons = self._client.connection_errors(now) or "all are busy or were just tried"
        return BrokerConnectionError(f"no broker can be reached right now: {reasons}")

    def _waiting_ms(self, now: float) -> float:
        """Returns how long (ms) the network may wait while requests wait for their connections.

        The wait ends when the first request times out, or when the backoff or throttle time of its connection ends.
        """
        wait_ms = min(self._deadline(request, since) for request, since in self._waiting) - now
        for request, _ in self._waiting:
            if request.node is not None:
                delay_ms = self._client.delay_ms(request.node, now)
                if delay_ms > 0:
                    wait_ms = min(wait_ms, delay_ms)
        return max(0.0, wait_ms)

    def _deadline(self, request: UnsentRequest, since: float) -> float:
        return since + (self._request_timeout_ms if request.timeout_ms is None else request.timeout_ms)

    def _hand(self, request: UnsentRequest, reply: Reply) -> None:
        """Call the handler of a request. An exception of the handler does not affect other requests.

        A KafkaError is raised at the end of the step. After any other exception (an invalid response, or a bug) the
        handler is called again, with an error in place of the response.
        """
        try:
            request.handler(reply)
        except KafkaError as error:
            self._error = self._error or error
        except Exception as error:
            log.exception("the response to %s cannot be handled", request.api.name)
            if reply.error is None:
                failure = KafkaError(f"internal error: the response to {request.api.name} cannot be handled: {error!r}")
                failure.__cause__ = error
                self._hand(request, Reply(None, failure, reply.now, reply.version, reply.node, reply.sent_at))
        finally:
            self.ended += reply.concerns_others

    def _fail(self, request: UnsentRequest, error: KafkaError, now: float, node: str = "") -> None:
        self._failed = True
        self._hand(request, Reply(None, error, now, node=node))

    def __repr__(self) -> str:
        names = ", ".join(request.api.name for request, _ in self._waiting)
        return f"<Dispatcher waiting=[{names}]>"
