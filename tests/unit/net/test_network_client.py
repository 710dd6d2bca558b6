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
from support.fakes.fake_network import World
from support.fakes.scripted_broker import SILENCE, Script, api_versions, response_bytes


@pytest.fixture
def world() -> World:
    return World()


def brokers(world: World, count: int) -> list[Script]:
    """Tell the client of `count` brokers b0, b1…, each with a script."""
    scripts = []
    for index in range(count):
        script = Script()
        world.net.names[f"b{index}"] = [f"10.1.0.{index}"]
        world.net.servers[f"10.1.0.{index}"] = script
        scripts.append(script)
    world.client.set_nodes([Node(index, f"b{index}", 9092) for index in range(count)])
    return scripts


# --- connecting ---


def test_nothing_happens_at_construction(world: World) -> None:
    """No selector, no descriptor, no lookup and no connection before the first use."""
    assert ([], [], []) == (world.net.selectors, world.net.lookups, world.net.attempts)
    assert repr(world.client) == "<NetworkClient: 1 brokers known, 0 connected, 0 in flight>"


def test_the_first_request_of_a_connection_is_api_versions(world: World) -> None:
    """`ready` connects; the connection is usable once ApiVersions is answered."""
    world.connect()
    assert ["ApiVersions"] == world.broker.names()
    assert API_VERSIONS.max_version == world.broker.requests[0].version
    assert world.client.api_versions("-1")[FETCH.key] == (FETCH.min_version, FETCH.max_version)


def test_a_request_is_answered(world: World) -> None:
    """send, poll, and the answer comes with the request, its version and the time."""
    world.broker.on(METADATA, METADATA.response(cluster_id="c"))
    world.connect()
    request = world.send()
    [response] = world.poll()
    assert response.request is request
    assert (None, "c", METADATA.max_version) == (
        response.error,
        response.message.cluster_id,
        response.version,
    )
    assert 0 == world.client.in_flight()


def test_a_request_leaves_before_the_next_poll(world: World) -> None:
    """`send` writes at once, so that the broker works while the caller decodes."""
    world.connect()
    before = len(world.net.last.written)
    world.send()
    assert len(world.net.last.written) > before
    assert 1 == world.client.in_flight("-1")


def test_a_request_may_be_written_later(world: World) -> None:
    """With `deferred_writes` a request is sent by `flush`, or else by the next poll."""
    world.broker.on(METADATA, METADATA.response())
    world.connect()
    world.client.deferred_writes = True
    world.send()
    assert ["ApiVersions"] == world.broker.names()
    world.client.flush(world.clock.now())
    assert ["ApiVersions", "Metadata"] == world.broker.names()
    world.send()
    assert 2 == len(world.poll())
    assert ["ApiVersions", "Metadata", "Metadata"] == world.broker.names()


def test_what_was_to_be_written_ends_with_its_connection(world: World) -> None:
    """Nothing is written to a connection that was made after the request failed with the one before it."""
    world.connect()
    world.client.deferred_writes = True
    world.send()
    world.client.disconnect("-1", world.clock.now())
    (response,) = world.poll()
    assert "was closed by this client" in str(response.error)
    world.poll(100)
    world.connect()
    assert ["ApiVersions", "ApiVersions"] == world.broker.names()


def test_sending_to_an_unready_node_is_refused(world: World) -> None:
    """Only `ready` nodes take requests."""
    with pytest.raises(StateError, match="not ready"):
        world.send()


def test_a_slow_socket_takes_a_request_in_pieces(world: World) -> None:
    """What the kernel does not take is written when it becomes writable."""
    world.broker.on(METADATA, METADATA.response())
    world.connect()
    world.net.last.room = 5
    world.send()
    world.send()
    assert [] == world.poll()
    world.net.last.room = 1 << 20
    assert 2 == len(world.poll() + world.poll())
    assert ["ApiVersions", "Metadata", "Metadata"] == world.broker.names()


def test_every_address_of_a_name_is_tried_at_once(world: World) -> None:
    """A refused address leads to the next without a backoff; success forgets the failure."""
    world.net.names["boot"] = ["10.0.0.8", "10.0.0.9", "10.0.0.1"]
    world.net.servers |= {"10.0.0.8": errno.ENETUNREACH, "10.0.0.9": errno.ECONNREFUSED}
    world.connect()
    assert ["10.0.0.8", "10.0.0.9", "10.0.0.1"] == [str(t.address) for t in world.net.attempts]
    assert world.failed() is None


def test_a_round_of_failures_names_every_address(world: World) -> None:
    """When no address works, the error says why for each, and the node backs off."""
    world.net.names["boot"] = ["10.0.0.8", "10.0.0.9"]
    world.net.servers |= {"10.0.0.8": errno.ENETUNREACH, "10.0.0.9": errno.ECONNREFUSED}
    assert not world.ready()
    world.poll(1_000)
    error = world.failed()
    assert isinstance(error, BrokerConnectionError)
    assert str(error) == (
        "bootstrap broker boot:9092 cannot be reached: no route to the network (10.0.0.8); "
        "connection refused (is a broker listening there?) (10.0.0.9)"
    )
    assert 40 <= world.delay() <= 60
    assert all(t.closed for t in world.net.attempts if t.failure)


def test_a_name_that_does_not_resolve_is_an_error_of_the_node(world: World) -> None:
    """The name server's answer is told, and the name is looked up again after the backoff."""
    world.net.names.clear()
    assert not world.ready()
    assert "the name could not be resolved" in str(world.failed())
    world.clock.advance(60)
    assert world.failed() is None
    assert not world.ready()
    assert ["boot", "boot"] == world.net.lookups


def test_reconnect_backoff_doubles_up_to_its_maximum(world: World) -> None:
    """50, 100, 200… 1000 ms, each within a fifth; poll reports each failure at once."""
    world.net.servers["10.0.0.1"] = errno.ECONNREFUSED
    for expected in (50, 100, 200, 400, 800, 1_000, 1_000):
        assert not world.ready()
        start = world.clock.now()
        assert [] == world.poll(5_000)
        assert start == world.clock.now()
        delay = world.delay()
        assert expected * 0.8 <= delay <= min(1_000, expected * 1.2) + 0.001
        assert not world.ready()
        world.clock.advance(delay)
    attempts = len(world.net.attempts)
    world.net.servers["10.0.0.1"] = world.broker
    world.connect()
    assert attempts + 1 == len(world.net.attempts)


def test_a_ready_connection_resets_the_backoff(world: World) -> None:
    """After success the next failure starts at 50 ms again."""
    world.net.servers["10.0.0.1"] = errno.ECONNREFUSED
    for _ in range(4):
        world.ready()
        world.poll()
        world.clock.advance(1_000)
    world.net.servers["10.0.0.1"] = world.broker
    world.connect()
    world.net.last.hang_up()
    world.poll()
    assert 40 <= world.delay() <= 60


def test_an_attempt_that_hangs_times_out(world: World) -> None:
    """The setup timeout ends an attempt; it doubles with each round and is at most 30 s."""
    del world.net.servers["10.0.0.1"]
    for expected in (10_000, 20_000, 30_000, 30_000):
        assert not world.ready()
        start = world.clock.now()
        assert [] == world.poll(100_000)
        assert expected * 0.8 <= world.clock.now() - start <= min(30_000, expected * 1.2) + 0.001
        assert "no connection within" in str(world.failed())
        world.clock.advance(1_000)


def test_names_are_resolved_again_after_a_lost_connection(world: World) -> None:
    """A lost connection means a new lookup, and the address that failed comes last."""
    world.net.names["boot"] = ["10.0.0.1", "10.0.0.2"]
    world.net.servers["10.0.0.2"] = world.broker
    world.connect()
    world.net.last.hang_up()
    world.poll()
    world.clock.advance(100)
    world.connect()
    assert ["boot", "boot"] == world.net.lookups
    assert ["10.0.0.1", "10.0.0.2"] == [str(t.address) for t in world.net.attempts]


# --- name servers that take their time ---


def test_a_name_that_takes_time_is_waited_for_by_poll(world: World) -> None:
    """Nothing blocks before the answer: the client waits in poll, says so, and connects when the answer comes."""
    world.net.hanging = []
    assert not world.ready()
    assert not world.ready()
    assert "-1" == world.client.least_loaded_node(world.clock.now())
    assert float("inf") == world.delay()
    start = world.clock.now()
    assert [] == world.poll(700)
    assert start + 700 == world.clock.now()
    assert world.failed() is None
    assert "has not been resolved to an address for 700 ms" in world.client.connection_errors(world.clock.now())
    assert ["resolving"] == [found.state for found in world.client.report(world.clock.now())]
    (answer,) = world.net.hanging
    world.net.at(world.clock.now() + 50, answer)
    for _ in range(4):
        world.poll(100)
    assert world.ready()
    assert ["boot"] == world.net.lookups


def test_a_name_server_that_does_not_answer_is_an_error(world: World) -> None:
    """The setup timeout bounds the wait, the node backs off, and the next attempt waits for the same lookup."""
    world.net.hanging = []
    assert not world.ready()
    start = world.clock.now()
    assert [] == world.poll(100_000)
    assert 8_000 <= world.clock.now() - start <= 12_000
    assert "its name was not resolved within" in str(world.failed())
    world.clock.advance(100)
    assert not world.ready()
    (answer,) = world.net.hanging
    answer()
    for _ in range(4):
        world.poll()
    assert world.ready()
    assert ["boot"] == world.net.lookups


def test_a_broker_that_moves_is_not_connected_to_by_its_old_name(world: World) -> None:
    """The answer for the old name is of no use, and the new one is asked for."""
    world.net.hanging = []
    world.net.names |= {"old": ["10.0.0.8"], "new": ["10.0.0.1"]}
    world.client.set_nodes([Node(5, "old", 9092)])
    assert not world.ready("5")
    world.client.set_nodes([Node(5, "new", 9092)])
    assert not world.ready("5")
    for answer in world.net.hanging:
        answer()
    for _ in range(4):
        world.poll()
    assert world.ready("5")
    assert ["10.0.0.1"] == [str(t.address) for t in world.net.attempts]


# --- losing connections ---


def test_a_reset_fails_what_is_in_flight(world: World) -> None:
    """Every request in flight fails with an error naming broker, address and reason."""
    world.connect()
    sent = [world.send(), world.send()]
    world.net.last.fail(errno.ECONNRESET)
    failed = world.poll(1_000)
    assert sent == [response.request for response in failed]
    for response in failed:
        assert isinstance(response.error, BrokerConnectionError)
        assert "bootstrap broker boot:9092 (10.0.0.1) was lost: the connection was reset" in str(response.error)
    assert world.failed() is failed[0].error
    assert 0 == world.client.in_flight()


def test_answers_before_the_end_still_count(world: World) -> None:
    """Bytes that arrive with the closing of the connection are read first."""
    world.connect()
    world.send()
    first = response_bytes(METADATA, METADATA.max_version, 1, METADATA.response(cluster_id="c"))
    world.send()
    world.net.last.deliver(first)
    world.net.last.hang_up()
    responses = world.poll() + world.poll()
    assert ["c", None] == [response.message and response.message.cluster_id for response in responses]


def test_a_write_that_fails_is_reported_by_poll(world: World) -> None:
    """`send` does not raise for a broken socket; the request fails in the next poll, which does not block."""
    world.connect()
    world.net.last.fail(errno.EPIPE)
    request = world.send()
    [response] = world.poll(float("inf"))
    assert request is response.request
    assert isinstance(response.error, BrokerConnectionError)


def test_a_request_timeout_ends_the_connection(world: World) -> None:
    """The late request fails with TimeoutError, others on the connection with BrokerConnectionError."""
    world.connect()
    patient = world.send(timeout_ms=300_000)
    world.clock.advance(100)
    late = world.send(timeout_ms=5_000)
    start = world.clock.now()
    errors = {id(response.request): response.error for response in world.poll(60_000)}
    assert 5_000 == world.clock.now() - start
    assert isinstance(errors[id(late)], KafkaTimeoutError)
    assert "bootstrap broker boot:9092 did not answer Metadata within 5000 ms" == str(errors[id(late)])
    assert isinstance(errors[id(patient)], BrokerConnectionError)
    assert world.net.last.closed


def test_a_response_that_arrives_does_not_time_out(world: World) -> None:
    """The caller was away for longer than the timeout, and reads a part of the response: the timeout counts from the
    last bytes. When no more come, it ends the connection."""
    world.connect()
    first = world.send(timeout_ms=30_000)
    whole = response_bytes(METADATA, METADATA.max_version, 1, METADATA.response(cluster_id="c" * 300))
    for start in range(0, 300, 100):
        world.clock.advance(40_000)
        world.net.last.deliver(whole[start : start + 100])
        assert [] == world.poll()
    world.net.last.deliver(whole[300:])
    [response] = world.poll()
    assert (first, "c" * 300) == (response.request, response.message.cluster_id)
    second = world.send(timeout_ms=30_000)
    world.clock.advance(20_000)
    world.net.last.deliver(response_bytes(METADATA, METADATA.max_version, 2, METADATA.response())[:10])
    start = world.clock.now()
    [response] = world.poll(100_000)
    assert (second, 30_000) == (response.request, world.clock.now() - start)
    assert "did not answer Metadata within 50000 ms" in str(response.error)


def test_requests_behind_a_response_that_arrives_do_not_time_out(world: World) -> None:
    """A connection answers in order: what waits behind a large response is as little late as that."""
    world.connect()
    requests = [world.send(timeout_ms=timeout_ms) for timeout_ms in (30_000, 5_000)]
    world.clock.advance(40_000)
    world.net.last.deliver(response_bytes(METADATA, METADATA.max_version, 1, METADATA.response()))
    assert requests[:1] == [response.request for response in world.poll()]
    world.clock.advance(4_000)
    world.net.last.deliver(response_bytes(METADATA, METADATA.max_version, 2, METADATA.response()))
    assert requests[1:] == [response.request for response in world.poll()]


def test_a_silent_broker_times_out_although_the_caller_was_away(world: World) -> None:
    """Nothing arrived meanwhile: the first poll ends the connection."""
    world.connect()
    world.send(timeout_ms=30_000)
    world.clock.advance(40_000)
    [response] = world.poll()
    assert isinstance(response.error, KafkaTimeoutError)


def test_an_answered_request_no_longer_times_out(world: World) -> None:
    """The deadline goes with the answer."""
    world.broker.on(METADATA, METADATA.response())
    world.connect()
    world.send(timeout_ms=500)
    assert 1 == len(world.poll())
    assert [] == world.poll(5_000)
    assert world.ready()


def test_a_broker_silent_about_its_versions_times_out(world: World) -> None:
    """ApiVersions has the request timeout; the node then backs off with an error."""
    world.broker.on(API_VERSIONS, SILENCE)
    assert not world.ready()
    start = world.clock.now()
    world.poll(100_000)
    assert 30_000 == world.clock.now() - start
    assert "did not answer ApiVersions within 30000 ms" in str(world.failed())


def test_disconnect_is_not_a_failure_of_the_broker(world: World) -> None:
    """Closing on our side fails requests in flight and waits a backoff, but `failed` has nothing to say."""
    world.connect()
    request = world.send()
    world.client.disconnect("-1", world.clock.now())
    [response] = world.poll(float("inf"))
    assert request is response.request
    assert "was closed by this client" in str(response.error)
    assert world.failed() is None
    assert 40 <= world.delay() <= 60
    world.client.disconnect("-1", world.clock.now())


def test_something_that_is_not_kafka_is_named(world: World) -> None:
    """An HTTP answer ends the connection with an error that says so."""
    world.broker.on(API_VERSIONS, b"HTTP/1.1 400 Bad Request\r\n\r\n")
    world.ready()
    world.poll()
    world.poll()
    error = world.failed()
    assert isinstance(error, ProtocolError)
    assert "bootstrap broker boot:9092 is not a Kafka broker: it speaks HTTP" in str(error)


def test_garbage_in_an_answer_is_the_culprits_error(world: World) -> None:
    """A body that does not parse fails its request with ProtocolError and the others with a lost
    connection."""
    world.broker.next(METADATA, b"\x00\x00\x00\x06\x00\x00\x00\x01\x00\xff")
    world.connect()
    culprit, other = world.send(), world.send()
    errors = {id(response.request): response.error for response in world.poll()}
    assert isinstance(errors[id(culprit)], ProtocolError)
    assert "answered Metadata" in str(errors[id(culprit)])
    assert isinstance(errors[id(other)], BrokerConnectionError)


def test_trouble_tells_every_reason_once(world: World) -> None:
    """One line for messages: each failing broker's error; nothing when all is well."""
    assert "" == world.client.connection_errors(world.clock.now())
    brokers(world, 2)
    world.net.servers |= {"10.1.0.0": errno.ECONNREFUSED, "10.1.0.1": errno.ETIMEDOUT}
    for node in ("0", "1", "+1"):
        world.ready(node)
        world.poll()
    trouble = world.client.connection_errors(world.clock.now())
    assert "broker 0 at b0:9092 cannot be reached: connection refused" in trouble
    assert "; broker 1 at b1:9092 cannot be reached: the connection timed out (10.1.0.1); " in trouble


def test_trouble_outlasts_the_backoff_until_the_connection_works(world: World) -> None:
    """While the next attempt is under way, the last one's error is still what is known; without an error, how
    long the broker has not answered."""
    del world.net.servers["10.0.0.1"]
    world.ready()
    world.poll(4_000)
    trouble = world.client.connection_errors
    assert "bootstrap broker boot:9092 (10.0.0.1) has not answered for 4000 ms" == trouble(world.clock.now())
    world.net.last.fail(errno.ECONNREFUSED)
    world.poll()
    world.clock.advance(100)
    world.ready()
    assert "connection refused" in trouble(world.clock.now())
    world.net.last.accept(world.broker)
    world.poll()
    world.poll()
    assert "" == trouble(world.clock.now())


# --- idle connections, throttling ---


def test_idle_connections_are_closed(world: World) -> None:
    """After connections_max_idle_ms without traffic a connection is closed, without error or backoff."""
    world.connect()
    start = world.clock.now()
    world.poll(1_000_000)
    assert world.net.last.closed
    assert start + 1_000_000 == world.clock.now()
    assert world.failed() is None
    assert 0 == world.delay()
    world.connect()


def test_a_waiting_request_keeps_a_connection(world: World) -> None:
    """A connection with requests in flight is not idle, however long the answer takes (a rebalance)."""
    world.connect()
    world.send(timeout_ms=2_000_000)
    assert [] == world.poll(1_000_000)
    assert not world.net.last.closed


def test_idle_closing_can_be_switched_off() -> None:
    """connections_max_idle_ms=-1 keeps connections for ever."""
    world = World(connections_max_idle_ms=-1)
    world.connect()
    world.poll(10_000_000)
    assert world.ready()


def test_a_throttled_node_is_not_ready(world: World) -> None:
    """KIP-219: from the throttle version on, the answer's throttle time makes the node unready that long."""
    world.broker.on(METADATA, METADATA.response(throttle_time_ms=300))
    world.connect()
    world.send()
    [response] = world.poll()
    assert response.error is None
    assert not world.ready()
    assert 300 == world.delay()
    assert world.client.least_loaded_node(world.clock.now()) is None
    with pytest.raises(StateError):
        world.send()
    world.clock.advance(300)
    assert world.ready()


def test_old_versions_do_not_throttle(world: World) -> None:
    """Below the throttle version the broker has delayed the answer itself."""
    world.broker.on(API_VERSIONS, api_versions(Metadata=(0, 5)))
    world.broker.on(METADATA, METADATA.response(throttle_time_ms=300))
    world.connect()
    world.send()
    assert [5] == [response.version for response in world.poll()]
    assert world.ready()


def test_a_connection_takes_a_hundred_requests(world: World) -> None:
    """Above MAX_IN_FLIGHT the node is not ready until an answer comes."""
    world.connect()
    for _ in range(MAX_IN_FLIGHT):
        world.send(api=HEARTBEAT)
    assert not world.ready()
    assert float("inf") == world.delay()
    world.net.last.deliver(response_bytes(HEARTBEAT, HEARTBEAT.max_version, 1, HEARTBEAT.response()))
    assert 1 == len(world.poll())
    assert world.ready()


# --- versions ---


def test_no_common_version_is_refused_at_send(world: World) -> None:
    """The error names the api and both ranges, and the connection stays usable."""
    world.broker.on(API_VERSIONS, api_versions(Metadata=(0, 3), Fetch=(1, 0)))
    world.connect()
    request = ClientRequest("-1", METADATA, METADATA.request(), 1_000, min_version=4)
    with pytest.raises(UnsupportedVersionError, match=r"boot:9092 supports Metadata v0 to v3, needed is v4 to v13"):
        world.client.send(request, world.clock.now())
    with pytest.raises(UnsupportedVersionError, match=r"boot:9092 lacks Fetch .* older than Kafka 2\.1"):
        world.client.negotiated("-1", FETCH)
    assert 3 == world.client.negotiated("-1", METADATA)
    assert 2 == world.client.negotiated("-1", METADATA, max_version=2)
    assert 0 == world.client.in_flight()
    assert world.ready()


def test_versions_are_unknown_before_a_connection(world: World) -> None:
    """`api_versions` is None and `negotiated` refuses."""
    assert world.client.api_versions("-1") is None
    with pytest.raises(StateError, match="not known yet"):
        world.client.negotiated("-1", FETCH)


# --- nodes ---


def test_bootstrap_brokers_give_way_to_the_clusters(world: World) -> None:
    """set_nodes closes idle bootstrap connections; nobody knows "-1" afterwards."""
    world.connect()
    brokers(world, 2)
    assert world.net.last.closed
    assert not world.ready("-1")
    assert "broker -1 is no longer part of the cluster" in str(world.failed("-1"))
    world.connect("0")


def test_a_forgotten_brokers_last_answer_is_awaited(world: World) -> None:
    """A connection to a broker that left the metadata stays until its requests are answered."""
    world.connect()
    world.send()
    transport = world.net.last
    brokers(world, 1)
    assert not transport.closed
    transport.deliver(response_bytes(METADATA, METADATA.max_version, 1, METADATA.response(cluster_id="c")))
    [response] = world.poll()
    assert "c" == response.message.cluster_id


def test_the_coordinator_has_a_connection_of_its_own(world: World) -> None:
    """ "0" and "+0" are two connections to one broker."""
    [script] = brokers(world, 1)
    world.connect("0")
    world.connect("+0")
    assert ["10.1.0.0", "10.1.0.0"] == [str(t.address) for t in world.net.attempts]
    assert 2 == len(script.requests)


def test_a_moved_broker_is_found_at_its_new_address(world: World) -> None:
    """New metadata with another host ends the backoff of the old one."""
    world.client.set_nodes([Node(5, "gone", 9092)])
    assert not world.ready("5")
    assert world.failed("5") is not None
    world.client.set_nodes([Node(5, "boot", 9092)])
    assert world.failed("5") is None
    world.connect("5")


def test_cluster_and_node_id_are_checked(world: World) -> None:
    """KIP-1242: brokers known from metadata are told whom we take them for; bootstrap brokers are not."""
    world.connect()
    assert (None, -1) == (
        world.broker.requests[0].message.cluster_id,
        world.broker.requests[0].message.node_id,
    )
    world.client.set_nodes([Node(3, "boot", 9092)], cluster_id="c")
    world.connect("+3")
    assert ("c", 3) == (world.broker.requests[1].message.cluster_id, world.broker.requests[1].message.node_id)


def test_a_broker_of_another_cluster_asks_for_a_rebootstrap(world: World) -> None:
    """REBOOTSTRAP_REQUIRED in ApiVersions sets `wants_rebootstrap`; rebootstrap returns to the list."""
    world.broker.next(API_VERSIONS, API_VERSIONS.response(error_code=129))
    world.client.set_nodes([Node(3, "boot", 9092)], cluster_id="c")
    world.ready("3")
    world.poll(100)
    world.poll(0)
    assert world.client.wants_rebootstrap
    assert 129 == world.failed("3").code
    world.client.rebootstrap()
    assert not world.client.wants_rebootstrap
    assert "-1" == world.client.least_loaded_node(world.clock.now())


def test_rebootstrap_keeps_the_backoff_of_bootstrap_brokers(world: World) -> None:
    """A consumer that goes back to a dead bootstrap list again and again does not spin."""
    world.net.servers["10.0.0.1"] = errno.ECONNREFUSED
    world.ready()
    world.poll()
    assert world.client.least_loaded_node(world.clock.now()) is None
    world.client.rebootstrap()
    assert world.client.least_loaded_node(world.clock.now()) is None
    assert world.delay() > 0


def test_rebootstrap_can_close_everything(world: World) -> None:
    """close_connections fails what is in flight."""
    brokers(world, 1)
    world.connect("0")
    world.send("0")
    world.client.rebootstrap(close_connections=True)
    assert ["was closed by this client" in str(response.error) for response in world.poll()] == [True]


# --- least loaded ---


def test_an_idle_ready_broker_is_preferred(world: World) -> None:
    """Ready with nothing in flight, then ready with fewest, then connecting, then tried longest ago."""
    brokers(world, 3)
    least = world.client.least_loaded_node
    now = world.clock.now()
    assert least(now) in {"0", "1", "2"}
    world.connect("1")
    assert {"1"} == {least(now) for _ in range(10)}
    world.send("1")
    assert {"1"} == {least(now) for _ in range(10)}
    world.connect("2")
    assert {"2"} == {least(now) for _ in range(10)}
    world.send("2")
    world.send("2")
    assert {"1"} == {least(now) for _ in range(10)}


def test_a_connecting_broker_comes_before_an_unconnected_one(world: World) -> None:
    """Nothing is ready: the one on its way is waited for."""
    brokers(world, 3)
    del world.net.servers["10.1.0.2"]
    assert not world.ready("2")
    assert {"2"} == {world.client.least_loaded_node(world.clock.now()) for _ in range(10)}


def test_brokers_are_tried_in_turn(world: World) -> None:
    """Among unconnected brokers the one tried longest ago is next; in backoff none is."""
    brokers(world, 2)
    world.net.servers |= {"10.1.0.0": errno.ECONNREFUSED, "10.1.0.1": errno.ECONNREFUSED}
    tried = []
    for _ in range(4):
        node = world.client.least_loaded_node(world.clock.now())
        assert node is not None
        tried.append(node)
        world.ready(node)
        world.poll()
        world.clock.advance(500)
    assert tried[:2] == tried[2:]
    assert {"0", "1"} == set(tried)
    for node in ("0", "1"):
        world.ready(node)
        world.poll()
    assert world.client.least_loaded_node(world.clock.now()) is None


def test_a_coordinators_connection_is_not_least_loaded(world: World) -> None:
    """Only ordinary connections are offered."""
    brokers(world, 1)
    world.connect("+0")
    assert "0" == world.client.least_loaded_node(world.clock.now())
    assert 1 == len(world.net.attempts)


# --- polling ---


def test_poll_waits_for_the_whole_answer(world: World) -> None:
    """Half an answer does not end a poll that still has time."""
    world.connect()
    world.send()
    whole = response_bytes(METADATA, METADATA.max_version, 1, METADATA.response())
    transport, now = world.net.last, world.clock.now()
    for index, byte in enumerate(whole):
        world.net.at(now + index, lambda byte=byte: transport.deliver(bytes([byte])))
    assert 1 == len(world.poll(10_000))
    assert now + len(whole) - 1 == world.clock.now()


def test_wakeup_ends_one_poll(world: World) -> None:
    """A ring before the poll ends it at once; the next one waits."""
    world.client.wakeup()
    start = world.clock.now()
    assert [] == world.poll(10_000)
    assert start == world.clock.now()
    world.poll(10)
    assert start + 10 == world.clock.now()


def test_poll_returns_when_a_connection_becomes_ready(world: World) -> None:
    """The caller waits for `ready`, not for the timeout."""
    world.ready()
    start = world.clock.now()
    world.poll(10_000)
    assert start == world.clock.now()
    assert world.ready()


def test_close_gives_everything_back(world: World) -> None:
    """Selector first, then sockets; nothing is usable afterwards, and closing again is fine."""
    world.connect()
    world.send()
    world.client.close()
    assert world.net.selectors[0].closed
    assert world.net.last.closed
    assert 0 == world.client.in_flight()
    assert "<NetworkClient: closed, 0 in flight>" == repr(world.client)
    world.client.close()
    world.client.wakeup()
    with pytest.raises(StateError, match="closed"):
        world.poll()


def test_abandoning_touches_no_shared_selector(world: World) -> None:
    """A forked child unregisters nothing: the epoll set is shared with its parent."""
    world.connect()
    selector = world.net.selectors[0]
    registered = dict(selector.get_map())
    world.client.abandon()
    assert registered == selector.get_map()
    assert selector.closed
    assert world.net.last.closed


class Recorder:
    """Counts what the metrics seam is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.calls.append((name, *args))


def test_metrics_hear_of_connections_bytes_and_answers() -> None:
    """The optional seam is told of each connection, of bytes both ways, of ended requests and of each poll."""
    metrics = Recorder()
    world = World(metrics)
    world.broker.on(METADATA, METADATA.response())
    world.connect()
    world.send()
    [response] = world.poll()
    world.net.last.hang_up()
    world.poll()
    assert ["sent", "received", "connected", "sent", "received", "completed", "disconnected"] == [
        call[0] for call in metrics.calls if call[0] != "polled"
    ]
    polls = [call for call in metrics.calls if call[0] == "polled"]
    assert polls
    assert ("polled", 1, 0.0, 0.0, world.clock.now()) == polls[-1]
    assert ("completed", response) in metrics.calls


# --- certificates that have changed ---


def pending_certificates(world: World) -> BackgroundTask[None]:
    """Let the next attempts wait for certificates that are being read."""
    world.net.certificates = task = BackgroundTask(lambda: None)
    return task


def complete(world: World, task: BackgroundTask[None], error: Exception | None = None) -> None:
    """The certificates have been read, or cannot be."""
    task.run() if error is None else task.fail(error)
    world.net.certificates = None
    world.client._loop.background.completed_tasks = True


def test_connections_wait_for_certificates(world: World) -> None:
    """No socket is opened before changed certificates have been read; then every attempt that waited continues."""
    world.client.set_nodes([Node(1, "boot", 9092), Node(2, "boot", 9092)])
    task = pending_certificates(world)
    for _ in range(3):
        assert not world.ready("1")
        assert not world.ready("2")
        world.poll()
    assert [] == world.net.attempts
    assert {"reading certificates"} == {found.state for found in world.client.report(world.clock.now())}
    assert float("inf") == world.delay("1")
    assert "waits for changed certificates to be read" in world.client.last_error("1", world.clock.now())
    complete(world, task)
    for _ in range(4):
        world.poll()
    assert world.ready("1")
    assert world.ready("2")
    assert 2 == len(world.net.attempts)


def test_certificates_that_are_never_read(world: World) -> None:
    """The attempt ends at its setup timeout, with the reason; the next one waits for the same task and connects when
    it is done."""
    task = pending_certificates(world)
    world.ready()
    for _ in range(12):
        world.poll(1_000)
        if world.failed() is not None:
            break
    assert "changed certificates were not read within" in str(world.failed())
    assert [] == world.net.attempts
    world.clock.advance(world.delay())
    assert not world.ready()
    complete(world, task)
    for _ in range(4):
        world.poll()
    assert world.ready()


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (KeyError("hunter2"), AuthenticationError, "a callable such as ssl_password failed with KeyError"),
        (OSError(errno.EACCES, "Permission denied"), BrokerConnectionError, "cannot be read: Permission denied"),
        (BrokerConnectionError("no thread"), BrokerConnectionError, "no thread"),
    ],
)
def test_certificates_that_cannot_be_read(world: World, error: Exception, kind: type[Exception], text: str) -> None:
    """The attempt fails with the error, backs off, and is made again; no secret is shown."""
    task = pending_certificates(world)
    world.ready()
    world.poll()
    complete(world, task, error)
    world.poll()
    assert isinstance(world.failed(), kind)
    assert text in str(world.failed())
    assert "hunter2" not in str(world.failed())
    assert world.delay() > 0
    world.clock.advance(world.delay())
    world.connect()
