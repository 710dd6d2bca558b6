"""The exchange of one login over one connection, without its socket.

    credentials → ApiVersions v0 → SaslHandshake → tokens, in SaslAuthenticate or (SaslHandshake v0) bare → logged in

Decides what is said next and what an answer means; raises AuthenticationError that says what to change. A login over a
connection that has one already (KIP-368) knows the versions and begins with SaslHandshake. What may wait for others
than the broker runs as an errand: `go_on` is to be called when errands have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from kconsumer.errors import AuthenticationError, BrokerConnectionError, ConfigError, error_for
from kconsumer.net.background import Errand
from kconsumer.net.sasl.mechanism import Mechanism, MechanismError
from kconsumer.schema import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kconsumer.schema.dsl import Api

if TYPE_CHECKING:
    from kconsumer.net.sasl.credentials import Accounts

UNSUPPORTED_MECHANISM, ILLEGAL_STATE, REFUSED = 33, 34, 58
Versions = Mapping[int, tuple[int, int]]


class Line(Protocol):
    """What a login needs of its connection."""

    name: str
    api_versions: dict[int, tuple[int, int]] | None

    def ask(self, api: Api, version: int, message: Any, now: float, handler: Callable[[Any, float], None]) -> None:
        """Send a request; the handler gets the answer and the time."""
        ...

    def ask_bare(self, api: Api, token: bytes, now: float, handler: Callable[[bytes, float], None]) -> None:
        """Send a token in place of a request, without a header, and get one."""
        ...

    def logged_in(self, lifetime_ms: int, now: float) -> None:
        """It is over; the session lasts so long (0: as long as the connection)."""
        ...


class Login:
    """One login. `deadline`: when the credentials that are waited for should be there, in ms."""

    def __init__(self, line: Line, accounts: Accounts, host: str, timeout_ms: float) -> None:
        self.deadline = float("inf")
        self._line, self._accounts, self._host = line, accounts, host
        self._timeout_ms = timeout_ms
        self._versions: Versions | None = line.api_versions
        self._bare = False  # tokens travel without SaslAuthenticate: a broker that refuses just closes
        self._mechanism: Mechanism | None = None
        self._first: bytes | None = None
        self._errand: Errand[Any] | None = None
        self._then: Callable[[Any, float], None] | None = None  # what to do with what the errand brings
        self._lifetime_ms = 0

    @property
    def what(self) -> str:
        """Whose login this is, for errors."""
        return f"{self._line.name} by {self._accounts.name}"

    # --- beside the event loop ---

    def begin(self, now: float) -> None:
        """Get the credentials; the exchange follows, at once unless that takes a while."""
        self._run(self._prepare, self._on_prepared, now, self._accounts.waits)

    def _prepare(self) -> tuple[Mechanism, bytes | None]:
        mechanism = self._accounts.mechanism(self._host)
        return mechanism, mechanism.step(None)

    def _on_prepared(self, prepared: tuple[Mechanism, bytes | None], now: float) -> None:
        self._mechanism, self._first = prepared
        if self._versions is None:
            self._line.ask(API_VERSIONS, 0, API_VERSIONS.request(), now, self._on_versions)
        else:
            self._shake_hands(now)

    def _run(self, work: Callable[[], Any], then: Callable[[Any, float], None], now: float, beside: bool) -> None:
        if beside:
            self._then = then
            self.deadline = now + self._timeout_ms
            self._errand = self._accounts.errands.begin(work)
        else:
            then(self._attempt(work), now)

    def go_on(self, now: float) -> bool:
        """Look at the errand. Whether it was done, and the exchange went on."""
        errand, then = self._errand, self._then
        if errand is None or then is None or not errand.done:
            return False
        self._errand = self._then = None
        self.deadline = float("inf")
        then(self._attempt(errand.outcome), now)
        return True

    def _attempt(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except MechanismError as error:
            raise AuthenticationError(f"the login to {self.what} failed: {error} ({self._accounts.advice})") from None
        except BrokerConnectionError as error:
            raise BrokerConnectionError(f"the login to {self.what} failed: {error}") from error
        except ConfigError as error:
            raise AuthenticationError(f"the login to {self.what} has no credentials: {error}") from None
        except Exception as error:  # a user's callable, or a library: the text may quote a secret
            raise AuthenticationError(f"the login to {self.what} failed with {type(error).__name__}") from None

    # --- the broker's answers ---

    def _on_versions(self, message: Any, now: float) -> None:
        if message.error_code:
            raise error_for(message.error_code, f"{self._line.name} refused ApiVersions v0")
        self._versions = {row.api_key: (row.min_version, row.max_version) for row in message.api_keys}
        self._shake_hands(now)

    def _shake_hands(self, now: float) -> None:
        version = self._version(SASL_HANDSHAKE)
        # Version 0 announces bare tokens; so old a broker has no SaslAuthenticate.
        self._bare = version == 0 or SASL_AUTHENTICATE.key not in (self._versions or {})
        request = SASL_HANDSHAKE.request(mechanism=self._accounts.name)
        self._line.ask(SASL_HANDSHAKE, 0 if self._bare else version, request, now, self._on_handshake)

    def _version(self, api: Api) -> int:
        """The highest that both sides know."""
        low, high = (self._versions or {}).get(api.key, (0, -1))
        version = min(high, api.max_version)
        if version < max(low, api.min_version):
            raise AuthenticationError(
                f"{self._line.name} has no {api.name} that this client knows; is this a Kafka broker?"
            )
        return version

    def _on_handshake(self, message: Any, now: float) -> None:
        code = message.error_code
        if code == UNSUPPORTED_MECHANISM:
            enabled = ", ".join(sorted(message.mechanisms)) or "none"
            raise error_for(
                code,
                f"{self._line.name} does not take {self._accounts.name} here, but {enabled} (set sasl_mechanism)",
            )
        if code == ILLEGAL_STATE:
            raise error_for(
                code,
                f"{self._line.name} wants no login on this port (set security_protocol to PLAINTEXT or SSL, or use the "
                "broker's SASL port)",
            )
        if code:
            raise error_for(code, f"{self._line.name} refused to begin a login")
        first, self._first = self._first, None
        self._say(first or b"", now)

    def _say(self, token: bytes, now: float) -> None:
        if self._bare:
            self._line.ask_bare(SASL_AUTHENTICATE, token, now, self._on_token)
            return
        request = SASL_AUTHENTICATE.request(auth_bytes=token)
        self._line.ask(SASL_AUTHENTICATE, self._version(SASL_AUTHENTICATE), request, now, self._on_authenticate)

    def _on_authenticate(self, message: Any, now: float) -> None:
        if message.error_code:
            raise self._refused(self._complaint() or message.error_message or "", message.error_code)
        self._lifetime_ms = message.session_lifetime_ms
        self._on_token(message.auth_bytes, now)

    def _on_token(self, token: bytes, now: float) -> None:
        mechanism = self._mechanism
        assert mechanism is not None
        self._run(lambda: mechanism.step(token), self._on_step, now, mechanism.blocks)

    def _on_step(self, token: bytes | None, now: float) -> None:
        if token is None:
            self._line.logged_in(self._lifetime_ms, now)
        else:
            self._say(token, now)

    # --- refusals ---

    def _complaint(self) -> str:
        return self._mechanism.complaint if self._mechanism is not None else ""

    def _refused(self, reason: str, code: int = REFUSED) -> AuthenticationError:
        self._accounts.refused()
        return AuthenticationError(
            f"{self._line.name} refused the login by {self._accounts.name}: {reason or 'it gave no reason'} "
            f"({self._accounts.advice})",
            code=code,
        )

    def overdue(self) -> BrokerConnectionError:
        """The deadline has passed."""
        return BrokerConnectionError(
            f"the login to {self.what} has waited {self._timeout_ms:.0f} ms for its credentials (does a callable, an "
            "issuer of tokens or a key distribution centre not answer?)"
        )

    def closed(self) -> AuthenticationError | None:
        """What it means that the broker closed in the middle: with bare tokens, that it refused."""
        return self._refused("it closed the connection") if self._bare else None


NewLogin = Callable[[Line], Login]
