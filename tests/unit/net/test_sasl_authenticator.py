"""Logins and re-authentications, with a scripted broker and a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kconsumer.errors import AuthenticationError, BrokerConnectionError, KafkaError
from kconsumer.net.node import FOREVER
from kconsumer.net.states import ConnectionState
from kconsumer.schema.metadata import API_VERSIONS, METADATA
from kconsumer.schema.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE
from support.fakes.fake_network import NetworkHarness
from support.fakes.sasl_exchange import SaslHarness
from support.fakes.scripted_broker import CLOSE, Received, api_versions, response_bytes

LIFETIME_MS = 10_000


def versions_at_most(**highest: int) -> Any:
    """Return the ApiVersions response of a broker that has these APIs up to a version, or (-1) not at all."""
    return api_versions(**{name: (0, high) for name, high in highest.items()})


def test_a_login_on_the_wire() -> None:
    """A login sends ApiVersions v0, SaslHandshake and the token, then the usual ApiVersions. Its requests have
    correlation ids that no other request has.
    """
    harness = SaslHarness().authenticate()
    requests = [(r.api.name, r.version, r.correlation_id) for r in harness.broker.requests]
    assert [
        ("ApiVersions", 0, 2**31 - 8),
        ("SaslHandshake", 1, 2**31 - 7),
        ("SaslAuthenticate", 2, 2**31 - 6),
        ("ApiVersions", 5, 0),
    ] == requests
    assert "PLAIN" == harness.broker.requests[1].message.mechanism
    assert b"\0alice\0hunter2" == harness.broker.requests[2].message.auth_bytes


@pytest.mark.parametrize("old", [{"SaslHandshake": 0}, {"SaslAuthenticate": -1}])
def test_bare_tokens(old: dict[str, int]) -> None:
    """With a broker without SaslAuthenticate tokens are sent with only their size, in both directions."""
    harness = SaslHarness()
    harness.broker.next(API_VERSIONS, versions_at_most(**old))
    taken = harness.take_raw_tokens(b"\0\0\0\0")
    harness.authenticate()
    assert [b"\0alice\0hunter2"] == taken
    requests = [(r.api.name, r.version) for r in harness.broker.requests]
    assert [("ApiVersions", 0), ("SaslHandshake", 0), ("ApiVersions", 5)] == requests


def test_a_broker_that_closes_after_a_bare_token_refuses() -> None:
    """With bare tokens a broker can refuse only by closing the connection. One close may be a shutdown, and three in a
    row are a refusal.
    """
    harness = SaslHarness()
    harness.broker.on(API_VERSIONS, versions_at_most(SaslHandshake=0))
    errors: list[Any] = []
    harness.take_raw_tokens(None)
    for _ in range(4):
        harness.ready()
        errors.append(harness.until_failed())
        harness.clock.advance(harness.delay())
    retried, refused = BrokerConnectionError, AuthenticationError
    assert [retried, retried, refused, refused] == [type(error) for error in errors]
    assert "refused the login by PLAIN: it closed the connection" in str(errors[2])


REFUSALS: list[tuple[Any, Any, int, str]] = [
    (
        SASL_HANDSHAKE,
        SASL_HANDSHAKE.response(error_code=33, mechanisms=["SCRAM-SHA-512", "GSSAPI"]),
        33,
        "does not take PLAIN here, but GSSAPI, SCRAM-SHA-512 (set sasl_mechanism)",
    ),
    (SASL_HANDSHAKE, SASL_HANDSHAKE.response(error_code=34), 34, "wants no login on this port (set security_protocol"),
    (SASL_HANDSHAKE, SASL_HANDSHAKE.response(error_code=58), 58, "refused to begin a login"),
    (
        SASL_AUTHENTICATE,
        SASL_AUTHENTICATE.response(error_code=58, error_message="no such user"),
        58,
        "refused the login by PLAIN: no such user (check sasl_plain_username",
    ),
    (SASL_AUTHENTICATE, SASL_AUTHENTICATE.response(error_code=58), 58, "it gave no reason"),
]


@pytest.mark.parametrize(("api", "response", "code", "text"), REFUSALS)
def test_refusals(api: Any, response: Any, code: int, text: str) -> None:
    """Each refusal has advice; the broker is tried again after a backoff, which grows."""
    harness = SaslHarness()
    harness.broker.on(api, response)
    waits = []
    for _ in range(4):
        harness.ready()
        for _ in range(6):
            harness.poll()
        error = harness.failed()
        assert isinstance(error, AuthenticationError)
        assert (code, True) == (error.code, text in str(error))
        assert "hunter2" not in str(error)
        assert error is harness.client.authentication_error(harness.clock.now())
        waits.append(harness.delay())
        assert not harness.ready()
        harness.clock.advance(harness.delay())
    assert 4 == len(harness.net.attempts)
    assert waits == sorted(waits)
    assert waits[-1] > 4 * waits[0]
    harness.broker.on(SASL_HANDSHAKE, SASL_HANDSHAKE.response())
    harness.broker.on(SASL_AUTHENTICATE, SASL_AUTHENTICATE.response())
    harness.authenticate()
    assert None is harness.client.authentication_error(harness.clock.now())


def test_a_broker_without_logins() -> None:
    """A broker without SaslHandshake raises an error, because no login is possible."""
    harness = SaslHarness()
    harness.broker.on(API_VERSIONS, versions_at_most(SaslHandshake=-1))
    harness.ready()
    for _ in range(3):
        harness.poll()
    assert "has no SaslHandshake that this client knows" in str(harness.failed())


@pytest.mark.parametrize("api", [API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE])
@pytest.mark.parametrize("garbage", [b"", b"\xff", b"\x00\x00", b"\xff" * 40])
def test_garbage_ends(api: Any, garbage: bytes) -> None:
    """A response that does not parse ends the connection with an error."""
    harness = SaslHarness()

    def garbled(request: Received) -> bytes:
        body = request.correlation_id.to_bytes(4, "big") + garbage
        return len(body).to_bytes(4, "big") + body

    harness.broker.on(api, garbled)
    harness.ready()
    for _ in range(8):
        harness.poll()
    assert isinstance(harness.failed(), KafkaError)


# --- credentials that take their time ---


def hanging(harness: SaslHarness) -> list[Callable[[], None]]:
    harness.net.hanging = []
    return harness.net.hanging


def test_a_secret_that_is_called_is_called_in_the_background() -> None:
    """A callable password runs in the background: nothing is sent to the broker before, and other brokers are served
    meanwhile.
    """
    harness = SaslHarness(sasl_plain_password=lambda: "sesame")
    harness.ready()
    waiting = hanging_after_lookup(harness)
    assert [] == harness.broker.requests
    assert ConnectionState.AUTHENTICATING is harness.link.connection.state
    waiting.pop()()
    harness.authenticate()
    assert b"\0alice\0sesame" == harness.broker.requests[2].message.auth_bytes


def hanging_after_lookup(harness: SaslHarness) -> list[Callable[[], None]]:
    """Let names be resolved, and then block background tasks."""
    waiting = hanging(harness)
    for _ in range(3):
        harness.poll()
    return waiting


def test_a_changed_secret_is_seen_by_the_next_login() -> None:
    """Each login reads the secret again."""
    passwords = iter(["first", "second"])
    harness = SaslHarness(sasl_plain_password=lambda: next(passwords)).authenticate()
    harness.client.disconnect("-1", harness.clock.now())
    harness.clock.advance(1_000)
    harness.authenticate()
    tokens = [r.message.auth_bytes for r in harness.broker.requests if r.api is SASL_AUTHENTICATE]
    assert [b"\0alice\0first", b"\0alice\0second"] == tokens


def test_a_secret_that_never_comes() -> None:
    """Waiting for credentials ends at a timeout, and the error says what was awaited."""
    harness = SaslHarness(sasl_plain_password=lambda: "sesame", request_timeout_ms=5_000)
    harness.ready()
    hanging_after_lookup(harness)
    error = harness.until_failed()
    assert isinstance(error, BrokerConnectionError)
    assert "has waited 5000 ms for its credentials" in str(error)


@pytest.mark.parametrize("failure", [ValueError("hunter2"), KeyError("hunter2")])
def test_a_callable_that_fails(failure: Exception) -> None:
    """The error has the class of the exception but not its text, which may contain the secret."""

    def fail() -> str:
        raise failure

    harness = SaslHarness(sasl_plain_password=fail)
    harness.ready()
    for _ in range(3):
        harness.poll()
    assert isinstance(harness.failed(), AuthenticationError)
    assert f"failed with {type(failure).__name__}" in str(harness.failed())
    assert "hunter2" not in str(harness.failed())


# --- sessions that end (KIP-368) ---


def test_a_request_in_flight_completes_during_a_login() -> None:
    """A re-authentication is sent behind a request in flight, whose response arrives first; no other request is sent
    meanwhile.
    """
    harness = SaslHarness(LIFETIME_MS).authenticate()
    harness.broker.next(METADATA, b"")
    request = harness.send()
    harness.clock.advance(LIFETIME_MS)
    for api in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
        harness.broker.next(api, b"")
    assert not harness.ready()
    assert ConnectionState.REAUTHENTICATING is harness.link.connection.state
    assert 1 == harness.client.in_flight()
    handshake = harness.broker.requests[-1]
    assert SASL_HANDSHAKE is handshake.api
    transport = harness.net.last
    transport.deliver(_response(METADATA, harness.broker.requests[-2], METADATA.response()))
    assert [request] == [response.request for response in harness.poll()]
    assert not harness.ready()
    transport.deliver(_response(SASL_HANDSHAKE, handshake, SASL_HANDSHAKE.response()))
    harness.poll()
    transport.deliver(_response(SASL_AUTHENTICATE, harness.broker.requests[-1], SASL_AUTHENTICATE.response()))
    harness.poll()
    assert harness.ready()


def _response(api: Any, request: Received, message: Any) -> bytes:
    return response_bytes(api, request.version, request.correlation_id, message)


def test_requests_continue_while_credentials_are_fetched() -> None:
    """While the next token is fetched requests are sent; only the re-authentication itself delays them."""
    harness = SaslHarness(LIFETIME_MS, sasl_plain_password=lambda: "sesame").authenticate()
    harness.link.connection.session.renew_at = harness.clock.now()
    waiting = hanging(harness)
    assert harness.ready()
    harness.send()
    assert 1 == len(harness.poll())
    harness.clock.advance(0.95 * LIFETIME_MS)
    assert not harness.ready()  # the session may end any moment
    assert FOREVER == harness.delay()
    waiting.pop()()
    harness.poll()
    for _ in range(3):
        harness.poll()
    assert ["SaslHandshake", "SaslAuthenticate"] == harness.broker.names()[-2:]
    assert harness.ready()
    assert 1 == len(harness.net.attempts)


def test_a_login_refused_later_ends_the_connection() -> None:
    """A refused re-authentication fails requests in flight with a lost connection; the next request fails with the
    reason.
    """
    harness = SaslHarness(LIFETIME_MS).authenticate()
    harness.broker.next(METADATA, b"")
    harness.send()
    harness.clock.advance(LIFETIME_MS)
    harness.broker.next(SASL_HANDSHAKE, b"")
    assert not harness.ready()
    handshake = harness.broker.requests[-1]
    harness.net.last.deliver(
        _response(METADATA, harness.broker.requests[-2], METADATA.response())
        + _response(SASL_HANDSHAKE, handshake, SASL_HANDSHAKE.response())
    )
    harness.broker.next(SASL_AUTHENTICATE, SASL_AUTHENTICATE.response(error_code=58, error_message="gone"))
    assert 1 == len(harness.poll())
    harness.poll()
    assert isinstance(harness.failed(), AuthenticationError)


# --- a client that should log in and does not ---


def closed_at_the_first_request(harness: NetworkHarness, times: int) -> list[Any]:
    """Return the error of each of these attempts."""
    harness.broker.on(METADATA, CLOSE)
    errors: list[Any] = []
    for _ in range(times):
        assert not harness.ready()
        for _ in range(4):
            harness.poll()
        if harness.ready():
            harness.send()
            harness.poll()
        errors.append(harness.failed())
        harness.clock.advance(harness.delay())
    return errors


def test_a_broker_that_closes_at_the_first_request_is_probed_for_sasl() -> None:
    """A SASL listener responds to ApiVersions without a login, and closes at the next request. After three closes the
    client sends a SaslHandshake with an invalid mechanism. A listener with SASL then lists its mechanisms, which the
    error contains.
    """
    harness = NetworkHarness()
    harness.broker.on(SASL_HANDSHAKE, SASL_HANDSHAKE.response(error_code=33, mechanisms=["SCRAM-SHA-512", "PLAIN"]))
    errors = closed_at_the_first_request(harness, 5)
    assert 3 * [BrokerConnectionError] + 2 * [AuthenticationError] == [type(error) for error in errors]
    assert "takes logins by PLAIN, SCRAM-SHA-512 (security_protocol is PLAINTEXT; check it" in str(errors[3])
    harness.broker.on(SASL_HANDSHAKE, CLOSE)
    harness.broker.on(METADATA, METADATA.response())
    assert not harness.ready()
    for _ in range(4):
        harness.poll()
    harness.clock.advance(harness.delay())
    harness.connect()


@pytest.mark.parametrize("response", [CLOSE, SASL_HANDSHAKE.response(error_code=34), b"\0\0\0\2ab", b"HTTP/1.1"])
def test_a_probe_for_sasl_without_a_proof(response: Any) -> None:
    """A listener without SASL that closes connections, as a starting broker may, is retried, and is seldom probed
    again.
    """
    harness = NetworkHarness()
    harness.broker.on(SASL_HANDSHAKE, response)
    errors = closed_at_the_first_request(harness, 17)
    assert {BrokerConnectionError} == {type(error) for error in errors}
    names = [name for name in harness.broker.names() if name != "ApiVersions"]
    assert [3, 8, 13] == [attempt for attempt, name in enumerate(names) if name == "SaslHandshake"]
    assert "closes connections at the first request (is the broker starting" in str(errors[3])


def test_a_broker_that_responded_once_wants_no_login() -> None:
    """A broker that has responded once is not probed, however often it closes connections later."""
    harness = NetworkHarness()
    harness.broker.next(METADATA, METADATA.response(), CLOSE)
    harness.connect()
    harness.send()
    harness.poll()
    for _ in range(5):
        harness.send()
        harness.poll()
        assert isinstance(harness.failed(), BrokerConnectionError)
        harness.clock.advance(harness.delay())
        harness.broker.next(METADATA, CLOSE)
        harness.connect()


def test_a_session_that_has_expired_unused_is_renewed_by_the_next_request() -> None:
    """A connection whose session has expired while it was idle can be chosen for a request, which begins the login."""
    harness = SaslHarness(lifetime_ms=10_000).authenticate()
    harness.clock.advance(9_600)
    node = harness.client.least_loaded_node(harness.clock.now())
    assert "-1" == node
    assert not harness.ready(node)
    harness.authenticate()
    assert harness.ready(node)
