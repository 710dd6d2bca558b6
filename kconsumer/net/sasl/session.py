"""The authenticated session of a connection: whether one is needed, and when it must be prolonged (KIP-368).

The client starts to authenticate again when it is about to send a request after 85 to 95 % of the session's lifetime.
The requests of an authentication are those of `authenticator.py`.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from kconsumer.errors import AuthenticationError, KafkaError

if TYPE_CHECKING:
    from kconsumer.net.sasl.authenticator import AuthChannel, NewAuthenticator, SaslAuthenticator

_FOREVER = float("inf")
_EARLIEST, _LATEST = 0.85, 0.95  # when to authenticate again, as fractions of the session lifetime


class Session:
    """The session of one connection, and the authentication in progress. Times are in ms."""

    def __init__(self, new_authenticator: NewAuthenticator | None, rng: random.Random) -> None:
        """`new_authenticator` is None without SASL. Then there is no session, and nothing to prolong."""
        self._new_authenticator = new_authenticator
        self._rng = rng
        self.authenticator: SaslAuthenticator | None = None  # of the authentication in progress
        self._began_at = 0.0  # when it began
        self.auth_ms = 0.0  # the duration of the last authentication
        self.renew_at = _FOREVER  # from this time on, the connection must authenticate again before it sends a request
        #: From this time on requests must wait, although the connection is READY: the session is about to expire, and
        #: the new credentials have not been read yet.
        self.blocked_since = _FOREVER

    @property
    def required(self) -> bool:
        """Returns whether the connection uses SASL."""
        return self._new_authenticator is not None

    def authenticate(self, channel: AuthChannel, now: float) -> None:
        """Start to authenticate. Requests in flight still get their responses. Raises a KafkaError if the credentials
        cannot be used."""
        assert self._new_authenticator is not None
        self.renew_at = _FOREVER
        self._began_at = now
        self.authenticator = self._new_authenticator(channel)
        self.authenticator.start(now)

    def resume(self, now: float) -> bool:
        """Continue the authentication if its background task has completed. Returns whether it has."""
        return self.authenticator is not None and self.authenticator.resume(now)

    def authenticated(self, lifetime_ms: int, now: float) -> None:
        """End the authentication, which has succeeded. The session lasts for `lifetime_ms`; 0 means that it lasts as
        long as the connection."""
        self.authenticator = None
        self.auth_ms = now - self._began_at
        self.blocked_since = _FOREVER
        if lifetime_ms > 0:
            self.renew_at = now + lifetime_ms * self._rng.uniform(_EARLIEST, _LATEST)
            self.blocked_since = now + lifetime_ms * _LATEST

    def overdue(self, now: float) -> KafkaError | None:
        """Returns an error if the authentication waits for its credentials and the deadline has passed, else None."""
        authenticator = self.authenticator
        return None if authenticator is None or now < authenticator.deadline else authenticator.overdue()

    def on_peer_closed(self) -> AuthenticationError | None:
        """Returns an error if a disconnect now means that the broker refused the authentication, else None."""
        return None if self.authenticator is None else self.authenticator.closed()

    def close(self) -> None:
        """End the authentication in progress."""
        self.authenticator = None
