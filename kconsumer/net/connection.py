"""The protocol state of one connection to a broker: framing, correlation, version negotiation and deadlines.

`NodeConnection` passes in received bytes and the time, and takes out the bytes to send, and the requests that have
ended with their replies. This module decides which version of a request is sent, and which response belongs to which
request. It uses no sockets or selectors.

The states of a connection:

    CONNECTING         until the transport can send
    AUTHENTICATING     during SASL, if it is configured (see `sasl/authenticator.py`)
    CHECKING_VERSIONS  until the response to ApiVersions. If the broker does not support its version, it returns error
                       35, and the request is sent again with a lower version
    READY              requests may be sent
    REAUTHENTICATING   during SASL on an open connection, if the broker limits the session's lifetime (KIP-368)
    PROBING            after CONNECTING, if the connection is a probe (`probes.py`): it sends one request and is closed
    CLOSED             the last state

The client authenticates again before the session expires (`sasl/session.py`). READY becomes REAUTHENTICATING with the
first SASL request. The requests in flight get their responses first, because a
broker sends responses in the order of the requests.

The connection sends some requests itself: ApiVersions, SASL and probes. Each of them has a handler for its response.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kconsumer import errors
from kconsumer._common.error_codes import Errors
from kconsumer._core.codec import decode, decode_response, encode_request
from kconsumer._core.net import LOGIN_CORRELATION_IDS, InFlight, RequestQueue
from kconsumer._core.wire import Frame, FrameBuffer
from kconsumer._internal.requests import Ended, Reply, UnsentRequest
from kconsumer._internal.transitions import checked_transition
from kconsumer.errors import (
    AuthenticationError,
    BrokerConnectionError,
    KafkaError,
    ProtocolError,
    UnsupportedVersionError,
    error_for,
)
from kconsumer.net.preamble import PREAMBLE_BYTES, check_first_bytes
from kconsumer.net.sasl.session import Session
from kconsumer.net.states import TRANSITIONS, ConnectionState
from kconsumer.schema.dsl import Api
from kconsumer.schema.metadata import API_VERSIONS

if TYPE_CHECKING:
    from kconsumer.net.probes import Probe
    from kconsumer.net.sasl.authenticator import NewAuthenticator

LAST_KEY_OF_2_1 = 42
"""Kafka 2.1 has all APIs up to this key. It is the oldest version that this client supports."""

Ranges = Mapping[int, tuple[int, int]]
"""The versions that a broker supports: lowest and highest by API key."""


def common_version(name: str, theirs: Ranges, api: Api, min_version: int = 0, max_version: int = 32767) -> int:
    """Returns the highest common version of an API within `min_version` and `max_version`.

    `name` is the broker's name for errors, and `theirs` contains the versions that it supports. Raises
    UnsupportedVersionError if there is no common version. Its message contains the versions of both sides.
    """
    low, high = max(api.min_version, min_version), min(api.max_version, max_version)
    supported = theirs.get(api.key)
    if supported is None:
        why = "it is older than Kafka 2.1" if api.key <= LAST_KEY_OF_2_1 else "it is too old, or the feature is off"
        raise UnsupportedVersionError(f"{name} does not support {api.name} (v{low} to v{high} are needed): {why}")
    lowest, highest = supported
    if max(lowest, low) <= min(highest, high):
        return min(highest, high)
    age = "newer" if lowest > high else "older than Kafka 2.1" if highest < api.min_version else "too old"
    raise UnsupportedVersionError(
        f"{name} supports {api.name} v{lowest} to v{highest}, needed is v{low} to v{high}; the broker is {age}"
    )


def lower_version(api: Api, refused: int, frame: Frame) -> int:
    """Returns the version for the next ApiVersions request, after the broker refused version `refused` with error 35.

    Since Kafka 2.4 the error response, which has the layout of version 0, contains the broker's maximum version.
    Returns this maximum, or 0 if the response does not contain it. The result is lower than `refused`, so that the
    retries end.
    """
    try:
        message = decode(api.response_plan(0), frame, 4, allow_trailing=True)
    except ProtocolError:
        return 0
    for row in message.api_keys:
        if row.api_key == api.key and 0 <= row.max_version < refused:
            return int(row.max_version)
    return 0


_FOREVER = float("inf")
_HEAD = struct.Struct(">ih")  # correlation id and error code, with which every version of ApiVersions responses begins


class Connection(RequestQueue):
    """The protocol state of one connection. Times are in ms."""

    state: ConnectionState
    session: Session

    def __init__(
        self,
        name: str,
        *,
        client_id: str,
        request_timeout_ms: float,
        api_versions_fields: Mapping[str, Any],
        max_frame_bytes: int = 1 << 30,
        new_authenticator: NewAuthenticator | None = None,
        rng: random.Random | None = None,
        probe: Probe | None = None,
        security_protocol: str = "PLAINTEXT",
        node_id: str = "",
    ) -> None:
        """Start in CONNECTING.

        `name` is the broker's name for errors, and `node_id` the connection id for replies. `api_versions_fields` are
        sent in ApiVersions, if its version has them.
        `new_authenticator` creates the SaslAuthenticator; it is None without SASL. If `probe` is not None, the
        connection sends the request of the probe, and no other one.
        """
        super().__init__(
            name,
            ConnectionState.CONNECTING,
            ConnectionState.READY,
            Session(new_authenticator, rng or random.Random()),
            FrameBuffer(max_frame_bytes),
        )
        self._node_id = node_id
        self.api_versions: dict[int, tuple[int, int]] | None = None
        self._negotiated: dict[tuple[int, int, int], int] = {}  # versions by API key and allowed versions
        self.probe = probe
        self.verdict: AuthenticationError | None = None  # set if the probe's response shows a wrong configuration
        self._security_protocol = security_protocol
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._api_versions_fields = api_versions_fields
        self._next_login_id = LOGIN_CORRELATION_IDS
        self.recv_view = self._frames.recv_view
        self.prefetch_view = self._frames.prefetch_view

    # --- state ---

    def transition_to(self, state: ConnectionState) -> None:
        """Change the state. Raises StateError, and keeps the state, if TRANSITIONS does not allow the change."""
        self.state = checked_transition(TRANSITIONS, self.name, self.state, state)

    @property
    def ready(self) -> bool:
        """Returns whether the state is READY, in which requests may be sent."""
        return self.state is ConnectionState.READY

    @property
    def in_flight(self) -> int:
        """The number of requests without a response, not counting those that the connection sends itself."""
        if self.state is ConnectionState.READY:
            return len(self.entries)
        return sum(entry.request is not None for entry in tuple(self.entries))  # another thread may change it

    @property
    def established(self) -> bool:
        """Returns whether the state is READY or REAUTHENTICATING."""
        return self.state is ConnectionState.READY or self.state is ConnectionState.REAUTHENTICATING

    def __repr__(self) -> str:
        return (
            f"<Connection to {self.name}: {self.state.value}, {len(self.entries)} in flight, "
            f"{sum(map(len, self.outgoing))} bytes to send, {self._frames.pending} received>"
        )

    # --- outgoing ---

    def transport_ready(self, now: float) -> None:
        """Begin to send. Must be called when the transport can send for the first time.

        If the connection is a probe, queues its request. Otherwise starts to authenticate or, without SASL, queues
        ApiVersions.
        """
        if self.probe is not None:
            self.transition_to(ConnectionState.PROBING)
            probe = self.probe
            self._enqueue(probe.api, probe.version, probe.message, now, probe.timeout_ms, handler=self._on_probe)
            return
        if self.session.required:
            self.transition_to(ConnectionState.AUTHENTICATING)
            self.authenticate(now)
            return
        self.transition_to(ConnectionState.CHECKING_VERSIONS)
        self._request_versions(API_VERSIONS.max_version, now)

    def negotiated(self, api: Api, min_version: int = 0, max_version: int = 32767) -> int:
        """Returns the version to send a request with. Raises UnsupportedVersionError if there is no common version."""
        key = api.key, min_version, max_version
        version = self._negotiated.get(key)
        if version is None:
            version = common_version(self.name, self.api_versions or {}, api, min_version, max_version)
            self._negotiated[key] = version
        return version

    def send(self, request: UnsentRequest, now: float) -> None:
        """Encode a request and append it to `outgoing`.

        Raises UnsupportedVersionError if the broker and this client have no version of the request in common, and
        ProtocolError if the request cannot be encoded.
        """
        api, timeout_ms = request.api, request.timeout_ms
        version = self._negotiated.get((api.key, request.min_version, request.max_version))
        if version is None:
            version = self.negotiated(api, request.min_version, request.max_version)
        if timeout_ms is None:
            timeout_ms = self._request_timeout_ms
        self._enqueue(api, version, request.message, now, timeout_ms, request)

    def _enqueue(
        self,
        api: Api,
        version: int,
        message: Any,
        now: float,
        timeout_ms: float,
        request: UnsentRequest | None = None,
        handler: Callable[[InFlight, Frame, float], None] | None = None,
        *,
        login: bool = False,
    ) -> None:
        """Encode a request and queue it. Raises ProtocolError, and changes nothing, if it cannot be encoded.

        If `login` is True, its correlation id is one of those that are reserved for SASL.
        """
        correlation_id = self._next_login_id if login else self.next_correlation_id
        try:
            data = encode_request(api, version, correlation_id, self._client_id, message)
        except Exception as error:  # a value of the wrong type may raise anything
            raise _encoding_error(api, version, error) from error
        if login:
            following = correlation_id + 1
            self._next_login_id = following if following < 2**31 else LOGIN_CORRELATION_IDS
        else:
            self._advance_correlation_id()
        deadline = now + timeout_ms
        self.entries.append(InFlight(correlation_id, api, version, now, deadline, request, handler))
        if deadline < self.next_deadline:
            self.next_deadline = deadline
        self.outgoing.append(data)

    # --- incoming ---

    def cancel_prefetch(self) -> None:
        """Discard `prefetch_view()`, into which nothing was received. The next bytes go into `recv_view()` again."""
        self._frames.received_prefetched(b"", 0)

    def _too_large(self, error: ProtocolError) -> ProtocolError:
        """Returns the error for a frame that is larger than allowed. No memory was allocated for the frame."""
        return ProtocolError(f"{self.name} announces {error} (receive_message_max_bytes)")

    def _handle_response(self, entry: InFlight, frame: Frame, now: float, ended: list[Ended]) -> None:
        """Decode the response to the oldest request in flight. Append the request and its reply to `ended`."""
        assert entry.request is not None
        api, version, request = entry.api, entry.version, entry.request
        try:
            _, message = decode_response(api, version, frame)
        except ProtocolError as error:
            raise ProtocolError(f"{self.name} responded to {api.name} v{version} with garbage: {error}") from error
        self._pop()
        if api.throttle_from is not None and message.throttle_time_ms > 0:
            self._note_throttle(entry, message.throttle_time_ms)
        self.has_served_request = True
        ended.append((request, Reply(message, None, now, version, self._node_id, entry.sent_at)))

    def encode(self, api: Api, version: int, message: Any) -> bytes:
        """Returns the bytes of a request with the correlation id 0. Changes no state."""
        return encode_request(api, version, 0, self._client_id, message)

    def _note_throttle(self, entry: InFlight, throttle_ms: int) -> None:
        """Store the throttle time of a response. The client sends the broker nothing for that time (KIP-219)."""
        throttle_from = entry.api.throttle_from
        if throttle_from is not None and entry.version >= throttle_from:
            self.throttle_ms = max(self.throttle_ms, throttle_ms)

    def take_throttle(self) -> int:
        """Returns the largest throttle time (ms) of the responses since the last call, and resets it."""
        taken, self.throttle_ms = self.throttle_ms, 0
        return taken

    def _check_preamble(self, preamble: bytearray, count: int) -> None:
        """Collect and check the first bytes of the connection, before they are used as the size of a frame.

        Raises the errors of `check_first_bytes` if the peer is not a Kafka listener of the expected kind.
        """
        preamble += bytes(self._frames.recv_view()[: min(count, PREAMBLE_BYTES)])
        if check_first_bytes(self.name, bytes(preamble)):
            self._preamble = None

    # --- authentication ---

    def authenticate(self, now: float) -> None:
        """Start to authenticate; over an open connection, again (KIP-368). Requests in flight still get their
        responses. Raises a KafkaError if the credentials cannot be used."""
        self.session.authenticate(self, now)
        self._find_deadline()

    def resume_auth(self, now: float) -> bool:
        """Continue the authentication if its background task has completed. Returns whether it has."""
        resumed = self.session.resume(now)
        self._find_deadline()
        return resumed

    def send_internal(
        self, api: Api, version: int, message: Any, now: float, handler: Callable[[Any, float], None]
    ) -> None:
        """Queue a request of the authenticator. When the response arrives, `handler` is called with the response and
        the time."""

        def parse(entry: InFlight, frame: Frame, now: float) -> None:
            try:
                _, message = decode_response(api, version, frame)
            except ProtocolError as error:
                raise ProtocolError(f"{self.name} responded to {api.name} v{version} with garbage: {error}") from error
            handler(message, now)
            self._find_deadline()

        self._start_session()
        self._enqueue(api, version, message, now, self._request_timeout_ms, handler=parse, login=True)

    def send_raw(self, api: Api, token: bytes, now: float, handler: Callable[[bytes, float], None]) -> None:
        """Queue a token of the authenticator as it is, with only its size before it. Errors name `api` as the request.

        When the broker's token arrives, `handler` is called with the token and the time.
        """

        def take(entry: InFlight, frame: Frame, now: float) -> None:
            handler(bytes(memoryview(frame)), now)
            self._find_deadline()

        deadline = now + self._request_timeout_ms
        self.entries.append(InFlight(-1, api, 0, now, deadline, handler=take, raw=True))
        self.outgoing.append(len(token).to_bytes(4, "big") + token)
        self._find_deadline()

    def _start_session(self) -> None:
        """If the state is READY, change it to REAUTHENTICATING. Called before each request of the authenticator.

        From the first of these requests on, the broker accepts no others until the authentication has ended.
        """
        if self.state is ConnectionState.READY:
            self.transition_to(ConnectionState.REAUTHENTICATING)

    def authenticated(self, lifetime_ms: int, now: float) -> None:
        """End the authentication, which has succeeded. The session lasts for `lifetime_ms`; 0 means that it lasts as
        long as the connection.

        A new connection then sends ApiVersions. After a reauthentication, the connection is READY again.
        """
        self.session.authenticated(lifetime_ms, now)
        first = self.state is ConnectionState.AUTHENTICATING
        self.transition_to(ConnectionState.CHECKING_VERSIONS if first else ConnectionState.READY)
        if first:
            self._request_versions(API_VERSIONS.max_version, now)

    # --- ApiVersions ---

    def _request_versions(self, version: int, now: float) -> None:
        api = API_VERSIONS
        message = api.request(**self._api_versions_fields)
        self._enqueue(api, version, message, now, self._request_timeout_ms, handler=self._on_versions)

    def _on_versions(self, entry: InFlight, frame: Frame, now: float) -> None:
        """Handle an ApiVersions response: become READY, or send the request again with a lower version."""
        if len(frame) < _HEAD.size:
            raise ProtocolError(f"{self.name} responded to ApiVersions with {len(frame)} bytes")
        _, code = _HEAD.unpack_from(frame)
        if code == Errors.UNSUPPORTED_VERSION and entry.version > 0:
            self._request_versions(lower_version(entry.api, entry.version, frame), now)
            return
        if code:
            raise error_for(code, f"{self.name} refused ApiVersions v{entry.version}")
        try:
            _, message = decode_response(entry.api, entry.version, frame)
        except ProtocolError as error:
            raise ProtocolError(f"{self.name} responded to ApiVersions with garbage: {error}") from error
        self._note_throttle(entry, message.throttle_time_ms)
        self.api_versions = {row.api_key: (row.min_version, row.max_version) for row in message.api_keys}
        self._negotiated.clear()
        self.transition_to(ConnectionState.READY)

    # --- the probe ---

    def _on_probe(self, entry: InFlight, frame: Frame, now: float) -> None:
        """Handle the response to a probe by raising an error, because the connection of a probe is closed after its
        response.

        Raises AuthenticationError if the response shows that the configuration is wrong, else BrokerConnectionError.
        """
        assert self.probe is not None
        _, message = decode_response(entry.api, entry.version, frame)
        self.verdict = self.probe.verdict(self.name, self._security_protocol, message)
        raise self.verdict or BrokerConnectionError(f"{self.name}: {self.probe.no_response}")

    # --- endings ---

    def expired(self, now: float) -> InFlight | None:
        """Returns the oldest request whose deadline has passed, or None."""
        if now < self.next_deadline:
            return None
        return next((entry for entry in self.entries if now >= entry.deadline), None)

    @property
    def receiving(self) -> bool:
        """Returns whether part of a response has arrived."""
        return self._frames.pending > 0

    @property
    def missing(self) -> int:
        """Returns how many bytes of an incomplete response have not arrived, or 0 if that is not known."""
        return self._frames.missing

    def postpone(self, progress_at: float, now: float) -> bool:
        """Extend the deadlines that have passed, because the response to the oldest request is still arriving. The
        timeouts then count from `progress_at`, when the last bytes arrived. Returns whether all deadlines are in the
        future now.
        """
        for entry in self.entries:
            if entry.deadline <= now:
                entry.restart_timeout(progress_at)
        self._find_deadline()
        return self.next_deadline > now

    def close(self, error: KafkaError, now: float, culprit: InFlight | None = None) -> list[Ended]:
        """Change the state to CLOSED. Returns the requests in flight, each with a reply that has an error.

        The request that caused the error (`culprit`) gets `error`. The others have only lost their connection, so they
        get a BrokerConnectionError. If there is no culprit and `error` is a BrokerConnectionError, all get `error`.
        """
        self.transition_to(ConnectionState.CLOSED)
        lost = error
        if culprit is not None or not isinstance(error, BrokerConnectionError):
            lost = BrokerConnectionError(f"the connection to {self.name} was closed: {error}")
        failed = [
            (
                entry.request,
                Reply(None, error if entry is culprit else lost, now, entry.version, self._node_id, entry.sent_at),
            )
            for entry in self.entries
            if entry.request is not None
        ]
        self.entries.clear()
        self.outgoing.clear()
        self.session.close()
        self.next_deadline = _FOREVER
        return failed

    def oldest(self) -> InFlight | None:
        """Returns the request in flight that was sent first, or None. Its response arrives next."""
        return (*self.entries, None)[0]  # in one step, because another thread may call this

    def timeout_error(self, entry: InFlight) -> errors.TimeoutError:
        """Returns the TimeoutError of a request that had no response at its deadline."""
        waited = entry.deadline - entry.sent_at
        return errors.TimeoutError(f"{self.name} did not respond to {entry.api.name} within {waited:.0f} ms")


def _encoding_error(api: Api, version: int, error: Exception) -> ProtocolError:
    reason = ", ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
    return ProtocolError(f"{api.name} v{version} cannot be encoded: {reason}")
