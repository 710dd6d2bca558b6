"""Transports: non-blocking sockets that send bytes to one address of a broker and receive bytes from it.

Sets the socket options, and defines how a call reports that it would block or that the peer has closed. A transport
does not interpret the bytes. `tls/transport.py` has the same interface; its `finish_connect` includes the TLS
handshake.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kconsumer._core.net import SocketIo

if TYPE_CHECKING:
    from kconsumer._core.net import TlsChannel
    from kconsumer.config.options import ConsumerConfig
    from kconsumer.net.tunnel import Tunnel, TunnelHandshake

WOULD_BLOCK = -1  # returned by `recv_into` when there are no bytes now


class Address(NamedTuple):
    """One resolved address of a broker's name."""

    family: int
    sockaddr: tuple[Any, ...]
    host: str | None = None  # the canonical host name, if one was looked up
    option: str = ""  # the option because of which this is not an address of the broker's name
    tunnel: Tunnel | None = None  # what to request from the proxy at this address

    def __str__(self) -> str:
        return f"{self.sockaddr[0]}:{self.sockaddr[1]}, by {self.option}" if self.option else str(self.sockaddr[0])


class HandshakeClosedError(ConnectionError):
    """The peer closed the connection during the TLS handshake, and sent no alert.

    The peer may not use TLS, or may be shutting down.
    """


class Transport(Protocol):
    """The socket of a connection. Its methods raise OSError, or a KafkaError whose text says what to change."""

    @property
    def plain(self) -> bool:
        """Returns whether the peer's bytes arrive unencrypted, so that the descriptor can be read directly. Valid once
        connected."""
        ...

    @property
    def channel(self) -> TlsChannel | None:
        """Decrypts the peer's bytes in the background receiver. None if they are not encrypted, or if the background
        receiver cannot decrypt them. Valid once connected."""
        ...

    @property
    def encryption(self) -> str:
        """Returns the version of TLS and how it is called, for state dumps. Empty if the bytes are not encrypted."""
        ...

    @property
    def pending(self) -> bool:
        """Returns whether `recv_into` must be called again although a selector does not report the descriptor as
        readable. This is so if the transport itself has stored bytes or an error."""
        ...

    @property
    def crossed(self) -> bool:
        """Returns whether a read waits until the socket is writable, or a write until it is readable, as TLS may
        require. `wants_write` then returns which of the two."""
        ...

    def fileno(self) -> int:
        """Returns the descriptor to select on."""
        ...

    def finish_connect(self) -> bool:
        """Continue to connect, after the selector has reported the descriptor. Returns True once bytes can be sent.

        Raises OSError if this address does not work but another one might. Raises a KafkaError if no address would
        work, for example because the certificate is refused.
        """
        ...

    def wants_write(self) -> bool:
        """Returns True to wait until the socket is writable, False until it is readable. Only valid while connecting or
        `crossed`."""
        ...

    def recv_into(self, view: memoryview) -> int:
        """Receive into `view`. Returns the number of bytes, 0 if the peer has closed the connection, or `WOULD_BLOCK`
        if there are no bytes now."""
        ...

    def send(self, data: bytes | memoryview) -> int:
        """Send as many bytes as fit into the socket's buffer. Returns their number, which may be 0."""
        ...

    def set_low_water(self, count: int) -> None:
        """Let selectors report the socket as readable only when `count` bytes have arrived, the peer has closed the
        connection, or the socket's buffer is full. Initially 1. Does nothing where that is not possible."""
        ...

    def close(self) -> None:
        """Close the descriptor. Sends nothing and never blocks, so a forked child may call it."""
        ...


Resolve = Callable[[str, int], list[Address]]
"""Returns the addresses of a host name and a port."""
Connect = Callable[[str, Address, "ConsumerConfig"], Transport]
"""Starts to connect to an address of a host, and returns the transport. With TLS the certificate must be for that host
name."""


def resolve(host: str, port: int) -> list[Address]:
    """Returns all addresses of a host name, in the order of the system's resolver. May block for half a minute. Raises
    socket.gaierror if the name cannot be resolved."""
    # A name given as bytes needs no IDNA codec, which takes 2 ms to load.
    name = host.encode() if host.isascii() else host
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(Address(family, sockaddr) for family, _, _, _, sockaddr in found))


def resolve_canonical(host: str, port: int) -> list[Address]:
    """Returns all addresses like `resolve`, with `host` set to the canonical name of each address, which Kerberos and
    certificates may require. If an address has no canonical name, `host` is the numeric address."""
    return [
        address._replace(host=socket.getnameinfo(address.sockaddr, socket.NI_NUMERICSERV)[0])
        for address in resolve(host, port)
    ]


class TcpTransport(SocketIo):
    """A TCP socket that never blocks, to a broker or through a proxy."""

    __slots__ = ("_handshake",)
    plain = True
    crossed = False

    def __init__(
        self,
        address: Address,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
        wrap: Callable[[socket.socket], socket.socket] | None = None,
    ) -> None:
        """Start to connect. Raises OSError if that fails at once.

        A buffer size of -1 keeps the system's default. `wrap` may replace the socket before it is connected, as
        `SSLContext.wrap_socket` does.
        """
        # With the proxy, if there is one; None when the tunnel to the broker is open.
        self._handshake: TunnelHandshake | None = address.tunnel.begin() if address.tunnel else None
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

    @property
    def pending(self) -> bool:
        """Returns False: all bytes that have arrived are in the socket."""
        return False

    @property
    def channel(self) -> TlsChannel | None:
        """Returns None: the bytes are not encrypted."""
        return None

    @property
    def encryption(self) -> str:
        """Returns nothing: the bytes are not encrypted."""
        return ""

    def fileno(self) -> int:
        """Returns the socket's descriptor."""
        return self._sock.fileno()

    def finish_connect(self) -> bool:
        """Returns True if the socket is connected to the broker. A TCP socket that has become writable is, or to the
        proxy, which must then open a tunnel. Raises OSError if the attempt failed, and AuthenticationError if the proxy
        refuses the client."""
        code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        if self._handshake is not None and self._handshake.proceed(self._sock):
            self._handshake = None
        return self._handshake is None

    def wants_write(self) -> bool:
        """Returns True while the socket connects, because it becomes writable when the attempt ends. Then returns what
        the handshake with the proxy waits for."""
        return self._handshake is None or self._handshake.sends

    def set_low_water(self, count: int) -> None:
        """Set SO_RCVLOWAT. Only Linux also reports a socket whose buffer is full."""
        if sys.platform == "linux":
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def close(self) -> None:
        """Close the descriptor. The TCP connection ends once no other process, such as a fork's parent, has it open."""
        self._sock.close()

    def __repr__(self) -> str:
        return f"<TcpTransport fd={self._sock.fileno()}>"


def buffer_sizes(config: ConsumerConfig) -> tuple[int, int]:
    """Returns the sizes (bytes) of the send and receive buffers; -1 means the system's default.

    The receive buffer has the system's default unless the user has set a size, because a fixed size turns off the
    system's tuning. Java's 64 KiB costs a quarter of the throughput: 1,030 ns per 1 KB record over loopback, in place
    of 735 ns.
    """
    receive_buffer_bytes = config.receive_buffer_bytes if "receive_buffer_bytes" in config.explicit else -1
    return config.send_buffer_bytes, receive_buffer_bytes


def connect_tcp(host: str, address: Address, config: ConsumerConfig) -> Transport:
    """Start to connect over plain TCP, with the configured buffer sizes. Returns the transport."""
    return TcpTransport(address, *buffer_sizes(config))
