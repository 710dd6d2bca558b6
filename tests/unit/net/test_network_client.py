"""NetworkClient over a fake network, with a clock that the test moves."""

from __future__ import annotations

import errno

import pytest

from kconsumer._core.net import MAX_IN_FLIGHT
from kconsumer.errors import (
    AuthenticationError,
    BrokerConnectionError,
    ProtocolError,
    StateError,
)
from kconsumer.errors import TimeoutError as KafkaTimeoutError
from kconsumer.net.background import BackgroundTask
from kconsumer.schema.classic_group import HEARTBEAT
from kconsumer.schema.fetch import FETCH
from kconsumer.schema.metadata import API_VERSIONS, METADATA
from kconsumer.types import Node
from support.fakes.fake_network import NetworkHarness
from support.fakes.scripted_broker import SILENCE, Script, response_bytes


@pytest.fixture
def harness() -> NetworkHarness:
    return NetworkHarness()


def brokers(harness: NetworkHarness, count: int) -> list[Script]:
    """Configure the client with `count` brokers b0, b1…, each with a script."""
    scripts = []
    for index in range(count):
        script = Script()
        harness.net.names[f"b{index}"] = [f"10.1.0.{index}"]
        harness.net.servers[f"10.1.0.{index}"] = script
        scripts.append(script)
    harness.client.set_nodes([Node(index, f"b{index}", 9092) for index in range(count)])
    return scripts


# --- connecting ---


def test_nothing_happens_at_construction(harness: NetworkHarness) -> None:
    """Before the first use there is no selector, descriptor, lookup or connection."""
    assert ([], [], []) == (harness.net.selectors, harness.net.lookups, harness.net.attempts)
    assert repr(harness.client) == "<NetworkClient: 1 brokers known, 0 connected, 0 in flight>"


def test_the_first_request_of_a_connection_is_api_versions(harness: NetworkHarness) -> None:
    """`ready` connects; the connection is usable once the ApiVersions response arrived."""
    harness.connect()
    assert ["ApiVersions"] == harness.broker.names()
    assert API_VERSIONS.max_version == harness.broker.requests[0].version
    assert harness.client.api_versions("-1")[FETCH.key] == (FETCH.min_version, FETCH.max_version)


def test_a_request_gets_its_response(harness: NetworkHarness) -> None:
    """After send, poll returns the response with its request, version and time."""
    harness.broker.on(METADATA, METADATA.response(cluster_id="c"))
    harness.connect()
    request = harness.send()
    [response] = harness.poll()
    assert response.request is request
    assert (None, "c", METADATA.max_version) == (
        response.error,
        response.message.cluster_id,
        response.version,
    )
    assert 0 == harness.client.in_flight()


def test_a_request_leaves_before_the_next_poll(harness: NetworkHarness) -> None:
    """`send` writes at once, so that the broker processes the request while the caller decodes records."""
    harness.connect()
    before = len(harness.net.last.written)
    harness.send()
    assert len(harness.net.last.written) > before
    assert 1 == harness.client.in_flight("-1")


def test_a_request_may_be_written_later(harness: NetworkHarness) -> None:
    """With deferred writes a request is written by `flush` or by the next poll."""
    harness.broker.on(METADATA, METADATA.response())
    harness.connect()
    harness.client.defer_writes(True)
    harness.send()
    assert ["ApiVersions"] == harness.broker.names()
    harness.client.flush(harness.clock.now())
    assert ["ApiVersions", "Metadata"] == harness.broker.names()
    harness.send()
    assert 2 == len(harness.poll())
    assert ["ApiVersions", "Metadata", "Metadata"] == harness.broker.names()


def test_a_deferred_write_ends_with_its_connection(harness: NetworkHarness) -> None:
    """A deferred request of a lost connection is not written to the next connection."""
    harness.connect()
    harness.client.defer_writes(True)
    harness.send()
    harness.client.disconnect("-1", harness.clock.now())
    (response,) = harness.poll()
    assert "was closed by this client" in str(response.error)
    harness.poll(100)
    harness.connect()
    assert ["ApiVersions", "ApiVersions"] == harness.broker.names()


def test_a_slow_socket_accepts_a_request_in_parts(harness: NetworkHarness) -> None:
    """Bytes that the kernel does not accept are written when the socket becomes writable."""
    harness.broker.on(METADATA, METADATA.response())
    harness.connect()
    harness.net.last.room = 5
    harness.send()
    harness.send()
    assert [] == harness.poll()
    harness.net.last.room = 1 << 20
    assert 2 == len(harness.poll() + harness.poll())
    assert ["ApiVersions", "Metadata", "Metadata"] == harness.broker.names()


def test_every_address_of_a_name_is_tried_at_once(harness: NetworkHarness) -> None:
    """After a refused address the next one is tried without a backoff; a success clears the failure."""
    harness.net.names["boot"] = ["10.0.0.8", "10.0.0.9", "10.0.0.1"]
    harness.net.servers |= {"10.0.0.8": errno.ENETUNREACH, "10.0.0.9": errno.ECONNREFUSED}
    harness.connect()
    assert ["10.0.0.8", "10.0.0.9", "10.0.0.1"] == [str(t.address) for t in harness.net.attempts]
    assert harness.failed() is None


def test_a_round_of_failures_names_every_address(harness: NetworkHarness) -> None:
    """If no address works the error has the reason for each, and the node is in backoff."""
    harness.net.names["boot"] = ["10.0.0.8", "10.0.0.9"]
    harness.net.servers |= {"10.0.0.8": errno.ENETUNREACH, "10.0.0.9": errno.ECONNREFUSED}
    assert not harness.ready()
    harness.poll(1_000)
    error = harness.failed()
    assert isinstance(error, BrokerConnectionError)
    assert str(error) == (
        "bootstrap broker boot:9092 cannot be reached: no route to the network (10.0.0.8); "
        "connection refused (is a broker listening there?) (10.0.0.9)"
    )
    assert 40 <= harness.delay() <= 60
    assert all(t.closed for t in harness.net.attempts if t.failure)


def test_a_name_that_does_not_resolve_is_an_error_of_the_node(harness: NetworkHarness) -> None:
    """The error contains the resolver's message, and the name is resolved again after the backoff."""
    harness.net.names.clear()
    assert not harness.ready()
    assert "the name could not be resolved" in str(harness.failed())
    harness.clock.advance(60)
    assert harness.failed() is None
    assert not harness.ready()
    assert ["boot", "boot"] == harness.net.lookups


def test_reconnect_backoff_doubles_up_to_its_maximum(harness: NetworkHarness) -> None:
    """The backoff is 50, 100, 200… 1000 ms with a jitter of 20 %; poll reports each failure at once."""
    harness.net.servers["10.0.0.1"] = errno.ECONNREFUSED
    for expected in (50, 100, 200, 400, 800, 1_000, 1_000):
        assert not harness.ready()
        start = harness.clock.now()
        assert [] == harness.poll(5_000)
        assert start == harness.clock.now()
        delay = harness.delay()
        assert expected * 0.8 <= delay <= min(1_000, expected * 1.2) + 0.001
        assert not harness.ready()
        harness.clock.advance(delay)
    attempts = len(harness.net.attempts)
    harness.net.servers["10.0.0.1"] = harness.broker
    harness.connect()
    assert attempts + 1 == len(harness.net.attempts)


def test_a_ready_connection_resets_the_backoff(harness: NetworkHarness) -> None:
    """After a success the backoff starts at 50 ms again."""
    harness.net.servers["10.0.0.1"] = errno.ECONNREFUSED
    for _ in range(4):
        harness.ready()
        harness.poll()
        harness.clock.advance(1_000)
    harness.net.servers["10.0.0.1"] = harness.broker
    harness.connect()
    harness.net.last.close_by_peer()
    harness.poll()
    assert 40 <= harness.delay() <= 60


def test_an_attempt_that_hangs_times_out(harness: NetworkHarness) -> None:
    """An attempt ends at the setup timeout, which doubles with each round up to 30 s."""
    del harness.net.servers["10.0.0.1"]
    for expected in (10_000, 20_000, 30_000, 30_000):
        assert not harness.ready()
        start = harness.clock.now()
        assert [] == harness.poll(100_000)
        assert expected * 0.8 <= harness.clock.now() - start <= min(30_000, expected * 1.2) + 0.001
        assert "no connection within" in str(harness.failed())
        harness.clock.advance(1_000)


def test_names_are_resolved_again_after_a_lost_connection(harness: NetworkHarness) -> None:
    """After a lost connection the name is resolved again, and the address that failed is tried last."""
    harness.net.names["boot"] = ["10.0.0.1", "10.0.0.2"]
    harness.net.servers["10.0.0.2"] = harness.broker
    harness.connect()
    harness.net.last.close_by_peer()
    harness.poll()
    harness.clock.advance(100)
    harness.connect()
    assert ["boot", "boot"] == harness.net.lookups
    assert ["10.0.0.1", "10.0.0.2"] == [str(t.address) for t in harness.net.attempts]


# --- name servers that take their time ---


def test_a_name_that_takes_time_is_waited_for_by_poll(harness: NetworkHarness) -> None:
    """Nothing blocks while a name is resolved: poll waits, the state shows the lookup, and the client connects when it
    ends.
    """
    harness.net.hanging = []
    assert not harness.ready()
    assert not harness.ready()
    assert "-1" == harness.client.least_loaded_node(harness.clock.now())
    assert float("inf") == harness.delay()
    start = harness.clock.now()
    assert [] == harness.poll(700)
    assert start + 700 == harness.clock.now()
    assert harness.failed() is None
    assert "has not been resolved to an address for 700 ms" in harness.client.connection_errors(harness.clock.now())
    assert ["resolving"] == [found.state for found in harness.client.report(harness.clock.now())]
    (lookup,) = harness.net.hanging
    harness.net.at(harness.clock.now() + 50, lookup)
    for _ in range(4):
        harness.poll(100)
    assert harness.ready()
    assert ["boot"] == harness.net.lookups


def test_a_name_server_that_does_not_respond_is_an_error(harness: NetworkHarness) -> None:
    """A lookup is awaited for the setup timeout; then the node is in backoff, and the next attempt waits for the same
    lookup.
    """
    harness.net.hanging = []
    assert not harness.ready()
    start = harness.clock.now()
    assert [] == harness.poll(100_000)
    assert 8_000 <= harness.clock.now() - start <= 12_000
    assert "its name was not resolved within" in str(harness.failed())
    harness.clock.advance(100)
    assert not harness.ready()
    (lookup,) = harness.net.hanging
    lookup()
    for _ in range(4):
        harness.poll()
    assert harness.ready()
    assert ["boot"] == harness.net.lookups


def test_a_broker_that_moves_is_not_connected_to_by_its_old_name(harness: NetworkHarness) -> None:
    """If a broker's host changes during a lookup, its result is ignored and the new name is resolved."""
    harness.net.hanging = []
    harness.net.names |= {"old": ["10.0.0.8"], "new": ["10.0.0.1"]}
    harness.client.set_nodes([Node(5, "old", 9092)])
    assert not harness.ready("5")
    harness.client.set_nodes([Node(5, "new", 9092)])
    assert not harness.ready("5")
    for lookup in harness.net.hanging:
        lookup()
    for _ in range(4):
        harness.poll()
    assert harness.ready("5")
    assert ["10.0.0.1"] == [str(t.address) for t in harness.net.attempts]


# --- losing connections ---


def test_a_reset_fails_what_is_in_flight(harness: NetworkHarness) -> None:
    """Every request in flight fails with an error that has broker, address and reason."""
    harness.connect()
    sent = [harness.send(), harness.send()]
    harness.net.last.fail(errno.ECONNRESET)
    failed = harness.poll(1_000)
    assert sent == [response.request for response in failed]
    for response in failed:
        assert isinstance(response.error, BrokerConnectionError)
        assert "bootstrap broker boot:9092 (10.0.0.1) was lost: the connection was reset" in str(response.error)
    assert harness.failed() is failed[0].error
    assert 0 == harness.client.in_flight()


def test_responses_before_the_end_still_count(harness: NetworkHarness) -> None:
    """Responses that arrive before the end of the connection are returned."""
    harness.connect()
    harness.send()
    first = response_bytes(METADATA, METADATA.max_version, 1, METADATA.response(cluster_id="c"))
    harness.send()
    harness.net.last.deliver(first)
    harness.net.last.close_by_peer()
    responses = harness.poll() + harness.poll()
    assert ["c", None] == [response.message and response.message.cluster_id for response in responses]


def test_a_write_that_fails_is_reported_by_poll(harness: NetworkHarness) -> None:
    """`send` does not raise for a failed write; the next poll does not block and returns the failed request."""
    harness.connect()
    harness.net.last.fail(errno.EPIPE)
    request = harness.send()
    [response] = harness.poll(float("inf"))
    assert request is response.request
    assert isinstance(response.error, BrokerConnectionError)


def test_a_request_timeout_ends_the_connection(harness: NetworkHarness) -> None:
    """The late request fails with TimeoutError, and others on the connection with BrokerConnectionError."""
    harness.connect()
    patient = harness.send(timeout_ms=300_000)
    harness.clock.advance(100)
    late = harness.send(timeout_ms=5_000)
    start = harness.clock.now()
    errors = {id(response.request): response.error for response in harness.poll(60_000)}
    assert 5_000 == harness.clock.now() - start
    assert isinstance(errors[id(late)], KafkaTimeoutError)
    assert "bootstrap broker boot:9092 did not respond to Metadata within 5000 ms" == str(errors[id(late)])
    assert isinstance(errors[id(patient)], BrokerConnectionError)
    assert harness.net.last.closed


def test_a_response_that_arrives_does_not_time_out(harness: NetworkHarness) -> None:
    """If the caller was away for longer than the timeout and then reads a part of a response, the timeout starts again.
    It ends the connection if no more bytes arrive.
    """
    harness.connect()
    first = harness.send(timeout_ms=30_000)
    whole = response_bytes(METADATA, METADATA.max_version, 1, METADATA.response(cluster_id="c" * 300))
    for start in range(0, 300, 100):
        harness.clock.advance(40_000)
        harness.net.last.deliver(whole[start : start + 100])
        assert [] == harness.poll()
    harness.net.last.deliver(whole[300:])
    [response] = harness.poll()
    assert (first, "c" * 300) == (response.request, response.message.cluster_id)
    second = harness.send(timeout_ms=30_000)
    harness.clock.advance(20_000)
    harness.net.last.deliver(response_bytes(METADATA, METADATA.max_version, 2, METADATA.response())[:10])
    start = harness.clock.now()
    [response] = harness.poll(100_000)
    assert (second, 30_000) == (response.request, harness.clock.now() - start)
    assert "did not respond to Metadata within 50000 ms" in str(response.error)


def test_requests_behind_a_response_that_arrives_do_not_time_out(harness: NetworkHarness) -> None:
    """Requests behind a large response that is being received do not time out, because a connection
    responds in order.
    """
    harness.connect()
    requests = [harness.send(timeout_ms=timeout_ms) for timeout_ms in (30_000, 5_000)]
    harness.clock.advance(40_000)
    harness.net.last.deliver(response_bytes(METADATA, METADATA.max_version, 1, METADATA.response()))
    assert requests[:1] == [response.request for response in harness.poll()]
    harness.clock.advance(4_000)
    harness.net.last.deliver(response_bytes(METADATA, METADATA.max_version, 2, METADATA.response()))
    assert requests[1:] == [response.request for response in harness.poll()]


def test_a_silent_broker_times_out_although_the_caller_was_away(harness: NetworkHarness) -> None:
    """If nothing arrived while the caller was away, the first poll ends the connection."""
    harness.connect()
    harness.send(timeout_ms=30_000)
    harness.clock.advance(40_000)
    [response] = harness.poll()
    assert isinstance(response.error, KafkaTimeoutError)


def test_a_completed_request_no_longer_times_out(harness: NetworkHarness) -> None:
    """The deadline of a request ends with its response."""
    harness.broker.on(METADATA, METADATA.response())
    harness.connect()
    harness.send(timeout_ms=500)
    assert 1 == len(harness.poll())
    assert [] == harness.poll(5_000)
    assert harness.ready()


def test_a_broker_silent_about_its_versions_times_out(harness: NetworkHarness) -> None:
    """ApiVersions has the request timeout; after it the node is in backoff with an error."""
    harness.broker.on(API_VERSIONS, SILENCE)
    assert not harness.ready()
    start = harness.clock.now()
    harness.poll(100_000)
    assert 30_000 == harness.clock.now() - start
    assert "did not respond to ApiVersions within 30000 ms" in str(harness.failed())


def test_disconnect_is_not_a_failure_of_the_broker(harness: NetworkHarness) -> None:
    """`disconnect` fails requests in flight and starts a backoff, but is not recorded as a failure of the node."""
    harness.connect()
    request = harness.send()
    harness.client.disconnect("-1", harness.clock.now())
    [response] = harness.poll(float("inf"))
    assert request is response.request
    assert "was closed by this client" in str(response.error)
    assert harness.failed() is None
    assert 40 <= harness.delay() <= 60
    harness.client.disconnect("-1", harness.clock.now())


def test_an_invalid_response_fails_its_own_request(harness: NetworkHarness) -> None:
    """A response that does not parse fails its request with ProtocolError and the others with a lost connection."""
    harness.broker.next(METADATA, b"\x00\x00\x00\x06\x00\x00\x00\x01\x00\xff")
    harness.connect()
    culprit, other = harness.send(), harness.send()
    errors = {id(response.request): response.error for response in harness.poll()}
    assert isinstance(errors[id(culprit)], ProtocolError)
    assert "responded to Metadata" in str(errors[id(culprit)])
    assert isinstance(errors[id(other)], BrokerConnectionError)


def test_connection_errors_has_every_reason_once(harness: NetworkHarness) -> None:
    """The summary for messages has each failing broker's error once, and is empty if there is none."""
    assert "" == harness.client.connection_errors(harness.clock.now())
    brokers(harness, 2)
    harness.net.servers |= {"10.1.0.0": errno.ECONNREFUSED, "10.1.0.1": errno.ETIMEDOUT}
    for node in ("0", "1", "+1"):
        harness.ready(node)
        harness.poll()
    errors = harness.client.connection_errors(harness.clock.now())
    assert "broker 0 at b0:9092 cannot be reached: connection refused" in errors
    assert "; broker 1 at b1:9092 cannot be reached: the connection timed out (10.1.0.1); " in errors


def test_an_error_outlasts_the_backoff_until_the_connection_works(harness: NetworkHarness) -> None:
    """During the next attempt the last error is still reported; without an error, how long the broker has not
    responded.
    """
    del harness.net.servers["10.0.0.1"]
    harness.ready()
    harness.poll(4_000)
    errors = harness.client.connection_errors
    assert "bootstrap broker boot:9092 (10.0.0.1) has not responded for 4000 ms" == errors(harness.clock.now())
    harness.net.last.fail(errno.ECONNREFUSED)
    harness.poll()
    harness.clock.advance(100)
    harness.ready()
    assert "connection refused" in errors(harness.clock.now())
    harness.net.last.accept(harness.broker)
    harness.poll()
    harness.poll()
    assert "" == errors(harness.clock.now())


# --- idle connections, throttling ---


def test_idle_connections_are_closed(harness: NetworkHarness) -> None:
    """A connection without traffic for connections_max_idle_ms is closed, without error or backoff."""
    harness.connect()
    start = harness.clock.now()
    harness.poll(1_000_000)
    assert harness.net.last.closed
    assert start + 1_000_000 == harness.clock.now()
    assert harness.failed() is None
    assert 0 == harness.delay()
    harness.connect()


def test_a_waiting_request_keeps_a_connection(harness: NetworkHarness) -> None:
    """A connection with a request in flight is not idle, however long the response takes (for example during a
    rebalance).
    """
    harness.connect()
    harness.send(timeout_ms=2_000_000)
    assert [] == harness.poll(1_000_000)
    assert not harness.net.last.closed


def test_idle_closing_can_be_switched_off() -> None:
    """With connections_max_idle_ms=-1 idle connections are kept."""
    harness = NetworkHarness(connections_max_idle_ms=-1)
    harness.connect()
    harness.poll(10_000_000)
    assert harness.ready()


def test_a_throttled_node_is_not_ready(harness: NetworkHarness) -> None:
    """From the throttle version on (KIP-219), a node is not ready during the throttle time of its last response."""
    harness.broker.on(METADATA, METADATA.response(throttle_time_ms=300))
    harness.connect()
    harness.send()
    [response] = harness.poll()
    assert response.error is None
    assert not harness.ready()
    assert 300 == harness.delay()
    now = harness.clock.now()
    assert (300, False) == (harness.client.throttled_ms("-1", now), harness.client.is_healthy("-1", now))
    assert harness.client.least_loaded_node(now) is None
    harness.clock.advance(300)
    assert harness.ready()
    assert harness.client.is_healthy("-1", harness.clock.now())


def test_a_connection_takes_a_hundred_requests(harness: NetworkHarness) -> None:
    """With MAX_IN_FLIGHT requests in flight a node is not ready until a response arrives."""
    harness.connect()
    for _ in range(MAX_IN_FLIGHT):
        harness.send(api=HEARTBEAT)
    assert not harness.ready()
    assert float("inf") == harness.delay()
    harness.net.last.deliver(response_bytes(HEARTBEAT, HEARTBEAT.max_version, 1, HEARTBEAT.response()))
    assert 1 == len(harness.poll())
    assert harness.ready()


# --- versions ---


def test_versions_are_unknown_before_a_connection(harness: NetworkHarness) -> None:
    """Before a connection `api_versions` is None and `negotiated` raises."""
    assert harness.client.api_versions("-1") is None
    with pytest.raises(StateError, match="not known yet"):
        harness.client.negotiated("-1", FETCH)


# --- nodes ---


def test_bootstrap_brokers_give_way_to_the_clusters(harness: NetworkHarness) -> None:
    """set_nodes closes idle bootstrap connections, and the node "-1" is unknown afterwards."""
    harness.connect()
    brokers(harness, 2)
    assert harness.net.last.closed
    assert not harness.ready("-1")
    assert "broker -1 is no longer part of the cluster" in str(harness.failed("-1"))
    harness.connect("0")


def test_a_forgotten_brokers_last_response_is_awaited(harness: NetworkHarness) -> None:
    """A connection to a broker that is no longer in metadata stays open until its requests have responses."""
    harness.connect()
    harness.send()
    transport = harness.net.last
    brokers(harness, 1)
    assert not transport.closed
    transport.deliver(response_bytes(METADATA, METADATA.max_version, 1, METADATA.response(cluster_id="c")))
    [response] = harness.poll()
    assert "c" == response.message.cluster_id


def test_the_coordinator_has_a_connection_of_its_own(harness: NetworkHarness) -> None:
    """ "0" and "+0" are two connections to one broker."""
    [script] = brokers(harness, 1)
    harness.connect("0")
    harness.connect("+0")
    assert ["10.1.0.0", "10.1.0.0"] == [str(t.address) for t in harness.net.attempts]
    assert 2 == len(script.requests)


def test_a_moved_broker_is_found_at_its_new_address(harness: NetworkHarness) -> None:
    """Metadata with another host for a broker ends the backoff."""
    harness.client.set_nodes([Node(5, "gone", 9092)])
    assert not harness.ready("5")
    assert harness.failed("5") is not None
    harness.client.set_nodes([Node(5, "boot", 9092)])
    assert harness.failed("5") is None
    harness.connect("5")


def test_cluster_and_node_id_are_checked(harness: NetworkHarness) -> None:
    """ApiVersions has the expected cluster and node id for brokers from metadata, and not for bootstrap brokers
    (KIP-1242).
    """
    harness.connect()
    assert (None, -1) == (
        harness.broker.requests[0].message.cluster_id,
        harness.broker.requests[0].message.node_id,
    )
    harness.client.set_nodes([Node(3, "boot", 9092)], cluster_id="c")
    harness.connect("+3")
    assert ("c", 3) == (harness.broker.requests[1].message.cluster_id, harness.broker.requests[1].message.node_id)


def test_a_broker_of_another_cluster_asks_for_a_rebootstrap(harness: NetworkHarness) -> None:
    """REBOOTSTRAP_REQUIRED in ApiVersions sets `needs_rebootstrap`; rebootstrap returns to the bootstrap list."""
    harness.broker.next(API_VERSIONS, API_VERSIONS.response(error_code=129))
    harness.client.set_nodes([Node(3, "boot", 9092)], cluster_id="c")
    harness.ready("3")
    harness.poll(100)
    harness.poll(0)
    assert harness.client.needs_rebootstrap
    assert 129 == harness.failed("3").code
    harness.client.rebootstrap()
    assert not harness.client.needs_rebootstrap
    assert "-1" == harness.client.least_loaded_node(harness.clock.now())


def test_rebootstrap_keeps_the_backoff_of_bootstrap_brokers(harness: NetworkHarness) -> None:
    """Repeated rebootstraps to an unreachable list do not cause a tight loop."""
    harness.net.servers["10.0.0.1"] = errno.ECONNREFUSED
    harness.ready()
    harness.poll()
    assert harness.client.least_loaded_node(harness.clock.now()) is None
    harness.client.rebootstrap()
    assert harness.client.least_loaded_node(harness.clock.now()) is None
    assert harness.delay() > 0


def test_rebootstrap_can_close_everything(harness: NetworkHarness) -> None:
    """With close_connections requests in flight fail."""
    brokers(harness, 1)
    harness.connect("0")
    harness.send("0")
    harness.client.rebootstrap(close_connections=True)
    assert ["was closed by this client" in str(response.error) for response in harness.poll()] == [True]


# --- least loaded ---


def test_an_idle_ready_broker_is_preferred(harness: NetworkHarness) -> None:
    """The order is: ready with nothing in flight, ready with the fewest requests, connecting, then the broker tried
    longest ago.
    """
    brokers(harness, 3)
    least = harness.client.least_loaded_node
    now = harness.clock.now()
    assert least(now) in {"0", "1", "2"}
    harness.connect("1")
    assert {"1"} == {least(now) for _ in range(10)}
    harness.send("1")
    assert {"1"} == {least(now) for _ in range(10)}
    harness.connect("2")
    assert {"2"} == {least(now) for _ in range(10)}
    harness.send("2")
    harness.send("2")
    assert {"1"} == {least(now) for _ in range(10)}


def test_a_connecting_broker_comes_before_an_unconnected_one(harness: NetworkHarness) -> None:
    """If no broker is ready the one that is connecting is chosen."""
    brokers(harness, 3)
    del harness.net.servers["10.1.0.2"]
    assert not harness.ready("2")
    assert {"2"} == {harness.client.least_loaded_node(harness.clock.now()) for _ in range(10)}


def test_brokers_are_tried_in_turn(harness: NetworkHarness) -> None:
    """Of unconnected brokers the one tried longest ago is chosen, and none in backoff."""
    brokers(harness, 2)
    harness.net.servers |= {"10.1.0.0": errno.ECONNREFUSED, "10.1.0.1": errno.ECONNREFUSED}
    tried = []
    for _ in range(4):
        node = harness.client.least_loaded_node(harness.clock.now())
        assert node is not None
        tried.append(node)
        harness.ready(node)
        harness.poll()
        harness.clock.advance(500)
    assert tried[:2] == tried[2:]
    assert {"0", "1"} == set(tried)
    for node in ("0", "1"):
        harness.ready(node)
        harness.poll()
    assert harness.client.least_loaded_node(harness.clock.now()) is None


def test_a_coordinators_connection_is_not_least_loaded(harness: NetworkHarness) -> None:
    """The coordinator's connection is never chosen as least loaded."""
    brokers(harness, 1)
    harness.connect("+0")
    assert "0" == harness.client.least_loaded_node(harness.clock.now())
    assert 1 == len(harness.net.attempts)


# --- polling ---


def test_poll_waits_for_the_whole_response(harness: NetworkHarness) -> None:
    """A part of a response does not end a poll before its timeout."""
    harness.connect()
    harness.send()
    whole = response_bytes(METADATA, METADATA.max_version, 1, METADATA.response())
    transport, now = harness.net.last, harness.clock.now()
    for index, byte in enumerate(whole):
        harness.net.at(now + index, lambda byte=byte: transport.deliver(bytes([byte])))
    assert 1 == len(harness.poll(10_000))
    assert now + len(whole) - 1 == harness.clock.now()


def test_wakeup_ends_one_poll(harness: NetworkHarness) -> None:
    """A wakeup before the poll ends it at once; the next poll waits."""
    harness.client.wakeup()
    start = harness.clock.now()
    assert [] == harness.poll(10_000)
    assert start == harness.clock.now()
    harness.poll(10)
    assert start + 10 == harness.clock.now()


def test_poll_returns_when_a_connection_becomes_ready(harness: NetworkHarness) -> None:
    """poll returns when a connection becomes ready, before its timeout."""
    harness.ready()
    start = harness.clock.now()
    harness.poll(10_000)
    assert start == harness.clock.now()
    assert harness.ready()


def test_close_gives_everything_back(harness: NetworkHarness) -> None:
    """close() frees the selector first, then the sockets; the client is unusable afterwards, and another close() does
    nothing.
    """
    harness.connect()
    harness.send()
    harness.client.close()
    assert harness.net.selectors[0].closed
    assert harness.net.last.closed
    assert 0 == harness.client.in_flight()
    assert "<NetworkClient: closed, 0 in flight>" == repr(harness.client)
    harness.client.close()
    harness.client.wakeup()
    with pytest.raises(StateError, match="closed"):
        harness.poll()


def test_abandoning_touches_no_shared_selector(harness: NetworkHarness) -> None:
    """A forked child unregisters no descriptor, because it shares the epoll set with its parent."""
    harness.connect()
    selector = harness.net.selectors[0]
    registered = dict(selector.get_map())
    harness.client.abandon()
    assert registered == selector.get_map()
    assert selector.closed
    assert harness.net.last.closed


# --- certificates that have changed ---


def pending_certificates(harness: NetworkHarness) -> BackgroundTask[None]:
    """Let the next attempts wait for certificates that are being read."""
    harness.net.certificates = task = BackgroundTask(lambda: None)
    return task


def complete(harness: NetworkHarness, task: BackgroundTask[None], error: Exception | None = None) -> None:
    """Complete the reading of the certificates, or fail it."""
    task.run() if error is None else task.fail(error)
    harness.net.certificates = None
    harness.client._loop.background.completed_tasks = True


def test_connections_wait_for_certificates(harness: NetworkHarness) -> None:
    """No socket is opened before changed certificates have been read; then every waiting attempt continues."""
    harness.client.set_nodes([Node(1, "boot", 9092), Node(2, "boot", 9092)])
    task = pending_certificates(harness)
    for _ in range(3):
        assert not harness.ready("1")
        assert not harness.ready("2")
        harness.poll()
    assert [] == harness.net.attempts
    assert {"reading certificates"} == {found.state for found in harness.client.report(harness.clock.now())}
    assert float("inf") == harness.delay("1")
    assert "waits for changed certificates to be read" in harness.client.last_error("1", harness.clock.now())
    complete(harness, task)
    for _ in range(4):
        harness.poll()
    assert harness.ready("1")
    assert harness.ready("2")
    assert 2 == len(harness.net.attempts)


def test_certificates_that_are_never_read(harness: NetworkHarness) -> None:
    """An attempt that waits for certificates ends at its setup timeout, with the reason. The next one waits for the
    same task and connects when it is complete.
    """
    task = pending_certificates(harness)
    harness.ready()
    for _ in range(12):
        harness.poll(1_000)
        if harness.failed() is not None:
            break
    assert "changed certificates were not read within" in str(harness.failed())
    assert [] == harness.net.attempts
    harness.clock.advance(harness.delay())
    assert not harness.ready()
    complete(harness, task)
    for _ in range(4):
        harness.poll()
    assert harness.ready()


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (KeyError("hunter2"), AuthenticationError, "a callable such as ssl_password failed with KeyError"),
        (OSError(errno.EACCES, "Permission denied"), BrokerConnectionError, "cannot be read: Permission denied"),
        (BrokerConnectionError("no thread"), BrokerConnectionError, "no thread"),
    ],
)
def test_certificates_that_cannot_be_read(
    harness: NetworkHarness, error: Exception, kind: type[Exception], text: str
) -> None:
    """The attempt fails with the error and is repeated after a backoff; no secret is shown."""
    task = pending_certificates(harness)
    harness.ready()
    harness.poll()
    complete(harness, task, error)
    harness.poll()
    assert isinstance(harness.failed(), kind)
    assert text in str(harness.failed())
    assert "hunter2" not in str(harness.failed())
    assert harness.delay() > 0
    harness.clock.advance(harness.delay())
    harness.connect()
