"""One connection of a client to a broker: finds requests in received bytes, and converts responses to bytes.

As in a Kafka broker, a connection processes one request at a time: the next request waits until the response to the
previous one was sent. Therefore responses have the order of their requests. Malformed bytes, an unknown API and an
unsupported version close the connection. There is one exception: an ApiVersions request in an unsupported version gets
a response in version 0 (KIP-511).
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Any

from kconsumer._core.codec import decode_request, encode_response
from kconsumer.errors import ProtocolError
from kconsumer.testing.cluster.broker import Broker
from kconsumer.testing.cluster.faults import Fault, FaultKind
from kconsumer.testing.cluster.link import Link
from kconsumer.testing.cluster.requests import Pending, Request, Response

if TYPE_CHECKING:
    from kconsumer.testing.cluster.cluster import Cluster

MAX_REQUEST_BYTES = 100 << 20  # socket.request.max.bytes
API_VERSIONS_KEY = 18
ANONYMOUS = "User:ANONYMOUS"


class Connection:
    """A connection as the broker sees it. The driver passes bytes to `receive` and sends what `take_output` returns."""

    def __init__(self, cluster: Cluster, broker: Broker) -> None:
        self.broker = broker
        self.closed = False  # True: no bytes are received or sent any more
        self.closing = False  # True: the broker closes the connection as soon as the output is sent
        self.principal = ANONYMOUS  # who is authenticated, in Kafka's form
        self.authenticator = cluster.sasl.authenticator(self)  # None: without SASL
        self._cluster = cluster
        self._link = Link(broker.network, cluster.timers, self._receive, self._add_output)
        self._input = bytearray()
        self._frames: deque[bytes] = deque()
        self._busy = False  # True: a request has no response yet
        self._muted_until = 0.0  # no request is processed before (throttling, KIP-219)
        self._output: list[bytes] = []

    # --- the driver's side ---

    def receive(self, data: bytes, now: float) -> None:
        """Add bytes that the client has sent, and process the requests that are complete.

        Does nothing if the connection is closed or closing.
        """
        if not self.closed and not self.closing:
            self._link.receive(data, now)

    def take_output(self) -> bytes:
        """Returns the bytes that the driver must send to the client, and removes them from the output.

        If the connection is closing and no further bytes wait to be sent, closes it.
        """
        data = b"".join(self._output)
        self._output.clear()
        if self.closing and self._link.empty:
            self.close()
        return data

    # --- the broker's side ---

    def send(self, data: bytes, now: float) -> None:
        """Send bytes to the client. Does nothing if the connection is closed."""
        if not self.closed:
            self._link.send(data, now)

    def mute(self, until: float) -> None:
        """Process no further request before the time `until` in ms, because the client is throttled."""
        self._muted_until = max(self._muted_until, until)

    def resume(self, now: float) -> None:
        """Pass on the bytes that the network holds, after a fault of the network (see `link`) has changed or ended."""
        self._link.resume(now)

    def close_after_output(self) -> None:
        """Close the connection once the driver has taken the output."""
        self.closing = True
        self._cluster.writable[self] = None

    def close(self) -> None:
        """Close the connection. Drops output that the driver has not taken."""
        self.closed = True
        self._output.clear()
        self._frames.clear()
        self._link.close()
        self.broker.connections.pop(self, None)
        self._cluster.writable[self] = None  # so that the driver closes its socket
        self._cluster.share_requests.on_disconnect(self)

    # --- requests ---

    def _receive(self, data: bytes, now: float) -> None:
        """Add bytes that have reached the broker, and process the requests that are complete."""
        self._input += data
        while len(self._input) >= 4:
            (size,) = struct.unpack_from(">i", self._input)
            if not 0 <= size <= MAX_REQUEST_BYTES:
                self.close()
                return
            if len(self._input) < 4 + size:
                break
            self._frames.append(bytes(self._input[4 : 4 + size]))
            del self._input[: 4 + size]
        self._process_frames(now)

    def _add_output(self, data: bytes) -> None:
        """Append `data` to the output that the driver takes. The network calls this when the bytes reach the client."""
        self._output.append(data)
        self._cluster.writable[self] = None

    def _process_frames(self, now: float) -> None:
        """Process the received requests in their order, until the connection is busy, muted, closing or closed."""
        while self._frames and not self._busy and not self.closed and not self.closing:
            if now < self._muted_until:
                self._cluster.timers.add(self._muted_until, self._process_frames)
                return
            self._process(self._frames.popleft(), now)

    def _process(self, frame: bytes, now: float) -> None:
        """Decode one request, apply its fault if there is one, handle it, and send its response.

        A response that is pending is sent when it is complete. While SASL tokens without a header are expected, the
        frame is such a token.
        """
        if self.authenticator is not None and self.authenticator.raw_tokens:
            self.authenticator.receive_token(frame, now)
            return
        request = self._decode(frame, now)
        if request is None:
            return
        faults = self._cluster.faults
        fault = faults.take(request)
        response: Response
        if fault is not None and fault.kind is FaultKind.DISCONNECT_BEFORE:
            self.close()
            return
        if fault is not None and fault.kind is FaultKind.ERROR:
            response = faults.error_response(request, fault, now)
        else:
            response = self._cluster.handle(request, now)
        if isinstance(response, Pending):
            self._busy = True
            response.on_complete(lambda message, at: self._respond(request, fault, message, at), now)
        elif response is not None:
            self._respond(request, fault, response, now)

    def _decode(self, frame: bytes, now: float) -> Request | None:
        """Returns the request in a frame, or None if the frame cannot be handled.

        Before it returns None, this method closes the connection. There is one exception: if the version of ApiVersions
        is not supported, it sends the response to such a request instead.
        """
        if len(frame) < 8:
            self.close()
            return None
        key, version, correlation_id = struct.unpack_from(">hhi", frame)
        versions = self._cluster.versions_of(self.broker).get(key)
        if versions is None or version not in versions:
            if key == API_VERSIONS_KEY:
                self.send(self._cluster.metadata.unsupported_api_versions(self.broker, correlation_id), now)
            else:
                self.close()
            return None
        try:
            # As in Kafka, bytes after the request are ignored. librdkafka sends some after Metadata of all topics.
            decoded = decode_request(self._cluster.apis, frame, allow_trailing=True)
        except ProtocolError:
            self.close()
            return None
        api, version, correlation_id, client_id, message = decoded
        return Request(api, version, correlation_id, client_id, message, self, len(frame))

    def _respond(self, request: Request, fault: Fault | None, response: Any, now: float) -> None:
        """Encode a response, and send it at once or after the delay that is set for its API.

        `fault`: a fault that may damage the encoded response. Mutes the connection for the throttle time of the
        response. Does nothing if the connection is closed.
        """
        if self.closed:
            return
        if request.api.name == "Produce" and (throttle_ms := self._cluster.quotas.produced(request, now)):
            response.throttle_time_ms = throttle_ms
        if throttle_ms := getattr(response, "throttle_time_ms", 0):
            self.mute(now + throttle_ms)
        encoded = encode_response(request.api, request.version, request.correlation_id, response)
        data, close = self._cluster.faults.damaged(fault, encoded)
        delay = self._cluster.faults.delay_of(request)
        if delay > 0:
            self._busy = True
            self._cluster.timers.add(now + delay, lambda at: self._send_response(data, close, at))
        else:
            self._send_response(data, close, now)

    def _send_response(self, data: bytes, close: bool, now: float) -> None:
        """Send an encoded response. Then process the next requests or, if `close` is true, close the connection.

        `data`: the bytes after the effect of a fault; no bytes are sent if it is empty.
        """
        waited, self._busy = self._busy, False
        if data:
            self.send(data, now)
        if close:
            self.close_after_output()
        elif waited and self._frames:
            # Not at once: the handler that completed this response may be in the middle of a change of the state.
            self._cluster.timers.add(now, self._process_frames)
