"""Decides when GetTelemetrySubscriptions and PushTelemetry are sent, and how their responses are handled (KIP-714).

A broker that has a plugin for client telemetry may subscribe to metrics of this client. The client then pushes them in
an interval that the broker sets. Telemetry must not disturb the consumer: it opens no connection, `poll` and the
handlers raise nothing, and a failed request is not repeated before the end of an interval.

The code follows Java's `ClientTelemetryReporter`. The differences:

- A connection that is lost, and a broker without these APIs, end nothing: the next attempt follows after the interval.
- A push that the client knows to be too large is not sent.
"""

from __future__ import annotations

import random
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kconsumer._common.deferred_calls import get_logger
from kconsumer._internal.managers import FOREVER, PollResult, Promise, Reply, UnsentRequest
from kconsumer._internal.transitions import checked_transition
from kconsumer.errors import KafkaError, StateError, UnsupportedVersionError, error_for
from kconsumer.telemetry.state import (
    PUSH_ACTIONS,
    SUBSCRIBE_NOW,
    SUBSCRIPTION_ACTIONS,
    TERMINATE,
    TRANSITIONS,
    Table,
    TelemetryState,
)

if TYPE_CHECKING:
    from kconsumer.schema.dsl import Api
    from kconsumer.schema.telemetry import GetTelemetrySubscriptionsResponse, PushTelemetryResponse
    from kconsumer.telemetry.collector import TelemetryCollector

log = get_logger(__name__)

S = TelemetryState

DEFAULT_PUSH_INTERVAL_MS = 300_000.0
"""The interval while no broker has set another one."""
CONNECTION_CHECK_MS = 1000.0
"""How often `poll` checks for a connection while there is none."""
AWAITED_RETRY_MS = 100.0
"""The pause after a failed request while a caller waits for the client instance id."""
FIRST_PUSH_JITTER = 0.5, 1.5
"""The factor of the interval before the first push, so that clients which start together do not push together."""
ZERO_ID = bytes(16)

FindNode = Callable[["Api", float, "str | None"], "str | None"]


class Subscription(NamedTuple):
    """What a broker has requested."""

    id: int
    interval_ms: float
    metrics: tuple[str, ...]  # prefixes of names; "*": all metrics
    codecs: tuple[int, ...]  # accepted compression types, the preferred one first
    delta: bool  # whether sums are pushed as increases
    max_bytes: int


class TelemetryManager:
    """Subscribes to the requests of brokers for metrics, and pushes these metrics (Java `ClientTelemetryReporter`).

    An engine calls `poll` if the time is `due`. All other managers are polled in each step; this one is not, because a
    step should cost nothing for telemetry.
    """

    def __init__(
        self,
        find_node: FindNode,
        make_collector: Callable[[], TelemetryCollector],
        rng: random.Random,
        *,
        enabled: bool = True,
    ) -> None:
        """`find_node(api, now, preferred)` returns a connection that is ready, as `NetworkClient.least_loaded_ready`.

        `make_collector()` is called when a broker requests metrics for the first time.
        """
        self.state = S.SUBSCRIPTION_NEEDED
        self.due = 0.0  # ms; when `poll` must be called
        self.enabled = enabled
        self.instance_id = ZERO_ID  # assigned by the first broker
        self._find_node = find_node
        self._make_collector = make_collector
        self._collector: TelemetryCollector | None = None
        self._rng = rng
        self._subscription: Subscription | None = None
        self._node: str | None = None  # the last connection, which is kept as long as it is ready
        self._in_flight: UnsentRequest | None = None
        self._awaited: list[Promise[str]] = []
        self._warned = False
        if not enabled:
            self.end()

    # --- events of the consumer ------------------------------------------------------------------------------------

    def client_instance_id(self) -> Promise[str]:
        """Returns a promise of the id that a broker has assigned to this client, in the text form of Java's `Uuid`.

        Its error is StateError if telemetry has ended, and UnsupportedVersionError if brokers do not have telemetry.
        """
        promise: Promise[str] = Promise()
        if self.instance_id != ZERO_ID:
            promise.set_result(_text(self.instance_id))
        elif self.state is S.TERMINATED:
            promise.set_exception(StateError("client telemetry has ended, so there is no client instance id"))
        else:
            self._awaited.append(promise)
            if self.state is S.SUBSCRIPTION_NEEDED:
                self.due = 0.0
        return promise

    def begin_close(self) -> None:
        """Make the next `poll` send the last push, if a broker has requested metrics (Java `initiateClose`).

        Otherwise telemetry ends now. The response to a request in flight is ignored. A push in flight is assumed to
        succeed, because the last push would otherwise contain its increases again.
        """
        if self.state in (S.PUSH_NEEDED, S.PUSH_IN_PROGRESS):
            if self.state is S.PUSH_IN_PROGRESS and self._collector is not None:
                self._collector.confirm()
            self._transition_to(S.TERMINATING_PUSH_NEEDED)
            self._in_flight = None
            self.due = 0.0
        else:
            self.end()

    def end(self, error: KafkaError | None = None) -> None:
        """Send nothing more. Callers that wait for the client instance id receive `error`."""
        if self.state is not S.TERMINATED:
            self._transition_to(S.TERMINATED)
        self._in_flight, self.due = None, FOREVER
        failure = error or StateError("client telemetry has ended, so there is no client instance id")
        self._complete(lambda promise: promise.set_exception(failure))

    @property
    def ended(self) -> bool:
        """True if no further request is sent, and none is in flight."""
        return self.state is S.TERMINATED

    # --- requests --------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> PollResult:
        """Returns the request that is due, if there is a connection for it. Raises nothing."""
        if now < self.due or self._in_flight is not None:
            return PollResult(wait_ms=max(0.0, self.due - now))
        try:
            request = self._request(now)
        except UnsupportedVersionError as error:
            self._unsupported(error, now)
        except Exception as error:  # telemetry must not fail a poll of the user
            self.fail(error)
        else:
            if request is not None:
                self._in_flight, self.due = request, FOREVER
                return PollResult([request])
        return PollResult(wait_ms=max(0.0, self.due - now))

    def fail(self, error: BaseException) -> None:
        """End telemetry after an internal error. Nothing is raised, and the error is logged."""
        log.warning("client telemetry has failed and is off now: %r", error)
        self.end()

    def _request(self, now: float) -> UnsentRequest | None:
        """Returns the request that is due. Returns None, and changes `due` or the state, if it cannot be sent now."""
        from kconsumer.schema.telemetry import GET_TELEMETRY_SUBSCRIPTIONS as GET

        self._awaited = [promise for promise in self._awaited if not promise.done]
        node = self._node = self._find_node(GET, now, self._node)
        if self.state is S.SUBSCRIPTION_NEEDED and (node is not None or self._awaited):
            # Without a connection, the engine opens one, because a caller waits for the response.
            self._transition_to(S.SUBSCRIPTION_IN_PROGRESS)
            return self._unsent(GET, GET.request(client_instance_id=self.instance_id), node, self._on_subscription)
        if node is not None:
            return self._push_request(node, now)
        if self.state is S.TERMINATING_PUSH_NEEDED:
            self.end()
        else:
            self.due = now + CONNECTION_CHECK_MS
        return None

    def _push_request(self, node: str, now: float) -> UnsentRequest | None:
        # Imported here, because most consumers never push.
        from kconsumer.schema.telemetry import PUSH_TELEMETRY
        from kconsumer.telemetry.compressors import compress_with_first

        subscription = self._subscription
        assert subscription is not None
        if self._collector is None:
            self._collector = self._make_collector()
        data = self._collector.collect(subscription.metrics, delta=subscription.delta, now=now)
        if len(data) > subscription.max_bytes > 0:
            self._too_large(len(data), subscription.max_bytes, now)
            return None
        terminating = self.state is S.TERMINATING_PUSH_NEEDED
        self._transition_to(S.TERMINATING_PUSH_IN_PROGRESS if terminating else S.PUSH_IN_PROGRESS)
        codec, compressed = compress_with_first(subscription.codecs, data)
        message = PUSH_TELEMETRY.request(
            client_instance_id=self.instance_id,
            subscription_id=subscription.id,
            terminating=terminating,
            compression_type=codec,
            metrics=compressed,
        )
        return self._unsent(PUSH_TELEMETRY, message, node, self._on_push)

    def _too_large(self, size: int, max_bytes: int, now: float) -> None:
        """Skip this push. The limit is for the uncompressed size, too: brokers decompress no more than this."""
        if not self._warned:
            log.warning("client telemetry is not sent: %d bytes of metrics, and brokers accept %d", size, max_bytes)
            self._warned = True
        if self.state is S.TERMINATING_PUSH_NEEDED:
            self.end()
        else:
            self._subscribe_at(now + self._interval_ms)

    def _unsent(self, api: Api, message: Any, node: str | None, handle: Callable[[Any, float], None]) -> UnsentRequest:
        """Returns a request. `handle(response, now)` is called if it succeeds."""

        def on_reply(reply: Reply) -> None:
            if self._in_flight is not request:  # the consumer is being closed, and the last push takes its place
                return
            self._in_flight = None
            try:
                if reply.error is not None:
                    self._failed(reply.error, reply.now)
                else:
                    handle(reply.message, reply.now)
            except Exception as error:  # telemetry must not fail a call of the user
                self.fail(error)

        request = UnsentRequest(api, message, on_reply, node)
        return request

    # --- responses -------------------------------------------------------------------------------------------------

    def _on_subscription(self, response: GetTelemetrySubscriptionsResponse, now: float) -> None:
        if response.error_code:
            self._react(SUBSCRIPTION_ACTIONS, response.error_code, now)
            return
        if response.client_instance_id != ZERO_ID:
            self.instance_id = response.client_instance_id
        before = self._subscription
        subscription = self._subscription = Subscription(
            response.subscription_id,
            float(response.push_interval_ms) if response.push_interval_ms > 0 else DEFAULT_PUSH_INTERVAL_MS,
            tuple(response.requested_metrics),
            tuple(response.accepted_compression_types),
            response.delta_temporality,
            response.telemetry_max_bytes,
        )
        if before is not None and before.delta != subscription.delta and self._collector is not None:
            self._collector.reset()
        if subscription.metrics and self.instance_id != ZERO_ID:
            self._transition_to(S.PUSH_NEEDED)
            self.due = now + subscription.interval_ms * self._rng.uniform(*FIRST_PUSH_JITTER)
        else:
            self._subscribe_at(now + subscription.interval_ms)
        if self.instance_id != ZERO_ID:
            self._complete(lambda promise: promise.set_result(_text(self.instance_id)))

    def _on_push(self, response: PushTelemetryResponse, now: float) -> None:
        if not response.error_code and self._collector is not None:
            self._collector.confirm()
        if self.state is S.TERMINATING_PUSH_IN_PROGRESS:
            self.end()
        elif response.error_code:
            self._react(PUSH_ACTIONS, response.error_code, now)
        else:
            self._transition_to(S.PUSH_NEEDED)
            self.due = now + self._interval_ms

    def _react(self, table: Table, code: int, now: float) -> None:
        """Carry out the action for an error code."""
        action = table[code]
        log.debug("client telemetry: error %d: %s", code, action.value)
        if action is TERMINATE:
            error = error_for(code, "client telemetry")
            log.warning("client telemetry is off now, because the broker has refused it: %s", error)
            self.end(error)
        else:
            self._subscribe_at(now if action is SUBSCRIBE_NOW else now + self._interval_ms)

    def _failed(self, error: KafkaError, now: float) -> None:
        """Handle a request without a response, such as one whose connection was lost. Another broker may be next."""
        log.debug("client telemetry: %s", error)
        self._node = None
        if not error.retriable:
            self._complete(lambda promise: promise.set_exception(error))
        if self.state is S.TERMINATING_PUSH_IN_PROGRESS:
            self.end()
        else:
            self._subscribe_at(now + (AWAITED_RETRY_MS if self._awaited else self._interval_ms))

    def _unsupported(self, error: UnsupportedVersionError, now: float) -> None:
        """Wait for brokers that have a plugin for client telemetry. Only their connections announce the APIs."""
        if self.state is S.TERMINATING_PUSH_NEEDED:
            self.end()
            return
        self._complete(lambda promise: promise.set_exception(error))
        if self.state is S.PUSH_NEEDED:
            self._transition_to(S.SUBSCRIPTION_NEEDED)
        self.due = now + DEFAULT_PUSH_INTERVAL_MS

    # --- the state -------------------------------------------------------------------------------------------------

    @property
    def _interval_ms(self) -> float:
        return DEFAULT_PUSH_INTERVAL_MS if self._subscription is None else self._subscription.interval_ms

    def _subscribe_at(self, due: float) -> None:
        self._transition_to(S.SUBSCRIPTION_NEEDED)
        self.due = due

    def _complete(self, complete: Callable[[Promise[str]], None]) -> None:
        awaited, self._awaited = self._awaited, []
        for promise in awaited:
            complete(promise)

    def _transition_to(self, state: TelemetryState) -> None:
        """Change the state. Raises StateError and changes nothing if `TRANSITIONS` does not allow it."""
        self.state = checked_transition(TRANSITIONS, "client telemetry", self.state, state)

    def __repr__(self) -> str:
        return f"<TelemetryManager {self.state.name} id={_text(self.instance_id)}>"


def _text(instance_id: bytes) -> str:
    """Returns an id as Java's `Uuid` writes it, which is also how brokers log it."""
    return urlsafe_b64encode(instance_id).decode().rstrip("=")
