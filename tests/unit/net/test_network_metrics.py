"""The network part of consumer-metrics, and consumer-node-metrics: which events are recorded."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from kconsumer.metrics.registry import Metrics
from kconsumer.net.metrics import GROUP, NODE_GROUP, ConnectionMetrics
from kconsumer.schema.metadata import METADATA
from kconsumer.schema.sasl import SASL_AUTHENTICATE
from kconsumer.types import Node
from support.fakes.fake_network import NetworkHarness
from support.fakes.sasl_exchange import SaslHarness
from support.fakes.scripted_broker import SILENCE


class Measured(NetworkHarness):
    """A client with metrics."""

    def __init__(self, **options: Any) -> None:
        self.metrics = Metrics()
        super().__init__(ConnectionMetrics(self.metrics), **options)
        self.broker.on(METADATA, METADATA.response())

    def metric(self, name: str, node: str = "") -> float:
        """Return a metric's value now: of all connections, or of the one with this Java node name."""
        found = {(m.group, m.name, *m.tags): v for m, v in self.metrics.snapshot(self.clock.now()).items()}
        return found[(NODE_GROUP, name, ("node-id", node)) if node else (GROUP, name)]


def test_connections() -> None:
    """Opened, closed and open connections are counted; an attempt that failed was never open."""
    harness = Measured()
    harness.net.servers["10.0.0.1"] = errno.ECONNREFUSED
    harness.ready()
    harness.poll()
    assert [0, 0, 0] == [harness.metric(f"connection-{what}") for what in ("creation-total", "close-total", "count")]
    harness.net.servers["10.0.0.1"] = harness.broker
    harness.clock.advance(10_000)
    harness.connect()
    assert [1, 0, 1] == [harness.metric(f"connection-{what}") for what in ("creation-total", "close-total", "count")]
    harness.net.last.close_by_peer()
    harness.poll()
    assert [1, 1, 0] == [harness.metric(f"connection-{what}") for what in ("creation-total", "close-total", "count")]
    assert harness.metric("connection-creation-rate") > 0
    assert harness.metric("connection-close-rate") > 0


def test_requests_and_bytes() -> None:
    """Bytes and requests in both directions, with ApiVersions, are recorded for all connections and for each."""
    harness = Measured()
    harness.connect()
    harness.send()
    harness.poll()
    sent, received = len(harness.net.last.written), harness.metric("incoming-byte-total")
    sizes = harness.metric("request-size-avg") * 2, harness.metric("request-size-max")
    for node in ("", "node--1"):
        assert (2, 2) == (harness.metric("request-total", node), harness.metric("response-total", node))
        assert (sent, received) == (
            harness.metric("outgoing-byte-total", node),
            harness.metric("incoming-byte-total", node),
        )
        assert sizes == (harness.metric("request-size-avg", node) * 2, harness.metric("request-size-max", node))
        for rate in ("request-rate", "response-rate", "outgoing-byte-rate", "incoming-byte-rate"):
            assert harness.metric(rate, node) > 0, rate
    assert sent == sizes[0]
    assert 4 == harness.metric("network-io-total")  # two writes, two reads
    assert received > 100


def test_a_request_in_parts_is_one_request() -> None:
    """A request that the socket accepts a few bytes at a time counts as several I/O operations but as one request."""
    harness = Measured()
    harness.connect()
    before = harness.metric("network-io-total")
    harness.net.last.room = 5
    harness.send()
    harness.poll()
    assert 1 == harness.metric("request-total")
    harness.net.last.room = 1 << 20
    harness.poll()
    assert 2 == harness.metric("request-total")
    harness.poll()
    assert 3 == harness.metric("network-io-total") - before  # two writes, one read
    assert len(harness.net.last.written) == harness.metric("outgoing-byte-total")


def test_latency() -> None:
    """The time from a request to its response is recorded per connection; a failed request has no latency."""
    harness = Measured()
    harness.client.set_nodes([Node(3, "boot", 9092)])
    harness.connect("3")
    harness.connect("+3")
    harness.connect("*3")
    for node, took_ms in (("3", 40), ("3", 60), ("+3", 7), ("*3", 5)):
        harness.send(node)
        harness.clock.advance(took_ms)
        harness.poll()
    harness.broker.on(METADATA, SILENCE)
    harness.send("3", timeout_ms=1000)
    harness.poll(5000)
    assert (50, 60) == (
        harness.metric("request-latency-avg", "node-3"),
        harness.metric("request-latency-max", "node-3"),
    )
    assert [7, 5] == [harness.metric("request-latency-max", node) for node in ("node-+3", "node-*3")]


def test_waiting_and_working() -> None:
    """The number of selects, the time they waited and its ratio are recorded; the work time is 0 because the clock
    stands still.
    """
    harness = Measured()
    harness.connect()
    selects, waited = harness.metric("select-total"), harness.metric("io-wait-time-ns-total")
    harness.poll(3000)
    assert 1 == harness.metric("select-total") - selects
    assert pytest.approx(3e9) == harness.metric("io-wait-time-ns-total") - waited
    assert pytest.approx(3 / 33) == harness.metric("io-wait-ratio")
    assert pytest.approx(3e9 / (selects + 1)) == harness.metric("io-wait-time-ns-avg")
    assert [0, 0, 0] == [harness.metric(name) for name in ("io-time-ns-total", "io-time-ns-avg", "io-ratio")]
    assert harness.metric("select-rate") > 0


def logins(harness: Measured) -> tuple[float, ...]:
    """Return the numbers of successful and failed logins, then those of re-authentications."""
    kinds = (
        "successful-authentication",
        "failed-authentication",
        "successful-reauthentication",
        "failed-reauthentication",
    )
    return tuple(harness.metric(f"{kind}-total") for kind in kinds)


class MeasuredAuthentications(SaslHarness, Measured):
    """A client with SASL and metrics."""


def test_logins() -> None:
    """A first login, a re-authentication, a refused re-authentication and a refused first login are counted."""
    harness = MeasuredAuthentications(lifetime_ms=10_000)
    harness.authenticate()
    assert (1, 0, 0, 0) == logins(harness)
    harness.clock.advance(9_600)
    harness.authenticate()
    assert (1, 0, 1, 0) == logins(harness)
    assert harness.metric("reauthentication-latency-max") >= 0
    harness.broker.on(SASL_AUTHENTICATE, SASL_AUTHENTICATE.response(error_code=58))
    for expected in ((1, 0, 1, 1), (1, 1, 1, 1)):
        harness.clock.advance(9_600)
        harness.ready()
        for _ in range(6):
            harness.poll()
        assert expected == logins(harness)


def test_without_security_there_are_no_logins() -> None:
    """A plaintext connection counts as no login, as in Java."""
    harness = Measured()
    harness.connect()
    assert (0, 0, 0, 0) == logins(harness)
