"""NetworkClient over real loopback sockets, with a scripted broker at the other end."""

from __future__ import annotations

import errno
import os
import select
import selectors
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kconsumer.clock import Clock
from kconsumer.config.options import ConsumerConfig
from kconsumer.errors import BrokerConnectionError, ProtocolError, TimeoutError
from kconsumer.net.background_receive import BackgroundReceiver
from kconsumer.net.client import ClientRequest, ClientResponse, NetworkClient
from kconsumer.net.node import NodeConnection
from kconsumer.schema import API_VERSIONS, FETCH, METADATA
from kconsumer.schema.metadata import MetadataResponseBroker
from support.fakes.scripted_broker import CLOSE, SILENCE, ScriptedBroker, response_bytes, unused_port


class Driver:
    """A client on real time."""

    def __init__(self, port: int, host: str = "127.0.0.1", **options: Any) -> None:
        self.clock = Clock()
        config = ConsumerConfig(bootstrap_servers=f"{host}:{port}", **options)
        self.client = NetworkClient(config, self.clock)

    def poll(self, timeout_ms: float = 10_000) -> list[ClientResponse]:
        return self.client.poll(timeout_ms, self.clock.now())

    def connect(self, node: str = "-1") -> None:
        """Poll until ready; raises what `failed` says."""
        deadline = self.clock.now() + 10_000
        while not self.client.ready(node, self.clock.now()):
            error = self.client.connection_failed(node, self.clock.now())
            if error is not None:
                raise error
            assert self.clock.now() < deadline
            self.poll()

    def send(self, api: Any = METADATA, timeout_ms: float = 10_000, **fields: Any) -> ClientRequest:
        request = ClientRequest("-1", api, api.request(**fields), timeout_ms)
        self.client.send(request, self.clock.now())
        return request


@pytest.fixture
def drivers() -> Iterator[Any]:
    """Makes clients and closes them."""
    made: list[Driver] = []

    def make(port: int, **options: Any) -> Driver:
        made.append(Driver(port, **options))
        return made[-1]

    yield make
    for driver in made:
        driver.client.close()


def test_a_request_and_its_answer(drivers: Any) -> None:
    """The whole way: connect, negotiate, send, receive, close."""
    with ScriptedBroker() as broker:
        broker.on(METADATA, METADATA.response(cluster_id="c"))
        driver = drivers(broker.port, client_id="tester")
        driver.connect()
        request = driver.send()
        [response] = driver.poll()
        assert request is response.request
        assert "c" == response.message.cluster_id
        assert ["ApiVersions", "Metadata"] == broker.names()
        assert "tester" == broker.requests[1].client_id
        assert 0 < response.now - response.sent_at < 10_000


def test_refused_then_up(drivers: Any) -> None:
    """Nobody listens: the error names the address. The broker starts: the client gets there by itself."""
    port = unused_port()
    driver = drivers(port)
    with pytest.raises(BrokerConnectionError, match=rf"127\.0\.0\.1:{port} cannot be reached: connection refused"):
        driver.connect()
    with ScriptedBroker(port=port) as broker:
        driver.poll(driver.client.delay_ms("-1", driver.clock.now()) + 1)
        driver.connect()
        assert ["ApiVersions"] == broker.names()


def test_localhost_is_tried_on_every_address(drivers: Any) -> None:
    """localhost may resolve to ::1 first, where nobody listens."""
    with ScriptedBroker() as broker:
        driver = drivers(broker.port, host="localhost")
        driver.connect()


def test_answers_byte_by_byte(drivers: Any) -> None:
    """A network that delivers single bytes changes nothing."""
    with ScriptedBroker(chunk=1) as broker:
        broker.on(METADATA, METADATA.response(cluster_id="c" * 200))
        driver = drivers(broker.port)
        driver.connect()
        driver.send()
        [response] = driver.poll()
        assert "c" * 200 == response.message.cluster_id


def test_a_large_answer(drivers: Any) -> None:
    """Megabytes in one frame, and the next answer after it."""
    with ScriptedBroker() as broker:
        broker.next(METADATA, METADATA.response(cluster_id="c" * 30_000))
        broker.on(METADATA, METADATA.response(cluster_id="end"))
        payload = os.urandom(1 << 16) * 96
        broker.on(
            FETCH,
            lambda request: _fetch_answer(request, payload),
        )
        driver = drivers(broker.port)
        driver.connect()
        for _ in range(2):
            driver.send(METADATA)
            driver.send(FETCH)
        responses: list[ClientResponse] = []
        while len(responses) < 4:
            responses += driver.poll()
        assert ["c" * 30_000, "end"] == [r.message.cluster_id for r in responses if r.request.api is METADATA]
        for response in responses:
            if response.request.api is FETCH:
                assert payload == bytes(response.message.responses[0].partitions[0].records)


def test_large_answers_are_received_while_nobody_polls(drivers: Any) -> None:
    """From the second large answer on the whole frame is received before `poll` is called: none of it waits in the
    broker, and `arrived` says so. A small answer that comes instead of a large one is a response as any other."""
    payload = os.urandom(1 << 16) * 96
    with ScriptedBroker() as broker:
        broker.on(METADATA, METADATA.response(cluster_id="small"))
        broker.on(FETCH, lambda request: _fetch_answer(request, payload))
        driver = drivers(broker.port)
        driver.connect()
        for turn in range(5):
            driver.send(FETCH)
            if turn:
                _wait_until(lambda: driver.client.responses_ready == 1)
            [response] = driver.poll()
            assert payload == bytes(response.message.responses[0].partitions[0].records)
            driver.send(METADATA)
            [response] = driver.poll()
            assert "small" == response.message.cluster_id
            assert 0 == driver.client.responses_ready
            assert [] == driver.poll(0)


def test_the_broker_dies_in_the_middle_of_a_large_answer(drivers: Any) -> None:
    """Half of a large frame and then the end, with and without a large one before it: the request fails, and the next
    connection works."""
    payload = os.urandom(1 << 16) * 32
    with ScriptedBroker() as broker:
        broker.on(FETCH, lambda request: _fetch_answer(request, payload))
        driver = drivers(broker.port, reconnect_backoff_ms=0, reconnect_backoff_max_ms=0)
        for before in (0, 1, 2):
            driver.connect()
            for _ in range(before):
                driver.send(FETCH)
                driver.poll()
            whole = response_bytes(FETCH, FETCH.max_version, before + 1, _fetch_answer(None, payload))
            broker.next(FETCH, whole[: len(whole) // 2], CLOSE)
            driver.send(FETCH)
            driver.send(FETCH)
            responses = driver.poll()
            assert [BrokerConnectionError] * 2 == [type(response.error) for response in responses]
            assert "it closed the connection" in str(responses[0].error)


def test_a_large_answer_that_does_not_end(drivers: Any) -> None:
    """A broker that falls silent in the middle of a large frame: the request times out, and the memory is not written
    to any more when the connection is gone."""
    payload = os.urandom(1 << 16) * 32
    with ScriptedBroker() as broker:
        whole = response_bytes(FETCH, FETCH.max_version, 1, _fetch_answer(None, payload))
        broker.next(FETCH, whole[: len(whole) // 2], SILENCE)
        driver = drivers(broker.port)
        driver.connect()
        driver.send(FETCH, timeout_ms=300)
        [response] = driver.poll()
        assert isinstance(response.error, TimeoutError)
        assert 0 == driver.client.responses_ready


def test_closing_while_a_large_answer_arrives() -> None:
    """Closing in the middle of a large frame gives back thread and descriptors."""
    threads, descriptors = _threads(), len(os.listdir("/proc/self/fd"))
    payload = os.urandom(1 << 16) * 32
    for _ in range(5):
        with ScriptedBroker() as broker:
            whole = response_bytes(FETCH, FETCH.max_version, 1, _fetch_answer(None, payload))
            broker.next(FETCH, whole[: len(whole) // 2], SILENCE)
            driver = Driver(broker.port)
            driver.connect()
            driver.send(FETCH)
            driver.poll(50)
            assert threads < _threads()
            driver.client.close()
    _wait_until(lambda: threads >= _threads())
    assert descriptors >= len(os.listdir("/proc/self/fd"))


def _threads() -> int:
    """Threads of the process as the system counts them."""
    return len(os.listdir("/proc/self/task"))


def _wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def _fetch_answer(request: Any, payload: bytes) -> Any:
    [topics] = [f for f in FETCH.response.FIELDS if f.name == "responses"]
    topic_class = topics.kind.element
    [partitions] = [f for f in topic_class.FIELDS if f.name == "partitions"]
    partition = partitions.kind.element(partition_index=0, records=payload)
    return FETCH.response(responses=[topic_class(partitions=[partition])])


def test_the_broker_dies_in_the_middle_of_an_answer(drivers: Any) -> None:
    """Half a frame and then the end: the request fails, naming broker and address."""
    whole = response_bytes(METADATA, METADATA.max_version, 1, METADATA.response(cluster_id="c" * 100))
    with ScriptedBroker() as broker:
        broker.next(METADATA, whole[:50], CLOSE)
        driver = drivers(broker.port)
        driver.connect()
        half = driver.send()
        closing = driver.send()
        responses = driver.poll()
        assert [half, closing] == [response.request for response in responses]
        for response in responses:
            assert isinstance(response.error, BrokerConnectionError)
            assert f"127.0.0.1:{broker.port} (127.0.0.1) was lost" in str(response.error)


def test_a_stopped_broker_is_noticed_and_found_again(drivers: Any) -> None:
    """A broker restart on the same port: the connection is lost, and made again after the backoff."""
    with ScriptedBroker() as broker:
        driver = drivers(broker.port)
        driver.connect()
    driver.poll()
    assert isinstance(driver.client.connection_failed("-1", driver.clock.now()), BrokerConnectionError)
    with ScriptedBroker(port=broker.port) as again:
        driver.poll(driver.client.delay_ms("-1", driver.clock.now()) + 1)
        driver.connect()
        assert 1 == again.connections


@pytest.mark.parametrize(
    ("raw", "cause"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "it speaks HTTP"),
        (b"\x7f\xff\xff\xff", "another server or a proxy"),
    ],
)
def test_another_server_at_the_address(drivers: Any, raw: bytes, cause: str) -> None:
    """HTTP or anything else is told apart from Kafka, at once and without allocating what it
    announces."""
    with ScriptedBroker(raw=raw) as broker:
        driver = drivers(broker.port)
        with pytest.raises(ProtocolError, match=rf":{broker.port} is not a Kafka broker: .*{cause}"):
            driver.connect()


def test_a_server_that_hangs_up_on_the_first_request(drivers: Any) -> None:
    """What a TLS listener does to a plaintext client, as the error says."""
    with ScriptedBroker() as broker:
        broker.on(API_VERSIONS, CLOSE)
        driver = drivers(broker.port)
        with pytest.raises(BrokerConnectionError, match=r"TLS or SASL listener.*check security_protocol"):
            driver.connect()


@pytest.mark.parametrize(("largest", "announced"), [(1 << 30, 2**31 - 1), (100_000, 100_001), (100_000, -1)])
def test_an_absurd_frame_size_later_on(drivers: Any, largest: int, announced: int) -> None:
    """A negotiated connection that announces more than one wants is ended as a protocol error of that request, and left
    alone for a while."""
    with ScriptedBroker() as broker:
        broker.on(METADATA, struct.pack(">i", announced))
        driver = drivers(broker.port, receive_message_max_bytes=largest, fetch_max_bytes=1)
        driver.connect()
        driver.send()
        [response] = driver.poll()
        assert isinstance(response.error, ProtocolError)
        limit = f"announces a frame of {announced} bytes, the limit is {largest} (receive_message_max_bytes)"
        assert limit in str(response.error)
        assert driver.client.delay_ms("-1", driver.clock.now()) > 0


def test_an_old_broker_is_asked_again_with_version_0(drivers: Any) -> None:
    """Error 35 without a range (before Kafka 2.4) leads to ApiVersions v0 on the same connection."""
    with ScriptedBroker() as broker:
        broker.next(API_VERSIONS, b"\x00\x00\x00\x0a\x00\x00\x00\x00\x00\x23\x00\x00\x00\x00")
        driver = drivers(broker.port)
        driver.connect()
        assert [API_VERSIONS.max_version, 0] == [request.version for request in broker.requests]
        assert 1 == broker.connections


def test_a_request_timeout_on_real_time(drivers: Any) -> None:
    """A silent broker: the request times out and the connection goes."""
    with ScriptedBroker() as broker:
        broker.on(METADATA, SILENCE)
        driver = drivers(broker.port)
        driver.connect()
        driver.send(timeout_ms=30)
        [response] = driver.poll()
        assert "did not respond to Metadata within 30 ms" in str(response.error)
        assert not driver.client.ready("-1", driver.clock.now())


def test_wakeup_from_another_thread(drivers: Any) -> None:
    """A poll that would block for ever returns when another thread rings."""
    with ScriptedBroker() as broker:
        driver = drivers(broker.port)
        driver.connect()
        polling = threading.Event()

        def ring() -> None:
            polling.wait()
            driver.client.wakeup()

        thread = threading.Thread(target=ring)
        thread.start()
        polling.set()
        assert [] == driver.poll(float("inf"))
        thread.join()


def test_wakeup_before_anything_was_opened(drivers: Any) -> None:
    """A ring is kept until the first poll."""
    driver = drivers(unused_port())
    driver.client.wakeup()
    assert [] == driver.poll(float("inf"))


def test_wakeup_in_a_signal_handler(drivers: Any) -> None:
    """A handler may ring; poll then returns, and does not raise."""
    driver = drivers(unused_port())
    before = signal.signal(signal.SIGALRM, lambda *_: driver.client.wakeup())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        assert [] == driver.poll(float("inf"))
    finally:
        signal.signal(signal.SIGALRM, before)


def test_many_rings_wake_once(drivers: Any) -> None:
    """Rings do not add up, and the descriptor never fills."""
    driver = drivers(unused_port())
    driver.poll(0)
    for _ in range(5_000):
        driver.client.wakeup()
    assert [] == driver.poll(float("inf"))
    start = driver.clock.now()
    driver.poll(20)
    driver.poll(20)
    assert driver.clock.now() - start >= 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking with threads is what is tested
def test_a_forked_child_does_not_disturb_its_parent(drivers: Any) -> None:
    """The child abandons; the parent's connection and its selector continue working."""
    with ScriptedBroker() as broker:
        broker.on(METADATA, METADATA.response(cluster_id="c"))
        driver = drivers(broker.port)
        driver.connect()
        driver.send()
        child = os.fork()
        if child == 0:
            driver.client.abandon()
            os._exit(0)
        assert 0 == os.waitpid(child, 0)[1]
        [response] = driver.poll()
        assert "c" == response.message.cluster_id
        driver.send()
        [response] = driver.poll()
        assert "c" == response.message.cluster_id
        assert 1 == broker.connections


def test_no_descriptor_is_leaked() -> None:
    """Opening, failing, losing and closing connections gives every descriptor back."""
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with ScriptedBroker() as broker:
            driver = Driver(broker.port)
            driver.connect()
            broker.on(METADATA, CLOSE)
            driver.send()
            driver.poll()
        driver.poll(200)
        driver.client.ready("-1", driver.clock.now())
        driver.poll(200)
        driver.client.close()
    assert before >= len(os.listdir("/proc/self/fd"))


def test_a_reset_connection(drivers: Any) -> None:
    """A peer that resets: the reason says so."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        driver = drivers(server.getsockname()[1])
        assert not driver.client.ready("-1", driver.clock.now())
        peer, _ = server.accept()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        while driver.client.connection_failed("-1", driver.clock.now()) is None:
            driver.poll()
        text = str(driver.client.connection_failed("-1", driver.clock.now()))
        assert "the connection was reset" in text or os.strerror(errno.ECONNRESET) in text


class InterruptedReceiver:
    """Does what the Receiver does, and raises once, after `method` has done it and before its result is noted."""

    def __init__(self, receiver: Any, method: str) -> None:
        self.receiver = receiver
        self.method = method
        self.raised = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.receiver, name)
        if name != self.method or self.raised:
            return found

        def run(*arguments: Any) -> Any:
            result = found(*arguments)
            if result is not None:
                self.raised = True
                raise KeyboardInterrupt
            return result

        return run


@pytest.mark.parametrize("method", ["begin", "take"])
def test_an_exception_between_the_receiver_and_what_is_noted_of_it(drivers: Any, method: str) -> None:
    """Bytes are lost, or two would read the same socket: the connection ends, its request fails, and the next one
    works."""
    with ScriptedBroker() as broker:
        broker.on(METADATA, METADATA.response(brokers=[MetadataResponseBroker(host="h" * 30_000)] * 40))
        driver = drivers(broker.port)
        driver.connect()
        beside = driver.client._loop._background_receiver
        beside.receiver = interrupted = InterruptedReceiver(beside.receiver, method)
        driver.send()
        with pytest.raises(KeyboardInterrupt):
            [driver.poll(100) for _ in range(100)]
        assert interrupted.raised
        [response] = driver.poll()
        assert "interrupted by KeyboardInterrupt" in str(response.error)
        assert {} == beside.receiver.held()
        while not driver.client.ready("-1", driver.clock.now()):
            driver.poll(50)
        driver.send()
        [response] = driver.poll()
        assert 40 == len(response.message.brokers)


class OnlyReader:
    """A transport that must not be read while the background receiver reads its socket."""

    def __init__(self, transport: Any, receiver: BackgroundReceiver, node: NodeConnection) -> None:
        self._transport = transport
        self._receiver = receiver
        self._node = node

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def recv_into(self, view: memoryview) -> int:
        assert self._node not in self._receiver.jobs
        return self._transport.recv_into(view)


def test_a_socket_has_one_reader(drivers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket is readable and writable at once, and the write starts to receive the next response in the background:
    the loop does not read the socket, too, and the response is whole."""
    with ScriptedBroker() as broker:
        broker.on(METADATA, METADATA.response(brokers=[MetadataResponseBroker(host="h" * 30_000)] * 40))
        driver = drivers(broker.port)
        driver.connect()
        loop = driver.client._loop
        receiver, node = loop._background_receiver, loop.nodes["-1"]
        driver.send()
        driver.poll()  # large responses are expected from now on
        with monkeypatch.context() as without_prefetch:
            without_prefetch.setattr(receiver, "start_prefetch", lambda _node: None)
            driver.send()
        assert any(select.select([node.transport], [], [], 10))
        node.transport = OnlyReader(node.transport, receiver, node)
        loop._serve(node, selectors.EVENT_READ | selectors.EVENT_WRITE, driver.clock.now())
        assert node in receiver.jobs
        [response] = driver.poll()
        assert 40 == len(response.message.brokers)
