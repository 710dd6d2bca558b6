"""Tunnels through a proxy to a broker: SOCKS5 (RFC 1928, RFC 1929) and HTTP CONNECT (RFC 9110).

Decides what is sent to the proxy, and how its replies are interpreted. The steps of a protocol are a generator, which
yields bytes to send, or how many bytes it must receive next. So they use no socket; a `TunnelHandshake` runs them on
one. The proxy resolves the broker's name, as for "socks5h" elsewhere.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Generator
from typing import NamedTuple

from kconsumer.config.kinds import Proxy, proxy_form
from kconsumer.errors import AuthenticationError
from kconsumer.net.describe import address_text

Steps = Generator[bytes | int, bytes, None]
"""Yields bytes to send, or how many bytes to receive. These are sent to it. Returns when the tunnel is open. Raises
OSError if the proxy cannot connect to the broker, and AuthenticationError if it refuses the client."""

MAX_HEAD_BYTES = 16_384  # limit of an HTTP response, which has no body after a successful CONNECT

SOCKS_REPLIES = {
    1: "general failure of the proxy",
    2: "its rules do not allow the connection",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "time to live expired",
    7: "it does not support CONNECT",
    8: "it does not support this type of address",
}
NO_LOGIN = 0xFF  # the method of a SOCKS proxy that accepts none of the client's


class Tunnel(NamedTuple):
    """What a connection to a proxy requests from it: a connection to this host and port."""

    proxy: Proxy
    host: str
    port: int

    def begin(self) -> TunnelHandshake:
        """Returns a handshake for a new connection. Raises OSError for a host that cannot be sent to a proxy."""
        if not 1 <= self.port <= 65535:
            raise OSError(f"{self.port} cannot be a port")
        return TunnelHandshake((_socks5 if self.proxy.option == "socks_proxy" else _http_connect)(self))

    def refused(self, why: str) -> ConnectionError:
        """Returns the error for a proxy that has not opened the tunnel."""
        return ConnectionError(f"{self.proxy.shown} has not connected to {address_text(self.host, self.port)}: {why}")

    def login_refused(self, why: str) -> AuthenticationError:
        """Returns the error for a proxy that refuses the client."""
        option = self.proxy.option
        hint = "needs a user and a password" if self.proxy.user is None else "does not accept the user and password"
        return AuthenticationError(f"{self.proxy.shown} {hint}: {why}; set {option} to {proxy_form(option)}")


class TunnelHandshake:
    """Runs the steps of one tunnel on a socket that does not block."""

    __slots__ = ("_received", "_step", "_steps")

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._step = next(steps)  # the bytes that are not sent yet, or how many to receive
        self._received = b""

    @property
    def sends(self) -> bool:
        """Returns whether the handshake waits until the socket is writable, and not until it is readable."""
        return isinstance(self._step, bytes)

    def proceed(self, sock: socket.socket) -> bool:
        """Send and receive until the socket would block. Returns True when the tunnel is open.

        Uses the methods of a plain socket also if `sock` belongs to TLS, which starts behind the tunnel.
        """
        try:
            while True:
                if isinstance(self._step, bytes):
                    sent = socket.socket.send(sock, self._step)
                    self._step = self._step[sent:] or self._steps.send(b"")
                else:
                    self._receive(socket.socket.recv(sock, self._step - len(self._received)))
        except BlockingIOError:
            return False
        except StopIteration:
            return True

    def _receive(self, data: bytes) -> None:
        if not data:
            raise ConnectionError("the proxy closed the connection before the tunnel was open")
        self._received += data
        if len(self._received) == self._step:
            received, self._received = self._received, b""
            self._step = self._steps.send(received)


def _ascii_name(host: str) -> bytes:
    """Returns a host name as bytes. Raises OSError if it has characters that no name has, such as line breaks, which
    would be headers in HTTP."""
    try:
        name = host.encode("ascii" if host.isascii() else "idna")
    except UnicodeError:
        name = b""
    if not re.fullmatch(rb"[!-~]{1,255}", name):
        raise OSError(f"{host!r} cannot be the name of a host")
    return name


# --- SOCKS5 ---


def _socks5(tunnel: Tunnel) -> Steps:
    proxy = tunnel.proxy
    address = _socks_address(tunnel.host)
    yield b"\5\1\0" if proxy.user is None else b"\5\2\0\2"  # the methods: no login, and user with password
    version, method = yield 2
    if version != 5:
        raise tunnel.refused("it is not a SOCKS5 proxy; check the address in socks_proxy")
    if method == 2 and proxy.user is not None:
        yield b"\1" + _sized(proxy.user.encode()) + _sized(proxy.password.encode())
        _, status = yield 2
        if status != 0:
            raise tunnel.login_refused(f"SOCKS login status {status}")
    elif method == NO_LOGIN:
        raise tunnel.login_refused("SOCKS method 255")
    elif method != 0:
        raise tunnel.refused(f"it requires the SOCKS method {method}, which is not supported")
    yield b"\5\1\0" + address + tunnel.port.to_bytes(2)
    version, code, _, kind = yield 4
    if code != 0:
        raise tunnel.refused(f"{SOCKS_REPLIES.get(code, 'unknown reason')} (SOCKS reply {code})")
    size = {1: 4, 4: 16}.get(kind) or (yield 1)[0]  # of an IPv4 address, an IPv6 address, or a name
    yield size + 2  # the address and port of the proxy's own socket


def _sized(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def _socks_address(host: str) -> bytes:
    """Returns the type and bytes of an address: numeric if the host is, else a name."""
    for kind, family in ((b"\1", socket.AF_INET), (b"\4", socket.AF_INET6)):
        try:
            return kind + socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
    return b"\3" + _sized(_ascii_name(host))


# --- HTTP CONNECT ---


def _http_connect(tunnel: Tunnel) -> Steps:
    target = address_text(_ascii_name(tunnel.host).decode(), tunnel.port)
    login = _basic_login(tunnel.proxy)
    yield f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{login}\r\n".encode()
    head = yield len(b"HTTP/1.1 200")
    if not re.fullmatch(rb"HTTP/1\.\d [1-5]\d\d", head):
        raise tunnel.refused("it is not an HTTP proxy; check the address in http_proxy")
    success = head[9:10] == b"2"
    # The bytes after the head belong to the broker's connection, so it is received byte by byte.
    while not head.endswith((b"\n\r\n", b"\n\n") if success else b"\n"):
        if len(head) >= MAX_HEAD_BYTES:
            raise tunnel.refused(f"its response has more than {MAX_HEAD_BYTES} bytes")
        head += yield 1
    if success:
        return
    status = re.sub(r"[^ -~]", "?", head.decode("latin-1").strip())
    raise tunnel.login_refused(status) if head[9:12] == b"407" else tunnel.refused(status)


def _basic_login(proxy: Proxy) -> str:
    """Returns the header with the user and the password. Empty if there is no user."""
    if proxy.user is None:
        return ""
    import base64  # imported only if it is used

    return f"Proxy-Authorization: Basic {base64.b64encode(f'{proxy.user}:{proxy.password}'.encode()).decode()}\r\n"
