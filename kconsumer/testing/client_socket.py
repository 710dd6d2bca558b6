"""The socket of one client of a `FakeCluster`: non-blocking reads and writes, with or without TLS."""

from __future__ import annotations

import selectors
import socket
import ssl
from collections.abc import Callable

from kconsumer.testing.cluster.connection import Connection

RECEIVE_BYTES = 1 << 18
Receive = Callable[[Connection, bytes, float], None]


class ClientSocket:
    """An accepted socket. Received bytes are passed to `receive(connection, data, now)`.

    No method raises an OSError. If the socket fails, `lost` becomes True.
    """

    def __init__(
        self,
        accepted: socket.socket,
        connection: Connection,
        selector: selectors.BaseSelector,
        tls: ssl.SSLContext | None,
        receive: Receive,
    ) -> None:
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = connection
        self.lost = False  # True: the client has disconnected, or the socket failed
        self.closed = False
        self._socket = accepted
        if tls is not None:
            self._socket = tls.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
        self._handshaking = tls is not None
        self._receive = receive
        self._output = bytearray()
        self._closing = False  # True: close the socket when the output is sent
        self._selector = selector
        self._events = selectors.EVENT_READ
        selector.register(self._socket, self._events, self.on_event)

    def on_event(self, mask: int, now: float) -> None:
        """Continue the handshake, and read and write as far as possible without waiting."""
        self._attempt(lambda: self._read_and_write(mask, now))

    def send(self, data: bytes) -> None:
        """Send data. What the socket does not accept now is sent later."""
        self._output += data
        self._attempt(self._write)

    def close_after_output(self) -> None:
        self._closing = True
        self._attempt(self._write)
        if self.lost or not self._output:
            self.close()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._selector.unregister(self._socket)
            self._socket.close()

    def _read_and_write(self, mask: int, now: float) -> None:
        if self._handshaking:
            assert isinstance(self._socket, ssl.SSLSocket)
            self._socket.do_handshake()
            self._handshaking = False
            mask |= selectors.EVENT_READ  # the client's first request may have come with its last handshake message
        if mask & selectors.EVENT_READ:
            self._read(now)
        self._write()
        if self._closing and not self._output:
            self.lost = True

    def _read(self, now: float) -> None:
        """Read the bytes that have arrived. With TLS, also reads the bytes that are already decrypted."""
        while not self.lost:
            data = self._socket.recv(RECEIVE_BYTES)
            if not data:
                self.lost = True
            elif not self._closing:
                self._receive(self.connection, data, now)
            if not (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()):
                return

    def _write(self) -> None:
        while self._output and not self._handshaking:
            sent = self._socket.send(memoryview(self._output)[:RECEIVE_BYTES].tobytes())
            del self._output[:sent]

    def _attempt(self, step: Callable[[], None]) -> None:
        """Run a step until it would have to wait. Then register the socket for the events that the step needs."""
        if self.closed or self.lost:
            return
        waits_to_write = False
        try:
            step()
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        except ssl.SSLWantWriteError:
            waits_to_write = True
        except OSError:
            self.lost = True
            return
        has_output = bool(self._output) and not self._handshaking
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if waits_to_write or has_output else 0)
        if events != self._events:
            self._events = events
            self._selector.modify(self._socket, events, self.on_event)
