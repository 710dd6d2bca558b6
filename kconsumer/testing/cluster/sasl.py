"""SASL: which requests a connection may send before it is authenticated, and how long its session lasts.

The order is that of Kafka: ApiVersions at most once, SaslHandshake, then the tokens of the mechanism in requests of
SaslAuthenticate, or without a header after SaslHandshake v0. If sessions have a lifetime, the client has to
authenticate again before its session ends (KIP-368). A failed authentication is reported with a delay, and closes the
connection.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from kconsumer._common.error_codes import Errors
from kconsumer.schema.dsl import Message
from kconsumer.schema.metadata import API_VERSIONS
from kconsumer.schema.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE, SaslAuthenticateResponse, SaslHandshakeResponse
from kconsumer.testing.cluster.connection import Connection
from kconsumer.testing.cluster.error_responses import error_response
from kconsumer.testing.cluster.requests import Pending, Request, Response, handles
from kconsumer.testing.cluster.sasl_mechanisms import MECHANISMS, SaslError, SaslServer
from kconsumer.testing.cluster.state import ClusterState

MIN_REAUTHENTICATION_INTERVAL_MS = 1000.0


@dataclass(frozen=True)
class SaslSettings:
    """The mechanisms, users and session lifetime with which clients authenticate."""

    mechanisms: tuple[str, ...]
    users: Mapping[str, str]  # the passwords, by user name
    session_lifetime_ms: int = 0  # 0: sessions last as long as the connection


class State(enum.Enum):
    """The state of an authentication. The values name the requests that are accepted in this state."""

    FIRST_REQUEST = "ApiVersions or SaslHandshake"
    HANDSHAKE = "SaslHandshake"
    TOKEN = "SaslAuthenticate"
    WRONG_MECHANISM = "none: another mechanism was chosen to authenticate again"
    AUTHENTICATED = "all"


class Sasl:
    """Handles SaslHandshake and SaslAuthenticate. Without `settings`, clients need not authenticate."""

    def __init__(self, cluster: ClusterState, settings: SaslSettings | None = None) -> None:
        self.cluster = cluster
        self.settings = settings

    def authenticator(self, connection: Connection) -> Authenticator | None:
        """Returns the authenticator of a new connection, or None if clients need not authenticate."""
        return None if self.settings is None else Authenticator(self.cluster, self.settings, connection)

    @handles(SASL_HANDSHAKE, SASL_AUTHENTICATE)
    def _illegal(self, request: Request, _: float) -> Message:
        if request.api is SASL_HANDSHAKE:
            return SaslHandshakeResponse(error_code=Errors.ILLEGAL_SASL_STATE)
        message = "SaslAuthenticate request received after successful authentication"
        return SaslAuthenticateResponse(error_code=Errors.ILLEGAL_SASL_STATE, error_message=message)


class Authenticator:
    """The authentication of one connection."""

    def __init__(self, cluster: ClusterState, settings: SaslSettings, connection: Connection) -> None:
        self.raw_tokens = False  # True: the next frames are tokens without a header
        self._cluster = cluster
        self._settings = settings
        self._connection = connection
        self._state = State.FIRST_REQUEST
        self._mechanism = ""
        self._server: SaslServer | None = None
        self._user: str | None = None  # who was authenticated the first time
        self._expires: float | None = None  # the end of the session
        self._began: float | None = None  # the last time at which the client authenticated again

    # --- requests ---

    def intercept(self, request: Request, now: float) -> Response:
        """Handle a request if it belongs to the authentication, and refuse it if it is not allowed now.

        Returns the response, or None if the request is allowed and the caller has to handle it. If the session of the
        connection has expired, closes the connection.
        """
        if self._state is State.AUTHENTICATED:
            if request.api is SASL_HANDSHAKE and self._may_authenticate_again(now):
                self._began = now
                return self._handshake(request, now)
            if self._expires is not None and now > self._expires:
                self._connection.close()
                return Pending(request)
            return None
        if self._state is State.TOKEN:
            return self._authenticate(request, now)
        if request.api is SASL_HANDSHAKE and self._state is not State.WRONG_MECHANISM:
            return self._handshake(request, now)
        if request.api is API_VERSIONS and self._state is State.FIRST_REQUEST:
            self._state = State.HANDSHAKE
            return None
        return self._fail(request, None, now)

    def _may_authenticate_again(self, now: float) -> bool:
        """Returns whether SaslHandshake may begin another authentication.

        This is so if sessions have a lifetime, and the last re-authentication began at least
        `MIN_REAUTHENTICATION_INTERVAL_MS` ago.
        """
        early = self._began is not None and now - self._began < MIN_REAUTHENTICATION_INTERVAL_MS
        return self._expires is not None and not early

    def _handshake(self, request: Request, now: float) -> Response:
        """Choose the mechanism that the client requests. Returns the response.

        The authentication fails if the broker does not have the mechanism.
        """
        mechanism = request.message.mechanism
        response = SaslHandshakeResponse(mechanisms=list(self._settings.mechanisms))
        if mechanism not in self._settings.mechanisms:
            response.error_code = Errors.UNSUPPORTED_SASL_MECHANISM
            return self._fail(request, response, now)
        if self._user is not None and mechanism != self._mechanism:
            self._state = State.WRONG_MECHANISM
            return response
        self._mechanism = mechanism
        self._server = MECHANISMS[mechanism](self._settings.users, self._cluster.random)
        self._state = State.TOKEN
        self.raw_tokens = request.version == 0
        return response

    def _authenticate(self, request: Request, now: float) -> Response:
        """Process a token of the client. Returns the response with the broker's token, or with an error."""
        if request.api is not SASL_AUTHENTICATE:
            return self._fail(request, error_response(self._cluster.topics, request, Errors.ILLEGAL_SASL_STATE), now)
        try:
            token = self._step(request.message.auth_bytes, now)
        except SaslError as error:
            kind = "authentication" if self._user is None else "re-authentication"
            text = str(error) or (
                f"Authentication failed during {kind} due to invalid credentials with SASL mechanism {self._mechanism}"
            )
            code = Errors.SASL_AUTHENTICATION_FAILED
            return self._fail(request, SaslAuthenticateResponse(error_code=code, error_message=text), now)
        done = self._state is State.AUTHENTICATED
        lifetime_ms = self._settings.session_lifetime_ms if done else 0
        return SaslAuthenticateResponse(error_message=None, auth_bytes=token, session_lifetime_ms=lifetime_ms)

    def receive_token(self, token: bytes, now: float) -> None:
        """Process a token without a request header, and send the broker's token.

        If the authentication fails, closes the connection after a delay.
        """
        try:
            response = self._step(token, now)
        except SaslError:
            delay = self._cluster.settings.connection_failed_authentication_delay_ms
            self._cluster.timers.add(now + delay, lambda _: self._connection.close())
            return
        self._connection.send(len(response).to_bytes(4) + response, now)

    def _step(self, token: bytes, now: float) -> bytes:
        """Returns the broker's token for a token of the client. Raises SaslError if the authentication fails.

        If this token completes the authentication, sets the state, the principal and the end of the session.
        """
        assert self._server is not None
        response = self._server.step(bytes(token))
        user = self._server.user
        if user is None:
            return response
        if self._user is not None and user != self._user:
            names = f"User.{self._user}: User.{user}"
            raise SaslError(f"Cannot change principals during re-authentication from {names}")
        self._user, self._state, self.raw_tokens = user, State.AUTHENTICATED, False
        self._connection.principal = f"User:{user}"
        lifetime_ms = self._settings.session_lifetime_ms
        self._expires = now + lifetime_ms if lifetime_ms else None
        return response

    def _fail(self, request: Request, response: Message | None, now: float) -> Pending:
        """Send `response`, if there is one, and close the connection, both after a delay that makes guesses slow.

        Returns the pending response.
        """
        pending = Pending(request)
        delay = self._cluster.settings.connection_failed_authentication_delay_ms

        def close(at: float) -> None:
            if response is None:
                self._connection.close()
            else:
                pending.complete(response, at)
                self._connection.close_after_output()

        self._cluster.timers.add(now + delay, close)
        return pending
