"""A proxy on loopback for connections to brokers: SOCKS5 and HTTP CONNECT on one port, with or without logins."""

from __future__ import annotations

import base64
import contextlib
import select
import socket
import socketserver
import threading
from collections.abc import Mapping
from typing import NamedTuple, Self


class Asked(NamedTuple):
    """What a client has requested."""

    protocol: str
    host: str
    port: int
    user: str | None


class TunnelProxy(socketserver.ThreadingTCPServer):
    """The proxy; a context manager. It knows the names in `targets`, and refuses what it cannot connect to."""

    def __init__(
        self, targets: Mapping[tuple[str, int], tuple[str, int]] | None = None, *, login: tuple[str, str] | None = None
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Client)
        self.targets = dict(targets or {})
        self.login = login
        self.closes = 0  # how many connections it closes after their first byte
        self.asked: list[Asked] = []  # in order
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()


class _Client(socketserver.StreamRequestHandler):
    server: TunnelProxy
    wbufsize = 0
    disable_nagle_algorithm = True

    def handle(self) -> None:
        """Open a tunnel and copy bytes, until one side ends."""
        with contextlib.suppress(OSError):
            first = self.rfile.read(1)
            if self.server.closes > 0:
                self.server.closes -= 1
            elif first == b"\5":
                self._socks()
            elif first:
                self._http(first)

    def _reply(self, data: bytes) -> None:
        """Send one byte at a time, so that clients receive replies in parts."""
        for byte in data:
            self.wfile.write(bytes([byte]))

    def _socks(self) -> None:
        login, user = self.server.login, None
        methods = self.rfile.read(self.rfile.read(1)[0])
        wanted = 0 if login is None else 2
        self._reply(bytes([5, wanted if wanted in methods else 0xFF]))
        if login is not None:
            if 2 not in methods:
                return
            self.rfile.read(1)
            given = tuple(self.rfile.read(self.rfile.read(1)[0]).decode() for _ in range(2))
            self._reply(bytes([1, given != login]))
            if given != login:
                return
            user = given[0]
        kind = self.rfile.read(4)[3]
        if kind == 3:
            host = self.rfile.read(self.rfile.read(1)[0]).decode()
        else:
            host = socket.inet_ntop(
                *((socket.AF_INET, self.rfile.read(4)) if kind == 1 else (socket.AF_INET6, self.rfile.read(16)))
            )
        asked = Asked("socks5" if kind == 3 else "socks5, numeric", host, int.from_bytes(self.rfile.read(2)), user)
        tail = b"\0\1" + bytes(6) if kind == 3 else b"\0\4" + bytes(18) if kind == 4 else b"\0\3\5proxy\0\0"
        self._forward(asked, b"\5\0" + tail, b"\5\5" + tail)

    def _http(self, first: bytes) -> None:
        method, target, _ = (first + self.rfile.readline()).split()
        headers = {}
        while line := self.rfile.readline().strip():
            name, _, value = line.decode().partition(": ")
            headers[name] = value
        given = headers.get("Proxy-Authorization")
        login, user = self.server.login, None
        if login is not None:
            if given != "Basic " + base64.b64encode(":".join(login).encode()).decode():
                self._reply(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
                return
            user = login[0]
        host, _, port = target.decode().rpartition(":")
        asked = Asked(method.decode(), host.strip("[]"), int(port), user)
        self._forward(asked, b"HTTP/1.1 200 OK\r\nVia: test\r\n\r\n", b"HTTP/1.1 502 Bad Gateway\r\n\r\n")

    def _forward(self, asked: Asked, opened: bytes, refused: bytes) -> None:
        self.server.asked.append(asked)
        address = asked.host, asked.port
        try:
            upstream = socket.create_connection(self.server.targets.get(address, address))
        except OSError:
            self._reply(refused)
            return
        with upstream:
            self._reply(opened)
            ends = {self.connection: upstream, upstream: self.connection}
            while True:
                for readable in select.select(list(ends), [], [])[0]:
                    data = readable.recv(65_536)
                    if not data:
                        return
                    ends[readable].sendall(data)
