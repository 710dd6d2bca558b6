"""A broker whose responses a test chooses, as a function of bytes or as a TCP server on a thread.

`Script` is the broker without a socket: it maps the bytes of one connection to the bytes of the responses.
`ScriptedBroker` serves a script on a loopback port. The library's own tables and codec encode the responses; a test
that must not rely on these sends raw bytes.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import struct
import threading
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any, Self

from kconsumer._core.codec import decode, encode
from kconsumer.schema import APIS
from kconsumer.schema.dsl import Api
from kconsumer.schema.metadata import API_VERSIONS, ApiVersion
from kconsumer.schema.telemetry import GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY

CLOSE = object()
"""In place of a response: close the connection."""

SILENCE = object()
"""In place of a response: send none, and none to the later requests of the connection."""


@dataclass
class Received:
    """One request as the broker read it."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    message: Any


Response = Any  # a response message, raw bytes, CLOSE, SILENCE, or a callable of Received that gives one


def read_request(frame: bytes) -> Received:
    """Parse a request frame (without its size)."""
    key, version, correlation_id, length = struct.unpack_from(">hhih", frame)
    at = 10
    client_id = None
    if length >= 0:
        client_id = frame[at : at + length].decode()
        at += length
    api = APIS[key]
    if api.request_header_version(version) == 2:
        assert frame[at] == 0, "no tagged fields are sent in request headers"
        at += 1
    return Received(api, version, correlation_id, client_id, decode(api.request_plan(version), frame, at))


def response_bytes(api: Api, version: int, correlation_id: int, message: Any) -> bytes:
    """Returns a response with its size and header."""
    header = struct.pack(">i", correlation_id)
    if api.response_header_version(version) == 1:
        header += b"\x00"
    body = header + encode(api.response_plan(version), message)
    return struct.pack(">i", len(body)) + body


TELEMETRY = (GET_TELEMETRY_SUBSCRIPTIONS.name, PUSH_TELEMETRY.name)
NO_VERSIONS = (1, 0)


def api_versions(**ranges: tuple[int, int]) -> Any:
    """Returns an ApiVersions response with the library's ranges and the given ones: `api_versions(Fetch=(4, 12))`.

    Without ranges for the telemetry APIs, it lacks them, as those of brokers without a plugin for metrics do.
    """
    rows = []
    for key, api in APIS.items():
        known = NO_VERSIONS if api.name in TELEMETRY else (api.min_version, api.max_version)
        low, high = ranges.get(api.name, known)
        if low <= high:
            rows.append(ApiVersion(api_key=key, min_version=low, max_version=high))
    return API_VERSIONS.response(api_keys=rows)


@dataclass
class Script:
    """The responses of a broker by API: the queued ones first, then the one that is always sent."""

    always: dict[str, Response] = field(default_factory=lambda: {"ApiVersions": api_versions()})
    queued: dict[str, deque[Response]] = field(default_factory=lambda: defaultdict(deque))
    requests: list[Received] = field(default_factory=list)

    def on(self, api: Api, response: Response) -> None:
        """Respond to every request of this kind with this."""
        self.always[api.name] = response

    def next(self, api: Api, *responses: Response) -> None:
        """Respond to the next requests of this kind with these, one each."""
        self.queued[api.name].extend(responses)

    def names(self) -> list[str]:
        """Returns the API names of the requests so far, in order."""
        return [request.api.name for request in self.requests]

    def respond(self, frame: bytes) -> Any:
        """Returns the bytes to send for a request frame, which may be empty, SILENCE, or None: close the connection."""
        request = read_request(frame)
        self.requests.append(request)
        queue = self.queued[request.api.name]
        response = queue.popleft() if queue else self.always.get(request.api.name, SILENCE)
        if callable(response):
            response = response(request)
        if response is CLOSE:
            return None
        if response is SILENCE or isinstance(response, bytes):
            return response
        return response_bytes(request.api, request.version, request.correlation_id, response)


class Conversation:
    """One connection of the broker, with the bytes of an incomplete request.

    A broker sends the responses of a connection in the order of its requests. So when a request gets SILENCE, the later
    requests of its connection get no response either.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._pending = bytearray()
        self._silent = False

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        """Returns the bytes to send, and whether the connection stays open."""
        self._pending += data
        out = b""
        while len(self._pending) >= 4:
            size = int.from_bytes(self._pending[:4])
            if len(self._pending) < 4 + size:
                break
            frame = bytes(self._pending[4 : 4 + size])
            del self._pending[: 4 + size]
            response = self._script.respond(frame)
            if response is None:
                return out, False
            self._silent = self._silent or response is SILENCE
            if not self._silent:
                out += response
        return out, True


class ScriptedBroker(Script):
    """A `Script` on a loopback port, served by one thread. A context manager.

    Responses are sent in chunks of `chunk` bytes. With `raw`, the server is no broker: it sends these bytes and closes
    the connection. With `tls`, connections begin with a TLS handshake.
    """

    def __init__(
        self, *, port: int = 0, chunk: int = 1 << 30, raw: bytes | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__()
        self.tls = tls
        self.connections = 0
        self._chunk = chunk
        self._raw = raw
        self._listener = socket.create_server(("127.0.0.1", port), backlog=16)
        self._listener.setblocking(False)
        self.host, self.port = self._listener.getsockname()
        self._stop_reading, self._stop_writing = socket.socketpair()
        self._open: dict[socket.socket, Conversation] = {}
        self._thread = threading.Thread(target=self._run, name="scripted-broker", daemon=True)
        self._errors: list[BaseException] = []

    @property
    def bootstrap_servers(self) -> tuple[tuple[str, int], ...]:
        """Returns the address in the form of ConsumerConfig."""
        return ((self.host, self.port),)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Close the port and every connection, as when a broker dies. Raises the error of the thread, if any."""
        if self._thread.is_alive():
            self._stop_writing.send(b"x")
            self._thread.join(10)
        for sock in (self._listener, self._stop_reading, self._stop_writing):
            sock.close()
        if self._errors:
            raise self._errors[0]

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._stop_reading, selectors.EVENT_READ)
            try:
                while self._step(selector):
                    pass
            except BaseException as error:
                self._errors.append(error)
            finally:
                for sock in self._open:
                    sock.close()

    def _step(self, selector: selectors.BaseSelector) -> bool:
        for key, _ in selector.select():
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            if sock is self._stop_reading:
                return False
            if sock is self._listener:
                accepted, _ = sock.accept()
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.connections += 1
                if self.tls is not None:
                    try:
                        accepted.settimeout(10)
                        accepted = self.tls.wrap_socket(accepted, server_side=True)
                    except OSError:  # the client's business
                        accepted.close()
                        continue
                self._open[accepted] = Conversation(self)
                selector.register(accepted, selectors.EVENT_READ)
            elif not self._serve(sock):
                selector.unregister(sock)
                del self._open[sock]
                sock.close()
        return True

    def _serve(self, sock: socket.socket) -> bool:
        try:
            data = sock.recv(1 << 16)
            if not data:
                return False
            if self._raw is not None:
                sock.sendall(self._raw)
                return False
            out, keep = self._open[sock].feed(data)
            for at in range(0, len(out), self._chunk):
                sock.sendall(out[at : at + self._chunk])
        except ConnectionError:
            return False
        return keep


def unused_port() -> int:
    """Returns a loopback port where no process listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
