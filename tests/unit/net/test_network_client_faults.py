"""NetworkClient under faults: interruptions, handshakes that fail, and random sequences of errors."""

from __future__ import annotations

import errno
import selectors
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kconsumer._internal.requests import UnsentRequest
from kconsumer.errors import AuthenticationError
from kconsumer.net.transport import WOULD_BLOCK
from kconsumer.schema.metadata import METADATA
from support.fakes.fake_network import NetworkHarness
from support.fakes.scripted_broker import SILENCE
from support.harnesses.inside import links_of


@pytest.fixture
def harness() -> NetworkHarness:
    return NetworkHarness()


@pytest.mark.parametrize("direction", ["send", "recv_into"])
def test_an_exception_in_the_middle_of_io_costs_the_connection(harness: NetworkHarness, direction: str) -> None:
    """If a signal handler raises between a system call and its bookkeeping, bytes may be lost. The connection is
    therefore closed, its requests fail, and the exception is raised to the caller.
    """
    harness.connect()
    request = harness.send()

    def interrupted(_: Any) -> int:
        raise KeyboardInterrupt

    setattr(harness.net.last, direction, interrupted)
    harness.net.last.deliver(b"x")
    with pytest.raises(KeyboardInterrupt):
        harness.send() if direction == "send" else harness.poll(1_000)
    assert harness.net.last.closed
    failed = harness.poll(1_000)
    assert request is failed[0].request
    assert "interrupted by KeyboardInterrupt" in str(failed[0].error)


def test_a_transport_with_a_handshake(harness: NetworkHarness) -> None:
    """A transport may need several steps, in either direction, before the connection is usable (TLS)."""
    del harness.net.servers["10.0.0.1"]
    assert not harness.ready()
    transport = harness.net.last
    selector = harness.net.selectors[0]
    steps = iter([False, False, True])
    transport.finish_connect = lambda: next(steps)
    transport.wants_write = lambda: False
    transport.connected = True
    harness.poll()
    assert selectors.EVENT_READ == selector.get_map()[transport.fd].events
    assert b"" == transport.written
    transport.deliver(b"handshake")
    transport.wants_write = lambda: True
    harness.poll()
    assert selectors.EVENT_WRITE == selector.get_map()[transport.fd].events
    transport.inbox.clear()
    harness.poll()
    assert transport.written


def test_a_handshake_continues_after_a_long_absence(harness: NetworkHarness) -> None:
    """If nothing polls for longer than the setup timeout, a handshake whose bytes have arrived is not given up."""
    del harness.net.servers["10.0.0.1"]
    assert not harness.ready()
    transport = harness.net.last
    steps = iter([False, True])
    transport.finish_connect = lambda: next(steps)
    transport.connected = True
    harness.clock.advance(60_000)
    harness.poll()
    harness.poll()
    assert transport.written


@pytest.mark.parametrize(("direction", "nothing"), [("send", 0), ("recv_into", WOULD_BLOCK)])
def test_a_transport_that_waits_for_the_other_direction(harness: NetworkHarness, direction: str, nothing: int) -> None:
    """A write may wait for readability, and a read for writability (TLS): only that event is watched, and both continue
    then.
    """
    harness.broker.on(METADATA, METADATA.response())
    harness.connect()
    transport, [selector] = harness.net.last, harness.net.selectors
    usual = getattr(transport, direction)

    def blocked(_: Any) -> int:
        transport.crossed = True
        return nothing

    def free(data: Any) -> int:
        transport.crossed = False
        return usual(data)

    setattr(transport, direction, blocked)
    transport.wants_write = lambda: direction == "recv_into"
    transport.events = lambda: selectors.EVENT_READ | selectors.EVENT_WRITE
    request = harness.send()
    harness.poll()
    watched = selector.get_map()[transport.fd].events
    assert watched == (selectors.EVENT_READ if direction == "send" else selectors.EVENT_WRITE)
    setattr(transport, direction, free)
    assert [request] == [response.request for response in harness.poll()]
    assert selectors.EVENT_READ == selector.get_map()[transport.fd].events


def test_a_refused_handshake_is_not_tried_elsewhere(harness: NetworkHarness) -> None:
    """A KafkaError while connecting (a refused login) ends the round without other addresses, which would refuse it
    too.
    """
    harness.net.names["boot"] = ["10.0.0.1", "10.0.0.2"]
    assert not harness.ready()

    def refused() -> bool:
        raise AuthenticationError("no", code=58)

    harness.net.last.finish_connect = refused
    harness.poll()
    assert isinstance(harness.failed(), AuthenticationError)
    assert 1 == len(harness.net.attempts)
    assert harness.net.last.closed


def test_what_a_stale_selection_says_is_ignored(harness: NetworkHarness) -> None:
    """If one step loses a connection and starts the next on the same link, events of the old connection are not applied
    to the new one.
    """
    harness.connect()
    [key] = [key for key in harness.net.selectors[0].get_map().values() if key.data is not None]
    link = key.data
    harness.client.disconnect("-1", harness.clock.now())
    link.serve(selectors.EVENT_READ | selectors.EVENT_WRITE, harness.clock.now())
    assert "not connected, 1 failures" in repr(link)


def test_a_link_shows_its_connection(harness: NetworkHarness) -> None:
    """The repr of a Link contains that of its connection while there is one."""
    harness.connect()
    [link] = links_of(harness.client).values()
    assert "<NodeConnection -1: <Connection to bootstrap broker boot:9092: ready, 0 in flight" in repr(link)


CALLS = ("connect", "ready", "send", "late", "poll", "tick", "idle", "disconnect", "rebootstrap", "wakeup")
BROKER = ("refuse", "accept", "respond", "silence")
FAULTS = ("reset", "eof", "garbage", "stuck", "unstuck")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(CALLS + BROKER + FAULTS), max_size=60))
def test_whatever_happens_every_request_ends_once(operations: list[str]) -> None:
    """Under random faults each request completes exactly once, no transport outlives its connection, and the client
    works again when the broker does.
    """
    harness = NetworkHarness()
    harness.broker.on(METADATA, METADATA.response())
    sent: list[UnsentRequest] = []
    ended: list[UnsentRequest] = []

    def perform(operation: str) -> None:
        net, now = harness.net, harness.clock.now()
        open_ = [transport for transport in net.attempts if not transport.closed]
        match operation:
            case "connect":
                for _ in range(3):
                    harness.ready()
                    ended.extend(response.request for response in harness.poll())
            case "ready":
                harness.ready()
            case "send" | "late":
                if harness.ready():
                    sent.append(harness.send(timeout_ms=30_000 if operation == "send" else 10))
            case "poll":
                ended.extend(response.request for response in harness.poll())
            case "tick":
                harness.clock.advance(70)
            case "idle":
                ended.extend(response.request for response in harness.poll(600_000))
            case "refuse":
                net.servers["10.0.0.1"] = errno.ECONNREFUSED
            case "accept":
                net.servers["10.0.0.1"] = harness.broker
            case "respond":
                harness.broker.on(METADATA, METADATA.response(throttle_time_ms=5))
            case "silence":
                harness.broker.on(METADATA, SILENCE)
            case "disconnect":
                harness.client.disconnect("-1", now)
            case "rebootstrap":
                harness.client.rebootstrap(close_connections=True)
            case "wakeup":
                harness.client.wakeup()
            case _:
                for transport in open_:
                    _inject(transport, operation)

    for operation in operations:
        perform(operation)
        assert len(sent) - len(ended) >= harness.client.in_flight()
        in_use = {link.transport for link in links_of(harness.client).values()} - {None}
        assert in_use == {transport for transport in harness.net.attempts if not transport.closed}
    for operation in ("accept", "unstuck", "idle", "idle"):
        perform(operation)
    assert [id(request) for request in sent] == sorted(
        (id(request) for request in ended), key=[id(request) for request in sent].index
    )
    harness.clock.advance(40_000)
    harness.broker.on(METADATA, METADATA.response())
    harness.client.disconnect("-1", harness.clock.now())
    harness.clock.advance(2_000)
    harness.connect()
    harness.send()
    assert [None] == [response.error for response in harness.poll()]


def _inject(transport: Any, kind: str) -> None:
    match kind:
        case "reset":
            transport.fail(errno.ECONNRESET)
        case "eof":
            transport.close_by_peer()
        case "garbage":
            transport.deliver(b"\x00\x00\x00\x05\x01\x02\x03\x04\x05")
        case "stuck":
            transport.room = 0
        case "unstuck":
            transport.room = 1 << 30
