"""NetworkClient over real loopback sockets, with a scripted broker at the other end."""

from __future__ import annotations

import os
import select
import selectors
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kconsumer.errors import BrokerConnectionError, TimeoutError
from kconsumer.net.background_receive import BackgroundReceiver
from kconsumer.net.node import NodeConnection
from kconsumer.schema.fetch import FETCH
from kconsumer.schema.metadata import API_VERSIONS, METADATA, MetadataResponseBroker
from support.fakes.scripted_broker import CLOSE, SILENCE, ScriptedBroker, response_bytes
from support.harnesses.client_driver import ClientDriver
from support.harnesses.inside import links_of


@pytest.fixture
def drivers() -> Iterator[Any]:
    """Returns a function that makes clients and closes them."""
    made: list[ClientDriver] = []

    def make(port: int, **options: Any) -> ClientDriver:
        made.append(ClientDriver(port, **options))
        return made[-1]

    yield make
    for driver in made:
        driver.client.close()


def test_a_request_and_its_response(drivers: Any) -> None:
    """A request succeeds in all its steps: connect, negotiate versions, send, receive, close."""
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


def test_localhost_is_tried_on_every_address(drivers: Any) -> None:
    """The client tries every address of localhost, which may resolve to ::1 first, where no process listens."""
    with ScriptedBroker() as broker:
        driver = drivers(broker.port, host="localhost")
        driver.connect()


@pytest.mark.skipif(sys.platform != "linux", reason="the low-water mark is set only on Linux")
def test_a_response_in_many_parts_is_read_few_times(drivers: Any) -> None:
    """From the second part on, the selector reports the socket only when the rest of the response has arrived."""
    with ScriptedBroker(chunk=1) as broker:
        broker.on(METADATA, METADATA.response(cluster_id="c" * 5000))
        driver = drivers(broker.port)
        driver.connect()
        node = links_of(driver.client)["-1"]
        for _ in range(2):
            node.transport = counter = CountingReader(node.transport)
            driver.send()
            [response] = driver.poll()
            assert "c" * 5000 == response.message.cluster_id
            # Up to three parts of the size prefix, two of the response, and the rest.
            assert counter.reads <= 6
            node.transport = counter.transport


class CountingReader:
    """A transport that counts its reads."""

    def __init__(self, transport: Any) -> None:
        self.transport = transport
        self.reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)

    def recv_into(self, view: memoryview) -> int:
        self.reads += 1
        return self.transport.recv_into(view)


def test_a_disconnect_in_the_middle_of_a_response(drivers: Any) -> None:
    """A broker that closes the connection while the rest of a response is missing is noticed at once."""
    whole = response_bytes(API_VERSIONS, 0, 0, API_VERSIONS.response())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        driver = drivers(listener.getsockname()[1], reconnect_backoff_ms=60_000)
        assert not driver.client.ready("-1", driver.clock.now())
        while not select.select([listener], [], [], 0)[0]:
            driver.poll(1)
        peer, _ = listener.accept()
        with peer:
            for size in (6, 1, 1):
                peer.sendall(whole[:size])
                whole = whole[size:]
                driver.poll(5)
        began = driver.clock.now()
        while driver.client.connection_failed("-1", driver.clock.now()) is None:
            driver.poll()
        assert driver.clock.now() - began < 5_000


def test_large_responses_are_received_between_polls(drivers: Any) -> None:
    """From the second large response on, the whole frame is received in the background before `poll` is called, and
    `completed` is positive. A small response in place of a large one is received as usual.
    """
    payload = os.urandom(1 << 16) * 96
    with ScriptedBroker() as broker:
        broker.on(METADATA, METADATA.response(cluster_id="small"))
        broker.on(FETCH, lambda request: _fetch_response(request, payload))
        driver = drivers(broker.port)
        driver.connect()
        for turn in range(5):
            driver.send(FETCH)
            if turn:
                _wait_until(lambda: driver.client.receiver.completed == 1)
            [response] = driver.poll()
            assert payload == bytes(response.message.responses[0].partitions[0].records)
            driver.send(METADATA)
            [response] = driver.poll()
            assert "small" == response.message.cluster_id
            assert 0 == driver.client.receiver.completed
            assert [] == driver.poll(0)


def test_the_broker_dies_in_the_middle_of_a_large_response(drivers: Any) -> None:
    """The broker sends half of a large frame and closes, with and without a large response before it. The request
    fails, and the next connection works.
    """
    payload = os.urandom(1 << 16) * 32
    with ScriptedBroker() as broker:
        broker.on(FETCH, lambda request: _fetch_response(request, payload))
        driver = drivers(broker.port, reconnect_backoff_ms=0, reconnect_backoff_max_ms=0)
        for before in (0, 1, 2):
            driver.connect()
            for _ in range(before):
                driver.send(FETCH)
                driver.poll()
            whole = response_bytes(FETCH, FETCH.max_version, before + 1, _fetch_response(None, payload))
            broker.next(FETCH, whole[: len(whole) // 2], CLOSE)
            driver.send(FETCH)
            driver.send(FETCH)
            responses = driver.poll()
            assert [BrokerConnectionError] * 2 == [type(response.error) for response in responses]
            assert "it closed the connection" in str(responses[0].error)


def test_a_large_response_that_does_not_end(drivers: Any) -> None:
    """The broker stops sending in the middle of a large frame. The request times out, and the buffer is not written any
    more when the connection is closed.
    """
    payload = os.urandom(1 << 16) * 32
    with ScriptedBroker() as broker:
        whole = response_bytes(FETCH, FETCH.max_version, 1, _fetch_response(None, payload))
        broker.next(FETCH, whole[: len(whole) // 2], SILENCE)
        driver = drivers(broker.port)
        driver.connect()
        driver.send(FETCH, timeout_ms=300)
        [response] = driver.poll()
        assert isinstance(response.error, TimeoutError)
        assert 0 == driver.client.receiver.completed


def test_closing_while_a_large_response_arrives() -> None:
    """Closing in the middle of a large frame ends the thread and closes the descriptors."""
    threads, descriptors = _threads(), len(os.listdir("/proc/self/fd"))
    payload = os.urandom(1 << 16) * 32
    for _ in range(5):
        with ScriptedBroker() as broker:
            whole = response_bytes(FETCH, FETCH.max_version, 1, _fetch_response(None, payload))
            broker.next(FETCH, whole[: len(whole) // 2], SILENCE)
            driver = ClientDriver(broker.port)
            driver.connect()
            driver.send(FETCH)
            driver.poll(50)
            assert threads < _threads()
            driver.client.close()
    _wait_until(lambda: threads >= _threads())
    assert descriptors >= len(os.listdir("/proc/self/fd"))


def _threads() -> int:
    """Returns the number of threads of this process, as the system counts them."""
    return len(os.listdir("/proc/self/task"))


def _wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def _fetch_response(request: Any, payload: bytes) -> Any:
    [topics] = [f for f in FETCH.response.FIELDS if f.name == "responses"]
    topic_class = topics.kind.element
    [partitions] = [f for f in topic_class.FIELDS if f.name == "partitions"]
    partition = partitions.kind.element(partition_index=0, records=payload)
    return FETCH.response(responses=[topic_class(partitions=[partition])])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking with threads is what is tested
def test_a_forked_child_does_not_disturb_its_parent(drivers: Any) -> None:
    """A forked child calls abandon(); the parent's connection and its selector continue to work."""
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
    """All descriptors are closed after opening, failing, losing and closing connections."""
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with ScriptedBroker() as broker:
            driver = ClientDriver(broker.port)
            driver.connect()
            broker.on(METADATA, CLOSE)
            driver.send()
            driver.poll()
        driver.poll(200)
        driver.client.ready("-1", driver.clock.now())
        driver.poll(200)
        driver.client.close()
    assert before >= len(os.listdir("/proc/self/fd"))


class InterruptedReceiver:
    """A Receiver that raises once: after `method` has done its work and before the caller has stored the result."""

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
    """After such an exception, bytes are lost or two threads would read the same socket. The connection is closed, its
    request fails, and the next one works.
    """
    with ScriptedBroker() as broker:
        broker.on(METADATA, METADATA.response(brokers=[MetadataResponseBroker(host="h" * 30_000)] * 40))
        driver = drivers(broker.port)
        driver.connect()
        background = driver.client._loop.background_receiver
        background.receiver = interrupted = InterruptedReceiver(background.receiver, method)
        driver.send()
        with pytest.raises(KeyboardInterrupt):
            [driver.poll(100) for _ in range(100)]
        assert interrupted.raised
        [response] = driver.poll()
        assert "interrupted by KeyboardInterrupt" in str(response.error)
        assert {} == background.receiver.held()
        while not driver.client.ready("-1", driver.clock.now()):
            driver.poll(50)
        driver.send()
        [response] = driver.poll()
        assert 40 == len(response.message.brokers)


class OnlyReader:
    """A transport that fails the test if it is read while the background receiver reads its socket."""

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
    """A socket is readable and writable at once, and the write starts to receive the next response in the background.
    The event loop does not read the socket, too, and the response is complete.
    """
    with ScriptedBroker() as broker:
        broker.on(METADATA, METADATA.response(brokers=[MetadataResponseBroker(host="h" * 30_000)] * 40))
        driver = drivers(broker.port)
        driver.connect()
        receiver, node = driver.client._loop.background_receiver, links_of(driver.client)["-1"]
        driver.send()
        driver.poll()  # from now on large responses are expected
        with monkeypatch.context() as without_prefetch:
            without_prefetch.setattr(receiver, "start", lambda *_, **__: False)
            driver.send()
        assert any(select.select([node.transport], [], [], 10))
        node.transport = OnlyReader(node.transport, receiver, node)
        node.serve(selectors.EVENT_READ | selectors.EVENT_WRITE, driver.clock.now())
        assert node in receiver.jobs
        [response] = driver.poll()
        assert 40 == len(response.message.brokers)
