"""NetworkClient with an invented network and a clock moved by hand."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from kconsumer.errors import (
    AuthenticationError,
    BrokerConnectionError,
    ProtocolError,
    StateError,
    UnsupportedVersionError,
)
from kconsumer.errors import TimeoutError as KafkaTimeoutError
from kconsumer.net.background import BackgroundTask
from kconsumer.net.client import MAX_IN_FLIGHT, ClientRequest
from kconsumer.schema import API_VERSIONS, FETCH, HEARTBEAT, METADATA
from kconsumer.types import Node
from support.fakes.fake_network import NetworkHarness
from support.fakes.scripted_broker import SILENCE, Script, api_versions, response_bytes


@pytest.fixture
def harness() -> NetworkHarness:
    return NetworkHarness()


def brokers(harness: NetworkHarness, count: int) -> list[Script]:
    """Tell the client of `count` brokers b0, b1…, each with a script."""
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
    """No selector, no descriptor, no lookup and no connection before the first use."""
    assert ([], [], []) == (harness.net.selectors, harness.net.lookups, harness.net.attempts)
    assert repr(harness.client) == "<NetworkClient: 1 brokers known, 0 connected, 0 in flight>"


def test_the_first_request_of_a_connection_is_api_versions(harness: NetworkHarness) -> None:
    """`ready` connects; the connection is usable once ApiVersions is answered."""
    harness.connect()
    assert ["ApiVersions"] == harness.broker.names()
    assert API_VERSIONS.max_version == harness.broker.requests[0].version
    assert harness.client.api_versions("-1")[FETCH.key] == (FETCH.min_version, FETCH.max_version)


def test_a_request_is_answered(harness: NetworkHarness) -> None:
    """send, poll, and the response comes with the request, its version and the time."""
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
    """`send` writes at once, so that the broker works while the caller decodes."""
    harness.connect()
    before = len(harness.net.last.written)
    harness.send()
    assert len(harness.net.last.written) > before
    assert 1 == harness.client.in_flight("-1")


def test_a_request_may_be_written_later(harness: NetworkHarness) -> None:
    """With `deferred_writes` a request is sent by `flush`, or else by the next poll."""
    harness.broker.on(METADATA, METADATA.response())
    harness.connect()
    harness.client.deferred_writes = True
    harness.send()
    assert ["ApiVersions"] == harness.broker.names()
    harness.client.flush(harness.clock.now())
    assert ["ApiVersions", "Metadata"] == harness.broker.names()
    harness.send()
    assert 2 == len(harness.poll())
    assert ["ApiVersions", "Metadata", "Metadata"] == harness.broker.names()


def test_what_was_to_be_written_ends_with_its_connection(harness: NetworkHarness) -> None:
    """Nothing is written to a connection that was made after the request failed with the one before it."""
    harness.connect()
    harness.client.deferred_writes = True
    harness.send()
    harness.client.disconnect("-1", harness.clock.now())
    (response,) = harness.poll()
    assert "was closed by this client" in str(response.error)
    harness.poll(100)
    harness.connect()
    assert ["ApiVersions", "ApiVersions"] == harness.broker.names()


def test_sending_to_an_unready_node_is_refused(harness: NetworkHarness) -> None:
    """Only `ready` nodes take requests."""
    with pytest.raises(StateError, match="not ready"):
        harness.send()


def test_a_slow_socket_takes_a_request_in_pieces(harness: NetworkHarness) -> None:
    """What the kernel does not take is written when it becomes writable."""
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
    """A refused address leads to the next without a backoff; success forgets the failure."""
    harness.net.names["boot"] = ["10.0.0.8", "10.0.0.9", "10.0.0.1"]
    harness.net.servers |= {"10.0.0.8": errno.ENETUNREACH, "10.0.0.9": errno.ECONNREFUSED}
    harness.connect()
    assert ["10.0.0.8", "10.0.0.9", "10.0.0.1"] == [str(t.address) for t in harness.net.attempts]
    assert harness.failed() is None


def test_a_round_of_failures_names_every_address(harness: NetworkHarness) -> None:
    """When no address works, the error says why for each, and the node backs off."""
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
    """The name server's answer is told, and the name is looked up again after the backoff."""
    harness.net.names.clear()
    assert not harness.ready()
    assert "the name could not be resolved" in str(harness.failed())
    harness.clock.advance(60)
    assert harness.failed() is None
    assert not harness.ready()
    assert ["boot", "boot"] == harness.net.lookups


def test_reconnect_backoff_doubles_up_to_its_maximum(harness: NetworkHarness) -> None:
    """50, 100, 200… 1000 ms, each within a fifth; poll reports each failure at once."""
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
    """After success the next failure starts at 50 ms again."""
    harness.net.servers["10.0.0.1"] = errno.ECONNREFUSED
    for _ in range(4):
        harness.ready()
        harness.poll()
        harness.clock.advance(1_000)
    harness.net.servers["10.0.0.1"] = harness.broker
    harness.connect()
    harness.net.last.hang_up()
    harness.poll()
    assert 40 <= harness.delay() <= 60


def test_an_attempt_that_hangs_times_out(harness: NetworkHarness) -> None:
    """The setup timeout ends an attempt; it doubles with each round and is at most 30 s."""
    del harness.net.servers["10.0.0.1"]
    for expected in (10_000, 20_000, 30_000, 30_000):
        assert not harness.ready()
        start = harness.clock.now()
        assert [] == harness.poll(100_000)
        assert expected * 0.8 <= harness.clock.now() - start <= min(30_000, expected * 1.2) + 0.001
        assert "no connection within" in str(harness.failed())
        harness.clock.advance(1_000)


def test_names_are_resolved_again_after_a_lost_connection(harness: NetworkHarness) -> None:
    """A lost connection means a new lookup, and the address that failed comes last."""
    harness.net.names["boot"] = ["10.0.0.1", "10.0.0.2"]
    harness.net.servers["10.0.0.2"] = harness.broker
    harness.connect()
    harness.net.last.hang_up()
    harness.poll()
    harness.clock.advance(100)
    harness.connect()
    assert ["boot", "boot"] == harness.net.lookups
    assert ["10.0.0.1", "10.0.0.2"] == [str(t.address) for t in harness.net.attempts]


# --- name servers that take their time ---


def test_a_name_that_takes_time_is_waited_for_by_poll(harness: NetworkHarness) -> None:
    """Nothing blocks before the response: the client waits in poll, says so, and connects when the response comes."""
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
    (answer,) = harness.net.hanging
    harness.net.at(harness.clock.now() + 50, answer)
    for _ in range(4):
        harness.poll(100)
    assert harness.ready()
    assert ["boot"] == harness.net.lookups


def test_a_name_server_that_does_not_answer_is_an_error(harness: NetworkHarness) -> None:
    """The setup timeout bounds the wait, the node backs off, and the next attempt waits for the same lookup."""
    harness.net.hanging = []
    assert not harness.ready()
    start = harness.clock.now()
    assert [] == harness.poll(100_000)
    assert 8_000 <= harness.clock.now() - start <= 12_000
    assert "its name was not resolved within" in str(harness.failed())
    harness.clock.advance(100)
    assert not harness.ready()
    (answer,) = harness.net.hanging
    answer()
    for _ in range(4):
        harness.poll()
    assert harness.ready()
    assert ["boot"] == harness.net.lookups


def test_a_broker_that_moves_is_not_connected_to_by_its_old_name(harness: NetworkHarness) -> None:
    """The response for the old name is of no use, and the new one is asked for."""
    harness.net.hanging = []
    harness.net.names |= {"old": ["10.0.0.8"], "new": ["10.0.0.1"]}
    harness.client.set_nodes([Node(5, "old", 9092)])
    assert not harness.ready("5")
    harness.client.set_nodes([Node(5, "new", 9092)])
    assert not harness.ready("5")
    for answer in harness.net.hanging:
        answer()
    for _ in range(4):
        harness.poll()
    assert harness.ready("5")
    assert ["10.0.0.1"] == [str(t.address) for t in harness.net.attempts]


# --- losing connections ---


def test_a_reset_fails_what_is_in_flight(harness: NetworkHarness) -> None:
    """Every request in flight fails with an error naming broker, address and reason."""
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


def test_answers_before_the_end_still_count(harness: NetworkHarness) -> None:
    """Bytes that arrive with the closing of the connection are read first."""
    harness.connect()
    harness.send()
    first = response_bytes(METADATA, METADATA.max_version, 1, METADATA.response(cluster_id="c"))
    harness.send()
    harness.net.last.deliver(first)
    harness.net.last.hang_up()
    responses = harness.poll() + harness.poll()
    assert ["c", None] == [response.message and response.message.cluster_id for response in responses]


def test_a_write_that_fails_is_reported_by_poll(harness: NetworkHarness) -> None:
    """`send` does not raise for a broken socket; the request fails in the next poll, which does not block."""
    harness.connect()
    harness.net.last.fail(errno.EPIPE)
    request = harness.send()
    [response] = harness.poll(float("inf"))
    assert request is response.request
    assert isinstance(response.error, BrokerConnectionError)


def test_a_request_timeout_ends_the_connection(harness: NetworkHarness) -> None:
    """The late request fails with TimeoutError, others on the connection with BrokerConnectionError."""
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
    """The caller was away for longer than the timeout, and reads a part of the response: the timeout counts from the
    last bytes. When no more come, it ends the connection."""
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
    """A connection answers in order: what waits behind a large response is as little late as that."""
    harness.connect()
    requests = [harness.send(timeout_ms=timeout_ms) for timeout_ms in (30_000, 5_000)]
    harness.clock.advance(40_000)
    harness.net.last.deliver(response_bytes(METADATA, METADATA.max_version, 1, METADATA.response()))
    assert requests[:1] == [response.request for response in harness.poll()]
    harness.clock.advance(4_000)
    harness.net.last.deliver(response_bytes(METADATA, METADATA.max_version, 2, METADATA.response()))
    assert requests[1:] == [response.request for response in harness.poll()]


def test_a_silent_broker_times_out_although_the_caller_was_away(harness: NetworkHarness) -> None:
    """Nothing arrived meanwhile: the first poll ends the connection."""
    harness.connect()
    harness.send(timeout_ms=30_000)
    harness.clock.advance(40_000)
    [response] = harness.poll()
    assert isinstance(response.error, KafkaTimeoutError)


def test_an_answered_request_no_longer_times_out(harness: NetworkHarness) -> None:
    """The deadline goes with the response."""
    harness.broker.on(METADATA, METADATA.response())
    harness.connect()
    harness.send(timeout_ms=500)
    assert 1 == len(harness.poll())
    assert [] == harness.poll(5_000)
    assert harness.ready()


def test_a_broker_silent_about_its_versions_times_out(harness: NetworkHarness) -> None:
    """ApiVersions has the request timeout; the node then backs off with an error."""
    harness.broker.on(API_VERSIONS, SILENCE)
    assert not harness.ready()
    start = harness.clock.now()
    harness.poll(100_000)
    assert 30_000 == harness.clock.now() - start
    assert "did not respond to ApiVersions within 30000 ms" in str(harness.failed())


def test_disconnect_is_not_a_failure_of_the_broker(harness: NetworkHarness) -> None:
    """Closing on our side fails requests in flight and waits a backoff, but `failed` has nothing to say."""
    harness.connect()
    request = harness.send()
    harness.client.disconnect("-1", harness.clock.now())
    [response] = harness.poll(float("inf"))
    assert request is response.request
    assert "was closed by this client" in str(response.error)
    assert harness.failed() is None
    assert 40 <= harness.delay() <= 60
    harness.client.disconnect("-1", harness.clock.now())


def test_something_that_is_not_kafka_is_named(harness: NetworkHarness) -> None:
    """An HTTP answer ends the connection with an error that says so."""
    harness.broker.on(API_VERSIONS, b"HTTP/1.1 400 Bad Request\r\n\r\n")
    harness.ready()
    harness.poll()
    harness.poll()
    error = harness.failed()
    assert isinstance(error, ProtocolError)
    assert "bootstrap broker boot:9092 is not a Kafka broker: it speaks HTTP" in str(error)


def test_garbage_in_an_answer_is_the_culprits_error(harness: NetworkHarness) -> None:
    """A body that does not parse fails its request with ProtocolError and the others with a lost
    connection."""
    harness.broker.next(METADATA, b"\x00\x00\x00\x06\x00\x00\x00\x01\x00\xff")
    harness.connect()
    culprit, other = harness.send(), harness.send()
    errors = {id(response.request): response.error for response in harness.poll()}
    assert isinstance(errors[id(culprit)], ProtocolError)
    assert "responded to Metadata" in str(errors[id(culprit)])
    assert isinstance(errors[id(other)], BrokerConnectionError)


def test_trouble_tells_every_reason_once(harness: NetworkHarness) -> None:
    """One line for messages: each failing broker's error; nothing when all is well."""
    assert "" == harness.client.connection_errors(harness.clock.now())
    brokers(harness, 2)
    harness.net.servers |= {"10.1.0.0": errno.ECONNREFUSED, "10.1.0.1": errno.ETIMEDOUT}
    for node in ("0", "1", "+1"):
        harness.ready(node)
        harness.poll()
    trouble = harness.client.connection_errors(harness.clock.now())
    assert "broker 0 at b0:9092 cannot be reached: connection refused" in trouble
    assert "; broker 1 at b1:9092 cannot be reached: the connection timed out (10.1.0.1); " in trouble


def test_trouble_outlasts_the_backoff_until_the_connection_works(harness: NetworkHarness) -> None:
    """While the next attempt is in flight, the last one's error is still what is known; without an error, how
    long the broker has not answered."""
    del harness.net.servers["10.0.0.1"]
    harness.ready()
    harness.poll(4_000)
    trouble = harness.client.connection_errors
    assert "bootstrap broker boot:9092 (10.0.0.1) has not responded for 4000 ms" == trouble(harness.clock.now())
    harness.net.last.fail(errno.ECONNREFUSED)
    harness.poll()
    harness.clock.advance(100)
    harness.ready()
    assert "connection refused" in trouble(harness.clock.now())
    harness.net.last.accept(harness.broker)
    harness.poll()
    harness.poll()
    assert "" == trouble(harness.clock.now())


# --- idle connections, throttling ---


def test_idle_connections_are_closed(harness: NetworkHarness) -> None:
    """After connections_max_idle_ms without traffic a connection is closed, without error or backoff."""
    harness.connect()
    start = harness.clock.now()
    harness.poll(1_000_000)
    assert harness.net.last.closed
    assert start + 1_000_000 == harness.clock.now()
    assert harness.failed() is None
    assert 0 == harness.delay()
    harness.connect()


def test_a_waiting_request_keeps_a_connection(harness: NetworkHarness) -> None:
    """A connection with requests in flight is not idle, however long the response takes (a rebalance)."""
    harness.connect()
    harness.send(timeout_ms=2_000_000)
    assert [] == harness.poll(1_000_000)
    assert not harness.net.last.closed


def test_idle_closing_can_be_switched_off() -> None:
    """connections_max_idle_ms=-1 keeps connections for ever."""
    harness = NetworkHarness(connections_max_idle_ms=-1)
    harness.connect()
    harness.poll(10_000_000)
    assert harness.ready()


def test_a_throttled_node_is_not_ready(harness: NetworkHarness) -> None:
    """KIP-219: from the throttle version on, the response's throttle time makes the node unready that long."""
    harness.broker.on(METADATA, METADATA.response(throttle_time_ms=300))
    harness.connect()
    harness.send()
    [response] = harness.poll()
    assert response.error is None
    assert not harness.ready()
    assert 300 == harness.delay()
    assert harness.client.least_loaded_node(harness.clock.now()) is None
    with pytest.raises(StateError):
        harness.send()
    harness.clock.advance(300)
    assert harness.ready()


def test_old_versions_do_not_throttle(harness: NetworkHarness) -> None:
    """Below the throttle version the broker has delayed the response itself."""
    harness.broker.on(API_VERSIONS, api_versions(Metadata=(0, 5)))
    harness.broker.on(METADATA, METADATA.response(throttle_time_ms=300))
    harness.connect()
    harness.send()
    assert [5] == [response.version for response in harness.poll()]
    assert harness.ready()


def test_a_connection_takes_a_hundred_requests(harness: NetworkHarness) -> None:
    """Above MAX_IN_FLIGHT the node is not ready until a response comes."""
    harness.connect()
    for _ in range(MAX_IN_FLIGHT):
        harness.send(api=HEARTBEAT)
    assert not harness.ready()
    assert float("inf") == harness.delay()
    harness.net.last.deliver(response_bytes(HEARTBEAT, HEARTBEAT.max_version, 1, HEARTBEAT.response()))
    assert 1 == len(harness.poll())
    assert harness.ready()


# --- versions ---


def test_no_common_version_is_refused_at_send(harness: NetworkHarness) -> None:
    """The error names the api and both ranges, and the connection stays usable."""
    harness.broker.on(API_VERSIONS, api_versions(Metadata=(0, 3), Fetch=(1, 0)))
    harness.connect()
    request = ClientRequest("-1", METADATA, METADATA.request(), 1_000, min_version=4)
    with pytest.raises(UnsupportedVersionError, match=r"boot:9092 supports Metadata v0 to v3, needed is v4 to v13"):
        harness.client.send(request, harness.clock.now())
    with pytest.raises(UnsupportedVersionError, match=r"boot:9092 lacks Fetch .* older than Kafka 2\.1"):
        harness.client.negotiated("-1", FETCH)
    assert 3 == harness.client.negotiated("-1", METADATA)
    assert 2 == harness.client.negotiated("-1", METADATA, max_version=2)
    assert 0 == harness.client.in_flight()
    assert harness.ready()


def test_versions_are_unknown_before_a_connection(harness: NetworkHarness) -> None:
    """`api_versions` is None and `negotiated` refuses."""
    assert harness.client.api_versions("-1") is None
    with pytest.raises(StateError, match="not known yet"):
        harness.client.negotiated("-1", FETCH)


# --- nodes ---


def test_bootstrap_brokers_give_way_to_the_clusters(harness: NetworkHarness) -> None:
    """set_nodes closes idle bootstrap connections; nobody knows "-1" afterwards."""
    harness.connect()
    brokers(harness, 2)
    assert harness.net.last.closed
    assert not harness.ready("-1")
    assert "broker -1 is no longer part of the cluster" in str(harness.failed("-1"))
    harness.connect("0")


def test_a_forgotten_brokers_last_answer_is_awaited(harness: NetworkHarness) -> None:
    """A connection to a broker that left the metadata stays until its requests are answered."""
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
    """New metadata with another host ends the backoff of the old one."""
    harness.client.set_nodes([Node(5, "gone", 9092)])
    assert not harness.ready("5")
    assert harness.failed("5") is not None
    harness.client.set_nodes([Node(5, "boot", 9092)])
    assert harness.failed("5") is None
    harness.connect("5")


def test_cluster_and_node_id_are_checked(harness: NetworkHarness) -> None:
    """KIP-1242: brokers known from metadata are told whom we take them for; bootstrap brokers are not."""
    harness.connect()
    assert (None, -1) == (
        harness.broker.requests[0].message.cluster_id,
        harness.broker.requests[0].message.node_id,
    )
    harness.client.set_nodes([Node(3, "boot", 9092)], cluster_id="c")
    harness.connect("+3")
    assert ("c", 3) == (harness.broker.requests[1].message.cluster_id, harness.broker.requests[1].message.node_id)


def test_a_broker_of_another_cluster_asks_for_a_rebootstrap(harness: NetworkHarness) -> None:
    """REBOOTSTRAP_REQUIRED in ApiVersions sets `wants_rebootstrap`; rebootstrap returns to the list."""
    harness.broker.next(API_VERSIONS, API_VERSIONS.response(error_code=129))
    harness.client.set_nodes([Node(3, "boot", 9092)], cluster_id="c")
    harness.ready("3")
    harness.poll(100)
    harness.poll(0)
    assert harness.client.wants_rebootstrap
    assert 129 == harness.failed("3").code
    harness.client.rebootstrap()
    assert not harness.client.wants_rebootstrap
    assert "-1" == harness.client.least_loaded_node(harness.clock.now())


def test_rebootstrap_keeps_the_backoff_of_bootstrap_brokers(harness: NetworkHarness) -> None:
    """A consumer that goes back to a dead bootstrap list again and again does not spin."""
    harness.net.servers["10.0.0.1"] = errno.ECONNREFUSED
    harness.ready()
    harness.poll()
    assert harness.client.least_loaded_node(harness.clock.now()) is None
    harness.client.rebootstrap()
    assert harness.client.least_loaded_node(harness.clock.now()) is None
    assert harness.delay() > 0


def test_rebootstrap_can_close_everything(harness: NetworkHarness) -> None:
    """close_connections fails what is in flight."""
    brokers(harness, 1)
    harness.connect("0")
    harness.send("0")
    harness.client.rebootstrap(close_connections=True)
    assert ["was closed by this client" in str(response.error) for response in harness.poll()] == [True]


# --- least loaded ---


def test_an_idle_ready_broker_is_preferred(harness: NetworkHarness) -> None:
    """Ready with nothing in flight, then ready with fewest, then connecting, then tried longest ago."""
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
    """Nothing is ready: the one on its way is waited for."""
    brokers(harness, 3)
    del harness.net.servers["10.1.0.2"]
    assert not harness.ready("2")
    assert {"2"} == {harness.client.least_loaded_node(harness.clock.now()) for _ in range(10)}


def test_brokers_are_tried_in_turn(harness: NetworkHarness) -> None:
    """Among unconnected brokers the one tried longest ago is next; in backoff none is."""
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
    """Only ordinary connections are offered."""
    brokers(harness, 1)
    harness.connect("+0")
    assert "0" == harness.client.least_loaded_node(harness.clock.now())
    assert 1 == len(harness.net.attempts)


# --- polling ---


def test_poll_waits_for_the_whole_answer(harness: NetworkHarness) -> None:
    """Half a response does not end a poll that still has time."""
    harness.connect()
    harness.send()
    whole = response_bytes(METADATA, METADATA.max_version, 1, METADATA.response())
    transport, now = harness.net.last, harness.clock.now()
    for index, byte in enumerate(whole):
        harness.net.at(now + index, lambda byte=byte: transport.deliver(bytes([byte])))
    assert 1 == len(harness.poll(10_000))
    assert now + len(whole) - 1 == harness.clock.now()


def test_wakeup_ends_one_poll(harness: NetworkHarness) -> None:
    """A ring before the poll ends it at once; the next one waits."""
    harness.client.wakeup()
    start = harness.clock.now()
    assert [] == harness.poll(10_000)
    assert start == harness.clock.now()
    harness.poll(10)
    assert start + 10 == harness.clock.now()


def test_poll_returns_when_a_connection_becomes_ready(harness: NetworkHarness) -> None:
    """The caller waits for `ready`, not for the timeout."""
    harness.ready()
    start = harness.clock.now()
    harness.poll(10_000)
    assert start == harness.clock.now()
    assert harness.ready()


def test_close_gives_everything_back(harness: NetworkHarness) -> None:
    """Selector first, then sockets; nothing is usable afterwards, and closing again is fine."""
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
    """A forked child unregisters nothing: the epoll set is shared with its parent."""
    harness.connect()
    selector = harness.net.selectors[0]
    registered = dict(selector.get_map())
    harness.client.abandon()
    assert registered == selector.get_map()
    assert selector.closed
    assert harness.net.last.closed


class Recorder:
    """Counts what the metrics seam is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.calls.append((name, *args))


def test_metrics_hear_of_connections_bytes_and_answers() -> None:
    """The optional seam is told of each connection, of bytes both ways, of ended requests and of each poll."""
    metrics = Recorder()
    harness = NetworkHarness(metrics)
    harness.broker.on(METADATA, METADATA.response())
    harness.connect()
    harness.send()
    [response] = harness.poll()
    harness.net.last.hang_up()
    harness.poll()
    assert ["sent", "received", "connected", "sent", "received", "completed", "disconnected"] == [
        call[0] for call in metrics.calls if call[0] != "polled"
    ]
    polls = [call for call in metrics.calls if call[0] == "polled"]
    assert polls
    assert ("polled", 1, 0.0, 0.0, harness.clock.now()) == polls[-1]
    assert ("completed", response) in metrics.calls


# --- certificates that have changed ---


def pending_certificates(harness: NetworkHarness) -> BackgroundTask[None]:
    """Let the next attempts wait for certificates that are being read."""
    harness.net.certificates = task = BackgroundTask(lambda: None)
    return task


def complete(harness: NetworkHarness, task: BackgroundTask[None], error: Exception | None = None) -> None:
    """The certificates have been read, or cannot be."""
    task.run() if error is None else task.fail(error)
    harness.net.certificates = None
    harness.client._loop.background.completed_tasks = True


def test_connections_wait_for_certificates(harness: NetworkHarness) -> None:
    """No socket is opened before changed certificates have been read; then every attempt that waited continues."""
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
    """The attempt ends at its setup timeout, with the reason; the next one waits for the same task and connects when
    it is done."""
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
    """The attempt fails with the error, backs off, and is made again; no secret is shown."""
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
