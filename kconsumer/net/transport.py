"""Non-blocking bytes to and from one address of a broker.

Decides socket options, and how the event loop sees that a call would block or that the peer has closed. Knows no frames
and no protocol. TLS has the same interface: `finish_connect` then includes the handshake.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kconsumer.net.background import BackgroundExecutor, BackgroundTask

if TYPE_CHECKING:
    from kconsumer.config.options import ConsumerConfig

WOULD_BLOCK = -1


class Address(NamedTuple):
    """One resolved address of a broker's name."""

    family: int
    sockaddr: tuple[Any, ...]
    host: str | None = None  # the canonical name, if it was looked up

    def __str__(self) -> str:
        return str(self.sockaddr[0])


class HandshakeClosedError(ConnectionError):
    """The peer closed the connection during the TLS handshake without an alert: it has no TLS, or is stopping."""


class Transport(Protocol):
    """The socket of a connection. Failures are OSErrors, or KafkaErrors that say what to change."""

    @property
    def plain(self) -> bool:
        """Returns whether the descriptor receives the peer's bytes unencrypted. Valid once connected."""
        ...

    @property
    def pending(self) -> bool:
        """Returns whether `recv_into` has more bytes, or an error, that a selector would not report."""
        ...

    @property
    def crossed(self) -> bool:
        """Returns whether a read waits for writability, or a write for readability; see `wants_write`."""
        ...

    def fileno(self) -> int:
        """The descriptor to select on."""
        ...

    def finish_connect(self) -> bool:
        """Continue to connect, when the descriptor is ready. Returns True once bytes can be sent.

        Raises OSError if this address does not work, a KafkaError if no other would (a refused certificate).
        """
        ...

    def wants_write(self) -> bool:
        """Returns whether to wait for writability or, if not, for readability, while connecting or `crossed`."""
        ...

    def recv_into(self, view: memoryview) -> int:
        """Receive into `view`. Returns the number of bytes, 0 if the peer has closed, `WOULD_BLOCK` if there are none
        now."""
        ...

    def send(self, data: bytes | memoryview) -> int:
        """Send what fits into the socket's buffer now. Returns the number of bytes, which may be 0."""
        ...

    def close(self) -> None:
        """Close the descriptor. Sends nothing and never blocks, so a forked child may call it."""
        ...


Resolve = Callable[[str, int], list[Address]]
Connect = Callable[[str, Address, "ConsumerConfig"], Transport]
"""Starts to connect to an address of a host. TLS checks the certificate against the host's name."""
Refresh = Callable[[BackgroundExecutor], BackgroundTask[Any] | None]
"""Checks whether certificates have changed. Returns the background task that reads them again, which new connections
must wait for, or None. A task that fails fails their attempts to connect."""


class Connector(NamedTuple):
    """How connections of one configuration are started."""

    connect: Connect
    refresh: Refresh = lambda _background: None


def resolve(host: str, port: int) -> list[Address]:
    """Returns all addresses of a name in the system's order. May block for long. Raises socket.gaierror."""
    # A name given as bytes needs no IDNA codec, which takes 2 ms to load.
    name = host.encode() if host.isascii() else host
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(Address(family, sockaddr) for family, _, _, _, sockaddr in found))


def resolve_canonical(host: str, port: int) -> list[Address]:
    """Like `resolve`; each address has its canonical name, which Kerberos and certificates may require, or itself as
    text if there is none."""
    return [
        address._replace(host=socket.getnameinfo(address.sockaddr, socket.NI_NUMERICSERV)[0])
        for address in resolve(host, port)
    ]


class TcpTransport:
    """A TCP socket that never blocks."""

    __slots__ = ("_sock",)
    plain = True
    pending = crossed = False

    def __init__(
        self,
        address: Address,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
        wrap: Callable[[socket.socket], socket.socket] | None = None,
    ) -> None:
        """Start to connect. Raises OSError if that fails at once. A size of -1 keeps the system's default. `wrap` may
        replace the socket, before it is connected, by one around it."""
        sock = socket.socket(address.family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            # The sizes must be set before the connect, as the TCP handshake negotiates the window scale.
            if send_buffer_bytes >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
            if receive_buffer_bytes >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            if wrap is not None:
                sock = wrap(sock)
            code = sock.connect_ex(address.sockaddr)
            if code not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR):
                raise OSError(code, os.strerror(code))
        except BaseException:
            sock.close()
            raise
        self._sock = sock

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._sock.fileno()

    def finish_connect(self) -> bool:
        """Returns True, as a writable TCP socket is connected. Raises the OSError that ended the attempt."""
        code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        return True

    def wants_write(self) -> bool:
        """Returns True: a TCP socket becomes writable when it is connected."""
        return True

    def recv_into(self, view: memoryview) -> int:
        """Receive into `view`, without the GIL and without a copy."""
        try:
            return self._sock.recv_into(view)
        except BlockingIOError:
            return WOULD_BLOCK

    def send(self, data: bytes | memoryview) -> int:
        """Send what fits into the kernel's buffer."""
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return 0

    def close(self) -> None:
        """Close the descriptor. The kernel ends the connection when no other process has the socket open."""
        self._sock.close()

    def __repr__(self) -> str:
        return f"<TcpTransport fd={self._sock.fileno()}>"


def buffer_sizes(config: ConsumerConfig) -> tuple[int, int]:
    """Returns the sizes of the send and receive buffers; -1 stands for the system's default.

    The system chooses the receive buffer unless the user has set it: a fixed size turns off the system's tuning, and
    Java's 64 KiB costs a quarter of the throughput (1 KB records, loopback: 1,030 ns a record against 735).
    """
    receive_buffer_bytes = config.receive_buffer_bytes if "receive_buffer_bytes" in config.explicit else -1
    return config.send_buffer_bytes, receive_buffer_bytes


def connect_tcp(host: str, address: Address, config: ConsumerConfig) -> Transport:
    """Returns a TCP transport with the configured buffers, which has started to connect."""
    return TcpTransport(address, *buffer_sizes(config))


def make_connector(config: ConsumerConfig) -> Connector:
    """Returns the connector of a configuration. Raises ConfigError for certificates and keys that cannot be used."""
    if config.security_protocol.endswith("SSL"):  # SASL_SSL, too
        from kconsumer.net.tls.transport import TlsConnector  # imported on demand: it loads Python's ssl

        tls = TlsConnector(config)
        return Connector(tls, tls.refresh)
    return Connector(connect_tcp)
