"""The fast path of fetching (kconsumer._core.fast_path), with responses and sockets that the tests provide."""

from __future__ import annotations

import contextlib
import math
import random
import select
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kconsumer._core.codec import encode, encode_request
from kconsumer._core.fast_connection import FastConnection, FastPartition
from kconsumer._core.fast_path import FastPath, count_fork
from kconsumer._core.settling_lock import SettlingLock
from kconsumer._core.shared_epoll import AVAILABLE, SharedEpoll
from kconsumer._core.wire import FrameBuffer
from kconsumer.deferred_signals import SIGNALS
from kconsumer.engine.access_guard import AccessGuard
from kconsumer.engine.metrics import ConsumerMetrics
from kconsumer.errors import AuthenticationError
from kconsumer.fetching.metrics import FetchMetrics
from kconsumer.metrics.registry import Metrics
from kconsumer.net.metrics import ConnectionMetrics
from kconsumer.net.transport import WOULD_BLOCK
from kconsumer.records import ConsumerRecords
from kconsumer.schema import FETCH
from kconsumer.schema.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchEpochEndOffset,
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
)
from kconsumer.state.delivery import Delivery
from kconsumer.state.partition import FetchPosition
from kconsumer.state.subscription import SubscriptionState
from kconsumer.testing.batches import build_batch, control_batch
from kconsumer.types import TopicPartition

SESSION, EPOCH, CORRELATION = 77, 5, 1000
TOPIC_IDS = {"a": bytes(range(16)), "b": bytes(range(16, 32)), "c": bytes(range(32, 48))}
RACK = "rack-1"


def template(version: int) -> tuple[bytes, bytes]:
    """Returns the bytes of an incremental request before and after its topics."""
    data = encode_request(FETCH, version, CORRELATION, "client", request(EPOCH, []))
    tail = len(data) - len(RACK) - 3
    return data[: tail - 1], data[tail:]


def request(epoch: int, topics: list[FetchTopic], max_wait_ms: int = 500) -> FetchRequest:
    """Returns a request of the session."""
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=SESSION,
        session_epoch=epoch,
        topics=topics,
        rack_id=RACK,
    )


def requested(tp: TopicPartition, offset: int) -> Any:
    """Returns what the session requests of a partition."""
    row = FetchPartition(partition=tp.partition, current_leader_epoch=3, fetch_offset=offset, partition_max_bytes=4096)
    return SimpleNamespace(row=row, chain=SimpleNamespace(topic_partition=tp))


class Steady:
    """A fast path that is armed, with one connection whose socket returns the bytes that a test gives."""

    def __init__(
        self,
        offsets: dict[TopicPartition, int],
        version: int = 17,
        *,
        read_committed: bool = False,
        descriptor: int = 3,
        system_clock: bool = False,
        raw: socket.socket | None = None,
        epoch: int = EPOCH,
        encrypted: bool = False,
    ) -> None:
        self.version = version
        self.blocked = False
        self.raw = raw  # a socket to use instead of the bytes that the test gives
        self.offsets = offsets
        self.now = 100.0
        self.input: list[bytes | Exception | None] = []  # None: the transport has no bytes
        self.sent: list[bytes] = []
        self.room = 1 << 20
        self.selects: list[Any] = []
        head, tail = template(version)
        self.registry = Metrics()
        self.metrics = ConsumerMetrics(self.registry)
        self.network = ConnectionMetrics(self.registry)
        subscription = SubscriptionState()
        subscription.assign(list(offsets))
        self.fetches = FetchMetrics(self.registry, subscription)
        self.fetches.update_assignment()
        self.connection = FastConnection(
            cast("Any", None),
            cast("Any", "node"),
            descriptor if raw is None else raw.fileno(),
            FrameBuffer(),
            self._receive if raw is None else raw.recv_into,
            self._send if raw is None else raw.send,
            self._find,
            head,
            tail,
            SESSION,
            epoch,
            CORRELATION,
            90.0,
            cast("Any", None),
            self.network.events.sensors("1"),
            raw is not None,
            (lambda: self.blocked) if encrypted else None,
        )
        self.driver = SimpleNamespace(wakeup_requested=False)
        self.delivery = Delivery()
        self.path = FastPath(
            threading.RLock(),
            self.driver,
            lambda: self.now,
            lambda: None,
            ConsumerRecords.from_runs,
            ConsumerRecords.EMPTY,
            lambda memory, size: None,
            self.metrics.polls,
            check_crcs=True,
            read_committed=read_committed,
            batch_limit=0,
            system_clock=system_clock,
            delivery=self.delivery,
            signals=SIGNALS,
            network=self.network.events,
            fetches=self.fetches.events,
        )
        self.path.arm([self.connection], self._select, -1, 10_000.0, 1 << 20)

    def _select(self, seconds: float) -> list[tuple[Any, int]]:
        if self.selects:
            self.selects.pop()()
        if self.raw is not None and select.select([self.raw], [], [], 0)[0]:
            return [(SimpleNamespace(fd=self.raw.fileno()), selectors.EVENT_READ)]
        if not self.input:
            self.now += seconds * 1000
            return []
        return [(SimpleNamespace(fd=3), selectors.EVENT_READ)]

    def _receive(self, view: memoryview) -> int:
        if not self.input:
            raise BlockingIOError
        data = self.input.pop(0)
        if data is None:
            return WOULD_BLOCK
        if isinstance(data, Exception):
            raise data
        view[: len(data)] = data
        return len(data)

    def _send(self, data: bytes) -> int:
        taken = data[: self.room]
        if not taken:
            raise BlockingIOError
        self.sent.append(taken)
        return len(taken)

    def _find(self, topic_id: bytes, number: int) -> FastPartition | None:
        name = next((name for name, known in TOPIC_IDS.items() if known == topic_id), "")
        offset = self.offsets.get(TopicPartition(name, number))
        if offset is None:
            return None
        return FastPartition(requested(TopicPartition(name, number), offset), topic_id, FetchPosition(offset, 2))

    def respond(self, data: dict[TopicPartition, FetchPartitionData], **fields: Any) -> bytes:
        """Returns the bytes of a response with these partitions."""
        topics: dict[str, list[FetchPartitionData]] = {}
        for tp, partition in data.items():
            topics.setdefault(tp.topic, []).append(partition)
        rows = [FetchableTopicResponse(topic_id=TOPIC_IDS[name], partitions=rows) for name, rows in topics.items()]
        correlation = fields.pop("correlation_id", CORRELATION)
        message = FetchResponse(**{"session_id": SESSION, "responses": rows} | fields)
        body = correlation.to_bytes(4, "big") + b"\0" + encode(FETCH.response_plan(self.version), message)
        return len(body).to_bytes(4, "big") + body

    def poll(self, timeout_ms: float = 1000.0, max_records: int = 500) -> ConsumerRecords | None:
        """Poll without a limit of bytes."""
        return self.path.poll(timeout_ms, max_records, 1 << 40)


def partition(
    tp: TopicPartition, records: bytes | None = b"", **fields: Any
) -> dict[TopicPartition, FetchPartitionData]:
    """Returns the data of a partition, without an error."""
    values = {"high_watermark": 90, "last_stable_offset": 80, "log_start_offset": 1} | fields
    return {tp: FetchPartitionData(partition_index=tp.partition, records=records, **values)}


A0 = TopicPartition("a", 0)


@pytest.mark.parametrize("version", range(13, 19))
def test_the_next_request_is_what_the_encoder_writes(version: int) -> None:
    """The next request has the same bytes as the general path's request for the partitions that moved."""
    rng = random.Random(version)
    for _ in range(50):
        tps = [TopicPartition(name, number) for name in TOPIC_IDS for number in range(200) if rng.random() < 0.1]
        offsets = {tp: rng.randrange(1 << 40) for tp in tps}
        steady = Steady(offsets, version)
        counts = {tp: rng.randrange(3) for tp in tps}
        data: dict[TopicPartition, FetchPartitionData] = {}
        for tp, count in counts.items():
            batch = build_batch([b"x"] * count, base_offset=offsets[tp]) if count else b""
            data |= partition(tp, batch)
        steady.input = [steady.respond(data)]
        steady.poll(10.0)
        rows: dict[str, list[FetchPartition]] = {}
        for tp, count in counts.items():
            if count:
                row = requested(tp, offsets[tp] + count).row
                rows.setdefault(tp.topic, []).append(row)
        topics = [FetchTopic(topic_id=TOPIC_IDS[name], partitions=found) for name, found in rows.items()]
        expected = encode_request(FETCH, version, CORRELATION + 1, "client", request(EPOCH + 1, topics))
        assert steady.sent == [expected]


def test_records_and_positions() -> None:
    """A poll returns the records of an ordinary response, and moves the position, also over control records."""
    steady = Steady({A0: 10})
    batches = build_batch([b"x", b"y"], base_offset=10, leader_epoch=4) + control_batch("commit", 12, leader_epoch=4)
    steady.input = [steady.respond(partition(A0, batches))]
    records = steady.poll()
    assert records is not None
    assert [(record.offset, record.value) for record in records] == [(10, b"x"), (11, b"y")]
    assert {A0: 13} == {tp: found.offset for tp, found in records.next_offsets().items()}
    (moved,) = steady.path.moved
    assert (moved.offset, moved.offset_epoch, moved.offset_before, moved.epoch_before) == (13, 4, 10, 2)
    assert (moved.high_watermark, moved.last_stable_offset, moved.log_start_offset) == (90, 80, 1)
    connection = steady.connection
    assert (connection.epoch, connection.correlation_id, connection.responded_at) == (EPOCH + 1, CORRELATION + 1, 100.0)


def test_a_response_in_parts() -> None:
    """A response that arrives byte by byte is processed when it is complete."""
    steady = Steady({A0: 10})
    data = steady.respond(partition(A0, build_batch([b"x"], base_offset=10)))
    steady.input = [data[i : i + 1] for i in range(len(data))]
    records = steady.poll()
    assert records is not None
    assert [record.offset for record in records] == [10]


def test_empty_responses_end_with_the_timeout() -> None:
    """Responses without records are followed by the next request, until the timeout ends the poll."""
    steady = Steady({A0: 10})
    steady.input = [steady.respond({}), steady.respond(partition(A0), correlation_id=CORRELATION + 1)]
    records = steady.poll(50.0)
    assert records is not None
    assert len(records) == 0
    assert len(steady.sent) == 2
    assert steady.path.moved == []


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The socket of a consumer, which does not block, and that of its broker."""
    mine, peer = socket.socketpair()
    with mine, peer:
        mine.setblocking(False)
        peer.settimeout(10)
        yield mine, peer


def sent_after(steady: Steady, responses: int, epoch: int) -> bytes:
    """Returns the request without partitions that follows this number of responses."""
    return encode_request(FETCH, steady.version, CORRELATION + responses, "client", request(epoch, []))


@pytest.mark.parametrize("version", range(13, 19))
def test_empty_responses_on_a_socket(version: int, pair: tuple[socket.socket, socket.socket]) -> None:
    """The next requests have the bytes that the encoder writes, also after the last epoch. The metrics of the responses
    are recorded when there are many, and by `record`.
    """
    mine, peer = pair
    steady = Steady({A0: 10}, version, raw=mine, epoch=(1 << 31) - 3)
    count = 20
    for number, epoch in enumerate([(1 << 31) - 2, (1 << 31) - 1, *range(1, count - 1)], 1):
        peer.sendall(steady.respond({}, correlation_id=CORRELATION + number - 1))
        assert steady.poll(10.0) is ConsumerRecords.EMPTY
        assert peer.recv(1000) == sent_after(steady, number, epoch)
        connection = steady.connection
        assert (connection.epoch, connection.correlation_id) == (epoch, CORRELATION + number)
        assert connection.sent_at == connection.responded_at
    assert (steady.path.responses, steady.path.handed_over, steady.path.samples.response_count) == (count, 0, 0)
    sensors = steady.network.events.sensors("1")
    assert sensors is steady.network.events.sensors("1")

    def totals() -> list[float]:
        by_name = {name.name: value for name, value in steady.registry.snapshot(steady.now).items()}
        return [by_name[name] for name in ("response-total", "request-total", "outgoing-byte-total", "fetch-total")]

    size = len(sent_after(steady, 1, 1))
    assert totals() == [16, 16, 16 * size, 16]
    for _ in range(2):
        steady.path.record()
        assert totals() == [count, count, count * size, count]


def metric(steady: Steady, name: str, **tags: str) -> float:
    """Returns the value of the metric with this name and these tags."""
    found = steady.registry.snapshot(steady.now)
    (value,) = [value for key, value in found.items() if key.name == name and dict(key.tags) == tags]
    return value


def test_metrics_of_a_response() -> None:
    """The sums of a response and of each topic are recorded once, also of a topic that the response contains twice."""
    tps = [TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("a", 1)]
    steady = Steady(dict.fromkeys(tps, 10))
    batch, size = build_batch([b"x", b"y"], base_offset=10), 2 * 8
    rows = [
        FetchableTopicResponse(topic_id=TOPIC_IDS[tp.topic], partitions=list(partition(tp, batch).values()))
        for tp in tps
    ]
    steady.input = [data := steady.respond({}, responses=rows)]
    steady.now = 120.0
    records = steady.poll()
    assert records is not None
    assert len(records) == 6
    steady.path.record()
    assert metric(steady, "records-per-request-avg") == 6
    assert metric(steady, "fetch-size-avg") == metric(steady, "bytes-consumed-total") == 3 * size
    assert [metric(steady, "records-per-request-avg", topic=name) for name in "ab"] == [4, 2]
    assert [metric(steady, "bytes-consumed-total", topic=name) for name in "ab"] == [2 * size, size]
    assert (metric(steady, "fetch-latency-avg"), metric(steady, "fetch-total")) == (30, 1)
    assert (metric(steady, "incoming-byte-total"), metric(steady, "response-total")) == (len(data), 1)
    assert metric(steady, "outgoing-byte-total") == sum(map(len, steady.sent))


def test_metrics_of_a_request_that_is_sent_in_part() -> None:
    """Of a request that the socket takes only in part, these bytes are recorded."""
    steady = Steady({A0: 10})
    steady.room = 7
    steady.input = [steady.respond(partition(A0, build_batch([b"x"], base_offset=10)))]
    steady.poll()
    steady.path.record()
    assert metric(steady, "outgoing-byte-total") == 7


def test_metrics_of_more_responses_than_samples() -> None:
    """One poll may handle more responses than are recorded together. Here, only the last one has records."""
    count = 150
    steady = Steady({A0: 10})
    batches = [b""] * count + [build_batch([b"x"], base_offset=10)]
    steady.input = [
        steady.respond(partition(A0, batch), correlation_id=CORRELATION + number)
        for number, batch in enumerate(batches)
    ]
    records = steady.poll()
    assert records is not None
    assert len(records) == 1
    steady.path.record()
    assert metric(steady, "fetch-total") == metric(steady, "response-total") == count + 1
    assert (metric(steady, "records-consumed-total"), metric(steady, "records-consumed-total", topic="a")) == (1, 1)


def multiples_of(max_wait_ms: int, began_ms: float, ended_ms: float) -> set[int]:
    """Returns how long a broker may wait after a response between these times, so that it responds at a multiple."""
    steps = int((ended_ms - began_ms) * 100) + 2
    times = [began_ms + (ended_ms - began_ms) * step / (steps - 1) for step in range(steps)]
    return {math.ceil(max(max_wait_ms - now % max_wait_ms, max_wait_ms / 2)) for now in times}


@pytest.mark.skipif(not AVAILABLE, reason="the system has no epoll")
def test_idle_consumers_of_a_loop_wait_for_the_same_times() -> None:
    """With several idle consumers, the broker is asked to respond at multiples of `fetch_max_wait_ms`, or in one more
    response before that. With one consumer, it may wait for `fetch_max_wait_ms`.
    """
    epoll = SharedEpoll()
    with contextlib.ExitStack() as stack:
        waiting: list[tuple[Steady, socket.socket]] = []
        for count in (1, 2):
            mine, peer = (stack.enter_context(end) for end in socket.socketpair())
            mine.setblocking(False)
            steady = Steady({A0: 10}, raw=mine)
            assert steady.path.begin_poll()
            assert epoll.watch(steady.path, pytest.fail)
            waiting.append((steady, peer))
            for _ in range(20):
                number = steady.path.responses
                peer.sendall(steady.respond({}, correlation_id=CORRELATION + number))
                began = time.monotonic() * 1000
                epoll.serve()
                ended = time.monotonic() * 1000
                sent = peer.recv(1000)
                waits = {500} if count == 1 else multiples_of(500, began, ended)
                expected = [request(EPOCH + number + 1, [], max_wait_ms=wait) for wait in waits]
                assert sent in [
                    encode_request(FETCH, steady.version, CORRELATION + number + 1, "client", message)
                    for message in expected
                ]
                time.sleep(0.013)
        epoll.unwatch(steady.path)
        steady, peer = waiting[0]
        peer.sendall(steady.respond({}, correlation_id=CORRELATION + 20))
        epoll.serve()
        assert peer.recv(1000) == sent_after(steady, 21, EPOCH + 21)
    epoll.close()


def test_records_between_empty_responses(pair: tuple[socket.socket, socket.socket]) -> None:
    """Records are returned, in whatever parts they and empty responses arrive."""
    mine, peer = pair
    steady = Steady({A0: 10}, raw=mine)
    seen: list[int] = []
    for number in range(12):
        found = partition(A0, build_batch([b"x"], base_offset=10 + number // 3)) if number % 3 == 0 else {}
        data = steady.respond(found, correlation_id=CORRELATION + number)
        cut = (number * 7) % len(data)
        peer.sendall(data[:cut])
        assert steady.poll(1.0) is ConsumerRecords.EMPTY
        peer.sendall(data[cut:])
        records = steady.poll(10.0)
        assert records is not None
        seen += [record.offset for record in records]
        peer.recv(1000)
    assert (seen, steady.path.responses, steady.path.handed_over) == ([10, 11, 12, 13], 12, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="the low-water mark is set only on Linux")
def test_the_rest_of_a_response_is_reported_at_once(pair: tuple[socket.socket, socket.socket]) -> None:
    """From the first part of a response on, the socket is reported when it has the rest. After the response, and for
    the general path, it is reported when it has any bytes.
    """
    mine, peer = pair
    steady = Steady({A0: 10}, raw=mine)

    def low_water() -> int:
        return mine.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)

    for number in range(2):
        data = steady.respond(
            partition(A0, build_batch([b"x"], base_offset=10 + number)), correlation_id=CORRELATION + number
        )
        for end, expected in ((20, len(data) - 20), (30, len(data) - 30), (50, len(data) - 50)):
            peer.sendall(data[:end][-10 if end == 30 else -20 :])
            assert steady.poll(1.0) is ConsumerRecords.EMPTY
            assert expected == low_water()
        if number:
            steady.connection.wait_for_any()
            assert 1 == low_water()
        peer.sendall(data[50:])
        records = steady.poll(10.0)
        assert records is not None
        assert [10 + number] == [record.offset for record in records]
        assert 1 == low_water()


@pytest.mark.parametrize(
    "fields",
    [{"error_code": 70}, {"throttle_time_ms": 5}, {"session_id": 0}, {"correlation_id": CORRELATION + 1}],
)
def test_others_than_empty_responses_are_handed_over(
    fields: dict[str, Any], pair: tuple[socket.socket, socket.socket]
) -> None:
    """A response that has the size of an empty one, but other fields, is handed over."""
    mine, peer = pair
    steady = Steady({A0: 10}, raw=mine)
    peer.sendall(steady.respond({}, **fields))
    assert steady.poll(10.0) is None
    assert (steady.path.responses, steady.path.gave_up) == (0, "the response is not ordinary")
    assert len(steady.path.pending) == 1


def test_a_request_that_the_socket_does_not_take(pair: tuple[socket.socket, socket.socket]) -> None:
    """The poll ends, and `request` has the bytes that the general path must send."""
    mine, peer = pair
    steady = Steady({A0: 10}, raw=mine)
    with contextlib.suppress(BlockingIOError):
        while True:
            mine.send(b"x" * 4096)
    peer.sendall(steady.respond({}))
    assert steady.poll(10.0) is None
    assert (steady.connection.request, steady.connection.sent) == (sent_after(steady, 1, EPOCH + 1), 0)
    assert steady.path.responses == 1
    assert steady.poll(10.0) is None


def test_a_connection_that_is_closed_after_an_empty_response(pair: tuple[socket.socket, socket.socket]) -> None:
    """The error of the request is kept for the general path."""
    mine, peer = pair
    steady = Steady({A0: 10}, raw=mine)
    peer.sendall(steady.respond({}))
    peer.close()
    assert steady.poll(10.0) is None
    assert isinstance(steady.connection.error, BrokenPipeError)


def test_a_closed_connection(pair: tuple[socket.socket, socket.socket]) -> None:
    """The general path handles it."""
    mine, peer = pair
    steady = Steady({A0: 10}, raw=mine)
    peer.close()
    assert steady.poll(10.0) is None
    assert steady.path.gave_up == "the connection was closed"


FOUR = build_batch([b"x"] * 4, base_offset=10)
OTHERS: dict[str, tuple[dict[TopicPartition, FetchPartitionData], dict[str, Any]]] = {
    "error of the response": ({}, {"error_code": 70}),
    "throttled": ({}, {"throttle_time_ms": 5}),
    "another session": ({}, {"session_id": SESSION + 1}),
    "no session": ({}, {"session_id": 0}),
    "another correlation id": ({}, {"correlation_id": CORRELATION + 1}),
    "error of a partition": (partition(A0, None, error_code=6), {}),
    "unknown partition": (partition(TopicPartition("a", 9), FOUR), {}),
    "unknown topic": (partition(TopicPartition("b", 0), FOUR), {}),
    "preferred replica": (partition(A0, FOUR, preferred_read_replica=2), {}),
    "aborted": (partition(A0, FOUR, aborted_transactions=[AbortedTransaction(producer_id=1, first_offset=3)]), {}),
    "diverging": (partition(A0, FOUR, diverging_epoch=FetchEpochEndOffset(epoch=1, end_offset=5)), {}),
    "leader": (partition(A0, FOUR, current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=9)), {}),
    "corrupt": (partition(A0, FOUR[:-1] + b"?"), {}),
    "cut off": (partition(A0, FOUR[:-9]), {}),
    "more than a poll returns": (partition(A0, build_batch([b"x"] * 501, base_offset=10)), {}),
    "before the position": (partition(A0, build_batch([b"x"], base_offset=3)), {}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_responses_are_handed_over(name: str) -> None:
    """A response that is not ordinary is kept for the general path: nothing is sent, and no position moves."""
    data, fields = OTHERS[name]
    steady = Steady({A0: 10})
    frame = steady.respond(data, **fields)
    steady.input = [frame]
    assert steady.poll() is None
    ((connection, frames, count),) = steady.path.pending
    assert (connection, [bytes(found) for found in frames], count) == (steady.connection, [frame[4:]], len(frame))
    assert steady.sent == []
    assert steady.path.moved == []
    assert (steady.connection.epoch, steady.connection.correlation_id) == (EPOCH, CORRELATION)
    assert steady.path.gave_up
    assert steady.poll() is None


def test_every_shortened_response_is_handed_over() -> None:
    """A response that ends early, or has bytes after its end, is handed over."""
    steady = Steady({A0: 10})
    frame = steady.respond(partition(A0, FOUR))
    for size in range(4, len(frame) + 1):
        body = frame[4:size] if size < len(frame) else frame[4:] + b"\0"
        steady = Steady({A0: 10})
        steady.input = [len(body).to_bytes(4, "big") + body]
        assert steady.poll() is None
        assert steady.sent == []
        assert [len(frames) for _, frames, _ in steady.path.pending] == [1]


def test_tls_without_bytes() -> None:
    """A TLS connection whose socket had only a part of a record is waited for again, and its response is processed."""
    steady = Steady({A0: 10}, encrypted=True)
    steady.input = [None, None, steady.respond(partition(A0, FOUR))]
    records = steady.poll()
    assert records is not None
    assert len(records) == 4
    assert len(steady.sent) == 1


@pytest.mark.parametrize("received", ["nothing", "part", "whole"])
def test_tls_that_the_selector_does_not_report_is_handed_over(received: str) -> None:
    """If TLS has more bytes than the selector reports, or must write, the general path gets what has arrived."""
    steady = Steady({A0: 10}, encrypted=True)
    response = steady.respond(partition(A0, FOUR))
    steady.input = [{"nothing": None, "part": response[:40], "whole": response}[received]]
    steady.blocked = True
    assert steady.poll() is None
    assert steady.sent == []
    assert {"nothing": [], "part": [0], "whole": [1]}[received] == [len(frames) for _, frames, _ in steady.path.pending]


@pytest.mark.parametrize(
    "end",
    [b"", ConnectionResetError(104, "reset"), AuthenticationError("TLS failed")],
    ids=["closed", "reset", "alert"],
)
def test_a_disconnect_is_handed_over(end: bytes | Exception) -> None:
    """After the end of the connection, the general path continues. It gets the error of the socket."""
    steady = Steady({A0: 10})
    steady.input = [end]
    assert steady.poll() is None
    assert steady.connection.error is (end if end else None)
    assert steady.path.pending == []


@pytest.mark.parametrize("room", [0, 1, 20])
def test_a_socket_that_is_full(room: int) -> None:
    """If the socket does not take the whole request, the records are returned, and the rest is handed over."""
    steady = Steady({A0: 10})
    steady.input = [steady.respond(partition(A0, FOUR))]
    steady.room = room
    records = steady.poll()
    assert records is not None
    assert len(records) == 4
    assert steady.connection.sent == room
    assert steady.connection.request is not None
    assert steady.connection.request[:room] == b"".join(steady.sent)
    assert steady.poll() is None


def test_read_committed_returns_records_without_aborted_transactions() -> None:
    """With read_committed, a response without aborted transactions is ordinary."""
    steady = Steady({A0: 10}, read_committed=True)
    steady.input = [steady.respond(partition(A0, FOUR, aborted_transactions=None))]
    records = steady.poll()
    assert records is not None
    assert len(records) == 4


def test_due_work_and_wakeups_end_polls() -> None:
    """A poll returns None when something is due, when `wakeup` was called, and when it is not armed."""
    steady = Steady({A0: 10})
    steady.now = 10_000.0
    assert steady.poll() is None
    steady = Steady({A0: 10})
    assert steady.poll(60_000.0) is None
    assert steady.now == 10_000.0
    steady.path.disarm()
    assert steady.poll() is None


def test_a_handler_that_uses_the_consumer_ends_the_poll() -> None:
    """If a signal handler disarms the fast path during the wait, the poll returns None and receives nothing."""
    steady = Steady({A0: 10})
    steady.input = [steady.respond(partition(A0, FOUR))]
    steady.selects = [steady.path.disarm]
    assert steady.poll() is None
    assert len(steady.input) == 1


@pytest.fixture
def ready() -> Iterator[tuple[selectors.BaseSelector, socket.socket]]:
    """A selector that waits for a socket, and the other end of this socket."""
    ours, other = socket.socketpair()
    with selectors.DefaultSelector() as selector, ours, other:
        selector.register(ours, selectors.EVENT_READ)
        yield selector, other


def test_empty_polls(ready: tuple[Any, socket.socket]) -> None:
    """A poll that does not wait finds nothing while no descriptor is ready. Each one is recorded as a poll."""
    selector, other = ready
    steady, guard = Steady({A0: 10}), AccessGuard()
    metrics = steady.metrics.polls
    assert not steady.path.nothing_arrived(guard), "without a descriptor, only the general path knows"
    steady.path.arm([steady.connection], steady._select, selector.fileno(), 10_000.0, 1 << 20)
    for number in range(3):
        steady.now = 200.0 + number
        assert steady.path.nothing_arrived(guard)
        assert steady.path.last_poll == steady.now == metrics.last_poll
    other.send(b"x")
    steady.now = 300.0
    assert not steady.path.nothing_arrived(guard)
    assert metrics.last_poll == 202.0, "the general path records this poll"


def test_waiting_for_an_epoll_set(ready: tuple[Any, socket.socket]) -> None:
    """A poll waits for the descriptors of an epoll set until its timeout. It is handed over if one of them is not that
    of a connection. A signal handler runs inside the wait, and its exception ends the poll.
    """
    selector, other = ready
    steady = Steady({A0: 10}, system_clock=True)
    until = time.monotonic() * 1000 + 60_000
    steady.path.arm([steady.connection], steady._select, selector.fileno(), until, 1 << 20)
    began = time.monotonic()
    assert steady.poll(20.0) is ConsumerRecords.EMPTY
    assert 0.02 <= time.monotonic() - began < 10
    ran: list[float] = []
    with handler(signal.SIGALRM, lambda: ran.append(time.monotonic())):
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        assert steady.poll(200.0) is ConsumerRecords.EMPTY
    assert ran[0] + 0.1 < time.monotonic()

    def fail() -> None:
        raise KeyError

    with handler(signal.SIGALRM, fail):
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(KeyError):
            steady.poll(60_000.0)
    assert not steady.path.waiting
    other.send(b"x")
    assert steady.poll(60_000.0) is None


def test_a_wait_that_fails(ready: tuple[Any, socket.socket]) -> None:
    """An error of the system while the fast path waits is raised."""
    steady = Steady({A0: 10})
    steady.path.arm([steady.connection], steady._select, ready[1].fileno(), 10_000.0, 1 << 20)
    with pytest.raises(OSError, match="Invalid argument"):
        steady.poll(10.0)
    assert not steady.path.nothing_arrived(AccessGuard())


@contextlib.contextmanager
def handler(number: int, call: Callable[[], object]) -> Iterator[None]:
    """Install a handler for a signal."""
    before = signal.signal(number, lambda *_: call())
    try:
        yield
    finally:
        signal.signal(number, before)


def test_empty_polls_hand_over(ready: tuple[Any, socket.socket]) -> None:
    """The general path polls if a thread is inside a call, after a wakeup, once a manager is due, and if the fast path
    is not armed.
    """
    selector, _other = ready
    steady, guard = Steady({A0: 10}), AccessGuard()
    steady.path.arm([steady.connection], steady._select, selector.fileno(), 10_000.0, 1 << 20)
    outer = guard.enter()
    assert not steady.path.nothing_arrived(guard)
    guard.holder = outer
    assert steady.path.nothing_arrived(guard)
    steady.driver.wakeup_requested = True
    assert not steady.path.nothing_arrived(guard)
    steady.driver.wakeup_requested = False
    steady.now = 10_000.0
    assert not steady.path.nothing_arrived(guard)
    steady.now = 200.0
    assert steady.path.nothing_arrived(guard)
    count_fork()  # as in a child, whose sockets are those of its parent
    assert not steady.path.nothing_arrived(guard)
    steady.path.arm([steady.connection], steady._select, selector.fileno(), 10_000.0, 1 << 20)
    assert steady.path.nothing_arrived(guard)
    steady.path.disarm()
    assert not steady.path.nothing_arrived(guard)


def test_an_empty_poll_keeps_no_records_of_the_poll_before_it(ready: tuple[Any, socket.socket]) -> None:
    """An empty poll moves no position, so nothing is rolled back after it."""
    selector, other = ready
    (key,) = selector.get_map().values()
    steady = Steady({A0: 10}, descriptor=key.fd)
    steady.path.arm([steady.connection], steady._select, selector.fileno(), 10_000.0, 1 << 20)
    steady.input = [steady.respond(partition(A0, FOUR))]
    other.send(b"x")
    assert steady.poll()
    assert steady.path.moved
    key.fileobj.recv(1)
    assert not steady.path.nothing_arrived(AccessGuard()), "the poll before has not ended"
    steady.delivery.open = False
    assert steady.path.nothing_arrived(AccessGuard())
    assert not steady.path.moved


def test_the_lock_settles() -> None:
    """A thread that acquires the lock finds the fast path disarmed. An error of `settle` releases the lock."""
    steady = Steady({A0: 10})
    lock = SettlingLock(threading.RLock(), SIGNALS)
    lock.settle_with(steady.path, steady.path.disarm)
    with lock:
        assert not steady.path.armed
        assert lock._is_owned()
    steady.path.arm([steady.connection], steady._select, -1, 10_000.0, 1 << 20)

    def fail() -> None:
        raise MemoryError

    lock.settle_with(steady.path, fail)
    with contextlib.suppress(MemoryError), lock:
        pytest.fail("the state is not settled")
    assert not lock._is_owned()


def test_arming_counts_as_a_poll() -> None:
    """The last poll is the one that has armed the fast path, if none has begun since then. Otherwise the member would
    leave the group as one that does not poll.
    """
    steady = Steady({A0: 10})
    assert steady.now == steady.path.last_poll
    steady.now += 500
    steady.path.arm([steady.connection], steady._select, -1, 10_000.0, 1 << 20)
    assert steady.now == steady.path.last_poll
