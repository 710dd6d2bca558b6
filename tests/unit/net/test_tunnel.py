"""What is sent to a proxy, and how its replies are interpreted: bytes only. Then on a socket, in parts."""

from __future__ import annotations

import socket

import pytest

from kconsumer.config.kinds import parse_proxy
from kconsumer.errors import AuthenticationError
from kconsumer.net.tunnel import MAX_HEAD_BYTES, Tunnel, TunnelHandshake

SOCKS, SOCKS_LOGIN = "socks5://p:1080", "socks5://me:s%65cret@p:1080"
HTTP, HTTP_LOGIN = "http://p:3128", "http://me:secret@p:3128"
NAME_SENT = b"\5\1\0\3\5kafka\x23\x84"


def tunnel(url: str, host: str = "kafka", port: int = 9092) -> Tunnel:
    return Tunnel(parse_proxy("socks_proxy" if url.startswith("socks") else "http_proxy", url), host, port)


class Link:
    """A handshake on one end of a pair of sockets; the test is the proxy on the other."""

    def __init__(self, handshake: TunnelHandshake) -> None:
        self.handshake = handshake
        self.client, self.proxy = socket.socketpair()
        self.client.setblocking(False)
        self.proxy.setblocking(False)

    def sent(self) -> bytes:
        try:
            return self.proxy.recv(65_536)
        except BlockingIOError:
            return b""

    def reply(self, data: bytes) -> bool:
        """Send bytes one at a time. Returns whether the tunnel is open after the last one, and not before."""
        opened = False
        for byte in data:
            assert not opened
            assert not self.handshake.sends
            self.proxy.send(bytes([byte]))
            opened = self.handshake.proceed(self.client)
        return opened


def converse(url: str, *replies: bytes, host: str = "kafka") -> tuple[list[bytes], bool]:
    """Returns what was sent before and after each reply, and whether the tunnel is open at the end."""
    link = Link(tunnel(url, host).begin())
    with link.client, link.proxy:
        assert link.handshake.sends
        assert not link.handshake.proceed(link.client)
        sent, opened = [link.sent()], False
        for reply in replies:
            opened = link.reply(reply)
            sent.append(link.sent())
        if opened:  # what follows belongs to the broker
            link.proxy.send(b"x")
            assert b"x" == link.client.recv(10)
        return [data for data in sent if data], opened


@pytest.mark.parametrize(
    "tail", [b"\1" + bytes(6), b"\4" + bytes(18), b"\3\3abc\0\0", b"\3\0\0\0"], ids=["IPv4", "IPv6", "name", "empty"]
)
def test_socks_opens(tail: bytes) -> None:
    """The name of the broker is sent. The reply ends at its last byte, with each type of address."""
    assert ([b"\5\1\0", NAME_SENT], True) == converse(SOCKS, b"\5\0", b"\5\0\0" + tail)


def test_socks_with_a_login() -> None:
    """User and password are sent if the proxy requires them, without percent-encoding."""
    sent = [b"\5\2\0\2", b"\1\2me\6secret", NAME_SENT]
    assert (sent, True) == converse(SOCKS_LOGIN, b"\5\2", b"\1\0", b"\5\0\0\1" + bytes(6))
    assert ([sent[0], sent[2]], True) == converse(SOCKS_LOGIN, b"\5\0", b"\5\0\0\1" + bytes(6))


@pytest.mark.parametrize(
    ("host", "form"),
    [
        ("10.0.0.1", b"\1\x0a\0\0\1"),
        ("::1", b"\4" + bytes(15) + b"\1"),
        ("bücher.example", b"\3\x15xn--bcher-kva.example"),
    ],
)
def test_forms_of_hosts(host: str, form: bytes) -> None:
    """Numeric addresses are sent as such, and names in ASCII."""
    sent, _ = converse(SOCKS, b"\5\0", host=host)
    assert b"\5\1\0" + form + b"\x23\x84" == sent[1]


@pytest.mark.parametrize("status", [b"HTTP/1.1 200 OK", b"HTTP/1.0 200", b"HTTP/1.1 204 x"])
def test_http_opens(status: bytes) -> None:
    """Any successful status opens the tunnel, behind the empty line that ends the head."""
    request = b"CONNECT kafka:9092 HTTP/1.1\r\nHost: kafka:9092\r\n\r\n"
    assert ([request], True) == converse(HTTP, status + b"\r\nVia: x\r\n\r\n")
    assert ([request], True) == converse(HTTP, status + b"\n\n")


def test_http_with_a_login() -> None:
    """The request has the header of basic authentication, and brackets around an IPv6 address."""
    sent, _ = converse(HTTP_LOGIN, host="::1")
    head = b"CONNECT [::1]:9092 HTTP/1.1\r\nHost: [::1]:9092\r\nProxy-Authorization: Basic bWU6c2VjcmV0\r\n\r\n"
    assert [head] == sent


REFUSED = "the proxy p:1080 (socks_proxy) has not connected to kafka:9092: "
HTTP_REFUSED = "the proxy p:3128 (http_proxy) has not connected to kafka:9092: "


@pytest.mark.parametrize(
    ("url", "replies", "text"),
    [
        (SOCKS, (b"\5\0", b"\5\5\0\1"), REFUSED + "connection refused (SOCKS reply 5)"),
        (SOCKS, (b"\5\0", b"\5\4\0\1"), REFUSED + "host unreachable (SOCKS reply 4)"),
        (SOCKS, (b"\5\0", b"\5\x63\0\1"), REFUSED + "unknown reason (SOCKS reply 99)"),
        (SOCKS, (b"HT",), REFUSED + "it is not a SOCKS5 proxy; check the address in socks_proxy"),
        (SOCKS, (b"\5\1",), REFUSED + "it requires the SOCKS method 1, which is not supported"),
        (HTTP, (b"HTTP/1.1 503 Not\xff now\r\n",), HTTP_REFUSED + "HTTP/1.1 503 Not? now"),
        (HTTP, (b"\0\0\0\1SSH-2.0 x",), HTTP_REFUSED + "it is not an HTTP proxy; check the address in http_proxy"),
        (HTTP, (b"HTTP/1.1 200".ljust(MAX_HEAD_BYTES, b"x"),), HTTP_REFUSED + "its response has more than 16384 bytes"),
    ],
)
def test_refusals(url: str, replies: tuple[bytes, ...], text: str) -> None:
    """A proxy that does not connect fails the attempt, with the meaning of its reply."""
    with pytest.raises(ConnectionError) as caught:
        converse(url, *replies)
    assert text == str(caught.value)


NEEDS = "needs a user and a password"
NOT_ACCEPTED = "does not accept the user and password"


@pytest.mark.parametrize(
    ("url", "replies", "text"),
    [
        (SOCKS, (b"\5\xff",), f"p:1080 (socks_proxy) {NEEDS}: SOCKS method 255; set socks_proxy to socks5"),
        (SOCKS_LOGIN, (b"\5\2", b"\1\1"), f"p:1080 (socks_proxy) {NOT_ACCEPTED}: SOCKS login status 1"),
        (HTTP, (b"HTTP/1.1 407 No\r\n",), f"p:3128 (http_proxy) {NEEDS}: HTTP/1.1 407 No; set http_proxy to http"),
        (HTTP_LOGIN, (b"HTTP/1.1 407 No\r\n",), f"p:3128 (http_proxy) {NOT_ACCEPTED}: HTTP/1.1 407 No"),
    ],
)
def test_refused_logins(url: str, replies: tuple[bytes, ...], text: str) -> None:
    """A proxy that refuses the login is an AuthenticationError, without the password."""
    with pytest.raises(AuthenticationError) as caught:
        converse(url, *replies)
    assert f"the proxy {text}" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", [SOCKS, HTTP])
@pytest.mark.parametrize("host", ["a b", "a\r\nX: y", "", "x" * 256, "a\0"])
def test_hosts_that_no_name_server_has(url: str, host: str) -> None:
    """A host that a broker advertises cannot add headers to a request."""
    with pytest.raises(OSError, match="cannot be"):
        tunnel(url, host).begin()
    with pytest.raises(OSError, match="cannot be"):
        tunnel(url, port=70_000).begin()


@pytest.mark.parametrize("url", [SOCKS, HTTP])
def test_a_proxy_that_disconnects(url: str) -> None:
    """The end of the connection before the tunnel is open fails the attempt."""
    link = Link(tunnel(url).begin())
    with link.client:
        link.handshake.proceed(link.client)
        link.proxy.close()
        with pytest.raises(ConnectionError, match=r"closed the connection|reset"):
            link.handshake.proceed(link.client)


@pytest.mark.parametrize("url", [SOCKS_LOGIN, HTTP_LOGIN])
def test_reprs_have_no_password(url: str) -> None:
    """The repr of a tunnel names the proxy and not its password."""
    assert "secret" not in repr(tunnel(url))
    assert "the proxy p:" in repr(tunnel(url))
