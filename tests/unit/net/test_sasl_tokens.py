"""Tokens for OAUTHBEARER: when they are replaced, what a provider may return, and how an issuer's responses are
handled.
"""

from __future__ import annotations

import base64
import json
import random
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kconsumer.errors import BrokerConnectionError, StateError
from kconsumer.net.background import BackgroundExecutor
from kconsumer.net.sasl import token_endpoint
from kconsumer.net.sasl.mechanism import MechanismError
from kconsumer.net.sasl.token_endpoint import TokenEndpointClient
from kconsumer.net.sasl.tokens import RefreshWindow, Tokens
from kconsumer.testing.clock import VirtualClock

MINUTE_MS = 60_000.0
JAVAS_DEFAULTS = RefreshWindow(0.8, 0.05, MINUTE_MS, 5 * MINUTE_MS)


def jwt(**claims: Any) -> str:
    parts = ({"alg": "none"}, claims, {})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)


# --- times ---


@pytest.mark.parametrize(
    ("lifetime_min", "drawn", "expected_min"),
    [
        (60, 0.0, 48),  # 80 % of it
        (60, 1.0, 51),  # and all of the jitter
        (10, 0.0, 5),  # five minutes are left
        (8, 1.0, 3),
        (6.5, 0.0, 1.5),
        (5, 0.0, 4),  # too short a lifetime for minimum times: only the fraction counts
        (1, 1.0, 0.85),
    ],
)
def test_the_moment_to_replace_a_token(lifetime_min: float, drawn: float, expected_min: float) -> None:
    """Java's rules apply: a fraction of the lifetime, a minimum time before the end, and a minimum time after the
    start.
    """
    found = JAVAS_DEFAULTS.refresh_at(0.0, 0.0, lifetime_min * MINUTE_MS, drawn)
    assert expected_min * MINUTE_MS == pytest.approx(found)


class Source:
    """A source of tokens whose provider and clock the test controls."""

    def __init__(self, issue: Callable[[], object]) -> None:
        self.clock = VirtualClock(now=0)
        self.asked = 0

        def counted() -> object:
            self.asked += 1
            return issue()

        config: Any = SimpleNamespace(
            sasl_oauth_token_provider=counted,
            sasl_login_refresh_window_factor=0.8,
            sasl_login_refresh_window_jitter=0.0,
            sasl_login_refresh_min_period_seconds=0,
            sasl_login_refresh_buffer_seconds=0,
        )
        self.tokens = Tokens(config, self.clock, lambda _seconds: None, random.Random(7))

    def now_s(self) -> float:
        return self.clock.wall_ms() / 1000


def test_a_provider_that_fails_late_costs_nothing() -> None:
    """If the provider fails, a token is used until it has expired; then the login fails with the provider's error."""
    tokens: list[object] = [("first", 0.0)]

    def issue() -> object:
        if not tokens:
            raise OSError("no network")
        tokens.pop()
        return "first", source.now_s() + 100

    source = Source(issue)
    assert "first" == source.tokens.token()
    source.clock.advance(99_000)
    assert "first" == source.tokens.token()
    source.clock.advance(2_000)
    with pytest.raises(OSError, match="no network"):
        source.tokens.token()


def test_a_refused_token_is_not_shown_again() -> None:
    """After a token was refused the next login requests another one."""
    source = Source(lambda: (f"t{source.asked}", source.now_s() + 100))
    source.tokens.token()
    source.tokens.invalidate("t1")
    assert ["t2", "t2"] == [source.tokens.token(), source.tokens.token()]


def test_a_late_refusal_keeps_a_newer_token() -> None:
    """If two connections used one token, the refusal of the second one does not drop the token that the first one has
    got meanwhile.
    """
    source = Source(lambda: (f"t{source.asked}", source.now_s() + 100))
    assert "t1" == source.tokens.token()
    source.tokens.invalidate("t1")
    assert "t2" == source.tokens.token()
    source.tokens.invalidate("t1")
    assert ("t2", 2) == (source.tokens.token(), source.asked)


def test_a_refusal_while_the_provider_runs() -> None:
    """A token that a broker refuses while the provider runs is not used if the provider then fails."""

    def issue() -> object:
        if source.asked == 1:
            return "t1", source.now_s() + 100
        source.tokens.invalidate("t1")
        raise OSError("no network")

    source = Source(issue)
    assert "t1" == source.tokens.token()
    source.clock.advance(90_000)
    with pytest.raises(OSError, match="no network"):
        source.tokens.token()


def test_a_refused_token_that_is_issued_again() -> None:
    """If the provider issues a refused token again, it is cached as before, so the provider is not called by every
    authentication.
    """
    source = Source(lambda: ("same", source.now_s() + 100))
    assert "same" == source.tokens.token()
    source.tokens.invalidate("same")
    assert ["same", "same"] == [source.tokens.token(), source.tokens.token()]
    assert 2 == source.asked


def test_a_token_says_when_it_expires() -> None:
    """A JWT is sufficient: its `exp` and `iat` are read."""
    source = Source(lambda: jwt(exp=source.now_s() + 100, iat=source.now_s(), n=source.asked))
    first = source.tokens.token()
    source.clock.advance(79_000)
    assert first == source.tokens.token()
    source.clock.advance(2_000)
    assert first != source.tokens.token()


@pytest.mark.parametrize("text", ["opaque", "a.b", "a.!!!.c", "a.bnVsbA.c", "a." + "W" * 50 + ".c"])
def test_a_token_that_says_nothing(text: str) -> None:
    """If the expiry is unknown, each login requests a new token."""
    source = Source(lambda: text)
    assert [text, text] == [source.tokens.token(), source.tokens.token()]
    assert 2 == source.asked


@pytest.mark.parametrize("issued", [None, b"bytes", ("token",), (b"t", 1), {"token": "t"}])
def test_what_a_provider_may_not_return(issued: object) -> None:
    """The error names the allowed types and does not show the returned value."""
    with pytest.raises(MechanismError, match=r"returns a str, or \(str, seconds since 1970"):
        Source(lambda: issued).tokens.token()


def test_a_token_that_has_expired_already() -> None:
    """An expired token raises an error that suggests a wrong clock."""
    source = Source(lambda: ("t", source.now_s() - 1))
    with pytest.raises(MechanismError, match="is a clock wrong"):
        source.tokens.token()


# --- from an issuer ---

SECRET = "issuers-secret"


class Issuer:
    """A token endpoint whose connections are scripted: `responses` are (status, body) or exceptions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *responses: Any, **options: Any) -> None:
        self.clock = VirtualClock(now=0)
        self.responses = list(responses)
        self.requests: list[tuple[Any, ...]] = []
        self.pauses_ms: list[float] = []
        issuer = self

        class Connection:
            sock = None

            def __init__(self, host: str, port: int | None, timeout: float, context: Any = None) -> None:
                self.at = (host, port, timeout, context is not None)

            def connect(self) -> None:
                pass

            def request(self, method: str, path: str, body: str, headers: dict[str, str]) -> None:
                issuer.requests.append((self.at, method, path, body, headers))

            def getresponse(self) -> Any:
                response = issuer.responses.pop(0)
                if isinstance(response, Exception):
                    raise response
                return SimpleNamespace(status=response[0], read=lambda most: response[1][:most])

            def close(self) -> None:
                pass

        for name in ("HTTPConnection", "HTTPSConnection"):
            monkeypatch.setattr(token_endpoint.http.client, name, Connection)
        config: Any = SimpleNamespace(
            **{
                "sasl_oauthbearer_token_endpoint_url": "https://issuer.example:8443/token?tenant=a",
                "sasl_oauthbearer_client_credentials_client_id": "id",
                "sasl_oauthbearer_scope": None,
                "sasl_oauthbearer_header_urlencode": False,
                "sasl_login_connect_timeout_ms": None,
                "sasl_login_read_timeout_ms": None,
                "sasl_login_retry_backoff_ms": 100,
                "sasl_login_retry_backoff_max_ms": 10_000,
                "ssl_context": None,
                "ssl_cafile": None,
                "ssl_truststore_location": None,
                "ssl_truststore_certificates": None,
                "ssl_truststore_password": None,
                "secret": lambda name: SECRET,
                **options,
            }
        )
        self.endpoint = TokenEndpointClient(config, self.clock, self.pause)

    def pause(self, seconds: float) -> None:
        self.pauses_ms.append(seconds * 1000)
        self.clock.advance(seconds * 1000)


def token_response(**fields: Any) -> tuple[int, bytes]:
    return 200, json.dumps({"access_token": "t", **fields}).encode()


def test_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is a POST with Basic authentication and the grant as a form; the lifetime in the response becomes the
    expiry.
    """
    issuer = Issuer(
        monkeypatch, token_response(expires_in=60), sasl_oauthbearer_scope="a b", sasl_login_connect_timeout_ms=5_000
    )
    assert ("t", issuer.clock.wall_ms() / 1000 + 60) == issuer.endpoint.issue()
    [(at, method, path, body, headers)] = issuer.requests
    assert ("issuer.example", 8443, 5.0, True) == at
    assert ("POST", "/token?tenant=a", "grant_type=client_credentials&scope=a+b") == (method, path, body)
    assert f"Basic {base64.b64encode(b'id:issuers-secret').decode()}" == headers["Authorization"]


def test_url_encoded_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials are URL-encoded as RFC 6749 requires, if the option is set."""
    options = {"sasl_oauthbearer_header_urlencode": True, "secret": lambda name: "a:b c"}
    issuer = Issuer(monkeypatch, token_response(), **options)
    issuer.endpoint.issue()
    assert f"Basic {base64.b64encode(b'id:a%3Ab+c').decode()}" == issuer.requests[0][4]["Authorization"]


@pytest.mark.parametrize(("lifetime", "expected"), [(None, None), ("30", 30), (1.5, 1.5), ("soon", None)])
def test_lifetimes(monkeypatch: pytest.MonkeyPatch, lifetime: Any, expected: float | None) -> None:
    """An issuer may omit the lifetime or send it as text."""
    issuer = Issuer(monkeypatch, token_response(expires_in=lifetime))
    _, expires_at_s = issuer.endpoint.issue()
    assert (None if expected is None else issuer.clock.wall_ms() / 1000 + expected) == expires_at_s


def test_temporary_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a response or failure that may be temporary the request is repeated, with growing pauses."""
    issuer = Issuer(monkeypatch, (503, b""), ConnectionRefusedError("refused"), (429, b"{}"), token_response())
    assert "t" == issuer.endpoint.issue()[0]
    assert 3 == len(issuer.pauses_ms)
    assert issuer.pauses_ms[2] > 2 * issuer.pauses_ms[0]


def test_an_error_that_persists(monkeypatch: pytest.MonkeyPatch) -> None:
    """After sasl_login_retry_backoff_max_ms the last error is raised."""
    issuer = Issuer(monkeypatch, *[(503, b'{"error":"busy"}')] * 50)
    with pytest.raises(MechanismError, match="returned 503: busy"):
        issuer.endpoint.issue()
    assert 10_000 >= sum(issuer.pauses_ms) > 2_000


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ((401, b'{"error":"invalid_client","error_description":"who?"}'), "returned 401: invalid_client, who"),
        ((302, b""), "returned 302"),
        ((200, b"<html>"), "returned no access_token"),
        ((200, b'{"access_token":""}'), "returned no access_token"),
        ((200, b'["access_token"]'), "returned no access_token"),
        ((200, b"[" * 100_000), "returned no access_token"),
    ],
)
def test_final_errors(monkeypatch: pytest.MonkeyPatch, bad: tuple[int, bytes], why: str) -> None:
    """A final error response is not retried; the error has the address and not the secret."""
    issuer = Issuer(monkeypatch, bad)
    with pytest.raises(MechanismError, match=why) as caught:
        issuer.endpoint.issue()
    assert str(caught.value).startswith("https://issuer.example:8443/token ")
    assert SECRET not in str(caught.value)
    assert [] == issuer.pauses_ms


def test_http_is_warned_of(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A warning is logged for http, because the secret is not encrypted."""
    Issuer(monkeypatch, sasl_oauthbearer_token_endpoint_url="http://issuer.example/token")
    assert "http://issuer.example/token is not https" in caplog.text


# --- in the background ---


def test_a_task_that_raises_systemexit() -> None:
    """After a task that raises SystemExit the thread continues with the next task."""
    started: list[Callable[[], None]] = []
    executor = BackgroundExecutor(lambda: None, started.append)
    leaving, next_ = executor.submit(sys.exit), executor.submit(lambda: 1)
    started[0]()
    with pytest.raises(RuntimeError, match="SystemExit was raised"):
        leaving.result()
    assert 1 == next_.result()


def test_without_threads_nothing_runs_on_the_caller() -> None:
    """If no thread can be started, user code does not run on the caller's thread, which holds the engine's lock. Only
    names are resolved there, which runs no user code.
    """

    def none_left(_: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    executor = BackgroundExecutor(lambda: None, none_left)
    for _ in range(2):
        failed = executor.submit(lambda: 7)
        assert (True, True) == (failed.completed, executor.completed_tasks)
        with pytest.raises(BrokerConnectionError, match="can't start new thread"):
            failed.result()
    assert 7 == BackgroundExecutor(lambda: None, none_left, inline=True).submit(lambda: 7).result()


def test_who_pauses_is_sent_home_by_close() -> None:
    """A task that pauses before a retry continues after the pause, but raises StateError after close()."""
    executor = BackgroundExecutor(lambda: None)
    executor.sleep(0.01)
    executor.close()
    with pytest.raises(StateError, match="closed"):
        executor.sleep(3600)


def test_sleep_takes_as_long_as_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    """The intervals of a sleep add up to its duration, also if it is no multiple of the longest interval."""
    waits: list[float] = []
    monkeypatch.setattr(threading.Event, "wait", lambda _, seconds: waits.append(seconds))
    BackgroundExecutor(lambda: None).sleep(0.25)
    assert 3 == len(waits)
    assert 0.25 == pytest.approx(sum(waits))
