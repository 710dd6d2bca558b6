"""One connection of a client to a broker: finds requests in received bytes, and converts responses to bytes.

As in a Kafka broker, a connection processes one request at a time: the next request waits until the response to the
previous one was sent. Therefore responses have the order of their requests. Malformed bytes, an unknown API and an
unsupported version close the connection. There is one exception: an ApiVersions request in an unsupported version gets
a response in version 0 (KIP-511).

Here are the bytes and the order; `cluster.py` processes the requests.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections import deque

from kconsumer.testing.cluster.broker import Broker
from kconsumer.testing.cluster.link import Link
from kconsumer.testing.cluster.timers import Timers

MAX_REQUEST_BYTES = 100 << 20  # socket.request.max.bytes
ANONYMOUS = "User:ANONYMOUS"


class Connection(ABC):
    """A connection as the broker sees it. The driver passes bytes to `receive` and sends what `take_output` returns."""

    def __init__(self, broker: Broker, timers: Timers, writable: dict[Connection, None]) -> None:
        self.broker = broker
        self.closed = False  # True: no bytes are received or sent any more
        self.closing = False  # True: the broker closes the connection as soon as the output is sent
        self.principal = ANONYMOUS  # who is authenticated, in Kafka's form
        self._timers, self._writable = timers, writable
        self._link = Link(broker.network, timers, self._receive, self._add_output)
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
        self._writable[self] = None

    def close(self) -> None:
        """Close the connection. Drops output that the driver has not taken."""
        self.closed = True
        self._output.clear()
        self._frames.clear()
        self._link.close()
        self._writable[self] = None  # so that the driver closes its socket

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
        self._writable[self] = None

    def _process_frames(self, now: float) -> None:
        """Process the received requests in their order, until the connection is busy, muted, closing or closed."""
        while self._frames and not self._busy and not self.closed and not self.closing:
            if now < self._muted_until:
                self._timers.add(self._muted_until, self._process_frames)
                return
            self._process(self._frames.popleft(), now)

    @abstractmethod
    def _process(self, frame: bytes, now: float) -> None:
        """Process one request. Sets `_busy` while the request has no response."""
