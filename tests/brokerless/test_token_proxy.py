"""Tokens through an HTTP proxy: HTTPS_PROXY, HTTP_PROXY and NO_PROXY, with a token endpoint and a proxy on loopback."""

from __future__ import annotations

import base64
import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kconsumer._core.lock import Clock
from kconsumer.config.options import ConsumerConfig
from kconsumer.net.sasl.http_proxy import Proxy, proxy_for
from kconsumer.net.sasl.mechanism import MechanismError
from kconsumer.net.sasl.token_endpoint import TokenEndpointClient
from support.brokers.certificates import Authority

HOST = "localhost"
BODY = b'{"access_token": "token", "expires_in": 300}'


class Issuer(BaseHTTPRequestHandler):
    """A token endpoint."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        assert self.headers["Authorization"].startswith("Basic ")
        assert "Proxy-Authorization" not in self.headers
        _respond(self)

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        """Write nothing to stderr."""


class ProxyHandler(BaseHTTPRequestHandler):
    """A proxy for CONNECT and for POST, which records what it is asked for. It responds to POST itself."""

    seen: list[tuple[str, str, str | None]]
    login: str | None

    def _allowed(self) -> bool:
        given = self.headers.get("Proxy-Authorization")
        self.seen.append((self.command, self.path, given))
        if self.login is None or given == self.login:
            return True
        self.send_error(407)
        return False

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self._allowed():
            _respond(self)

    def do_CONNECT(self) -> None:
        if not self._allowed():
            return
        host, _, port = self.path.partition(":")
        with socket.create_connection((host, int(port))) as upstream:
            self.send_response(200)
            self.end_headers()
            self.close_connection = True
            ends = {self.connection: upstream, upstream: self.connection}
            while True:
                for readable in select.select(list(ends), [], [])[0]:
                    data = readable.recv(65536)
                    if not data:
                        return
                    ends[readable].sendall(data)

    def log_message(self, text: str, *arguments: Any) -> None:
        """Write nothing to stderr."""


def _respond(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(BODY)))
    handler.end_headers()
    handler.wfile.write(BODY)


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler], context: ssl.SSLContext | None = None) -> Iterator[int]:
    """Run a server. Yields its port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the proxies of this machine."""
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


class Case:
    """A token endpoint with TLS, and a proxy."""

    def __init__(self, issuer: int, proxy: int, cafile: Path, handler: type[ProxyHandler]) -> None:
        self.issuer, self.proxy, self.cafile, self.handler = issuer, proxy, cafile, handler

    def issue(self, scheme: str = "https", **options: Any) -> str:
        """Request a token. Returns it."""
        config = ConsumerConfig(
            bootstrap_servers="a:1",
            security_protocol="SASL_SSL",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_endpoint_url=f"{scheme}://{HOST}:{self.issuer}/token",
            sasl_oauthbearer_client_credentials_client_id="billing",
            sasl_oauthbearer_client_credentials_client_secret="secret",
            sasl_login_retry_backoff_ms=1,
            sasl_login_retry_backoff_max_ms=1,
            ssl_cafile=str(self.cafile),
            **options,
        )
        return TokenEndpointClient(config, Clock(), sleep=lambda _: None).issue()[0]


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    """A token endpoint, and a proxy that wants no login."""
    authority = Authority()
    authority.write(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("issuer", hosts=(HOST,)).write(tmp_path / "issuer.pem"))
    handler = type("Handler", (ProxyHandler,), {"seen": [], "login": None})
    with serving(Issuer, context) as issuer, serving(handler) as proxy:
        yield Case(issuer, proxy, tmp_path / "ca.pem", handler)


def test_without_a_proxy(case: Case) -> None:
    """Without variables, the endpoint is asked directly."""
    assert "token" == case.issue()
    assert [] == case.handler.seen


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy"])
def test_https_goes_through_a_tunnel(case: Case, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """The proxy sees the host and the port, and the certificate is that of the endpoint."""
    monkeypatch.setenv(variable, f"http://127.0.0.1:{case.proxy}")
    assert "token" == case.issue()
    assert [("CONNECT", f"{HOST}:{case.issuer}", None)] == case.handler.seen


def test_http_asks_the_proxy(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without TLS, the proxy receives the request with the whole address. Addresses of proxies need no scheme."""
    monkeypatch.setenv("http_proxy", f"127.0.0.1:{case.proxy}")
    assert "token" == case.issue("http")
    assert [("POST", f"http://{HOST}:{case.issuer}/token", None)] == case.handler.seen


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_logins_of_proxies(case: Case, monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    """User and password in the address are sent to the proxy, and only to it."""
    login = case.handler.login = "Basic " + base64.b64encode(b"me@a:p:w").decode()
    monkeypatch.setenv(f"{scheme}_proxy", f"http://me%40a:p%3Aw@127.0.0.1:{case.proxy}")
    assert "token" == case.issue(scheme)
    assert [login] == [given for _, _, given in case.handler.seen]


def test_a_proxy_that_refuses(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the proxy and the variable, and not the password."""
    case.handler.login = "Basic other"
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:hidden@127.0.0.1:{case.proxy}")
    with pytest.raises(MechanismError) as caught:
        case.issue()
    expected = (
        rf"cannot be reached through the proxy 127.0.0.1:{case.proxy} (HTTPS_PROXY): Tunnel connection failed: 407"
    )
    assert expected in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("hosts", [HOST, "*", f"other.example, {HOST}"])
def test_hosts_without_a_proxy(case: Case, monkeypatch: pytest.MonkeyPatch, hosts: str) -> None:
    """Hosts in NO_PROXY are asked directly."""
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{case.proxy}")
    monkeypatch.setenv("NO_PROXY", hosts)
    assert "token" == case.issue()
    assert [] == case.handler.seen


@pytest.mark.parametrize("address", ["https://proxy:1", "http://proxy:port", "http://:1", "socks5://proxy:1"])
def test_addresses_that_are_no_http_proxies(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """The error says which variable is wrong, and what it must be."""
    monkeypatch.setenv("HTTPS_PROXY", address)
    with pytest.raises(MechanismError, match="HTTPS_PROXY must be http://host:port"):
        proxy_for("https", "idp.example", None)


def test_a_proxy_without_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default port is 80. Domains in NO_PROXY contain their hosts."""
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    monkeypatch.setenv("NO_PROXY", ".internal.example")
    assert Proxy("proxy", 80, {}, "HTTPS_PROXY") == proxy_for("https", "idp.example", 443)
    assert proxy_for("https", "idp.internal.example", None) is None
    assert proxy_for("http", "idp.example", None) is None
