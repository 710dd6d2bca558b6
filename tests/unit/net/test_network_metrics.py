"""The network part of consumer-metrics, and consumer-node-metrics: what connections and requests record."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from kconsumer.metrics.registry import Metrics
from kconsumer.net.metrics import GROUP, NODE_GROUP, ConnectionMetrics
from kconsumer.schema import METADATA, SASL_AUTHENTICATE
from kconsumer.types import Node
from support.fakes.fake_network import World
from support.fakes.login_exchange import LoginWorld
from support.fakes.scripted_broker import SILENCE


class Measured(World):
    """A client that is measured."""

    def __init__(self, **options: Any) -> None:
        self.metrics = Metrics()
        super().__init__(ConnectionMetrics(self.metrics), **options)
        self.broker.on(METADATA, METADATA.response())

    def metric(self, name: str, node: str = "") -> float:
        """A metric now: of all connections, or of the one Java calls so."""
        found = {(m.group, m.name, *m.tags): v for m, v in self.metrics.snapshot(self.clock.now()).items()}
        return found[(NODE_GROUP, name, ("node-id", node)) if node else (GROUP, name)]


def test_connections() -> None:
    """Opened, closed, open now; an attempt that failed was never open."""
    world = Measured()
    world.net.servers["10.0.0.1"] = errno.ECONNREFUSED
    world.ready()
    world.poll()
    assert [0, 0, 0] == [world.metric(f"connection-{what}") for what in ("creation-total", "close-total", "count")]
    world.net.servers["10.0.0.1"] = world.broker
    world.clock.advance(10_000)
    world.connect()
    assert [1, 0, 1] == [world.metric(f"connection-{what}") for what in ("creation-total", "close-total", "count")]
    world.net.last.hang_up()
    world.poll()
    assert [1, 1, 0] == [world.metric(f"connection-{what}") for what in ("creation-total", "close-total", "count")]
    assert world.metric("connection-creation-rate") > 0
    assert world.metric("connection-close-rate") > 0


def test_requests_and_bytes() -> None:
    """What went out and came in, ApiVersions included, for all connections and for the one."""
    world = Measured()
    world.connect()
    world.send()
    world.poll()
    sent, received = len(world.net.last.written), world.metric("incoming-byte-total")
    sizes = world.metric("request-size-avg") * 2, world.metric("request-size-max")
    for node in ("", "node--1"):
        assert (2, 2) == (world.metric("request-total", node), world.metric("response-total", node))
        assert (sent, received) == (
            world.metric("outgoing-byte-total", node),
            world.metric("incoming-byte-total", node),
        )
        assert sizes == (world.metric("request-size-avg", node) * 2, world.metric("request-size-max", node))
        for rate in ("request-rate", "response-rate", "outgoing-byte-rate", "incoming-byte-rate"):
            assert world.metric(rate, node) > 0, rate
    assert sent == sizes[0]
    assert 4 == world.metric("network-io-total")  # two writes, two reads
    assert received > 100


def test_a_request_in_pieces_is_one_request() -> None:
    """A socket that takes a few bytes at a time makes more I/O, not more requests."""
    world = Measured()
    world.connect()
    before = world.metric("network-io-total")
    world.net.last.room = 5
    world.send()
    world.poll()
    assert 1 == world.metric("request-total")
    world.net.last.room = 1 << 20
    world.poll()
    assert 2 == world.metric("request-total")
    world.poll()
    assert 3 == world.metric("network-io-total") - before  # two writes, one read
    assert len(world.net.last.written) == world.metric("outgoing-byte-total")


def test_latency() -> None:
    """The time from a request to its answer, per node; a request that failed has none."""
    world = Measured()
    world.client.set_nodes([Node(3, "boot", 9092)])
    world.connect("3")
    world.connect("+3")
    for node, took_ms in (("3", 40), ("3", 60), ("+3", 7)):
        world.send(node)
        world.clock.advance(took_ms)
        world.poll()
    world.broker.on(METADATA, SILENCE)
    world.send("3", timeout_ms=1000)
    world.poll(5000)
    assert (50, 60) == (world.metric("request-latency-avg", "node-3"), world.metric("request-latency-max", "node-3"))
    assert 7 == world.metric("request-latency-max", "node-2147483644")


def test_waiting_and_working() -> None:
    """Selects, the time they waited, and the share of it; work on a clock that stands still takes no time."""
    world = Measured()
    world.connect()
    selects, waited = world.metric("select-total"), world.metric("io-wait-time-ns-total")
    world.poll(3000)
    assert 1 == world.metric("select-total") - selects
    assert pytest.approx(3e9) == world.metric("io-wait-time-ns-total") - waited
    assert pytest.approx(3 / 33) == world.metric("io-wait-ratio")
    assert pytest.approx(3e9 / (selects + 1)) == world.metric("io-wait-time-ns-avg")
    assert [0, 0, 0] == [world.metric(name) for name in ("io-time-ns-total", "io-time-ns-avg", "io-ratio")]
    assert world.metric("select-rate") > 0


def logins(world: Measured) -> tuple[float, ...]:
    """Logins that succeeded and failed, then those over a connection in use."""
    kinds = (
        "successful-authentication",
        "failed-authentication",
        "successful-reauthentication",
        "failed-reauthentication",
    )
    return tuple(world.metric(f"{kind}-total") for kind in kinds)


class MeasuredLogins(LoginWorld, Measured):
    """A client that logs in, and is measured."""


def test_logins() -> None:
    """The first login, one that prolongs the session, one that is refused, and one refused from the start."""
    world = MeasuredLogins(lifetime_ms=10_000)
    world.log_in()
    assert (1, 0, 0, 0) == logins(world)
    world.clock.advance(9_600)
    world.log_in()
    assert (1, 0, 1, 0) == logins(world)
    assert world.metric("reauthentication-latency-max") >= 0
    world.broker.on(SASL_AUTHENTICATE, SASL_AUTHENTICATE.response(error_code=58))
    for expected in ((1, 0, 1, 1), (1, 1, 1, 1)):
        world.clock.advance(9_600)
        world.ready()
        for _ in range(6):
            world.poll()
        assert expected == logins(world)


def test_without_security_there_are_no_logins() -> None:
    """A plain connection counts as none, as in Java."""
    world = Measured()
    world.connect()
    assert (0, 0, 0, 0) == logins(world)
