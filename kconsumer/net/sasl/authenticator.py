"""Authenticates a connection by SASL. Does no I/O itself: the connection sends the requests.

    read the credentials → ApiVersions v0 → SaslHandshake → tokens → authenticated

The tokens are sent in SaslAuthenticate requests. After SaslHandshake v0 they are sent raw, with only their size before
them.

Decides which request is next and how to interpret a response. A failure is raised as an AuthenticationError whose text
says what to change. A reauthentication (KIP-368) has the API versions already, and begins with SaslHandshake.

Work that may block, such as a user's callable or a token endpoint, runs as a background task. The connection calls
`resume` when tasks have completed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from kconsumer._common.error_codes import Errors
from kconsumer.errors import AuthenticationError, BrokerConnectionError, ConfigError, error_for
from kconsumer.net.background import BackgroundTask
from kconsumer.net.sasl.mechanism import Mechanism, MechanismError
from kconsumer.schema.dsl import Api
from kconsumer.schema.metadata import API_VERSIONS
from kconsumer.schema.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE

if TYPE_CHECKING:
    from kconsumer.net.sasl.credentials import CredentialsProvider

Versions = Mapping[int, tuple[int, int]]


class AuthChannel(Protocol):
    """The methods of a connection that the authenticator uses."""

    name: str
    api_versions: dict[int, tuple[int, int]] | None

    def send_internal(
        self, api: Api, version: int, message: Any, now: float, handler: Callable[[Any, float], None]
    ) -> None:
        """Send a request. When the response arrives, call the handler with the response and the time."""
        ...

    def send_raw(self, api: Api, token: bytes, now: float, handler: Callable[[bytes, float], None]) -> None:
        """Send a token as it is, with only its size before it. When the broker's token arrives, call the handler with
        the token and the time."""
        ...

    def authenticated(self, lifetime_ms: int, now: float) -> None:
        """End the authentication, which has succeeded. `lifetime_ms` is the session lifetime (0: unlimited)."""
        ...


class SaslAuthenticator:
    """Authenticates one connection once (Java `SaslClientAuthenticator`)."""

    def __init__(self, channel: AuthChannel, credentials: CredentialsProvider, host: str, timeout_ms: float) -> None:
        self.deadline = float("inf")  # when the background task in progress times out, in ms
        self._channel, self._credentials, self._host = channel, credentials, host
        self._timeout_ms = timeout_ms
        self._versions: Versions | None = channel.api_versions
        self._raw = False  # True: tokens are sent without SaslAuthenticate, and the broker refuses by a disconnect
        self._mechanism: Mechanism | None = None
        self._first: bytes | None = None  # the first token, until it is sent
        self._task: BackgroundTask[Any] | None = None
        self._on_result: Callable[[Any, float], None] | None = None  # takes the result of the task
        self._lifetime_ms = 0

    @property
    def description(self) -> str:
        """The names of the broker and the mechanism, for errors."""
        return f"{self._channel.name} by {self._credentials.name}"

    # --- in the background ---

    def start(self, now: float) -> None:
        """Read the credentials, as a background task if that may block, and then send the first request."""
        self._run(self._prepare, self._on_prepared, now, self._credentials.blocking)

    def _prepare(self) -> tuple[Mechanism, bytes | None]:
        mechanism = self._credentials.mechanism(self._host)
        return mechanism, mechanism.step(None)

    def _on_prepared(self, prepared: tuple[Mechanism, bytes | None], now: float) -> None:
        self._mechanism, self._first = prepared
        if self._versions is None:
            self._channel.send_internal(API_VERSIONS, 0, API_VERSIONS.request(), now, self._on_versions)
        else:
            self._send_handshake(now)

    def _run(self, work: Callable[[], Any], then: Callable[[Any, float], None], now: float, blocking: bool) -> None:
        """Call `work`, and pass its result to `then`.

        If `blocking` is True, `work` runs as a background task, and `resume` calls `then` after the task has completed.
        """
        if blocking:
            self._on_result = then
            self.deadline = now + self._timeout_ms
            self._task = self._credentials.background.submit(work)
        else:
            then(self._attempt(work), now)

    def resume(self, now: float) -> bool:
        """Continue the authentication if its background task has completed. Returns whether it has."""
        task, then = self._task, self._on_result
        if task is None or then is None or not task.completed:
            return False
        self._task = self._on_result = None
        self.deadline = float("inf")
        then(self._attempt(task.result), now)
        return True

    def _attempt(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except MechanismError as error:
            raise AuthenticationError(
                f"the login to {self.description} failed: {error} ({self._credentials.hint})"
            ) from None
        except BrokerConnectionError as error:
            raise BrokerConnectionError(f"the login to {self.description} failed: {error}") from error
        except ConfigError as error:
            raise AuthenticationError(f"the login to {self.description} has no credentials: {error}") from None
        except Exception as error:  # a user's callable, or a library: the text may quote a secret
            raise AuthenticationError(f"the login to {self.description} failed with {type(error).__name__}") from None

    # --- the broker's responses ---

    def _on_versions(self, message: Any, now: float) -> None:
        if message.error_code:
            raise error_for(message.error_code, f"{self._channel.name} refused ApiVersions v0")
        self._versions = {row.api_key: (row.min_version, row.max_version) for row in message.api_keys}
        self._send_handshake(now)

    def _send_handshake(self, now: float) -> None:
        version = self._version(SASL_HANDSHAKE)
        # After SaslHandshake v0 the tokens are sent raw. Brokers without v1 do not support SaslAuthenticate either.
        self._raw = version == 0 or SASL_AUTHENTICATE.key not in (self._versions or {})
        request = SASL_HANDSHAKE.request(mechanism=self._credentials.name)
        self._channel.send_internal(SASL_HANDSHAKE, 0 if self._raw else version, request, now, self._on_handshake)

    def _version(self, api: Api) -> int:
        """Returns the highest version of an API that both sides support. Raises AuthenticationError if there is
        none."""
        low, high = (self._versions or {}).get(api.key, (0, -1))
        version = min(high, api.max_version)
        if version < max(low, api.min_version):
            raise AuthenticationError(
                f"{self._channel.name} has no {api.name} that this client knows; is this a Kafka broker?"
            )
        return version

    def _on_handshake(self, message: Any, now: float) -> None:
        code = message.error_code
        if code == Errors.UNSUPPORTED_SASL_MECHANISM:
            enabled = ", ".join(sorted(message.mechanisms)) or "none"
            raise error_for(
                code,
                f"{self._channel.name} does not take {self._credentials.name} here, but {enabled} (set sasl_mechanism)",
            )
        if code == Errors.ILLEGAL_SASL_STATE:
            raise error_for(
                code,
                f"{self._channel.name} wants no login on this port (set security_protocol to PLAINTEXT or SSL,"
                " or use the broker's SASL port)",
            )
        if code:
            raise error_for(code, f"{self._channel.name} refused to begin a login")
        first, self._first = self._first, None
        self._send_token(first or b"", now)

    def _send_token(self, token: bytes, now: float) -> None:
        if self._raw:
            self._channel.send_raw(SASL_AUTHENTICATE, token, now, self._on_token)
            return
        request = SASL_AUTHENTICATE.request(auth_bytes=token)
        self._channel.send_internal(
            SASL_AUTHENTICATE, self._version(SASL_AUTHENTICATE), request, now, self._on_authenticate
        )

    def _on_authenticate(self, message: Any, now: float) -> None:
        if message.error_code:
            raise self._refused(self._error_text() or message.error_message or "", message.error_code)
        self._lifetime_ms = message.session_lifetime_ms
        self._on_token(message.auth_bytes, now)

    def _on_token(self, token: bytes, now: float) -> None:
        mechanism = self._mechanism
        assert mechanism is not None
        self._run(lambda: mechanism.step(token), self._on_step, now, mechanism.blocking)

    def _on_step(self, token: bytes | None, now: float) -> None:
        if token is None:
            self._channel.authenticated(self._lifetime_ms, now)
        else:
            self._send_token(token, now)

    # --- refusals ---

    def _error_text(self) -> str:
        return self._mechanism.broker_error if self._mechanism is not None else ""

    def _refused(self, reason: str, code: int = Errors.SASL_AUTHENTICATION_FAILED) -> AuthenticationError:
        if self._mechanism is not None:
            self._credentials.invalidate(self._mechanism)
        return AuthenticationError(
            f"{self._channel.name} refused the login by {self._credentials.name}: {reason or 'it gave no reason'} "
            f"({self._credentials.hint})",
            code=code,
        )

    def overdue(self) -> BrokerConnectionError:
        """Returns the error for a background task that has not completed before `deadline`."""
        return BrokerConnectionError(
            f"the login to {self.description} has waited {self._timeout_ms:.0f} ms for its credentials (does a"
            " callable, a token endpoint or a key distribution centre not respond?)"
        )

    def closed(self) -> AuthenticationError | None:
        """Returns an error if a disconnect now means that the broker refused the authentication, else None.

        With raw tokens the broker can refuse only by a disconnect. In this case a cached token is dropped, too.
        """
        return self._refused("it closed the connection") if self._raw else None


NewAuthenticator = Callable[[AuthChannel], SaslAuthenticator]
