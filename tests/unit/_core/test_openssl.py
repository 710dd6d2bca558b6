"""Reads and writes through the OpenSSL of Python's ssl, on the calling thread and in the receiver."""

from __future__ import annotations

import _ssl
import ctypes
import os
import select
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kconsumer._core import net as openssl
from kconsumer._core.net import Receiver, TlsChannel
from kconsumer.config.options import ConsumerConfig
from kconsumer.net.tls.channel import (
    CLOSED,
    DIRECT_UNUSABLE,
    WANT_READ,
    WANT_WRITE,
    DirectChannel,
    OpenSslError,
    name_of_reason,
)
from kconsumer.net.tls.errors import ALERTS, alert_hint
from support.brokers.certificates import Authority
from support.fakes.tls_peer import server_context

AUTHORITY = Authority()
CONFIG = ConsumerConfig(bootstrap_servers="k:1", security_protocol="SSL")
RECORD_BYTES = 1 << 14  # of the largest TLS record
WANT_READ_ERROR = 2  # a result of SSL_get_error


class Pair:
    """A client and a server over TLS, connected by a pair of sockets."""

    def __init__(self, folder: Path) -> None:
        near, far = socket.socketpair()
        context = ssl.create_default_context(cadata=AUTHORITY.certificate)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the certificates of tests have no key identifiers
        server = server_context(folder, AUTHORITY.issue())
        near.setblocking(False)
        openssl.expect_connection()
        self.client = context.wrap_socket(near, server_hostname="localhost", do_handshake_on_connect=False)
        adopted = openssl.adopt_connection(self.client.fileno())
        assert adopted is not None
        self.channel: TlsChannel = adopted
        self.server = server.wrap_socket(far, server_side=True, do_handshake_on_connect=False)
        serving = threading.Thread(target=self.server.do_handshake)
        serving.start()
        while True:
            try:
                self.client.do_handshake()
                break
            except ssl.SSLWantReadError:
                select.select([self.client], [], [], 10)
        serving.join()

    def read(self, count: int) -> bytes:
        """Read until `count` bytes were decrypted or the connection has ended."""
        memory, filled = bytearray(count), 0
        while filled < count:
            filled += self.channel.recv_into(memoryview(memory)[filled:], count - filled)
            if filled < count:
                if self.channel.stopped[0] != WANT_READ_ERROR:
                    break
                assert any(select.select([self.client], [], [], 10))
        return bytes(memory[:filled])


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """Yields a client and a server over TLS, and closes them."""
    made = Pair(tmp_path)
    yield made
    made.client.close()
    made.server.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Yields a receiver and closes it."""
    made = Receiver()
    yield made
    made.close()


def taken(receiver: Receiver) -> tuple[Any, bytes | None, int, int]:
    """Returns the next job that ends."""
    while (found := receiver.take()) is None:
        readable, _, _ = select.select([receiver.fileno()], [], [], 10)
        assert readable
    return found


def frame(size: int) -> bytes:
    """Returns a frame of random bytes with its size prefix."""
    return size.to_bytes(4, "big") + os.urandom(size)


def test_openssl_is_found() -> None:
    """OpenSSL can be called directly in the Pythons that the tests run on."""
    assert DIRECT_UNUSABLE is None


@pytest.mark.parametrize(
    ("path", "version", "message"),
    [
        ("'/no/such/library.so'", "ssl.OPENSSL_VERSION_NUMBER", "_ssl cannot be found"),
        ("_ctypes.__file__", "ssl.OPENSSL_VERSION_NUMBER", "SSL_read_ex cannot be found"),
        ("_ssl.__file__", "1", "the process has another OpenSSL"),
    ],
)
def test_an_openssl_that_cannot_be_used(path: str, version: str, message: str) -> None:
    """`load` returns why OpenSSL cannot be called directly, and no connection is adopted then."""
    script = (
        "import _ctypes, _ssl, socket, ssl\n"
        "from kconsumer._core import net as openssl\n"
        f"print(openssl.load({path}, {version}))\n"
        "openssl.expect_connection()\n"
        "near, far = socket.socketpair()\n"
        "made = ssl.create_default_context().wrap_socket(near, server_hostname='k', do_handshake_on_connect=False)\n"
        "print(openssl.adopt_connection(made.fileno()))\n"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    reason, adopted = found.stdout.splitlines()
    assert message in reason
    assert "None" == adopted


def test_a_connection_is_adopted_only_if_it_is_certain(pair: Pair) -> None:
    """No connection is adopted if none or two were made, if the descriptor differs, or if another thread made it."""
    context = ssl.create_default_context()
    openssl.expect_connection()
    assert openssl.adopt_connection(pair.client.fileno()) is None
    with socket.socket() as a, socket.socket() as b:
        for count in (1, 2):
            openssl.expect_connection()
            near = [context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="k") for _ in range(count)]
            assert openssl.adopt_connection(a.fileno()) is None
            assert len(near) == count
        near_socket, far_socket = socket.socketpair()
        openssl.expect_connection()
        with far_socket, context.wrap_socket(near_socket, server_hostname="k", do_handshake_on_connect=False) as made:
            assert openssl.adopt_connection(b.fileno()) is None
            found: list[TlsChannel | None] = []
            thread = threading.Thread(target=lambda: found.append(openssl.adopt_connection(made.fileno())))
            thread.start()
            thread.join()
            assert [None] == found
            assert openssl.adopt_connection(made.fileno()) is not None


def test_records_are_read_in_one_call(pair: Pair) -> None:
    """A call decrypts several records, stops at the end of the record that reaches `enough`, and reports what is
    left.
    """
    sent = os.urandom(4 * RECORD_BYTES)
    pair.server.sendall(sent)
    assert any(select.select([pair.client], [], [], 10))
    memory = memoryview(bytearray(len(sent)))
    assert 2 * RECORD_BYTES == pair.channel.recv_into(memory, RECORD_BYTES + 1)
    assert 0 == pair.channel.stopped[0]
    assert not pair.channel.pending
    assert 10 == pair.channel.recv_into(memory[2 * RECORD_BYTES :][:10], 10)
    assert pair.channel.pending
    left = memory[2 * RECORD_BYTES + 10 :]
    assert len(left) == pair.channel.recv_into(left, len(left))
    assert sent == memory
    assert 0 == pair.channel.recv_into(memory, len(memory))
    assert WANT_READ_ERROR == pair.channel.stopped[0]
    assert not pair.channel.pending


def test_sending_ends(pair: Pair) -> None:
    """Without room in the socket, nothing is sent, and without a peer, the reason is returned."""
    channel, data = DirectChannel(pair.channel), os.urandom(16_000)
    while channel.write(data)[0]:
        pass
    assert (0, WANT_WRITE) == channel.write(data)
    pair.server.close()
    count, error = channel.write(data)
    assert 0 == count
    assert isinstance(error, BrokenPipeError | ConnectionResetError)


def test_what_is_sent_arrives(pair: Pair) -> None:
    """Bytes are sent until the socket is full, and the caller sees why no more are taken."""
    channel = DirectChannel(pair.channel)
    data, taken_bytes = os.urandom(1 << 20), 0
    while True:
        count, reason = channel.write(memoryview(data)[taken_bytes:])
        if not count:
            break
        taken_bytes += count
    assert WANT_WRITE is reason
    received = bytearray()
    while len(received) < taken_bytes:
        received += pair.server.recv(1 << 16)
    assert data[:taken_bytes] == received


def test_two_frames_in_one_record(pair: Pair, receiver: Receiver) -> None:
    """A job starts with the bytes that TLS has decrypted already, although its socket is empty."""
    assert not pair.channel.ended
    first, second = frame(100), frame(200)
    pair.server.sendall(first + second)
    for sent in (first, second):
        memory = bytearray(1000)
        receiver.begin(pair.client.fileno(), memory, "tag", True, pair.channel)
        assert ("tag", sent[:4], len(sent) - 4, 0) == taken(receiver)
        assert sent[4:] == memory[: len(sent) - 4]
    assert not pair.channel.pending


@pytest.mark.parametrize("framed", [True, False])
def test_a_large_frame_is_received_without_the_caller(pair: Pair, receiver: Receiver, framed: bool) -> None:
    """The receiver decrypts a frame of many records, and leaves the bytes behind it."""
    sent = frame(3_000_000)
    memory = bytearray(4_000_000 if framed else len(sent))
    receiver.begin(pair.client.fileno(), memory, "tag", framed, pair.channel)
    pair.server.sendall(sent + b"rest")
    prefix = sent[:4] if framed else None
    expected = sent[4:] if framed else sent
    assert ("tag", prefix, len(expected), 0) == taken(receiver)
    assert expected == memory[: len(expected)]
    assert b"rest" == pair.read(4)


def test_a_caller_sends_while_the_receiver_decrypts(pair: Pair, receiver: Receiver) -> None:
    """Both directions of a connection may be used at the same time, and all bytes arrive."""
    sent, requests = frame(20_000_000), os.urandom(5_000_000)
    arrived = bytearray()

    def serve() -> None:
        at = 0
        while at < len(sent) or len(arrived) < len(requests):
            if at < len(sent):
                pair.server.sendall(sent[at : at + 400_000])
                at += 400_000
            if len(arrived) < len(requests):
                arrived.extend(pair.server.recv(1 << 17))

    thread = threading.Thread(target=serve)
    thread.start()
    memory = bytearray(len(sent))
    receiver.begin(pair.client.fileno(), memory, "tag", True, pair.channel)
    at = 0
    while at < len(requests):
        count = pair.channel.send(memoryview(requests)[at : at + 3_000])
        if not count:
            assert any(any(found) for found in select.select([], [pair.client], [], 10))
        at += count
    thread.join()
    assert ("tag", sent[:4], len(sent) - 4, 0) == taken(receiver)
    assert sent[4:] == memory[: len(sent) - 4]
    assert requests == arrived


@pytest.mark.parametrize("sent", [b"", b"\0\0", b"\0\0\0\5ab"])
@pytest.mark.parametrize("alert", [True, False])
def test_a_job_that_ends_early(pair: Pair, receiver: Receiver, sent: bytes, alert: bool) -> None:
    """If the peer closes, a job ends with what it has, and the next reads of the caller return the reason."""
    receiver.begin(pair.client.fileno(), bytearray(10), None, True, pair.channel)
    pair.server.sendall(sent)
    if alert:
        pair.server.setblocking(False)
        with pytest.raises(ssl.SSLWantReadError):
            pair.server.unwrap()
    pair.server.close()
    assert (None, sent[:4], len(sent[4:]), 0) == taken(receiver)
    assert pair.channel.pending
    assert pair.channel.ended
    channel = DirectChannel(pair.channel)
    for _ in range(2):
        assert (0, CLOSED) == channel.read(memoryview(bytearray(10)), 10)


def test_a_small_frame_behind_a_large_one(pair: Pair, receiver: Receiver) -> None:
    """A frame behind a large one stays in the socket, and is the next that is read."""
    large, small = frame(60_000), frame(20)
    pair.server.sendall(large)
    pair.server.sendall(small)
    memory = bytearray(60_000)
    receiver.begin(pair.client.fileno(), memory, None, True, pair.channel)
    assert (None, large[:4], 60_000, 0) == taken(receiver)
    assert large[4:] == memory
    assert any(select.select([pair.client], [], [], 10))
    assert not pair.channel.ended
    receiver.begin(pair.client.fileno(), memory, None, True, pair.channel)
    assert (None, small[:4], 20, 0) == taken(receiver)
    assert small[4:] == memory[:20]
    assert not pair.channel.pending


class Wire:
    """A client over TLS, and a server whose encrypted bytes the test sends itself."""

    def __init__(self, folder: Path, far: socket.socket, client: ssl.SSLSocket) -> None:
        self._incoming, self._outgoing, self._far = ssl.MemoryBIO(), ssl.MemoryBIO(), far
        context = server_context(folder, AUTHORITY.issue())
        self._server = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._handshake(client)

    def _handshake(self, client: ssl.SSLSocket) -> None:
        waiting: list[ssl.SSLSocket | ssl.SSLObject] = [client, self._server]
        while waiting:
            side = waiting.pop(0)
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                waiting.append(side)
            self._far.sendall(self._outgoing.read())
            if any(select.select([self._far], [], [], 0)):
                self._incoming.write(self._far.recv(1 << 16))

    def encrypted(self, data: bytes) -> bytes:
        """Returns the TLS records that contain these bytes."""
        at = 0
        while at < len(data):
            at += self._server.write(data[at:])
        return self._outgoing.read()


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[tuple[TlsChannel, ssl.SSLSocket, socket.socket, Wire]]:
    """Yields a channel, its socket, the socket at the other end, and what encrypts bytes for it."""
    near, far = socket.socketpair()
    context = ssl.create_default_context(cadata=AUTHORITY.certificate)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    near.setblocking(False)
    openssl.expect_connection()
    with context.wrap_socket(near, server_hostname="localhost", do_handshake_on_connect=False) as client, far:
        channel = openssl.adopt_connection(client.fileno())
        assert channel is not None
        yield channel, client, far, Wire(tmp_path, far, client)


@pytest.mark.parametrize("cut", [1, 4, 5, 6, 400, 511, 512, 513, 10_000])
def test_a_part_of_the_next_record(
    wire: tuple[TlsChannel, ssl.SSLSocket, socket.socket, Wire], receiver: Receiver, cut: int
) -> None:
    """If a part of a TLS record has arrived, the rest is read when it arrives."""
    channel, client, far, server = wire
    first, second = frame(20_000), frame(30_000)
    start, rest = server.encrypted(first), server.encrypted(second)
    memory = bytearray(30_000)
    far.sendall(start + rest[:cut])
    receiver.begin(client.fileno(), memory, None, True, channel)
    assert (None, first[:4], 20_000, 0) == taken(receiver)
    assert first[4:] == memory[:20_000]
    receiver.begin(client.fileno(), memory, None, True, channel)
    assert receiver.take() is None
    far.sendall(rest[cut:])
    assert (None, second[:4], 30_000, 0) == taken(receiver)
    assert second[4:] == memory
    assert not channel.pending


@pytest.mark.parametrize("seed", range(4))
def test_records_in_parts(
    wire: tuple[TlsChannel, ssl.SSLSocket, socket.socket, Wire], receiver: Receiver, seed: int
) -> None:
    """Bytes that arrive in parts of any size are decrypted, by the receiver and by the caller in turn."""
    channel, client, far, server = wire
    random, arrived, memory = Random(seed), bytearray(), bytearray(200_000)
    frames = [frame(random.choice((10, 50, 600, 20_000, 150_000))) for _ in range(12)]
    data = b"".join(map(server.encrypted, frames))
    sizes = (1, 3, 5, 100, 5_000, 40_000)

    def send() -> None:
        at = 0
        while at < len(data):
            size = random.choice(sizes)
            far.sendall(data[at : at + size])
            at += size

    thread = threading.Thread(target=send)
    thread.start()
    for number, each in enumerate(frames):
        size = len(each)
        if number % 3 < 2:
            receiver.begin(client.fileno(), memory, None, True, channel)
            assert (None, each[:4], size - 4, 0) == taken(receiver)
            arrived += each[:4] + memory[: size - 4]
            continue
        filled = 0
        while filled < size:
            filled += channel.recv_into(memoryview(memory)[filled:size], size - filled)
            if filled < size and not channel.pending:
                assert any(select.select([client], [], [], 10))
        arrived += memory[:size]
    thread.join()
    assert b"".join(frames) == arrived
    assert not channel.pending


def test_new_keys_in_a_large_frame(pair: Pair, receiver: Receiver) -> None:
    """A peer may change its key in the middle of a frame, and request another one of the client (TLS 1.3)."""
    sent, memory = frame(600_000), bytearray(600_000)
    # The server's SSL object is the second pointer in CPython's object of its connection.
    tls = ctypes.c_void_p.from_address(id(pair.server._sslobj) + object.__basicsize__ + ctypes.sizeof(ctypes.c_void_p))
    update = ctypes.CDLL(_ssl.__file__).SSL_key_update
    update.argtypes = [ctypes.c_void_p, ctypes.c_int]

    def serve() -> None:
        for at in range(0, len(sent), 100_000):
            pair.server.sendall(sent[at : at + 100_000])
            assert update(tls, 1)  # SSL_KEY_UPDATE_REQUESTED

    thread = threading.Thread(target=serve)
    thread.start()
    receiver.begin(pair.client.fileno(), memory, None, True, pair.channel)
    assert (None, sent[:4], 600_000, 0) == taken(receiver)
    thread.join()
    assert sent[4:] == memory
    assert 3 == pair.channel.send(b"abc")
    assert b"abc" == pair.server.recv(10)


def test_bytes_that_are_not_tls(pair: Pair, receiver: Receiver) -> None:
    """Damaged bytes end a job, and the next reads of the caller return OpenSSL's reason."""
    receiver.begin(pair.client.fileno(), bytearray(10), None, True, pair.channel)
    with socket.socket(fileno=os.dup(pair.server.fileno())) as raw:
        raw.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
    assert (None, b"", 0, 0) == taken(receiver)
    channel = DirectChannel(pair.channel)
    for _ in range(2):
        count, error = channel.read(memoryview(bytearray(10)), 10)
        assert 0 == count
        assert isinstance(error, ssl.SSLError)
        assert "DECRYPTION_FAILED_OR_BAD_RECORD_MAC" == error.reason


def test_a_socket_that_fails(tmp_path: Path) -> None:
    """The error of the socket is returned."""
    pair = Pair(tmp_path)
    with pair.client, pair.server:
        socket.socket.shutdown(pair.client, socket.SHUT_WR)  # that of SSLSocket would also free its SSL object
        _, error = DirectChannel(pair.channel).write(b"abc")
        assert isinstance(error, BrokenPipeError)


def test_a_cancelled_job_gives_the_connection_back(pair: Pair, receiver: Receiver) -> None:
    """After a job was cancelled, the caller can read."""
    job = receiver.begin(pair.client.fileno(), bytearray(10), None, True, pair.channel)
    assert job is not None
    receiver.cancel(job)
    pair.server.sendall(b"abc")
    assert b"abc" == pair.read(3)
    assert (0, WANT_READ) == DirectChannel(pair.channel).read(memoryview(bytearray(10)), 10)


def test_a_channel_outlives_its_socket(pair: Pair) -> None:
    """A channel keeps OpenSSL's object after Python has released it."""
    pair.server.sendall(b"abcdef")
    assert b"abc" == pair.read(3)
    pair.client.close()
    assert b"def" == pair.read(3)


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_names_of_alerts(alert: str) -> None:
    """OpenSSL's texts of alerts lead to the same hints as the names that Python's ssl has for them."""
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # OpenSSL loads its texts when the process makes its first context
    names = {name_of_reason(openssl.reason(20 << 23 | 1000 + number)) for number in range(256)}
    assert any(
        alert_hint(OpenSslError(name), CONFIG) == alert_hint(OpenSslError(f"ALERT_{alert}"), CONFIG) for name in names
    )


def test_no_thread_decrypts_after_the_exit(tmp_path: Path) -> None:
    """When a process exits, its receiver stops to call OpenSSL before the exit handler of OpenSSL runs.

    The child process then waits in a handler that runs after that of OpenSSL, until an alarm ends it.
    """
    script = (
        "import ctypes, signal\n"
        "libc = ctypes.CDLL(None)\n"
        "libc.__cxa_atexit(libc.pause, None, None)\n"
        "import atexit, socket, ssl, sys\n"
        "from kconsumer._core import net as openssl\n"
        "from kconsumer._core.net import Receiver\n"
        "from kconsumer.net.tls.channel import DIRECT_UNUSABLE\n"
        "near = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        "openssl.expect_connection()\n"
        "client = ssl._create_unverified_context().wrap_socket(near)\n"
        "channel = openssl.adopt_connection(client.fileno())\n"
        "receiver, memory = Receiver(), bytearray(1 << 28)\n"
        "client.setblocking(False)\n"
        "job = receiver.begin(client.fileno(), memory, None, False, channel)\n"
        "for leaked in (receiver, client):\n"
        "    ctypes.pythonapi.Py_IncRef(ctypes.py_object(leaked))\n"
        "while not receiver.filled(job):\n"
        "    pass\n"
        "signal.alarm(2)\n"
        "atexit.register(print, flush=True)\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", script, str(listener.getsockname()[1])]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
            accepted, _ = listener.accept()
            with server_context(tmp_path, AUTHORITY.issue()).wrap_socket(accepted, server_side=True) as server:
                server.sendall(b"x")
                assert process.stdout is not None
                assert process.stdout.readline()
                time.sleep(0.3)
                server.setblocking(False)
                sent, deadline = 0, time.monotonic() + 1
                while time.monotonic() < deadline and sent < 1 << 27:
                    try:
                        sent += server.send(bytes(1 << 20))
                    except ssl.SSLWantWriteError:
                        time.sleep(0.01)
                assert sent < 1 << 26  # no more than what the buffers of the sockets take
                assert process.wait(10) == -signal.SIGALRM


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="sanitizers need seconds to exit")
def test_forked_children_exit_at_once(pair: Pair, receiver: Receiver) -> None:
    """A forked child does not wait for the receiver's thread, which it does not have."""
    stopped, times, memory = threading.Event(), [], bytearray(1 << 26)

    def send() -> None:
        while not stopped.is_set():
            pair.server.sendall(bytes(1 << 20))

    thread = threading.Thread(target=send)
    thread.start()
    try:
        for _ in range(15):
            job = receiver.begin(pair.client.fileno(), memory, None, False, pair.channel)
            assert job is not None
            while receiver.filled(job) < 1 << 20:
                pass
            started = time.monotonic()
            child = os.fork()
            if not child:
                ctypes.CDLL(None).exit(0)
            os.waitpid(child, 0)
            times.append(time.monotonic() - started)
            receiver.cancel(job)
    finally:
        stopped.set()
        while thread.is_alive():
            pair.channel.recv_into(memory, len(memory))
    assert sorted(times)[11] < 0.9
