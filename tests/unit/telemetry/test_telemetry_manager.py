"""When TelemetryManager sends its requests, and how it handles responses and errors, in virtual time."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Any

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer._internal.managers import FOREVER, Reply, UnsentRequest
from kconsumer.errors import (
    BrokerConnectionError,
    KafkaError,
    StateError,
    TimeoutError,
    UnsupportedVersionError,
)
from kconsumer.metrics.registry import Metrics, Stat
from kconsumer.schema.dsl import Api
from kconsumer.schema.telemetry import (
    GET_TELEMETRY_SUBSCRIPTIONS,
    PUSH_TELEMETRY,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryResponse,
)
from kconsumer.telemetry import compressors
from kconsumer.telemetry.collector import TelemetryCollector
from kconsumer.telemetry.manager import CONNECTION_CHECK_MS, DEFAULT_PUSH_INTERVAL_MS, TelemetryManager
from kconsumer.telemetry.state import PUSH_ACTIONS, SUBSCRIPTION_ACTIONS, TRANSITIONS, TelemetryState
from kconsumer.testing.otlp import decode_metrics
from support.harnesses.manager_driver import NoJitter

S = TelemetryState
ID = bytes(range(16))
ID_TEXT = urlsafe_b64encode(ID).decode().rstrip("=")
INTERVAL_MS = 1000.0
READ = "org.apache.kafka.consumer.fetch.manager.records.consumed.total"
LOST = BrokerConnectionError("lost")


class Case:
    """A manager, the connection that it finds, and the time."""

    def __init__(self, *, enabled: bool = True) -> None:
        self.now = 0.0
        self.node: str | KafkaError | None = "1"
        self.metrics = Metrics()
        self.read = self.metrics.sensor("consumer-fetch-manager-metrics", [("records-consumed-total", Stat.TOTAL, "")])
        self.metrics.gauge(self.metrics.name("assigned-partitions", "consumer-coordinator-metrics"), lambda _: 3)
        self.manager = TelemetryManager(self._find, self._collector, NoJitter(), enabled=enabled)

    def _find(self, api: Api, now: float, preferred: str | None) -> str | None:
        if isinstance(self.node, KafkaError):
            raise self.node
        return self.node

    def _collector(self) -> TelemetryCollector:
        return TelemetryCollector(self.metrics, lambda: {"group_id": "g"}, lambda: 1_000_000 + int(self.now))

    def sent(self) -> UnsentRequest:
        """Returns the one request that is sent now."""
        (request,) = self.manager.poll(self.now).requests
        assert FOREVER == self.manager.due
        return request

    def advance_to_due(self) -> float:
        """Advance the time until the manager is due, and check that nothing is sent before. Returns the time (ms)."""
        assert self.manager.due < FOREVER
        took = self.manager.due - self.now
        if took > 0:
            assert [] == self.manager.poll(self.manager.due - 0.1).requests
            self.now = self.manager.due
        return took

    def reply(self, request: UnsentRequest, message: Any = None, error: KafkaError | None = None) -> None:
        """Pass the result of a request to its handler."""
        request.handler(Reply(message, error, self.now))

    def subscribe(self, **fields: Any) -> None:
        """Let the manager request the subscription, and respond to it."""
        request = self.sent()
        assert GET_TELEMETRY_SUBSCRIPTIONS is request.api
        self.reply(request, subscription(**fields))

    def push(self, error_code: int = 0) -> Any:
        """Let the manager push now, and respond with an error code. Returns the message of the request."""
        request = self.sent()
        assert PUSH_TELEMETRY is request.api
        self.reply(request, PushTelemetryResponse(error_code=error_code))
        return request.message


def subscription(**fields: Any) -> GetTelemetrySubscriptionsResponse:
    """Returns a response that requests all metrics in each interval."""
    defaults: Mapping[str, Any] = {
        "client_instance_id": ID,
        "subscription_id": 7,
        "push_interval_ms": int(INTERVAL_MS),
        "telemetry_max_bytes": 1 << 20,
        "delta_temporality": True,
        "requested_metrics": ["*"],
    }
    return GetTelemetrySubscriptionsResponse(**{**defaults, **fields})


def subscribed(**fields: Any) -> Case:
    """Returns a manager whose first push is due."""
    case = Case()
    case.subscribe(**fields)
    case.advance_to_due()
    return case


def read(message: Any) -> float:
    """Returns the pushed number of records, from an uncompressed push."""
    return decode_metrics(message.metrics).points[READ, frozenset()].value


def test_prefixes() -> None:
    """Only metrics whose names begin with a requested prefix are pushed; an empty prefix stands for all."""
    assert {READ} == names(subscribed(requested_metrics=["org.apache.kafka.consumer.fetch.", "other"]).push())
    assert 2 == len(names(subscribed(requested_metrics=[""]).push()))
    assert set() == names(subscribed(requested_metrics=["kafka"]).push())


def names(message: Any) -> set[str]:
    """Returns the names of the pushed metrics."""
    return {name for name, _ in decode_metrics(message.metrics).points}


@pytest.mark.parametrize("codecs", [[4, 3], [3, 4], [1], [2], [99, 1]])
def test_compression(codecs: list[int]) -> None:
    """The first codec that is known compresses the metrics."""
    message = subscribed(accepted_compression_types=codecs).push()
    known = next(codec for codec in codecs if codec != 99)
    assert known == message.compression_type
    data = subscribed().push().metrics
    assert compressors.COMPRESSORS[known](data) == message.metrics


def test_temporality() -> None:
    """Without delta temporality the whole sum is pushed. A change of the temporality forgets the earlier pushes."""
    case = subscribed(delta_temporality=False)
    case.read.record(5, case.now)
    assert 5.0 == read(case.push())
    case.advance_to_due()
    assert 5.0 == read(case.push(Errors.UNKNOWN_SUBSCRIPTION_ID))
    case.subscribe(delta_temporality=True)
    case.advance_to_due()
    assert 5.0 == read(case.push())
    case.advance_to_due()
    assert 0.0 == read(case.push())


def test_a_failed_push_loses_no_increase() -> None:
    """The increases of a push that failed are part of the next one."""
    case = subscribed()
    case.read.record(5, case.now)
    case.push(Errors.THROTTLING_QUOTA_EXCEEDED)
    case.advance_to_due()
    case.subscribe()
    case.advance_to_due()
    assert 5.0 == read(case.push())


PUSH_ERRORS = [
    (Errors.UNKNOWN_SUBSCRIPTION_ID, 0.0),
    (Errors.UNSUPPORTED_COMPRESSION_TYPE, 0.0),
    (Errors.TELEMETRY_TOO_LARGE, INTERVAL_MS),
    (Errors.THROTTLING_QUOTA_EXCEEDED, INTERVAL_MS),
    (Errors.INVALID_REQUEST, None),
    (Errors.INVALID_RECORD, None),
    (Errors.UNSUPPORTED_VERSION, None),
    (Errors.UNKNOWN_SERVER_ERROR, None),
]


def test_each_row_of_the_push_table_is_tested() -> None:
    """The table of error codes has no row that the test above lacks."""
    assert set(PUSH_ACTIONS) == {code for code, _ in PUSH_ERRORS[:-1]}


@pytest.mark.parametrize("code", [*SUBSCRIPTION_ACTIONS, Errors.UNKNOWN_SERVER_ERROR])
def test_subscription_errors(code: int) -> None:
    """A throttled request for the subscription is repeated after the interval. All other errors end telemetry."""
    case = Case()
    case.reply(case.sent(), GetTelemetrySubscriptionsResponse(error_code=code))
    if code == Errors.THROTTLING_QUOTA_EXCEEDED:
        assert DEFAULT_PUSH_INTERVAL_MS == case.advance_to_due()
    else:
        assert S.TERMINATED is case.manager.state


@pytest.mark.parametrize("error", [LOST, TimeoutError("late")])
def test_lost_connections(error: KafkaError) -> None:
    """After a lost connection or a timeout the subscription is requested again, not before the end of the interval."""
    case = subscribed()
    case.reply(case.sent(), error=error)
    assert INTERVAL_MS == case.advance_to_due()
    assert GET_TELEMETRY_SUBSCRIPTIONS is case.sent().api


def test_without_a_connection_nothing_is_sent() -> None:
    """Telemetry opens no connection, and checks rarely whether there is one."""
    case = Case()
    case.node = None
    assert [] == case.manager.poll(case.now).requests
    assert CONNECTION_CHECK_MS == case.advance_to_due()
    case.node = "2"
    assert "2" == case.sent().node


def test_brokers_without_telemetry() -> None:
    """Brokers without a plugin for telemetry get no request. They are checked again after five minutes."""
    case = Case()
    case.node = UnsupportedVersionError("none")
    assert [] == case.manager.poll(case.now).requests
    assert DEFAULT_PUSH_INTERVAL_MS == case.advance_to_due()
    case.node = "1"
    case.subscribe()
    case.node = UnsupportedVersionError("none")
    case.advance_to_due()
    assert [] == case.manager.poll(case.now).requests
    assert (S.SUBSCRIPTION_NEEDED, DEFAULT_PUSH_INTERVAL_MS) == (case.manager.state, case.advance_to_due())


def test_too_large() -> None:
    """Metrics that are larger than a broker accepts are not sent; the subscription is requested after the interval."""
    case = subscribed(telemetry_max_bytes=10)
    assert [] == case.manager.poll(case.now).requests
    assert (S.SUBSCRIPTION_NEEDED, INTERVAL_MS) == (case.manager.state, case.advance_to_due())


# --- closing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_flight", [False, True])
def test_last_push(in_flight: bool) -> None:
    """Closing pushes once more at once, even during another push, whose response is then ignored.

    The increases of that push are not sent again.
    """
    case = subscribed()
    case.read.record(5, case.now)
    before = case.sent() if in_flight else None
    case.manager.begin_close()
    request = case.sent()
    assert (0.0 if in_flight else 5.0) == read(request.message)
    if before is not None:
        case.reply(before, PushTelemetryResponse(error_code=Errors.INVALID_RECORD))
    assert (True, False) == (request.message.terminating, case.manager.ended)
    case.reply(request, PushTelemetryResponse())
    assert case.manager.ended
    assert [] == case.manager.poll(case.now).requests


@pytest.mark.parametrize("error", [LOST, None])
def test_last_push_is_not_repeated(error: KafkaError | None) -> None:
    """An error of the last push ends telemetry."""
    case = subscribed()
    case.manager.begin_close()
    case.reply(case.sent(), PushTelemetryResponse(error_code=Errors.UNKNOWN_SUBSCRIPTION_ID), error)
    assert case.manager.ended


@pytest.mark.parametrize("node", [None, UnsupportedVersionError("none")])
def test_closing_without_a_connection(node: KafkaError | None) -> None:
    """If no connection is ready, closing pushes nothing."""
    case = subscribed()
    case.manager.begin_close()
    case.node = node
    assert [] == case.manager.poll(case.now).requests
    assert case.manager.ended


def test_closing_with_too_many_metrics() -> None:
    """A last push that is too large is not sent."""
    case = subscribed(telemetry_max_bytes=10)
    case.manager.begin_close()
    assert [] == case.manager.poll(case.now).requests
    assert case.manager.ended


def test_disabled() -> None:
    """With enable_metrics_push=False nothing is ever sent."""
    case = Case(enabled=False)
    assert (FOREVER, []) == (case.manager.due, case.manager.poll(0.0).requests)
    assert isinstance(case.manager.client_instance_id().error, StateError)


# --- the client instance id --------------------------------------------------------------------------------------


def test_client_instance_id() -> None:
    """The id that a broker has assigned is known at once after that, also when telemetry has ended."""
    case = Case()
    promise = case.manager.client_instance_id()
    assert not promise.done
    case.subscribe(requested_metrics=[])
    assert (ID_TEXT, ID_TEXT) == (promise.result(), case.manager.client_instance_id().result())
    case.manager.begin_close()
    assert ID_TEXT == case.manager.client_instance_id().result()


def test_a_caller_may_wait_for_the_id() -> None:
    """While a caller waits for the id, the engine may open a connection, and failures are retried soon."""
    case = Case()
    case.node = UnsupportedVersionError("none")
    case.manager.poll(case.now)
    promise = case.manager.client_instance_id()
    case.node = None
    request = case.sent()
    assert request.node is None
    case.reply(request, error=LOST)
    assert 100.0 == case.advance_to_due()
    case.subscribe()
    assert ID_TEXT == promise.result()


# --- errors of the code ------------------------------------------------------------------------------------------


def test_internal_errors_end_telemetry() -> None:
    """If computing a metric raises, or a handler does, telemetry ends, and nothing is raised."""
    case = subscribed()

    def broken(_: float) -> float:
        raise RuntimeError

    case.metrics.gauge(case.metrics.name("broken", "consumer-metrics"), broken)
    assert [] == case.manager.poll(case.now).requests
    assert S.TERMINATED is case.manager.state
    case = Case()
    case.reply(case.sent(), object())
    assert S.TERMINATED is case.manager.state


def test_illegal_transitions() -> None:
    """The table has a row for each state, and no way out of TERMINATED."""
    assert set(TelemetryState) == set(TRANSITIONS)
    assert frozenset() == TRANSITIONS[S.TERMINATED]
    assert all(S.TERMINATED in after for state, after in TRANSITIONS.items() if state is not S.TERMINATED)
