"""TLS connections of NetworkClient over loopback sockets, with a scripted broker or another kind of server at the other
end.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kconsumer.config.options import ConsumerConfig
from kconsumer.errors import AuthenticationError, BrokerConnectionError
from kconsumer.net.tls.channel import PythonChannel
from kconsumer.net.tls.transport import MAX_READ_BYTES, TlsConnector
from kconsumer.net.transport import Address
from kconsumer.schema.fetch import FETCH
from kconsumer.schema.metadata import API_VERSIONS, METADATA, MetadataResponseBroker
from kconsumer.types import Node
from support.brokers.certificates import DAY, Authority
from support.fakes.scripted_broker import ScriptedBroker, api_versions, read_request, response_bytes, unused_port
from support.fakes.tls_peer import send_close_notify, server_context, serving
from support.harnesses.client_driver import ClientDriver

# How OpenSSL calls a record that it cannot decrypt; newer versions end their list of errors with the second text.
BAD_RECORD = "decryption failed or bad record mac|record layer failure"
AUTHORITY, STRANGER, NAMESAKE = Authority(), Authority("a stranger"), Authority()


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[Callable[..., ClientDriver]]:
    """Returns a function that makes clients, which trust AUTHORITY, and closes them."""
    made: list[ClientDriver] = []

    def make(port: int, **options: Any) -> ClientDriver:
        given = {"security_protocol": "SSL", "ssl_cafile": AUTHORITY.write(tmp_path / "ca.pem"), **options}
        made.append(ClientDriver(port, **{name: value for name, value in given.items() if value is not None}))
        return made[-1]

    yield make
    for driver in made:
        driver.client.close()


@pytest.fixture(params=["through OpenSSL", "through Python's ssl"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs each test with both ways to read and write after the handshake. Returns the one in use."""
    description: str = request.param
    if description == PythonChannel.description:
        monkeypatch.setattr("kconsumer.net.tls.transport.new_channel", PythonChannel)
    return description


@pytest.fixture
def context(tmp_path: Path) -> ssl.SSLContext:
    """Returns the context of a server with a certificate from AUTHORITY."""
    return server_context(tmp_path, AUTHORITY.issue())


def test_large_responses_behind_each_other(drivers: Any, context: ssl.SSLContext) -> None:
    """Bytes that OpenSSL has decrypted and not returned, because a frame ended within a TLS record, are read without
    waiting for the selector, which would not report them.
    """
    payloads = [os.urandom(100_000), os.urandom(300_000)]
    held: list[bytes] = []

    def held_response(request: Any) -> bytes:
        message = fetched(payloads[len(held)])
        held.append(response_bytes(FETCH, request.version, request.correlation_id, message))
        return b"".join(held) if len(held) == len(payloads) else b""

    with ScriptedBroker(tls=context) as broker:
        broker.on(FETCH, held_response)
        driver = drivers(broker.port)
        driver.connect()
        sent = [driver.send(FETCH), driver.send(FETCH)]
        received = driver.take(2)
        assert sent == [response.request for response in received]
        found = [bytes(response.message.responses[0].partitions[0].records) for response in received]
        assert payloads == found


def fetched(payload: bytes) -> Any:
    """Returns a Fetch response with these bytes as the records of a partition."""
    topic_class = {f.name: f for f in FETCH.response.FIELDS}["responses"].kind.element
    partition_class = {f.name: f for f in topic_class.FIELDS}["partitions"].kind.element
    return FETCH.response(responses=[topic_class(partitions=[partition_class(partition_index=0, records=payload)])])


def test_goodbye_in_the_last_record(drivers: Any, context: ssl.SSLContext) -> None:
    """A close_notify after a response ends the connection, though the socket is not reported as readable again."""
    closed = threading.Event()

    def serve(sock: socket.socket) -> None:
        with context.wrap_socket(sock, server_side=True, suppress_ragged_eofs=False) as tls:
            for api, message in ((API_VERSIONS, api_versions()), (METADATA, METADATA.response(cluster_id="c"))):
                request = read_request(tls.recv(1 << 16)[4:])
                tls.send(response_bytes(api, request.version, request.correlation_id, message))
            send_close_notify(tls)
            closed.wait(10)

    with serving(serve) as port:
        driver = drivers(port)
        driver.connect()
        driver.send()
        [response] = driver.take(1)
        assert "c" == response.message.cluster_id
        while driver.client.connection_failed("-1", driver.clock.now()) is None:
            driver.poll()
        closed.set()
        assert "it closed the connection" in str(driver.client.connection_failed("-1", driver.clock.now()))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("sent", [0, 2, 4, 1_000, 600_000])
@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("close_notify", "it closed the connection"),
        ("eof", "it closed the connection"),
        ("damage", f"TLS ended with ({BAD_RECORD})"),
    ],
)
def test_an_end_in_a_large_response(
    drivers: Any, context: ssl.SSLContext, sent: int, end: str, reason: str, way: str
) -> None:
    """A connection that ends while a large response is expected or arriving fails its request with the reason."""
    large = METADATA.response(cluster_id="c" * 32_000, brokers=[MetadataResponseBroker(host="h" * 30_000)] * 40)
    closed = threading.Event()

    def serve(sock: socket.socket) -> None:
        with context.wrap_socket(sock, server_side=True, suppress_ragged_eofs=False) as tls:
            for api, message, size in (
                (API_VERSIONS, api_versions(), None),
                (METADATA, large, None),
                (METADATA, large, sent),
            ):
                request = read_request(tls.recv(1 << 16)[4:])
                tls.sendall(response_bytes(api, request.version, request.correlation_id, message)[:size])
            if end == "close_notify":
                send_close_notify(tls)
            elif end == "eof":
                tls.shutdown(socket.SHUT_WR)
            else:
                with socket.socket(fileno=os.dup(tls.fileno())) as raw:
                    raw.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
            closed.wait(20)

    with serving(serve) as port:
        driver = drivers(port)
        driver.connect()
        driver.send()
        [response] = driver.take(1)
        assert large == response.message
        driver.send()
        [response] = driver.take(1)
        closed.set()
        assert re.search(reason, str(response.error))


@pytest.mark.parametrize(
    ("certificate", "host", "options", "reason"),
    [
        ({"begins": -3 * DAY, "ends": -DAY}, "127.0.0.1", {}, "certificate has expired; renew it"),
        ({"begins": DAY, "ends": 2 * DAY}, "127.0.0.1", {}, "is not valid yet; is a clock wrong"),
        ({"hosts": ("kafka.example",)}, "127.0.0.1", {}, "is not for the host '127.0.0.1'; use a name that it has"),
        ({"hosts": ("kafka.example",)}, "localhost", {}, "is not for the host 'localhost'; use a name that it has"),
        ({}, "127.0.0.1", {"ssl_cafile": None}, "vouches for the broker's.*; set ssl_cafile to the certificate"),
        ({}, "127.0.0.1", {"ssl_cafile": STRANGER}, "vouches for the broker's; is the cluster's CA in ssl_cafile="),
        ({}, "127.0.0.1", {"ssl_cafile": NAMESAKE}, "vouches for the broker's; is the cluster's CA in ssl_cafile="),
        ({"names_key": False}, "127.0.0.1", {"ssl_cafile": NAMESAKE}, r"issuer's name, and another key\); is the clus"),
    ],
)
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_certificates_that_are_refused(
    drivers: Any,
    tmp_path: Path,
    certificate: dict[str, Any],
    host: str,
    options: dict[str, Any],
    reason: str,
    version: str,
) -> None:
    """Each kind of rejected certificate has its error, which is raised at the first attempt and followed by a
    backoff.
    """
    if options.get("ssl_cafile"):
        options = {"ssl_cafile": options["ssl_cafile"].write(tmp_path / "others.pem")}
    with ScriptedBroker(tls=server_context(tmp_path, AUTHORITY.issue(**certificate))) as broker:
        driver = drivers(broker.port, host=host, ssl_protocol=version, **options)
        with pytest.raises(AuthenticationError, match=rf"^TLS with {host}:{broker.port} \S+ failed: .*{reason}"):
            driver.connect()
        assert driver.client.delay_ms("-1", driver.began) > 0
        error = driver.client.authentication_error(driver.began)
        assert (0, "") == (error.code, error.name)


def test_host_names_are_not_checked_if_one_says_so(drivers: Any, tmp_path: Path) -> None:
    """Python's or Java's option turns off the check of the host name, but not of the certificate chain."""
    with ScriptedBroker(tls=server_context(tmp_path, AUTHORITY.issue(hosts=("kafka.example",)))) as broker:
        for options in ({"ssl_check_hostname": False}, {"ssl_endpoint_identification_algorithm": ""}):
            drivers(broker.port, **options).connect()
            stranger = drivers(broker.port, ssl_cafile=STRANGER.write(tmp_path / "stranger.pem"), **options)
            with pytest.raises(AuthenticationError, match="no trusted certificate"):
                stranger.connect()


@pytest.mark.parametrize(
    ("issuer", "ends", "reason"),
    [
        (None, DAY, "the broker asks for a client certificate"),
        (STRANGER, DAY, r"accept the client's certificate \(ssl_certfile='.*client.pem'\): the broker's truststore"),
        (AUTHORITY, -DAY, r"accept the client's certificate \(ssl_certfile='.*client.pem'\): it has expired; renew"),
    ],
)
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_clients_that_are_refused(
    drivers: Any, tmp_path: Path, issuer: Authority | None, ends: timedelta, reason: str, version: str
) -> None:
    """In TLS 1.3 the broker rejects the client after the client's handshake is complete and it has sent its first
    request.
    """
    options = (
        {"ssl_certfile": issuer.issue(begins=-3 * DAY, ends=ends).write(tmp_path / "client.pem")} if issuer else {}
    )
    with ScriptedBroker(tls=server_context(tmp_path, AUTHORITY.issue(), AUTHORITY)) as broker:
        driver = drivers(broker.port, ssl_protocol=version, **options)
        with pytest.raises(AuthenticationError, match=reason):
            driver.connect()
        assert driver.client.delay_ms("-1", driver.began) > 0


def test_no_version_in_common(drivers: Any, tmp_path: Path) -> None:
    """The error names the options that select our TLS versions."""
    context = server_context(tmp_path, AUTHORITY.issue(), maximum_version=ssl.TLSVersion.TLSv1_2)
    with ScriptedBroker(tls=context) as broker:
        driver = drivers(broker.port, ssl_enabled_protocols="TLSv1.3")
        with pytest.raises(AuthenticationError, match="none of the TLS versions that ssl_enabled_protocols"):
            driver.connect()


@pytest.mark.parametrize(
    "raw", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x00\x00\x0a\x00\x00\x00\x00\x00\x23", b"SSH-2"]
)
def test_what_does_not_speak_tls(drivers: Any, raw: bytes) -> None:
    """With a server that does not speak TLS the error says so at once, whatever the server sends."""
    with ScriptedBroker(raw=raw) as broker, pytest.raises(AuthenticationError, match="does not speak TLS"):
        drivers(broker.port).connect()


def close(sock: socket.socket) -> bytes:
    """Close the connection in order, as a proxy without a broker does. Returns the first bytes."""
    return sock.recv(1 << 16)


def close_at_once(sock: socket.socket) -> bytes:
    """Close at once, as the port mapping of a container without a listener does: unread bytes cause a reset."""
    return b""


def reset(sock: socket.socket) -> bytes:
    """Reset the connection, as some load balancers do."""
    first = sock.recv(1 << 16)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return first


@pytest.mark.parametrize("end", [close, close_at_once, reset])
def test_a_listener_that_is_not_ready_is_retried(
    drivers: Any, context: ssl.SSLContext, end: Callable[[socket.socket], bytes]
) -> None:
    """A listener accepts and closes connections, as a load balancer or a starting container does. Each is a failed
    attempt, until a broker listens there.
    """
    with serving(end) as port:
        driver = drivers(port, reconnect_backoff_max_ms=50)
        errors = [driver.attempt() for _ in range(10)]
    assert {BrokerConnectionError} == {type(error) for error in errors}
    assert "closed the connection when TLS was offered (a broker that starts does so" in str(errors[0])
    assert "does not respond without TLS either" in str(errors[2])
    with ScriptedBroker(port=port, tls=context):
        while driver.attempt() is not None:
            pass


def test_how_often_a_listener_is_probed(drivers: Any) -> None:
    """Of the attempts at a listener that closes, the third is a probe without TLS, and then every fifth."""
    firsts: list[bytes] = []
    with serving(lambda sock: firsts.append(close(sock))) as port:
        driver = drivers(port, reconnect_backoff_max_ms=50)
        for _ in range(14):
            driver.attempt()
    assert "ttPttttPttttPt" == "".join("t" if first.startswith(b"\x16\x03") else "P" for first in firsts)


def test_a_listener_without_tls_is_found_by_a_probe(drivers: Any, context: ssl.SSLContext) -> None:
    """A listener without TLS closes when TLS is offered and responds to ApiVersions without it; each attempt raises
    AuthenticationError. The probe sends no client name. When the listener has TLS, the client connects.
    """
    asked = []

    def probed(sock: socket.socket) -> None:
        first = close(sock)
        if not first.startswith(b"\x16\x03"):
            request = read_request(first[4:])
            asked.append((request.api, request.version, request.client_id))
            sock.sendall(response_bytes(API_VERSIONS, 0, request.correlation_id, api_versions()))

    with serving(probed) as port:
        driver = drivers(port, client_id="secret name")
        errors = [driver.attempt() for _ in range(4)]
    assert 2 * [BrokerConnectionError] + 2 * [AuthenticationError] == [type(error) for error in errors]
    assert "responds without TLS; this is a PLAINTEXT or SASL_PLAINTEXT listener" in str(errors[2])
    assert "security_protocol is SSL; check security_protocol and the port" in str(errors[2])
    assert [(API_VERSIONS, 0, "")] * 2 == asked
    with ScriptedBroker(port=port, tls=context):
        while driver.attempt() is not None:
            pass


@pytest.mark.parametrize("response", [b"\x15\x03\x03\x00\x02\x02\x0a", b"HTTP/1.1 400 ", b"\0\0\0\2ab", b""])
def test_a_probe_that_proves_nothing(drivers: Any, response: bytes) -> None:
    """If the probe gets an alert, or a response that is not Kafka's, the listener is not reported as one
    without TLS.
    """
    with serving(lambda sock: close(sock).startswith(b"\x16\x03") or sock.sendall(response)) as port:
        driver = drivers(port, reconnect_backoff_max_ms=50)
        assert {BrokerConnectionError} == {type(driver.attempt()) for _ in range(4)}


def test_a_disconnect_is_no_missing_tls_where_tls_worked(drivers: Any, context: ssl.SSLContext) -> None:
    """A broker that restarts after TLS worked is not reported as one without TLS."""
    port = unused_port()
    driver = drivers(port)
    with ScriptedBroker(port=port, tls=context):
        driver.connect()
    while driver.client.connection_failed("-1", driver.clock.now()) is None:
        driver.poll()
    with socket.create_server(("127.0.0.1", port)) as listener:
        for _ in range(3):
            listener.settimeout(10)
            now = driver.clock.now()
            while not driver.client.ready("-1", now) and driver.client.delay_ms("-1", now) != float("inf"):
                driver.poll(driver.client.delay_ms("-1", now))
                now = driver.clock.now()
            driver.poll(50)
            accepted, _ = listener.accept()
            accepted.close()
            assert isinstance(driver.attempt(), BrokerConnectionError)
    with ScriptedBroker(port=port, tls=context):
        while driver.attempt() is not None:
            pass


def test_a_handshake_that_stalls(drivers: Any) -> None:
    """A stalled handshake counts as connecting and ends by the connection setup timeout."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        driver = drivers(silent.getsockname()[1], socket_connection_setup_timeout_ms=50)
        error = driver.attempt()
        assert isinstance(error, BrokerConnectionError)
        assert "no connection within" in str(error)


def test_renewed_certificates_are_used_by_the_next_connection(drivers: Any, tmp_path: Path) -> None:
    """Changed certificate files are read again. A file that is only partly written is read by a later connection."""
    own = tmp_path / "client.pem"
    STRANGER.issue().write(own)
    with ScriptedBroker(tls=server_context(tmp_path, AUTHORITY.issue(), AUTHORITY)) as broker:
        driver = drivers(broker.port, ssl_certfile=str(own))
        assert isinstance(driver.attempt(), AuthenticationError)
        own.write_text("-----BEGIN CERTIFICATE-----")
        assert isinstance(driver.attempt(), AuthenticationError)
        AUTHORITY.issue().write(own)
        driver.connect()


def test_a_certificate_for_the_canonical_name(drivers: Any, tmp_path: Path) -> None:
    """With client_dns_lookup a bootstrap server given by an alias or an address is verified by its canonical name. A
    broker from metadata is verified by its name in the metadata.
    """
    name = socket.getnameinfo(("127.0.0.1", 0), 0)[0]
    assert "127.0.0.1" != name, "this machine has no name for its loopback address (/etc/hosts)"
    with ScriptedBroker(tls=server_context(tmp_path, AUTHORITY.issue(hosts=(name,)))) as broker:
        with pytest.raises(AuthenticationError, match=r"not for the host '127\.0\.0\.1'"):
            drivers(broker.port).connect()
        driver = drivers(broker.port, client_dns_lookup="resolve_canonical_bootstrap_servers_only")
        driver.connect()
        driver.client.set_nodes([Node(1, "127.0.0.1", broker.port)])
        assert isinstance(driver.attempt("1"), AuthenticationError)


def test_garbage_after_the_handshake(drivers: Any, context: ssl.SSLContext) -> None:
    """Bytes that are not encrypted with the connection's keys end the connection and have no other effect."""

    def serve(sock: socket.socket) -> None:
        with socket.socket(fileno=os.dup(sock.fileno())) as below, context.wrap_socket(sock, server_side=True) as tls:
            tls.recv(1 << 16)
            below.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
            tls.recv(1)

    def serve_quietly(sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            serve(sock)

    with serving(serve_quietly) as port:
        error = drivers(port).attempt()
        assert isinstance(error, BrokerConnectionError)
        assert re.search(f"TLS ended with ({BAD_RECORD})", str(error))


def test_a_call_takes_only_so_much(tmp_path: Path, context: ssl.SSLContext) -> None:
    """If a broker sends as fast as the client decrypts, a call still ends; the socket is reported as readable again for
    the rest. close() sends nothing, not even close_notify.
    """
    ended: list[bytes] = []

    def serve(sock: socket.socket) -> None:
        with context.wrap_socket(sock, server_side=True, suppress_ragged_eofs=False) as tls:
            tls.sendall(bytes(3 * MAX_READ_BYTES))
            with pytest.raises(ssl.SSLEOFError):
                ended.append(tls.recv(1))
            ended.append(b"")

    with serving(serve) as port:
        config = ConsumerConfig(
            bootstrap_servers=f"127.0.0.1:{port}",
            security_protocol="SSL",
            ssl_cafile=AUTHORITY.write(tmp_path / "ca.pem"),
        )
        address = Address(socket.AF_INET, ("127.0.0.1", port))
        transport = TlsConnector(config)("127.0.0.1", address, config)
        while not transport.finish_connect():
            ready = ([], [transport], []) if transport.wants_write() else ([transport], [], [])
            assert any(select.select(*ready, 10))
        view, taken = memoryview(bytearray(4 * MAX_READ_BYTES)), []
        while sum(taken) < 3 * MAX_READ_BYTES:
            assert not transport.pending
            assert any(select.select([transport], [], [], 10))
            taken.append(max(0, transport.recv_into(view)))
        assert max(taken) < MAX_READ_BYTES + (1 << 14)
        transport.close()
    assert [b""] == ended


@pytest.mark.parametrize("protocol", ["SSL", "PLAINTEXT"])
def test_a_response_that_arrives_while_the_caller_is_away(
    drivers: Any, context: ssl.SSLContext, tmp_path: Path, protocol: str
) -> None:
    """The background receiver has only a part of the response at the timeout. If TLS goes through Python's ssl, no
    thread reads while the caller is busy. In all cases bytes have arrived, so the request does not time out.
    """
    expected = METADATA.response(cluster_id="c" * 32_000, brokers=[MetadataResponseBroker(host="h" * 30_000)] * 40)

    def serve(sock: socket.socket) -> None:
        with context.wrap_socket(sock, server_side=True) if protocol == "SSL" else sock as served:
            for api, message, pause_s in ((API_VERSIONS, api_versions(), 0.0), (METADATA, expected, 0.2)):
                request = read_request(served.recv(1 << 16)[4:])
                data = response_bytes(api, request.version, request.correlation_id, message)
                for start in range(0, len(data), 200_000):
                    served.sendall(data[start : start + 200_000])
                    time.sleep(pause_s)
            served.recv(1)

    with serving(serve) as port:
        driver = drivers(port, security_protocol=protocol, **({"ssl_cafile": None} if protocol == "PLAINTEXT" else {}))
        driver.connect()
        driver.send(timeout_ms=400)
        for _ in range(2):
            time.sleep(0.5)
            assert [] == driver.poll(0)
        [response] = driver.take(1)
        assert expected == response.message
        driver.client.close()
