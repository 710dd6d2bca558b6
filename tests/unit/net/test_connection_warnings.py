"""How often warnings about a broker that cannot be reached are logged."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable

import pytest

from kconsumer._common.repeated_failures import RepeatedFailures
from kconsumer.net.address_failures import ADVERTISED
from kconsumer.schema.classic_group import JOIN_GROUP
from kconsumer.schema.fetch import FETCH
from kconsumer.schema.metadata import API_VERSIONS, METADATA
from kconsumer.types import Node
from support.fakes.fake_network import NetworkHarness
from support.fakes.scripted_broker import CLOSE, SILENCE, Script


def test_a_repeated_failure_is_logged_once_a_minute() -> None:
    """The first failure is logged, and then one each minute, with the number of failures that were not logged."""
    failures = RepeatedFailures()
    said = {second: failures.failed(["refused after 7 ms"], second * 1000.0) for second in range(300)}
    moments = {second: count for second, count in said.items() if count is not None}
    assert [0, 60, 120, 180, 240] == list(moments)
    assert [0, 59, 59, 59, 59] == list(moments.values())


def test_a_changed_cause_is_said_at_once() -> None:
    """Another cause is logged at once; the order of addresses and numbers in the text are ignored."""
    failures = RepeatedFailures()
    for now in range(5):
        failures.failed(["refused (10.0.0.1)", "reset (10.0.0.2)"], now)
    assert failures.failed(["reset (10.0.0.7)", "refused (10.0.0.8)"], 6.0) is None
    assert 5 == failures.failed(["the name could not be resolved"], 7.0)
    assert 0 == failures.failed(["refused (10.0.0.1)"], 8.0)


def test_causes_that_alternate_are_limited_together() -> None:
    """A failure that returns to an earlier cause, as with a probe after each few attempts, is no new cause."""
    failures = RepeatedFailures()
    said = [
        second for second in range(300) if failures.failed([f"cause {'ab'[second % 2]}"], second * 1000.0) is not None
    ]
    assert [0, 1, 61, 121, 181, 241] == said


def test_causes_without_end_are_limited() -> None:
    """Texts that differ each time are not all logged."""
    failures = RepeatedFailures()
    texts = ["".join(chr(ord("a") + int(digit)) for digit in f"{second:04}") for second in range(600)]
    assert 20 > sum(failures.failed([text], second * 1000.0) is not None for second, text in enumerate(texts))


def test_a_broker_that_is_down_for_ten_minutes(caplog: pytest.LogCaptureFixture) -> None:
    """About 800 failed attempts cause one warning per minute; after a connection that has served requests for a minute,
    the next failure is logged at once.
    """
    harness = NetworkHarness()
    harness.net.servers["10.0.0.1"] = errno.ECONNREFUSED
    attempts, end = 0, harness.clock.now() + 600_000
    while harness.clock.now() < end:
        harness.ready()
        harness.poll()
        harness.clock.advance(harness.delay())
        attempts += 1
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert attempts > 500
    assert len(warnings) == 10
    suppressed = [int(found[1]) for text in warnings if (found := re.search(r"since the last warning: (\d+)$", text))]
    assert 0 <= attempts - sum(suppressed) - len(warnings) < 200  # those since the last warning
    harness.net.servers["10.0.0.1"] = harness.broker
    harness.connect()
    harness.broker.next(METADATA, METADATA.response(cluster_id="c"))
    harness.send()
    harness.poll()
    harness.clock.advance(60_000)
    harness.net.last.close_by_peer()
    harness.poll()
    harness.net.servers["10.0.0.1"] = errno.ECONNREFUSED
    caplog.clear()
    harness.clock.advance(2000)
    harness.ready()
    harness.poll()
    assert 1 == sum(record.levelname == "WARNING" for record in caplog.records)


# --- nothing is silent: each state in which a connection makes no progress ---


def refuse(harness: NetworkHarness) -> None:
    harness.net.servers["10.0.0.1"] = errno.ECONNREFUSED


def drop_packets(harness: NetworkHarness) -> None:
    del harness.net.servers["10.0.0.1"]


def lose_name(harness: NetworkHarness) -> None:
    del harness.net.names["boot"]


def hang_in_resolver(harness: NetworkHarness) -> None:
    harness.net.hanging = []


def close_at_versions(harness: NetworkHarness) -> None:
    harness.broker.on(API_VERSIONS, CLOSE)


def stay_silent_about_versions(harness: NetworkHarness) -> None:
    harness.broker.on(API_VERSIONS, SILENCE)


def close_at_first_request(harness: NetworkHarness) -> None:
    harness.broker.on(METADATA, CLOSE)


def stay_silent_about_metadata(harness: NetworkHarness) -> None:
    harness.broker.on(METADATA, SILENCE)


def close_at_fetch(harness: NetworkHarness) -> None:
    harness.broker.on(METADATA, METADATA.response())
    harness.broker.on(FETCH, CLOSE)


STATES = {
    refuse: "connection refused",
    drop_packets: "has not responded for",
    lose_name: "the name could not be resolved",
    hang_in_resolver: "has not been resolved to an address for",
    close_at_versions: "it closed the connection before the first response",
    stay_silent_about_versions: "has not responded for",
    close_at_first_request: "it closed the connection before the first response",
    stay_silent_about_metadata: "has not responded to Metadata for",
    close_at_fetch: "it closed the connection",
}


def run(harness: NetworkHarness, end: float) -> None:
    """Do what the engine does: connect, send requests, and wait."""
    while harness.clock.now() < end:
        if harness.ready() and not harness.client.in_flight():
            harness.send()
            harness.send(api=FETCH)
        before = harness.clock.now()
        harness.poll(min(harness.delay() or 50.0, end - before))
        if harness.clock.now() == before:
            harness.clock.advance(100)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_each_state_without_progress_is_a_warning(
    state: Callable[[NetworkHarness], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever keeps a connection from serving requests is logged as a warning with its cause within ten seconds, and
    then once a minute. A cause of another kind, such as that of a probe, is logged when it appears.
    """
    harness = NetworkHarness()
    state(harness)
    began = harness.clock.now()
    run(harness, began + 10_000)
    early = warnings_of(caplog)
    assert any(STATES[state] in text for text in early), early
    assert len(early) <= 2, early
    run(harness, began + 120_000)
    caplog.clear()
    run(harness, began + 420_000)
    assert 4 <= len(warnings_of(caplog)) <= 6


def test_what_may_take_long_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A fetch that waits for records, and a JoinGroup that waits for other members, are not slow."""
    harness = NetworkHarness()
    harness.connect()
    harness.broker.on(FETCH, SILENCE)
    harness.broker.on(JOIN_GROUP, SILENCE)
    harness.connect("*-1")
    harness.send(api=FETCH, max_wait_ms=12_000)
    harness.send("*-1", api=JOIN_GROUP, timeout_ms=300_000)
    harness.poll(15_000)
    assert [] == warnings_of(caplog)
    harness.poll(10_000)
    [text] = warnings_of(caplog)
    assert "has not responded to Fetch for 20000 ms" in text


def test_a_lost_connection_that_worked_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A broker restarts, or a proxy closes an idle connection: the next attempt succeeds, and nothing is wrong."""
    harness = NetworkHarness()
    harness.broker.on(METADATA, METADATA.response(cluster_id="c"))
    for _ in range(5):
        harness.clock.advance(2_000)
        harness.connect()
        harness.send()
        harness.poll()
        harness.clock.advance(60_000)
        harness.net.last.close_by_peer()
        harness.poll()
    assert [] == warnings_of(caplog)


# --- the address that a broker advertises ---


def make_advertising() -> NetworkHarness:
    """Returns a network with a bootstrap server at localhost, and another broker at the name "boot"."""
    harness = NetworkHarness(bootstrap_servers=(("localhost", 9092),))
    bootstrap = Script()
    bootstrap.on(METADATA, METADATA.response(cluster_id="c"))
    harness.net.names |= {"localhost": ["127.0.0.1"]}
    harness.net.servers |= {"127.0.0.1": bootstrap}
    return harness


def advertise(harness: NetworkHarness, host: str) -> None:
    """Let a bootstrap server respond, and then replace the list of brokers by one broker, as metadata do."""
    harness.client.rebootstrap(close_connections=True)
    harness.clock.advance(harness.delay())
    harness.connect()
    harness.send()
    harness.poll()
    harness.client.set_nodes([Node(1, host, 9092)])


@pytest.mark.parametrize("state", [refuse, drop_packets, lose_name, close_at_versions])
def test_an_unreachable_advertised_address_is_named_as_such(
    state: Callable[[NetworkHarness], None], caplog: pytest.LogCaptureFixture
) -> None:
    """If the bootstrap server responds, but not the address that the broker advertises, the warning and the error name
    `advertised.listeners`.
    """
    harness = make_advertising()
    advertise(harness, "boot")
    state(harness)
    for _ in range(100):
        harness.ready("1")
        harness.poll(200)
    assert warnings_of(caplog)
    assert all(ADVERTISED in text for text in warnings_of(caplog))
    assert ADVERTISED in harness.client.last_error("1", harness.clock.now())


def test_an_advertised_address_that_was_reached_needs_no_hint(caplog: pytest.LogCaptureFixture) -> None:
    """A broker that goes down later, and a bootstrap server, are not called wrongly advertised."""
    harness = make_advertising()
    advertise(harness, "boot")
    harness.connect("1")
    harness.net.last.close_by_peer()
    harness.net.servers |= {"10.0.0.1": errno.ECONNREFUSED, "127.0.0.1": errno.ECONNREFUSED}
    for _ in range(10):
        harness.poll(200)
        harness.ready("1")
    harness.client.rebootstrap(close_connections=True)
    for _ in range(10):
        harness.ready()
        harness.poll(200)
    assert {"bootstrap broker localhost:9092", "broker 1 at boot:9092"} == {
        found[1] for text in warnings_of(caplog) if (found := re.match(r"(.*) cannot be reached", text))
    }
    assert not any(ADVERTISED in text for text in warnings_of(caplog))


def test_the_limit_of_warnings_outlasts_a_rebootstrap(caplog: pytest.LogCaptureFixture) -> None:
    """The bootstrap server responds, the advertised address does not, and the client starts again from the bootstrap
    servers: warnings about the address stay limited, and the three connections to one address are limited together.
    """
    harness = make_advertising()
    refuse(harness)
    began = harness.clock.now()
    while harness.clock.now() < began + 120_000:
        advertise(harness, "boot")
        for node in ("1", "+1", "*1"):
            harness.ready(node)
        harness.poll()
        harness.clock.advance(300)
    assert 2 <= len(warnings_of(caplog)) <= 3
