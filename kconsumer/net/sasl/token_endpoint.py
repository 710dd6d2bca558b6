"""Requests tokens from a token endpoint over HTTPS, in the client-credentials flow (RFC 6749, 4.4).

Uses Python's `http.client`, and the proxy that the environment names. Decides how long to retry, and how to interpret a
response. The calls block, so only background tasks may make them.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.parse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kconsumer._common.backoff import ExponentialBackoff
from kconsumer._common.deferred_calls import get_logger
from kconsumer.net.sasl.http_proxy import Proxy, proxy_for
from kconsumer.net.sasl.mechanism import MechanismError
from kconsumer.net.tls.context import set_trust

if TYPE_CHECKING:
    from kconsumer._core.lock import Clock
    from kconsumer.config.options import ConsumerConfig

MAX_RESPONSE_BYTES = 1 << 20  # the rest of a larger response is not read
HTTP_TIMEOUT_S = 10.0
"""The timeout of the connect, and of each read, unless options set them. (Java has no timeout by default.)"""

RETRIABLE_STATUSES = frozenset((408, 425, 429, 500, 502, 503, 504))
"""HTTP statuses after which the same request may succeed."""

log = get_logger("kconsumer.net")


class _RetriableTokenError(Exception):
    """The endpoint has returned an error after which a retry may succeed."""


class TokenEndpointClient:
    """A client of one token endpoint, with one set of client credentials."""

    def __init__(self, config: ConsumerConfig, clock: Clock, sleep: Callable[[float], object]) -> None:
        """Read the options. `sleep` waits for a number of seconds, and raises an exception if the consumer is
        closed."""
        self._config = config
        self._clock = clock
        self._sleep = sleep
        self._max_wait_ms = config.sasl_login_retry_backoff_max_ms
        self._backoff = ExponentialBackoff(config.sasl_login_retry_backoff_ms, self._max_wait_ms)
        url = urllib.parse.urlsplit(config.sasl_oauthbearer_token_endpoint_url or "")
        self._scheme, self._secure = url.scheme, url.scheme == "https"
        self._proxy: Proxy | None = None  # that of the last request
        self._host, self._port = url.hostname or "", url.port
        self._netloc = url.netloc.rpartition("@")[2]
        self._path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        self._shown = f"{url.scheme}://{url.hostname}{'' if url.port is None else f':{url.port}'}{url.path}"
        if not self._secure:
            log.warning("%s is not https: the client's secret is sent in clear text", self._shown)

    def issue(self) -> tuple[str, float | None]:
        """Request a token. Returns it and the time when it expires (s since 1970; None if unknown).

        Retries with exponential backoff for up to `sasl_login_retry_backoff_max_ms`. Raises MechanismError if no token
        was issued by then, or at once after an error that a retry cannot repair.
        """
        until = self._clock.now() + self._max_wait_ms
        attempt = 0
        while True:
            try:
                return self._parse_token(*self._request())
            except (OSError, http.client.HTTPException) as error:
                through = "" if self._proxy is None else f" through {self._proxy.shown}"
                reason = f"{self._shown} cannot be reached{through}: {_error_text(error)}"
            except _RetriableTokenError as error:
                reason = str(error)
            pause_ms = self._backoff.delay_ms(attempt)
            if self._clock.now() + pause_ms >= until:
                raise MechanismError(reason)
            log.info("no token yet: %s; retrying in %.0f ms", reason, pause_ms)
            self._sleep(pause_ms / 1000)
            attempt += 1

    def _request(self) -> tuple[int, bytes]:
        """Send one request. Returns the HTTP status and the body of the response. Raises OSError if the connection
        fails, and HTTPException if the response is not valid HTTP."""
        config = self._config
        proxy = self._proxy = proxy_for(self._scheme, self._host, self._port)
        connection = self._connection(_seconds(config.sasl_login_connect_timeout_ms), proxy)
        try:
            connection.connect()
            if connection.sock is not None:
                connection.sock.settimeout(_seconds(config.sasl_login_read_timeout_ms))
            fields = {"grant_type": "client_credentials"}
            if config.sasl_oauthbearer_scope:
                fields["scope"] = config.sasl_oauthbearer_scope
            headers = {
                "Accept": "application/json",
                "Authorization": self._authorization(),
                "Content-Type": "application/x-www-form-urlencoded",
            }
            target = self._path
            if proxy is not None and not self._secure:  # with https, the proxy sees only the name of the host
                target = f"{self._scheme}://{self._netloc}{target}"
                headers |= proxy.headers
            connection.request("POST", target, urllib.parse.urlencode(fields), headers)
            response = connection.getresponse()
            return response.status, response.read(MAX_RESPONSE_BYTES)
        finally:
            connection.close()

    def _connection(self, timeout_s: float, proxy: Proxy | None) -> http.client.HTTPConnection:
        host, port = (self._host, self._port) if proxy is None else (proxy.host, proxy.port)
        if not self._secure:
            return http.client.HTTPConnection(host, port, timeout=timeout_s)
        connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=self._tls())
        if proxy is not None:
            connection.set_tunnel(self._host, self._port or http.client.HTTPS_PORT, proxy.headers)
        return connection

    def _tls(self) -> ssl.SSLContext:
        """Returns the user's `ssl_context` if it is set. Otherwise returns a context that trusts the system's CAs and
        those that are configured for the brokers."""
        config = self._config
        if isinstance(config.ssl_context, ssl.SSLContext):
            return config.ssl_context
        context = ssl.create_default_context()
        set_trust(context, config)
        return context

    def _authorization(self) -> str:
        """Returns the Authorization header with the client's id and secret (Basic; RFC 6749, 2.3.1)."""
        config = self._config
        secret = config.secret("sasl_oauthbearer_client_credentials_client_secret")
        pair = [config.sasl_oauthbearer_client_credentials_client_id or "", secret or ""]
        if config.sasl_oauthbearer_header_urlencode:
            pair = [urllib.parse.quote_plus(part) for part in pair]
        return "Basic " + base64.b64encode(":".join(pair).encode()).decode()

    def _parse_token(self, status: int, body: bytes) -> tuple[str, float | None]:
        """Returns the token in a response, and the time when it expires (s since 1970; None if unknown). Raises
        _RetriableTokenError for an error after which a retry may succeed, and MechanismError for other errors."""
        fields = _json(body)
        if status != http.client.OK:
            reason = ", ".join(str(fields[key])[:200] for key in ("error", "error_description") if fields.get(key))
            text = f"{self._shown} returned {status}" + (f": {reason}" if reason else "")
            raise (_RetriableTokenError if status in RETRIABLE_STATUSES else MechanismError)(text)
        token, lifetime_s = fields.get("access_token"), fields.get("expires_in")
        if not isinstance(token, str) or not token:
            raise MechanismError(f"{self._shown} returned no access_token")
        if isinstance(lifetime_s, str) and lifetime_s.isdecimal():
            lifetime_s = int(lifetime_s)
        if not isinstance(lifetime_s, int | float):
            return token, None
        return token, self._clock.wall_ms() / 1000 + lifetime_s


def _seconds(timeout_ms: int | None) -> float:
    return HTTP_TIMEOUT_S if timeout_ms is None else timeout_ms / 1000


def _json(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _error_text(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message} (ssl_cafile)"
    if isinstance(error, TimeoutError):
        return "it did not respond in time (sasl_login_connect_timeout_ms, sasl_login_read_timeout_ms)"
    return str(error) or type(error).__name__
