"""Tokens for OAUTHBEARER: from the user's callable or the endpoint of an issuer, kept until they are to be replaced.

Decides when a token is still good for one more login. A login (a connection's first, or one that a broker's
`connections.max.reauth.ms` asks for) takes a new one when the old one is past its refresh time; if the issuer then
gives none, the old one serves for as long as it is valid. No thread waits for the moment: a token matters to logins
alone. Callers are errands, off the event loop.
"""

from __future__ import annotations

import base64
import binascii
import json
import random
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kconsumer.deferred_calls import get_logger
from kconsumer.net.sasl.mechanism import MechanismError

if TYPE_CHECKING:
    from kconsumer.clock import Clock
    from kconsumer.config.options import ConsumerConfig

MAX_EXPIRY_S = 4_102_444_800  # the year 2100; a larger number is in milliseconds, as the MSK signer returns it

log = get_logger("kconsumer.net")


class Token(NamedTuple):
    """A token and the moments (ms since 1970) that count for it; infinity if it says nothing of them."""

    text: str
    expires_at: float
    refresh_at: float

    def __repr__(self) -> str:
        return "<Token>"


class RefreshWindow(NamedTuple):
    """When a token is to be replaced: Java's `sasl.login.refresh.*`, in ms."""

    factor: float
    jitter: float
    min_period_ms: float
    buffer_ms: float

    def refresh_at(self, now: float, starts_at: float, expires_at: float, drawn: float) -> float:
        """The moment, for a token got at `now`; `drawn` in [0, 1) is the share of the jitter."""
        share = self.factor + self.jitter * drawn
        if now + self.min_period_ms + self.buffer_ms > expires_at:  # it does not live long enough for pauses
            return now + (expires_at - now) * share
        proposed = min(starts_at + (expires_at - starts_at) * share, expires_at - self.buffer_ms)
        return max(proposed, now + self.min_period_ms)


class Tokens:
    """One client's token. `pause` is for an endpoint that is asked again."""

    def __init__(
        self,
        config: ConsumerConfig,
        clock: Clock,
        pause: Callable[[float], object],
        rng: random.Random | None = None,
    ) -> None:
        self._clock = clock
        self._rng = rng or random.Random()
        self._issue = config.sasl_oauth_token_provider or _endpoint(config, clock, pause)
        self._window = RefreshWindow(
            config.sasl_login_refresh_window_factor,
            config.sasl_login_refresh_window_jitter,
            config.sasl_login_refresh_min_period_seconds * 1000,
            config.sasl_login_refresh_buffer_seconds * 1000,
        )
        self._lock = threading.Lock()
        self._token: Token | None = None

    def token(self) -> str:
        """One that is valid now. Raises MechanismError, or what the callable raises."""
        with self._lock:  # one asks, the others wait for the same answer
            now, kept = self._clock.wall_ms(), self._token
            if kept is not None and now < kept.refresh_at:
                return kept.text
            try:
                issued = self._token = self._read(self._issue(), self._clock.wall_ms())
            except Exception as error:
                if kept is None or self._clock.wall_ms() >= kept.expires_at:
                    raise
                reason = error if isinstance(error, MechanismError) else type(error).__name__
                log.warning("no new token for OAUTHBEARER (%s); the one at hand is valid still", reason)
                return kept.text
            return issued.text

    def invalidate(self) -> None:
        """A broker refused it: the next login asks for another one."""
        self._token = None

    def _read(self, issued: object, now: float) -> Token:
        """What a provider may return: a token, or it and when it expires in s or ms since 1970 (None: it says so
        itself)."""
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
            # Nobody knows when it expires: each login asks for a new one.
            return Token(text, float("inf"), now)
        starts_at = claims.get("iat")
        expires_at = expires_at_s if expires_at_s > MAX_EXPIRY_S else expires_at_s * 1000
        if expires_at <= now:
            raise MechanismError("the token that was issued has expired already (is a clock wrong?)")
        starts_at = starts_at * 1000 if isinstance(starts_at, int | float) else now
        refresh_at = self._window.refresh_at(now, min(starts_at, now), expires_at, self._rng.random())
        return Token(text, expires_at, refresh_at)


def _claims(text: str) -> dict[str, Any]:
    """What a token says of itself if it is a JWT; nobody checks its signature here: the broker does."""
    parts = text.split(".")
    if len(parts) != 3:
        return {}
    try:
        found = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _endpoint(config: ConsumerConfig, clock: Clock, pause: Callable[[float], object]) -> Callable[[], object]:
    from kconsumer.net.sasl.token_endpoint import TokenEndpointClient

    return TokenEndpointClient(config, clock, pause).issue
