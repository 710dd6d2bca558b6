"""Logins over a connection, and prolonging them, with a scripted broker and a clock moved by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kconsumer.errors import AuthenticationError, BrokerConnectionError, KafkaError
from kconsumer.net.node import FOREVER
from kconsumer.net.states import ConnectionState
from kconsumer.schema import API_VERSIONS, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from support.fakes.fake_network import World
from support.fakes.login_exchange import LoginWorld
from support.fakes.scripted_broker import CLOSE, SILENCE, Received, api_versions, response_bytes

LIFETIME_MS = 10_000


def versions_at_most(**highest: int) -> Any:
    """An ApiVersions answer of a broker that knows these APIs up to a version, or (-1) not at all."""
    return api_versions(**{name: (0, high) for name, high in highest.items()})


def test_a_login_on_the_wire() -> None:
    """ApiVersions v0, the handshake, the token, then ApiVersions as ever; a login's requests have correlation ids of
    their own, which no other request ever has."""
    world = LoginWorld().log_in()
    told = [(r.api.name, r.version, r.correlation_id) for r in world.broker.requests]
    assert [
        ("ApiVersions", 0, 2**31 - 8),
        ("SaslHandshake", 1, 2**31 - 7),
        ("SaslAuthenticate", 2, 2**31 - 6),
        ("ApiVersions", 5, 0),
    ] == told
    assert "PLAIN" == world.broker.requests[1].message.mechanism
    assert b"\0alice\0hunter2" == world.broker.requests[2].message.auth_bytes


def test_versions_are_those_that_the_broker_has() -> None:
    """An older broker is asked with older versions."""
    world = LoginWorld()
    world.broker.on(API_VERSIONS, versions_at_most(SaslAuthenticate=0))
    world.log_in()
    assert [0] == [r.version for r in world.broker.requests if r.api is SASL_AUTHENTICATE]


@pytest.mark.parametrize("old", [{"SaslHandshake": 0}, {"SaslAuthenticate": -1}])
def test_bare_tokens(old: dict[str, int]) -> None:
    """A broker without SaslAuthenticate takes the token with nothing but its size, and answers so."""
    world = LoginWorld()
    world.broker.next(API_VERSIONS, versions_at_most(**old))
    taken = world.take_bare_tokens(b"\0\0\0\0")
    world.log_in()
    assert [b"\0alice\0hunter2"] == taken
    told = [(r.api.name, r.version) for r in world.broker.requests]
    assert [("ApiVersions", 0), ("SaslHandshake", 0), ("ApiVersions", 5)] == told


def test_a_broker_that_closes_after_a_bare_token_refuses() -> None:
    """It has no other way to say so. Once may be a broker that ends: three times in a row it has refused."""
    world = LoginWorld()
    world.broker.on(API_VERSIONS, versions_at_most(SaslHandshake=0))
    errors: list[Any] = []
    world.take_bare_tokens(None)
    for _ in range(4):
        world.ready()
        errors.append(world.until_failed())
        world.clock.advance(world.delay())
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


@pytest.mark.parametrize(("api", "answer", "code", "text"), REFUSALS)
def test_refusals(api: Any, answer: Any, code: int, text: str) -> None:
    """Each says what to change; the broker is then left alone, longer each time, and asked again."""
    world = LoginWorld()
    world.broker.on(api, answer)
    waits = []
    for _ in range(4):
        world.ready()
        for _ in range(6):
            world.poll()
        error = world.failed()
        assert isinstance(error, AuthenticationError)
        assert (code, True) == (error.code, text in str(error))
        assert "hunter2" not in str(error)
        assert error is world.client.authentication_error()
        waits.append(world.delay())
        assert not world.ready()
        world.clock.advance(world.delay())
    assert 4 == len(world.net.attempts)
    assert waits == sorted(waits)
    assert waits[-1] > 4 * waits[0]
    world.broker.on(SASL_HANDSHAKE, SASL_HANDSHAKE.response())
    world.broker.on(SASL_AUTHENTICATE, SASL_AUTHENTICATE.response())
    world.log_in()
    assert None is world.client.authentication_error()


def test_a_broker_without_logins() -> None:
    """One that lists no SaslHandshake is no broker that a login makes sense with."""
    world = LoginWorld()
    world.broker.on(API_VERSIONS, versions_at_most(SaslHandshake=-1))
    world.ready()
    for _ in range(3):
        world.poll()
    assert "has no SaslHandshake that this client knows" in str(world.failed())


@pytest.mark.parametrize("api", [API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE])
def test_silence_ends(api: Any) -> None:
    """A broker that does not answer a step of a login costs no more than a request's timeout."""
    world = LoginWorld(request_timeout_ms=5_000)
    world.broker.on(api, SILENCE)
    world.ready()
    error = world.until_failed()
    assert isinstance(error, BrokerConnectionError)
    assert f"did not answer {api.name} within 5000 ms" in str(error)


@pytest.mark.parametrize("api", [API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE])
@pytest.mark.parametrize("garbage", [b"", b"\xff", b"\x00\x00", b"\xff" * 40])
def test_garbage_ends(api: Any, garbage: bytes) -> None:
    """An answer that does not parse ends the connection with an error, like any other."""
    world = LoginWorld()

    def answer(request: Received) -> bytes:
        body = request.correlation_id.to_bytes(4, "big") + garbage
        return len(body).to_bytes(4, "big") + body

    world.broker.on(api, answer)
    world.ready()
    for _ in range(8):
        world.poll()
    assert isinstance(world.failed(), KafkaError)


# --- credentials that take their time ---


def hanging(world: LoginWorld) -> list[Callable[[], None]]:
    world.net.hanging = []
    return world.net.hanging


def test_a_secret_that_is_called_is_called_beside_the_loop() -> None:
    """The broker hears nothing before the password is there; everybody else is served meanwhile."""
    world = LoginWorld(sasl_plain_password=lambda: "sesame")
    world.ready()
    waiting = hanging_after_lookup(world)
    assert [] == world.broker.requests
    assert ConnectionState.AUTHENTICATING is world.link.connection.state
    waiting.pop()()
    world.log_in()
    assert b"\0alice\0sesame" == world.broker.requests[2].message.auth_bytes


def hanging_after_lookup(world: LoginWorld) -> list[Callable[[], None]]:
    """Let names be resolved, and then hold back what runs beside the loop."""
    waiting = hanging(world)
    for _ in range(3):
        world.poll()
    return waiting


def test_a_changed_secret_is_seen_by_the_next_login() -> None:
    """Each login reads it anew."""
    passwords = iter(["first", "second"])
    world = LoginWorld(sasl_plain_password=lambda: next(passwords)).log_in()
    world.client.disconnect("-1", world.clock.now())
    world.clock.advance(1_000)
    world.log_in()
    tokens = [r.message.auth_bytes for r in world.broker.requests if r.api is SASL_AUTHENTICATE]
    assert [b"\0alice\0first", b"\0alice\0second"] == tokens


def test_a_secret_that_never_comes() -> None:
    """Waiting for credentials has an end, which says what was waited for."""
    world = LoginWorld(sasl_plain_password=lambda: "sesame", request_timeout_ms=5_000)
    world.ready()
    hanging_after_lookup(world)
    error = world.until_failed()
    assert isinstance(error, BrokerConnectionError)
    assert "has waited 5000 ms for its credentials" in str(error)


@pytest.mark.parametrize("failure", [ValueError("hunter2"), KeyError("hunter2")])
def test_a_callable_that_fails(failure: Exception) -> None:
    """The error names the exception's class; its text may have the secret in it."""

    def fail() -> str:
        raise failure

    world = LoginWorld(sasl_plain_password=fail)
    world.ready()
    for _ in range(3):
        world.poll()
    assert isinstance(world.failed(), AuthenticationError)
    assert f"failed with {type(failure).__name__}" in str(world.failed())
    assert "hunter2" not in str(world.failed())


# --- sessions that end (KIP-368) ---


def test_a_session_is_prolonged_before_it_ends() -> None:
    """After 85 to 95 % of the lifetime the next request waits for another login; without a request none happens."""
    world = LoginWorld(LIFETIME_MS).log_in()
    before = len(world.broker.requests)
    world.clock.advance(0.85 * LIFETIME_MS - 1)
    assert world.ready()
    world.clock.advance(0.10 * LIFETIME_MS + 2)
    world.poll()
    assert before == len(world.broker.requests)
    assert not world.ready()
    assert ConnectionState.REAUTHENTICATING is world.link.connection.state
    for _ in range(3):
        world.poll()
    assert world.ready()
    assert ["SaslHandshake", "SaslAuthenticate"] == world.broker.names()[before:]
    assert 1 == len(world.net.attempts)
    world.clock.advance(LIFETIME_MS)
    assert not world.ready()


def test_what_is_in_flight_is_answered_during_a_login() -> None:
    """The login goes out behind a request without an answer, whose answer is taken before the login's; nothing else is
    sent meanwhile."""
    world = LoginWorld(LIFETIME_MS).log_in()
    world.broker.next(METADATA, SILENCE)
    request = world.send()
    world.clock.advance(LIFETIME_MS)
    for api in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
        world.broker.next(api, SILENCE)
    assert not world.ready()
    assert ConnectionState.REAUTHENTICATING is world.link.connection.state
    assert 1 == world.client.in_flight()
    handshake = world.broker.requests[-1]
    assert SASL_HANDSHAKE is handshake.api
    answers = world.net.last
    answers.deliver(_answer(METADATA, world.broker.requests[-2], METADATA.response()))
    assert [request] == [response.request for response in world.poll()]
    assert not world.ready()
    answers.deliver(_answer(SASL_HANDSHAKE, handshake, SASL_HANDSHAKE.response()))
    world.poll()
    answers.deliver(_answer(SASL_AUTHENTICATE, world.broker.requests[-1], SASL_AUTHENTICATE.response()))
    world.poll()
    assert world.ready()


def _answer(api: Any, request: Received, message: Any) -> bytes:
    return response_bytes(api, request.version, request.correlation_id, message)


def test_requests_go_on_while_credentials_are_fetched() -> None:
    """A session whose next token takes a while is still good: only the exchange itself holds requests back."""
    world = LoginWorld(LIFETIME_MS, sasl_plain_password=lambda: "sesame").log_in()
    world.link.connection._reauth_at = world.clock.now()
    waiting = hanging(world)
    assert world.ready()
    world.send()
    assert 1 == len(world.poll())
    world.clock.advance(0.95 * LIFETIME_MS)
    assert not world.ready()  # the session may end any moment
    assert FOREVER == world.delay()
    waiting.pop()()
    world.poll()
    for _ in range(3):
        world.poll()
    assert ["SaslHandshake", "SaslAuthenticate"] == world.broker.names()[-2:]
    assert world.ready()
    assert 1 == len(world.net.attempts)


def test_a_login_refused_later_ends_the_connection() -> None:
    """Requests in flight have lost their connection; whoever sends next hears why."""
    world = LoginWorld(LIFETIME_MS).log_in()
    world.broker.next(METADATA, SILENCE)
    world.send()
    world.clock.advance(LIFETIME_MS)
    world.broker.next(SASL_HANDSHAKE, SILENCE)
    assert not world.ready()
    handshake = world.broker.requests[-1]
    world.net.last.deliver(
        _answer(METADATA, world.broker.requests[-2], METADATA.response())
        + _answer(SASL_HANDSHAKE, handshake, SASL_HANDSHAKE.response())
    )
    world.broker.next(SASL_AUTHENTICATE, SASL_AUTHENTICATE.response(error_code=58, error_message="gone"))
    assert 1 == len(world.poll())
    world.poll()
    assert isinstance(world.failed(), AuthenticationError)


# --- a client that should log in and does not ---


def closed_at_the_first_request(world: World, times: int) -> list[Any]:
    """Why each of these attempts ended."""
    world.broker.on(METADATA, CLOSE)
    errors: list[Any] = []
    for _ in range(times):
        assert not world.ready()
        for _ in range(4):
            world.poll()
        if world.ready():
            world.send()
            world.poll()
        errors.append(world.failed())
        world.clock.advance(world.delay())
    return errors


def test_a_broker_that_closes_at_the_first_request_is_probed_for_sasl() -> None:
    """Versions are told to everybody. After three closes it is asked for a mechanism that no listener has; one with
    SASL names those it has, and that is the error as long as it does so."""
    world = World()
    world.broker.on(SASL_HANDSHAKE, SASL_HANDSHAKE.response(error_code=33, mechanisms=["SCRAM-SHA-512", "PLAIN"]))
    errors = closed_at_the_first_request(world, 5)
    assert 3 * [BrokerConnectionError] + 2 * [AuthenticationError] == [type(error) for error in errors]
    assert "takes logins by PLAIN, SCRAM-SHA-512 (security_protocol is PLAINTEXT; check it" in str(errors[3])
    world.broker.on(SASL_HANDSHAKE, CLOSE)
    world.broker.on(METADATA, METADATA.response())
    assert not world.ready()
    for _ in range(4):
        world.poll()
    world.clock.advance(world.delay())
    world.connect()


@pytest.mark.parametrize("response", [CLOSE, SASL_HANDSHAKE.response(error_code=34), b"\0\0\0\2ab", b"HTTP/1.1"])
def test_a_probe_for_sasl_without_a_proof(response: Any) -> None:
    """A listener without SASL that closes, as one does that is about to end, is retried, and seldom probed again."""
    world = World()
    world.broker.on(SASL_HANDSHAKE, response)
    errors = closed_at_the_first_request(world, 17)
    assert {BrokerConnectionError} == {type(error) for error in errors}
    names = [name for name in world.broker.names() if name != "ApiVersions"]
    assert [3, 8, 13] == [attempt for attempt, name in enumerate(names) if name == "SaslHandshake"]
    assert "closes connections at the first request (is the broker starting" in str(errors[3])


def test_a_broker_that_answered_once_wants_no_login() -> None:
    """One that closes later just closes, however often: at the first request, too."""
    world = World()
    world.broker.next(METADATA, METADATA.response(), CLOSE)
    world.connect()
    world.send()
    world.poll()
    for _ in range(5):
        world.send()
        world.poll()
        assert isinstance(world.failed(), BrokerConnectionError)
        world.clock.advance(world.delay())
        world.broker.next(METADATA, CLOSE)
        world.connect()
