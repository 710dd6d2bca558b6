"""The dispatcher between managers and network: which requests wait, which fail, and how long a step may wait."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from kconsumer._internal.managers import Reply, UnsentRequest
from kconsumer.engine.dispatcher import Dispatcher
from kconsumer.errors import (
    BrokerConnectionError,
    ProtocolError,
    StateError,
    TimeoutError,
    UnsupportedVersionError,
)
from kconsumer.schema.consumer_group import CONSUMER_GROUP_HEARTBEAT
from kconsumer.schema.metadata import API_VERSIONS, METADATA
from kconsumer.types import Node
from support.fakes.fake_network import NetworkHarness
from support.fakes.scripted_broker import SILENCE, api_versions


class Case:
    """A dispatcher over a fake network, which collects responses and failures."""

    def __init__(self, **options: Any) -> None:
        self.harness = NetworkHarness(**options)
        self.harness.broker.on(METADATA, METADATA.response())
        self.replies: list[Reply] = []
        self.unreachable_at: list[float] = []
        self.dispatcher = Dispatcher(self.harness.client, self.harness.clock, 30_000, self.unreachable_at.append)

    @property
    def now(self) -> float:
        return self.harness.clock.now()

    def request(self, node: str | None = None, **fields: Any) -> UnsentRequest:
        api = fields.pop("api", METADATA)
        handler = fields.pop("handler", self.replies.append)
        return UnsentRequest(api, api.request(), handler, node, **fields)

    def submit(self, *requests: UnsentRequest) -> None:
        self.dispatcher.submit(requests, self.now)

    def step(self, timeout_ms: float = 0) -> float:
        """Run one step. Returns how long it waited (ms)."""
        before = self.now
        self.dispatcher.step(timeout_ms)
        return self.now - before

    def steps(self, count: int = 6) -> None:
        for _ in range(count):
            self.dispatcher.step(0)

    def unreachable(self) -> None:
        """Refuse attempts to connect."""
        self.harness.net.servers = {"10.0.0.1": errno.ECONNREFUSED}


def test_request_waits_for_its_connection_and_gets_its_response() -> None:
    """A request for a broker that is not connected opens a connection; the reply has version, connection and time."""
    case = Case()
    assert case.dispatcher.idle
    case.submit(case.request("-1"))
    assert not case.dispatcher.idle
    assert "waiting=[Metadata]" in repr(case.dispatcher)
    case.steps()
    (reply,) = case.replies
    assert (None, "-1", case.now) == (reply.error, reply.node, reply.now)
    assert isinstance(reply.message, METADATA.response)
    assert METADATA.min_version <= reply.version <= METADATA.max_version
    assert case.dispatcher.idle


def test_request_is_sent_at_once_on_a_ready_connection() -> None:
    """A request is sent at once if its connection is ready."""
    case = Case()
    case.harness.connect()
    case.submit(case.request("-1"))
    assert "waiting=[]" in repr(case.dispatcher)
    assert 1 == case.harness.client.in_flight()
    case.steps(2)
    assert 1 == len(case.replies)


def test_any_broker_will_do_without_a_node() -> None:
    """A request without a node is sent to the least loaded broker, which the reply names."""
    case = Case()
    case.submit(case.request())
    case.steps()
    assert ["-1"] == [reply.node for reply in case.replies]


def test_requests_are_sent_in_the_order_of_submission() -> None:
    """Requests that waited for one connection are sent in order, before later ones."""
    case = Case()
    order: list[int] = []
    case.submit(*(case.request("-1", handler=lambda _, n=n: order.append(n)) for n in range(3)))
    case.submit(case.request("-1", handler=lambda _: order.append(3)))
    case.steps()
    assert [0, 1, 2, 3] == order


def test_refused_connection_fails_the_request() -> None:
    """The handler receives the connection's error with the address; the dispatcher does not retry."""
    case = Case()
    case.unreachable()
    case.submit(case.request("-1"))
    case.steps()
    (reply,) = case.replies
    assert isinstance(reply.error, BrokerConnectionError)
    assert "boot:9092" in str(reply.error)
    assert case.dispatcher.idle


def test_lack_of_any_broker_is_reported() -> None:
    """While all brokers are in backoff, a request for any of them fails at once and the metadata manager
    is notified.
    """
    case = Case(reconnect_backoff_ms=500, reconnect_backoff_max_ms=500)
    case.unreachable()
    case.submit(case.request())
    case.steps()
    case.submit(case.request())
    assert [case.now] == case.unreachable_at[-1:]
    error = case.replies[-1].error
    assert isinstance(error, BrokerConnectionError)
    assert "no broker can be reached" in str(error)


def test_a_ready_connection_shows_that_a_broker_can_be_reached() -> None:
    """While the connection to the coordinator is ready, a broker in backoff does not lead to another bootstrap, which
    would close that connection.
    """
    case = Case(reconnect_backoff_ms=500, reconnect_backoff_max_ms=500)
    case.harness.client.set_nodes([Node(1, "boot", 9092)])
    case.submit(case.request("+1"))
    case.steps()
    case.unreachable()
    case.submit(case.request())
    case.steps()
    case.submit(case.request())
    assert [None, BrokerConnectionError, BrokerConnectionError] == [
        reply.error and type(reply.error) for reply in case.replies
    ]
    assert [] == case.unreachable_at
    case.dispatcher.disconnect("+1", case.now)
    case.submit(case.request())
    assert [case.now] == case.unreachable_at


def test_unknown_broker_fails_the_request() -> None:
    """The handler receives an error for a connection id that metadata no longer contains."""
    case = Case()
    case.submit(case.request("77"))
    case.steps(1)
    assert [BrokerConnectionError] == [type(reply.error) for reply in case.replies]


def test_request_that_never_becomes_ready_times_out() -> None:
    """If its connection hangs, a request fails after its own timeout, and the step waits no longer than that."""
    case = Case(socket_connection_setup_timeout_ms=60_000, socket_connection_setup_timeout_max_ms=60_000)
    case.harness.net.servers = {}
    case.submit(case.request("-1", timeout_ms=700))
    case.steps(2)
    assert case.step(10_000) <= 700
    case.steps(2)
    (reply,) = case.replies
    assert isinstance(reply.error, TimeoutError)
    assert "Metadata" in str(reply.error)
    assert "-1" in str(reply.error)


def test_a_request_does_not_time_out_before_the_network_is_read() -> None:
    """A connection may have become ready while the application made no call: then the request is sent."""
    case = Case()
    case.submit(case.request("-1", timeout_ms=700))
    while not case.harness.net.last.inbox:
        case.steps(1)
    case.harness.clock.advance(800)
    case.steps()
    assert [None] == [reply.error for reply in case.replies]


def test_request_of_an_api_that_the_broker_lacks() -> None:
    """The handler receives an UnsupportedVersionError."""
    case = Case()
    case.harness.broker.on(API_VERSIONS, api_versions(ConsumerGroupHeartbeat=(1, 0)))
    case.submit(case.request("-1", api=CONSUMER_GROUP_HEARTBEAT))
    case.steps()
    assert isinstance(case.replies[0].error, UnsupportedVersionError)


@pytest.mark.parametrize("bad", [5.0, "5", None, 2**31])
def test_request_that_cannot_be_encoded_fails_alone(bad: Any) -> None:
    """A value that cannot be encoded fails its own request; earlier and later requests have responses."""
    case = Case()
    case.harness.connect()
    broken = case.request("-1", api=CONSUMER_GROUP_HEARTBEAT)
    broken.message.member_epoch = bad
    case.submit(case.request("-1"), broken, case.request("-1"))
    case.steps()
    (failed,) = [reply for reply in case.replies if reply.error is not None]
    assert isinstance(failed.error, ProtocolError)
    assert "ConsumerGroupHeartbeat" in str(failed.error)
    assert "member_epoch" in str(failed.error)
    assert [METADATA.response] * 2 == [type(reply.message) for reply in case.replies if reply.error is None]
    assert case.dispatcher.idle


def test_versions_are_kept_in_the_given_limits() -> None:
    """max_version of a request limits the version that is used."""
    case = Case()
    case.submit(case.request("-1", max_version=METADATA.min_version))
    case.steps()
    assert METADATA.min_version == case.replies[0].version


def test_handlers_may_submit_more() -> None:
    """No request is lost if a handler submits one while the dispatcher iterates over its list."""
    case = Case()

    def again(reply: Reply) -> None:
        case.replies.append(reply)
        case.submit(case.request("-1"))

    case.submit(case.request("-1", handler=again), case.request("-1"))
    case.steps(8)
    assert 3 == len(case.replies)
    assert [None] * 3 == [reply.error for reply in case.replies]


def test_failing_handler_does_not_silence_the_others() -> None:
    """All handlers run; the first KafkaError is raised from the step."""
    case = Case()
    case.harness.connect()

    def fail(_: Reply) -> None:
        raise StateError("from the handler")

    case.submit(case.request("-1", handler=fail), case.request("-1"))
    with pytest.raises(StateError, match="from the handler"):
        case.steps(3)
    case.steps(1)
    assert 1 == len(case.replies)


def test_step_does_not_sleep_after_it_failed_a_request() -> None:
    """After a request failed the step returns before it waits for the network, so that its manager may retry sooner."""
    case = Case(reconnect_backoff_ms=500, reconnect_backoff_max_ms=500)
    case.unreachable()
    case.submit(case.request("-1"))
    case.steps()
    assert 1 == len(case.replies)
    case.submit(case.request("-1"))
    assert 2 == len(case.replies), "the connection is backing off"
    assert 0 == case.step(10_000)
    assert case.step(300) > 0, "once"


def test_requests_of_different_brokers_do_not_wait_for_each_other() -> None:
    """While one broker hangs during connect, requests to another have responses."""
    case = Case()
    case.harness.net.names["far"] = ["10.0.0.9"]
    case.harness.client.set_nodes([Node(1, "boot", 9092), Node(2, "far", 9092)])
    case.submit(case.request("2"), case.request("1"))
    case.steps()
    assert ["1"] == [reply.node for reply in case.replies]
    assert "waiting=[Metadata]" in repr(case.dispatcher)


def test_time_is_reported_before_responses() -> None:
    """The clock listener is called after the wait and before the handlers of the responses."""
    case = Case()
    reported: list[tuple[float, int]] = []
    case.dispatcher.on_woken.append(lambda now: reported.append((now, len(case.replies))))
    case.submit(case.request("-1"))
    case.steps()
    assert 1 == len(case.replies)
    assert [(case.now, 0)] == reported


def test_disconnecting_fails_requests_in_flight_and_waiting() -> None:
    """Disconnecting fails the connection's requests, in flight or waiting; requests to other brokers
    continue to wait.
    """
    case = Case()
    case.harness.connect()
    case.harness.broker.on(METADATA, SILENCE)
    case.submit(case.request("-1"))
    case.dispatcher.disconnect("-1", case.now)
    case.steps(2)
    (lost,) = case.replies
    assert isinstance(lost.error, BrokerConnectionError)

    case.submit(case.request("-1"))
    assert "waiting=[Metadata]" in repr(case.dispatcher)
    case.dispatcher.disconnect("-2", case.now)
    assert 1 == len(case.replies)
    case.dispatcher.disconnect("-1", case.now)
    assert "given up" in str(case.replies[1].error)
    assert case.dispatcher.idle
