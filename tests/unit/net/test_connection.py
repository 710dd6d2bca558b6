"""The connection without I/O: bytes and time as input, bytes and responses as output."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from kconsumer._internal.requests import Ended
from kconsumer.errors import (
    AuthenticationError,
    BrokerConnectionError,
    KafkaError,
    ProtocolError,
    StateError,
    UnsupportedVersionError,
)
from kconsumer.errors import TimeoutError as KafkaTimeoutError
from kconsumer.net.connection import Connection
from kconsumer.net.preamble import MAX_FIRST_FRAME_BYTES
from kconsumer.net.states import TRANSITIONS, ConnectionState
from kconsumer.schema.classic_group import HEARTBEAT
from kconsumer.schema.fetch import FETCH
from kconsumer.schema.metadata import API_VERSIONS, METADATA
from kconsumer.schema.sasl import SASL_HANDSHAKE
from support.fakes.fake_network import Response, request_to, responses_of
from support.fakes.scripted_broker import Received, api_versions, read_request, response_bytes

FOREVER = float("inf")


class Peer:
    """A connection, and the broker at its other end that the test plays."""

    def __init__(self) -> None:
        self.connection = Connection(
            "broker 3 at k3:9092",
            client_id="c",
            request_timeout_ms=30_000,
            api_versions_fields={"client_software_name": "kconsumer", "client_software_version": "1"},
        )
        self.ended: list[Ended] = []

    def sent(self) -> bytes:
        """Return all bytes that the connection wants to send, and mark them as sent."""
        data = b"".join(self.connection.outgoing)
        while self.connection.outgoing:
            self.connection.sent(len(self.connection.outgoing[0]))
        return data

    def requests(self) -> list[Received]:
        data, found = self.sent(), []
        while data:
            size = int.from_bytes(data[:4])
            found.append(read_request(data[4 : 4 + size]))
            data = data[4 + size :]
        return found

    def deliver(self, data: bytes, now: float = 0.0) -> list[Response]:
        """Let bytes arrive, as many at a time as the connection can receive."""
        self.ended = []
        while data:
            view = self.connection.recv_view()
            count = min(len(view), len(data))
            view[:count] = data[:count]
            data = data[count:]
            self.connection.received(count, now, self.ended)
        return responses_of(self.ended)

    def negotiate(self, versions: Any = None) -> Peer:
        self.connection.transport_ready(0.0)
        [request] = self.requests()
        self.deliver(response_bytes(API_VERSIONS, request.version, 0, versions or api_versions()))
        assert self.connection.ready
        return self

    def send(self, api: Any = METADATA, now: float = 0.0, timeout_ms: float = 1_000, **fields: Any) -> Any:
        request = request_to("3", api, timeout_ms, **fields)
        self.connection.send(request, now)
        return request


@pytest.fixture
def peer() -> Peer:
    return Peer()


# --- the state machine ---


@pytest.mark.parametrize(("old", "new"), list(product(ConnectionState, ConnectionState)))
def test_only_listed_transitions_happen(peer: Peer, old: ConnectionState, new: ConnectionState) -> None:
    """A transition in the table takes place; any other raises an error and changes nothing."""
    peer.connection.state = old
    if new in TRANSITIONS[old]:
        peer.connection.transition_to(new)
        assert new is peer.connection.state
    else:
        with pytest.raises(StateError, match=f"{old.name} to {new.name}"):
            peer.connection.transition_to(new)
        assert old is peer.connection.state


def test_every_state_can_be_reached_and_all_but_closed_can_close() -> None:
    """Every state can be reached, and every state except CLOSED can change to CLOSED."""
    assert set(ConnectionState) - {ConnectionState.CONNECTING} == frozenset().union(*TRANSITIONS.values())
    closable = {state for state, successors in TRANSITIONS.items() if ConnectionState.CLOSED in successors}
    assert set(ConnectionState) - {ConnectionState.CLOSED} == closable
    assert not TRANSITIONS[ConnectionState.CLOSED]


def test_repr_shows_state_and_counts(peer: Peer) -> None:
    """The repr has the state and the counts that a bug report needs."""
    assert "<Connection to broker 3 at k3:9092: connecting, 0 in flight, 0 bytes to send, 0 received>" == repr(
        peer.connection
    )
    peer.negotiate()
    peer.send(HEARTBEAT, group_id="g")
    peer.deliver(b"\x00\x00")
    assert "ready, 1 in flight" in repr(peer.connection)
    assert "2 received" in repr(peer.connection)


# --- ApiVersions ---


def test_api_versions_on_the_wire(peer: Peer) -> None:
    """The first bytes are ApiVersions v5, with header v2 and a non-compact client id, then our name and version in
    compact form.
    """
    peer.connection.transport_ready(0.0)
    assert peer.sent() == (
        b"\x00\x00\x00\x1e"  # size 30
        b"\x00\x12\x00\x05\x00\x00\x00\x00"  # ApiVersions v5, correlation id 0
        b"\x00\x01c\x00"  # client id with an int16 length; no tagged fields
        b"\x0akconsumer\x021"  # compact strings
        b"\x00\xff\xff\xff\xff"  # no cluster id, node id -1
        b"\x00"  # no tagged fields
    )


def test_versions_are_the_common_part(peer: Peer) -> None:
    """The highest common version that the request allows is used."""
    peer.negotiate(api_versions(Metadata=(2, 7), Fetch=(0, 99)))
    negotiated = peer.connection.negotiated
    assert 7 == negotiated(METADATA)
    assert 5 == negotiated(METADATA, max_version=5)
    assert FETCH.max_version == negotiated(FETCH)
    assert peer.connection.api_versions is not None
    assert (0, 99) == peer.connection.api_versions[FETCH.key]
    with pytest.raises(UnsupportedVersionError, match=r"v2 to v7, needed is v8 to v13.*too old"):
        negotiated(METADATA, min_version=8)
    with pytest.raises(UnsupportedVersionError, match=r"v2 to v7, needed is v0 to v1.*newer"):
        negotiated(METADATA, max_version=1)


def test_apis_unknown_here_are_kept_but_not_spoken(peer: Peer) -> None:
    """APIs that are unknown to this client are stored but not used."""
    versions = api_versions()
    versions.api_keys.append(type(versions.api_keys[0])(api_key=999, min_version=0, max_version=1))
    peer.negotiate(versions)
    assert peer.connection.api_versions is not None
    assert (0, 1) == peer.connection.api_versions[999]


UNSUPPORTED_NAMING_V3 = (
    b"\x00\x00\x00\x10"  # size 16
    b"\x00\x00\x00\x00"  # correlation id 0
    b"\x00\x23"  # error 35
    b"\x00\x00\x00\x01\x00\x12\x00\x00\x00\x03"  # one api: 18, versions 0 to 3
)


def test_a_broker_says_which_version_it_knows(peer: Peer) -> None:
    """Kafka 2.4 and later respond in v0 form with error 35 and a range; the request is repeated with the maximum of the
    range.
    """
    peer.connection.transport_ready(0.0)
    peer.sent()
    assert [] == peer.deliver(UNSUPPORTED_NAMING_V3)
    assert ConnectionState.CHECKING_VERSIONS is peer.connection.state
    [request] = peer.requests()
    assert (API_VERSIONS, 3, 1) == (request.api, request.version, request.correlation_id)
    peer.deliver(response_bytes(API_VERSIONS, 3, 1, api_versions()))
    assert peer.connection.ready


@pytest.mark.parametrize(
    "body",
    [
        b"\x00\x23",
        b"\x00\x23\x00\x00\x00\x00",
        b"\x00\x23\x7f\xff\xff\xff",
        b"\x00\x23\xff\xff\xff\xff",
        b"\x00\x23\x01\x00\x00\x00\x00\x00",
        b"\x00\x23\x00\x00\x00\x01\x00\x12\x00\x00\x00\x05",  # a range with v5, which was refused
        b"\x00\x23\x00\x00\x00\x01\x00\x12\xff\xff\xff\xff",
        b"\x00\x23\x00\x00\x00\x01\x00\x03\x00\x00\x00\x03",  # a range without ApiVersions
    ],
)
def test_a_broker_does_not_say_which_version_it_knows(peer: Peer, body: bytes) -> None:
    """After error 35 without a usable range the request is repeated with v0, once."""
    peer.connection.transport_ready(0.0)
    peer.sent()
    peer.deliver((4 + len(body)).to_bytes(4) + bytes(4) + body)
    [request] = peer.requests()
    assert (0, 1) == (request.version, request.correlation_id)
    with pytest.raises(UnsupportedVersionError, match="broker 3 at k3:9092 refused ApiVersions v0"):
        peer.deliver(b"\x00\x00\x00\x0a\x00\x00\x00\x01\x00\x23\x00\x00\x00\x00")


@pytest.mark.parametrize(("code", "name"), [(58, "SASL_AUTHENTICATION_FAILED"), (129, "REBOOTSTRAP_REQUIRED")])
def test_another_error_ends_the_connection(peer: Peer, code: int, name: str) -> None:
    """Another error in the ApiVersions response is raised by its name."""
    peer.connection.transport_ready(0.0)
    response = response_bytes(API_VERSIONS, 5, 0, API_VERSIONS.response(error_code=code))
    with pytest.raises(KafkaError, match=f"refused ApiVersions v5: {name}"):
        peer.deliver(response)


@pytest.mark.parametrize("frame", [b"\x00\x00\x00\x00\x00", b"\x00\x00\x00\x00\x00\x00\x7f\xff"])
def test_garbage_for_versions_is_a_protocol_error(peer: Peer, frame: bytes) -> None:
    """An ApiVersions response that is too short or does not parse raises a ProtocolError."""
    peer.connection.transport_ready(0.0)
    with pytest.raises(ProtocolError, match="broker 3 at k3:9092 responded to ApiVersions"):
        peer.deliver(len(frame).to_bytes(4) + frame)


def test_throttling_starts_with_api_versions(peer: Peer) -> None:
    """The throttle time of the ApiVersions response is applied."""
    versions = api_versions()
    versions.throttle_time_ms = 70
    peer.negotiate(versions)
    assert 70 == peer.connection.throttle_ms


# --- peers that are not Kafka brokers ---


def deliver_in_steps(peer: Peer, data: bytes, step: int) -> None:
    """Deliver the bytes, this many at a time."""
    for at in range(0, len(data), step):
        peer.deliver(data[at : at + step])


@pytest.mark.parametrize(
    ("first_bytes", "cause"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "speaks HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "starts with b'SSH-"),
        (b"\xff\xff\xff\xff", "starts with"),
        (b"\x00\x00\x00\x03abc", "starts with"),
        ((MAX_FIRST_FRAME_BYTES + 1).to_bytes(4), "starts with"),
    ],
)
@pytest.mark.parametrize("step", [1, 100])
def test_another_protocol_is_recognised(peer: Peer, first_bytes: bytes, cause: str, step: int) -> None:
    """Another protocol is recognised by the first four bytes, however they arrive; nothing is allocated for an absurd
    size.
    """
    peer.connection.transport_ready(0.0)
    with pytest.raises(ProtocolError, match=f"k3:9092 is not a Kafka broker: it.*{cause}"):
        deliver_in_steps(peer, first_bytes, step)


@pytest.mark.parametrize("first_bytes", [b"\x15\x03\x03\x00\x02\x02\x0a", b"\x16\x03\x01\x02\x00\x01"])
@pytest.mark.parametrize("step", [1, 100])
def test_tls_is_recognised(peer: Peer, first_bytes: bytes, step: int) -> None:
    """If a plaintext connection receives a TLS alert or hello, the error says which option to change."""
    peer.connection.transport_ready(0.0)
    with pytest.raises(AuthenticationError, match="k3:9092 speaks TLS; set security_protocol to SSL"):
        deliver_in_steps(peer, first_bytes, step)


# --- requests and responses ---


def test_responses_are_matched_in_order(peer: Peer) -> None:
    """Two responses that arrive together are matched to the two requests in flight, in order."""
    peer.negotiate()
    requests = [peer.send(METADATA, now=5.0), peer.send(HEARTBEAT, now=6.0)]
    data = response_bytes(METADATA, METADATA.max_version, 1, METADATA.response(cluster_id="x"))
    data += response_bytes(HEARTBEAT, HEARTBEAT.max_version, 2, HEARTBEAT.response(error_code=27))
    responses = peer.deliver(data, now=9.0)
    assert requests == [response.request for response in responses]
    assert ("x", 27) == (responses[0].message.cluster_id, responses[1].message.error_code)
    assert [(9.0, 5.0), (9.0, 6.0)] == [(response.now, response.sent_at) for response in responses]
    assert 0 == peer.connection.in_flight


def test_responses_may_come_byte_by_byte(peer: Peer) -> None:
    """The response is the same, however its bytes are split."""
    peer.negotiate()
    peer.send(METADATA)
    data = response_bytes(METADATA, METADATA.max_version, 1, METADATA.response(cluster_id="x"))
    for byte in data[:-1]:
        assert [] == peer.deliver(bytes([byte]))
    assert "x" == peer.deliver(data[-1:])[0].message.cluster_id


def test_a_large_response_is_received_into_its_own_block(peer: Peer) -> None:
    """Once its size is known, the rest of a large frame is received through one view."""
    peer.negotiate()
    peer.send(METADATA)
    peer.deliver(b"\x00\x50\x00\x00\x00\x00\x00\x01")
    assert 0x500000 - 4 == len(peer.connection.recv_view())


def test_a_response_to_another_request_ends_the_connection(peer: Peer) -> None:
    """A correlation id out of order raises a ProtocolError; responses before it in the same bytes are returned."""
    peer.negotiate()
    peer.send(METADATA)
    peer.send(METADATA)
    good = response_bytes(METADATA, METADATA.max_version, 1, METADATA.response())
    with pytest.raises(ProtocolError, match=r"sent response #9 where #2 \(Metadata\) was due"):
        peer.deliver(good + b"\x00\x00\x00\x04\x00\x00\x00\x09")
    assert 1 == len(peer.ended)
    assert 1 == peer.connection.in_flight


def test_a_response_without_a_request_ends_the_connection(peer: Peer) -> None:
    """Bytes that arrive with no request in flight end the connection."""
    peer.negotiate()
    with pytest.raises(ProtocolError, match="sent 4 bytes that belong to no request"):
        peer.deliver(b"\x00\x00\x00\x04\x00\x00\x00\x01")


@pytest.mark.parametrize("frame", [b"", b"\x00\x00\x00"])
def test_a_frame_without_a_header_ends_the_connection(peer: Peer, frame: bytes) -> None:
    """A frame that is too short for a correlation id ends the connection."""
    peer.negotiate()
    peer.send(METADATA)
    with pytest.raises(ProtocolError, match="sent response #None where #1"):
        peer.deliver(len(frame).to_bytes(4) + frame)


@pytest.mark.parametrize("size", [-1, (1 << 30) + 1])
def test_an_absurd_size_ends_the_connection(peer: Peer, size: int) -> None:
    """A size that is negative or above one gigabyte ends the connection."""
    peer.negotiate()
    peer.send(METADATA)
    with pytest.raises(ProtocolError):
        peer.deliver(size.to_bytes(4, signed=True))


def test_every_truncation_of_a_response_is_a_protocol_error(peer: Peer) -> None:
    """Every truncated response raises a ProtocolError that names broker and request."""
    whole = response_bytes(METADATA, 1, 1, METADATA.response(cluster_id="x"))[4:]
    for length in range(4, len(whole)):
        peer = Peer().negotiate(api_versions(Metadata=(0, 1)))
        peer.send(METADATA)
        with pytest.raises(ProtocolError, match="broker 3 at k3:9092 responded to Metadata v1 with garbage"):
            peer.deliver(length.to_bytes(4) + whole[:length])


def test_throttle_time_is_read_from_the_apis_throttle_version_on(peer: Peer) -> None:
    """From a version per API on (KIP-219) the client itself waits for the throttle time."""
    for version, expected in ((5, 0), (6, 40)):
        peer = Peer().negotiate(api_versions(Metadata=(0, version)))
        peer.send(METADATA)
        peer.deliver(response_bytes(METADATA, version, 1, METADATA.response(throttle_time_ms=40)))
        assert expected == peer.connection.throttle_ms


def test_apis_without_a_throttle_time_are_read(peer: Peer) -> None:
    """Responses without a throttle time, such as SaslHandshake, are read."""
    peer.negotiate()
    peer.send(SASL_HANDSHAKE)
    [response] = peer.deliver(response_bytes(SASL_HANDSHAKE, 1, 1, SASL_HANDSHAKE.response()))
    assert response.error is None


def test_correlation_ids_wrap_before_those_kept_for_logins(peer: Peer) -> None:
    """After correlation id 2**31 - 8 comes 0, because higher ones are reserved for logins."""
    peer.negotiate()
    peer.connection.next_correlation_id = 2**31 - 9
    peer.send(METADATA)
    peer.send(METADATA)
    assert [2**31 - 9, 0] == [request.correlation_id for request in peer.requests()]


def test_a_refused_request_leaves_no_trace(peer: Peer) -> None:
    """A request without a common version, or with a value that cannot be encoded, is not sent and no response is
    expected.
    """
    peer.negotiate(api_versions(Heartbeat=(1, 0)))
    with pytest.raises(UnsupportedVersionError, match="does not support Heartbeat"):
        peer.send(HEARTBEAT)
    with pytest.raises(ProtocolError, match=r"Metadata v\d+ cannot be encoded: .*topics"):
        peer.send(METADATA, topics=5)
    assert b"" == peer.sent()
    assert 0 == peer.connection.in_flight
    assert FOREVER == peer.connection.next_deadline
    peer.send(METADATA)
    assert [1] == [request.correlation_id for request in peer.requests()]


def test_partial_writes(peer: Peer) -> None:
    """`sent` removes the bytes that the transport wrote from the first buffer."""
    peer.negotiate()
    peer.send(METADATA)
    whole = b"".join(peer.connection.outgoing)
    peer.connection.sent(3)
    assert whole[3:] == b"".join(peer.connection.outgoing)
    peer.connection.sent(len(whole) - 3)
    assert not peer.connection.outgoing


# --- deadlines and endings ---


def test_the_next_deadline_is_the_earliest(peer: Peer) -> None:
    """Each request has its own timeout, which ends with its response."""
    peer.negotiate()
    assert FOREVER == peer.connection.next_deadline
    peer.send(METADATA, now=0.0, timeout_ms=500)
    peer.send(HEARTBEAT, now=10.0, timeout_ms=300)
    peer.send(METADATA, now=20.0, timeout_ms=900)
    assert 310.0 == peer.connection.next_deadline
    assert peer.connection.expired(309.9) is None
    late = peer.connection.expired(310.0)
    assert late is not None
    assert HEARTBEAT is late.api
    peer.deliver(response_bytes(METADATA, METADATA.max_version, 1, METADATA.response()))
    peer.deliver(response_bytes(HEARTBEAT, HEARTBEAT.max_version, 2, HEARTBEAT.response()))
    assert 920.0 == peer.connection.next_deadline


def test_closing_fails_everything_in_flight(peer: Peer) -> None:
    """The request that caused the error fails with it, and the others with a lost connection; then none is
    in flight.
    """
    peer.negotiate()
    first, second = peer.send(METADATA), peer.send(METADATA)
    culprit = peer.connection.oldest()
    assert culprit is not None
    error = peer.connection.timeout_error(culprit)
    responses = responses_of(peer.connection.close(error, 7.0, culprit))
    assert [first, second] == [response.request for response in responses]
    assert error is responses[0].error
    assert isinstance(error, KafkaTimeoutError)
    assert isinstance(responses[1].error, BrokerConnectionError)
    assert "broker 3 at k3:9092 did not respond to Metadata within 1000 ms" in str(responses[1].error)
    assert (0, FOREVER) == (peer.connection.in_flight, peer.connection.next_deadline)
    assert not peer.connection.outgoing
    with pytest.raises(StateError):
        peer.connection.close(error, 8.0)


def test_closing_while_negotiating_returns_no_response(peer: Peer) -> None:
    """The connection's own ApiVersions request is not reported to the caller."""
    peer.connection.transport_ready(0.0)
    assert peer.connection.entries
    assert [] == peer.connection.close(BrokerConnectionError("gone"), 1.0)
