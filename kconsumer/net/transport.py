"""Non-blocking bytes to and from one address of a broker.

Decides socket options and how a would-block or a closed peer looks to the client. Knows no frames and no
protocol. A transport with a handshake (TLS) fits behind the same `Transport`: its `finish_connect` goes on
until the handshake is over, and its `recv_into` fills as much of the view as it has.
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
    """One resolved address of a broker's name; `host`: the canonical name to call it by, if that was asked for."""

    family: int
    sockaddr: tuple[Any, ...]
    host: str | None = None

    def __str__(self) -> str:
        return str(self.sockaddr[0])


class HandshakeClosedError(ConnectionError):
    """The peer hung up on a handshake without a word: it does not know our protocol, or is about to end."""


class Transport(Protocol):
    """What the client needs of a connection's bytes. Failures are OSErrors, or KafkaErrors that say what to change."""

    @property
    def plain(self) -> bool:
        """Whether what the descriptor receives is what the peer said, as it is; read once connected."""
        ...

    @property
    def pending(self) -> bool:
        """Whether `recv_into` has more to give or to say that the descriptor will not announce."""
        ...

    @property
    def crossed(self) -> bool:
        """Whether a read waits for writability, or a write for readability: `wants_write` says which."""
        ...

    def fileno(self) -> int:
        """The descriptor to select on."""
        ...

    def finish_connect(self) -> bool:
        """Go on connecting; True once bytes may flow. Called when the descriptor is ready.

        Raises OSError when this address does not work, a KafkaError when no other would (a refused login).
        """
        ...

    def wants_write(self) -> bool:
        """While connecting, or `crossed`: whether to wait for writability (else for readability)."""
        ...

    def recv_into(self, view: memoryview) -> int:
        """Bytes put into `view`; 0 when the peer has closed, `WOULD_BLOCK` when there is nothing now."""
        ...

    def send(self, data: bytes | memoryview) -> int:
        """Bytes taken, 0 when none fit now."""
        ...

    def close(self) -> None:
        """Give the descriptor back. Sends nothing and never blocks, so a forked child may call it."""
        ...


Resolve = Callable[[str, int], list[Address]]
Connect = Callable[[str, Address, "ConsumerConfig"], Transport]
"""Starts connecting to an address of a host; the host's name is what TLS checks."""
Refresh = Callable[[BackgroundExecutor], BackgroundTask[Any] | None]
"""Checks whether certificates have changed. Returns the background task that reads them again, which new connections
must wait for, or None. A task that fails fails their attempts to connect."""


class Connector(NamedTuple):
    """How connections of one configuration are started."""

    connect: Connect
    refresh: Refresh = lambda _background: None


def resolve(host: str, port: int) -> list[Address]:
    """All addresses of a name, in the system's order. Blocks in the system's resolver; raises
    socket.gaierror."""
    # A name given as bytes needs no IDNA codec, which takes 2 ms to load.
    name = host.encode() if host.isascii() else host
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(Address(family, sockaddr) for family, _, _, _, sockaddr in found))


def resolve_canonical(host: str, port: int) -> list[Address]:
    """The same, each with the name that the system has for the address, as Kerberos and certificates may want it; the
    address itself if there is none."""
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
        """Start connecting; raises OSError if that fails at once. A size of -1 leaves the system's
        default. `wrap` puts something on top of the socket that is connected through it."""
        sock = socket.socket(address.family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            # Before connect: the window scale is agreed in the handshake.
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
        """True: a writable TCP socket is connected. Raises the OSError that ended the attempt."""
        code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        return True

    def wants_write(self) -> bool:
        """A connecting TCP socket becomes writable."""
        return True

    def recv_into(self, view: memoryview) -> int:
        """Receive without the GIL, straight into `view`."""
        try:
            return self._sock.recv_into(view)
        except BlockingIOError:
            return WOULD_BLOCK

    def send(self, data: bytes | memoryview) -> int:
        """Hand bytes to the kernel."""
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return 0

    def close(self) -> None:
        """Close the descriptor; the kernel says goodbye when no other process holds it."""
        self._sock.close()

    def __repr__(self) -> str:
        return f"<TcpTransport fd={self._sock.fileno()}>"


def buffer_sizes(config: ConsumerConfig) -> tuple[int, int]:
    """Of what is sent and received, -1 for the system's default.

    The receive buffer is left to the system unless the user set it: a fixed one switches its tuning off, and Java's
    64 KiB costs a quarter of the throughput (1 KB records, loopback: 1,030 ns a record against 735).
    """
    receive_buffer_bytes = config.receive_buffer_bytes if "receive_buffer_bytes" in config.explicit else -1
    return config.send_buffer_bytes, receive_buffer_bytes


def connect_tcp(host: str, address: Address, config: ConsumerConfig) -> Transport:
    """Start a TCP connection with the configured buffers."""
    return TcpTransport(address, *buffer_sizes(config))


def make_connector(config: ConsumerConfig) -> Connector:
    """Return the connector of a configuration. Raises ConfigError for certificates and keys that cannot be used."""
    if config.security_protocol.endswith("SSL"):  # SASL_SSL, too
        from kconsumer.net.tls.transport import TlsConnector  # imported on demand: it loads Python's ssl

        tls = TlsConnector(config)
        return Connector(tls, tls.refresh)
    return Connector(connect_tcp)
