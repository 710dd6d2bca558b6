"""Tokens for OAUTHBEARER, which the user's callable or a token endpoint issues. One token is cached.

Decides when the cached token is replaced. An authentication uses it until its refresh time, and a later one gets a new
token. If no new token can be issued, the cached one is used until it expires. No thread refreshes the token in advance,
because only authentications need it: those of new connections, and those that a broker requires by
`connections.max.reauth.ms`. Background tasks call `token`, and the thread that runs the network calls `invalidate`.
"""

from __future__ import annotations

import base64
import binascii
import json
import random
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kconsumer._common.deferred_calls import get_logger
from kconsumer.net.sasl.mechanism import MechanismError

if TYPE_CHECKING:
    from kconsumer._core.lock import Clock
    from kconsumer.config.options import ConsumerConfig

MAX_EXPIRY_S = 4_102_444_800  # the year 2100; larger numbers are taken as ms, which the MSK signer returns

log = get_logger("kconsumer.net")


class Token(NamedTuple):
    """A bearer token. Times are in ms since 1970."""

    text: str
    expires_at: float  # infinity if unknown
    refresh_at: float

    def __repr__(self) -> str:
        return "<Token>"


class RefreshWindow(NamedTuple):
    """The options `sasl.login.refresh.*`, which set when a token must be replaced, as in Java."""

    factor: float
    jitter: float
    min_period_ms: float
    buffer_ms: float

    def refresh_at(self, now: float, starts_at: float, expires_at: float, drawn: float) -> float:
        """Returns the refresh time of a token that was issued to this client at `now`.

        The token is valid from `starts_at` to `expires_at`. All times, also the result, are in ms since 1970. `drawn`
        is a random number in [0, 1), which scales the jitter.
        """
        share = self.factor + self.jitter * drawn
        if now + self.min_period_ms + self.buffer_ms > expires_at:  # too short-lived for period and buffer
            return now + (expires_at - now) * share
        proposed = min(starts_at + (expires_at - starts_at) * share, expires_at - self.buffer_ms)
        return max(proposed, now + self.min_period_ms)


class Tokens:
    """Caches the token of one client and replaces it when needed. Thread-safe."""

    def __init__(
        self,
        config: ConsumerConfig,
        clock: Clock,
        sleep: Callable[[float], object],
        rng: random.Random | None = None,
    ) -> None:
        """Read the options, but issue no token yet. `sleep` waits, in seconds, between retries of a token endpoint."""
        self._clock = clock
        self._rng = rng or random.Random()
        self._issue = config.sasl_oauth_token_provider or _endpoint(config, clock, sleep)
        self._window = RefreshWindow(
            config.sasl_login_refresh_window_factor,
            config.sasl_login_refresh_window_jitter,
            config.sasl_login_refresh_min_period_seconds * 1000,
            config.sasl_login_refresh_buffer_seconds * 1000,
        )
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._refused = ""  # the text of the token that a broker refused last, until another one is issued

    def token(self) -> str:
        """Returns the cached token, or a new one after the refresh time. Raises MechanismError, or the exception of the
        user's callable, if there is no valid token."""
        with self._lock:  # if several tasks need a token, one gets it and the others wait
            now, kept = self._clock.wall_ms(), self._accepted()
            if kept is not None and now < kept.refresh_at:
                return kept.text
            try:
                issued = self._token = self._read(self._issue(), self._clock.wall_ms())
                self._refused = ""  # a provider that issues a refused token again considers it valid
            except Exception as error:
                kept = self._accepted()  # a broker may have refused it while the provider ran
                if kept is None or self._clock.wall_ms() >= kept.expires_at:
                    raise
                reason = error if isinstance(error, MechanismError) else type(error).__name__
                log.warning("no new token for OAUTHBEARER (%s); the cached one is still valid", reason)
                return kept.text
            return issued.text

    def invalidate(self, refused: str) -> None:
        """Stop using the token `refused`, which a broker has refused. A token that was issued since then is kept.

        Takes no lock and never blocks. The thread that runs the network calls this method, while a background task may
        hold the lock for as long as the provider takes to issue a token.
        """
        self._refused = refused

    def _accepted(self) -> Token | None:
        """Returns the cached token, or None if there is none or a broker has refused it."""
        kept = self._token
        return None if kept is None or kept.text == self._refused else kept

    def _read(self, issued: object, now: float) -> Token:
        """Returns a Token for `issued`, which a token provider has returned.

        `issued` must be a str, or a tuple of a str and its expiry (s or ms since 1970, or None). If it contains no
        expiry, the expiry is read from the token's claims. Raises MechanismError if `issued` has another type, or if
        the token has expired.
        """
        text, expires_at_s = issued if isinstance(issued, tuple) and len(issued) == 2 else (issued, None)
        if not isinstance(text, str):
            raise MechanismError(
                "sasl_oauth_token_provider returns a str, or (str, seconds since 1970 when it expires), not a "
                f"{type(issued).__name__}"
            )
        claims = _claims(text)
        if expires_at_s is None:
            expires_at_s = claims.get("exp")
        if not isinstance(expires_at_s, int | float):
            # The expiry is unknown, so every authentication gets a new token.
            return Token(text, float("inf"), now)
        starts_at = claims.get("iat")
        expires_at = expires_at_s if expires_at_s > MAX_EXPIRY_S else expires_at_s * 1000
        if expires_at <= now:
            raise MechanismError("the token that was issued has expired already (is a clock wrong?)")
        starts_at = starts_at * 1000 if isinstance(starts_at, int | float) else now
        refresh_at = self._window.refresh_at(now, min(starts_at, now), expires_at, self._rng.random())
        return Token(text, expires_at, refresh_at)


def _claims(text: str) -> dict[str, Any]:
    """Returns the claims of `text` if it is a JWT, else an empty dict.

    Does not check the signature, which only the broker does.
    """
    parts = text.split(".")
    if len(parts) != 3:
        return {}
    try:
        found = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _endpoint(config: ConsumerConfig, clock: Clock, sleep: Callable[[float], object]) -> Callable[[], object]:
    from kconsumer.net.sasl.token_endpoint import TokenEndpointClient

    return TokenEndpointClient(config, clock, sleep).issue
