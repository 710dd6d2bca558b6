"""Methods that do not wait may be called from any thread while another thread polls, on the model of a cluster."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from kconsumer import Consumer, OffsetAndMetadata, TopicPartition
from kconsumer.aio import AsyncConsumer
from kconsumer.errors import ConcurrentAccessError, ForkedConsumerError, KafkaError, StateError, WakeupError
from kconsumer.testing import FakeCluster
from support.harnesses.engines import ENGINES
from support.harnesses.inside import engine_of, guard_of, parts_of
from support.harnesses.threads import elsewhere, eventually

PARTITIONS = 4
RECORDS = 3000
TPS = [TopicPartition("t", number) for number in range(PARTITIONS)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    """A cluster with the topic `t`."""
    with FakeCluster() as cluster:
        cluster.create_topic("t", partitions=PARTITIONS)
        for tp in TPS:
            cluster.produce("t", [b"%d" % n for n in range(RECORDS)], partition=tp.partition)
        yield cluster


@pytest.fixture(params=ENGINES)
def member(request: pytest.FixtureRequest, cluster: FakeCluster) -> Iterator[Consumer]:
    """A member of a group that reads the topic `t`, with each engine."""
    options = {"group_id": request.node.name, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with Consumer("t", bootstrap_servers=cluster.bootstrap_servers, **options, **ENGINES[request.param]) as consumer:
        yield consumer


class Poller(threading.Thread):
    """A thread that polls until it is stopped. It notes the offsets that it has read, and its first error."""

    def __init__(self, consumer: Consumer, timeout: float = 60.0) -> None:
        super().__init__()
        self.consumer, self.timeout = consumer, timeout
        self.read: dict[TopicPartition, list[int]] = {tp: [] for tp in TPS}
        self.error: BaseException | None = None
        self.stopping = False
        self.polls = 0

    def run(self) -> None:
        """Poll."""
        try:
            while not self.stopping:
                for record in self.consumer.poll(self.timeout, max_records=40):
                    self.read[record.topic_partition].append(record.offset)
                self.polls += 1
        except WakeupError:
            pass
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        """End the thread."""
        self.stopping = True
        self.consumer.wakeup()
        self.join(30)
        assert not self.is_alive()

    def __enter__(self) -> Poller:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()
        assert self.error is None

    @property
    def count(self) -> int:
        """The number of records that were read."""
        return sum(map(len, self.read.values()))

    def reads(self, count: int) -> None:
        """Wait until this many records were read."""
        eventually(lambda: self.count >= count or self.error is not None, f"{count} records were read")
        assert self.error is None


def test_questions_of_another_thread_while_a_poll_waits(member: Consumer) -> None:
    """A thread asks for the state while another one waits in poll(), and does not end that poll."""
    with Poller(member) as poller:
        poller.reads(PARTITIONS * RECORDS)
        polls = poller.polls
        assert set(TPS) == member.assignment() == set(member.partition_states())
        assert {"t"} == member.subscription()
        assert frozenset() == member.paused()
        assert member.group_metadata().member_id
        assert [0] * PARTITIONS == [member.current_lag(tp) for tp in TPS]
        assert [PARTITIONS] == [value for name, value in member.metrics().items() if name.name == "assigned-partitions"]
        assert poller.polls <= polls + 1  # the poll that has read the last records may have ended in between


def test_pause_and_resume_take_effect_in_the_running_poll(member: Consumer, cluster: FakeCluster) -> None:
    """A poll that waits returns nothing of partitions that another thread has paused, until it resumes them."""
    topic = "pause-" + re.sub(r"\W", "-", member.group_metadata().group_id)
    cluster.create_topic(topic)
    member.subscribe([topic])
    values: list[bytes] = []
    ended = threading.Event()

    def read() -> None:
        while len(values) < 2:
            values.extend(record.value for record in member.poll(30))
        ended.set()

    thread = threading.Thread(target=read)
    thread.start()
    tp = TopicPartition(topic, 0)
    eventually(lambda: tp in member.assignment(), "the partition is assigned")
    cluster.produce(topic, [b"one"])
    eventually(lambda: values == [b"one"], "the record is read")
    member.pause(tp)
    assert {tp} == member.paused()
    cluster.produce(topic, [b"two"])
    assert not ended.wait(0.3)
    member.resume(tp)
    assert ended.wait(10)
    thread.join()
    assert [b"one", b"two"] == values


def test_a_commit_of_another_thread_is_sent_while_a_poll_waits(member: Consumer, cluster: FakeCluster) -> None:
    """The running poll sends the commit, and calls its callback on the thread that polls."""
    done: list[tuple[int, object]] = []

    def committed(_offsets: object, error: KafkaError | None) -> None:
        done.append((threading.get_ident(), error))

    with Poller(member) as poller:
        poller.reads(PARTITIONS * RECORDS)
        member.commit_async({TPS[0]: 7}, committed)
        eventually(lambda: bool(done), "the commit is finished")
        assert [(poller.ident, None)] == done
        group = member.group_metadata().group_id
        assert 7 == cluster.committed(group)[TPS[0]].offset


def test_a_commit_is_sent_if_no_thread_polls(member: Consumer, cluster: FakeCluster) -> None:
    """If no thread is inside a call, the commit is sent at once by the thread that calls."""
    while not member.poll(1):
        pass
    group = member.group_metadata().group_id
    thread = threading.Thread(target=member.commit_async, args=({TPS[0]: 3},))
    thread.start()
    thread.join()
    eventually(lambda: TPS[0] in cluster.committed(group), "the commit is stored")


def test_errors_are_raised_in_the_thread_that_calls(member: Consumer) -> None:
    """An invalid call fails in its own thread. The thread that polls does not notice."""

    class Broken:
        def __index__(self) -> int:
            raise RuntimeError("broken value")

    with Poller(member) as poller:
        poller.reads(PARTITIONS * RECORDS)
        with pytest.raises(StateError, match="not assigned"):
            member.pause(TopicPartition("other", 0))
        with pytest.raises(RuntimeError, match="broken value"):
            member.commit_async({TPS[0]: Broken()})
        with pytest.raises(ConcurrentAccessError, match="commit_async"):
            member.seek(TPS[0], 0)
        assert poller.error is None


def test_calls_from_another_thread_inside_a_callback(cluster: FakeCluster) -> None:
    """While a rebalance callback runs, other threads may ask. A callback may wait for such a thread."""
    seen: list[object] = []

    def assigned(consumer: Consumer, _partitions: object) -> None:
        thread = threading.Thread(target=lambda: seen.append(consumer.assignment()))
        thread.start()
        thread.join(10)

    with Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id="in-callback") as consumer:
        consumer.subscribe(["t"], on_assign=assigned)
        while not seen:
            consumer.poll(0.1)
    assert [frozenset(TPS)] == seen


def test_calls_from_another_thread_inside_a_deserializer(cluster: FakeCluster) -> None:
    """A partition that another thread pauses while a deserializer runs is not returned by that poll."""
    paused = threading.Event()

    def pause_first(data: bytes) -> bytes:
        if not paused.is_set():
            paused.set()
            thread = threading.Thread(target=consumer.pause, args=TPS)
            thread.start()
            thread.join(10)
        return data

    options: dict[str, Any] = {"value_deserializer": pause_first, "auto_offset_reset": "earliest"}
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, **options) as consumer:
        consumer.assign(TPS)
        while not paused.is_set():
            assert not consumer.poll(0.5)
        assert set(TPS) == consumer.paused()
        consumer.resume(*TPS)
        records = consumer.poll(10)
        assert 0 == min(record.offset for record in records)


@pytest.mark.parametrize("call", ["metrics", "assignment", "pause", "commit_async"])
def test_calls_after_close(member: Consumer, call: str) -> None:
    """After close(), these methods raise StateError in every thread."""
    member.close()
    for run in (elsewhere, _here):
        error = run(getattr(member, call))
        assert isinstance(error, StateError)
        assert "closed" in str(error)


def _here(call: Callable[[], object]) -> BaseException | None:
    try:
        call()
    except Exception as error:
        return error
    return None


def test_calls_while_another_thread_closes(cluster: FakeCluster) -> None:
    """Once close() has begun, a call of another thread raises StateError: its commit would not be sent any more."""
    errors: list[BaseException | None] = []
    consumer = Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id="closes")

    def revoked(_consumer: Consumer, _partitions: object) -> None:
        errors.append(elsewhere(lambda: consumer.commit_async({TPS[0]: 1})))

    consumer.subscribe(["t"], on_revoke=revoked)
    while not consumer.assignment():
        consumer.poll(0.1)
    consumer.close()
    (error,) = errors
    assert isinstance(error, StateError)
    assert "closes this consumer" in str(error)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_calls_in_a_forked_child(cluster: FakeCluster) -> None:
    """In a forked child these methods raise ForkedConsumerError, also if a thread of the parent held the lock."""
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id="forked") as consumer:
        with engine_of(consumer).lock:
            child = os.fork()
            if child == 0:
                error = _here(consumer.metrics)
                os._exit(0 if isinstance(error, ForkedConsumerError) else 1)
        assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_an_interrupted_thread_does_not_keep_others_waiting(cluster: FakeCluster) -> None:
    """If an exception has ended a thread that held the lock, calls of other threads raise StateError."""
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id="interrupted") as consumer:
        engine_of(consumer).lock.acquire()
        guard_of(consumer).step.begin()
        error = elsewhere(consumer.metrics)
        assert isinstance(error, StateError)
        assert "interrupted" in str(error)


def test_an_exception_inside_a_call_counts_as_an_interruption(
    member: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an unexpected exception inside such a call, the state may be incomplete, so later calls raise."""
    monkeypatch.setattr(parts_of(member).assignment, "pause", _fail)
    assert isinstance(elsewhere(lambda: member.pause(TPS[0])), MemoryError)
    with pytest.raises(StateError, match="interrupted"):
        member.poll(0)


def test_an_exception_inside_a_call_during_a_wait(member: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same while another thread waits for records: its running poll, or the next, raises."""
    failed = threading.Event()

    def fail(*_arguments: object) -> None:
        failed.set()
        raise MemoryError

    def poll_until_interrupted() -> None:
        while True:
            member.poll(0.2)

    monkeypatch.setattr(parts_of(member).assignment, "pause", fail)
    timer = threading.Timer(0.2, elsewhere, [lambda: member.pause(TPS[0])])  # probably during a wait of poll
    timer.start()
    with pytest.raises(StateError, match="interrupted"):
        poll_until_interrupted()
    timer.join()
    assert failed.is_set()


def _fail(*_arguments: object) -> None:
    raise MemoryError


def test_an_async_consumer(cluster: FakeCluster) -> None:
    """An AsyncConsumer refuses other threads, and the error names the function of the event loop that does it."""

    async def read() -> list[BaseException | None]:
        async with AsyncConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
            consumer.assign(TPS)
            await consumer.poll(0)
            loop = asyncio.get_running_loop()
            error = elsewhere(lambda: consumer.pause(TPS[0]))
            paused = asyncio.Event()

            def pause() -> None:
                consumer.pause(TPS[1])
                paused.set()

            assert elsewhere(lambda: loop.call_soon_threadsafe(pause)) is None
            await paused.wait()
            assert {TPS[1]} == consumer.paused()
            return [error]

    (error,) = asyncio.run(read())
    assert isinstance(error, ConcurrentAccessError)
    assert "call_soon_threadsafe" in str(error)


def test_many_threads(member: Consumer, cluster: FakeCluster) -> None:
    """Threads pause, resume, commit and ask while another one polls: no error, no record lost or read twice, each
    commit has its callback on the thread that polls, and commits of one thread keep their order.
    """
    finished: list[tuple[int, int, int]] = []
    errors: list[BaseException] = []
    calls = 60

    def committed(tp: TopicPartition, offsets: dict[TopicPartition, OffsetAndMetadata], error: object) -> None:
        assert error is None
        finished.append((tp.partition, offsets[tp].offset, threading.get_ident()))

    def work(tp: TopicPartition) -> None:
        try:
            for number in range(calls):
                member.pause(tp)
                assert tp in member.paused()
                member.commit_async({tp: number}, partial(committed, tp))
                assert tp in member.partition_states()
                assert member.metrics()
                member.resume(tp)
        except BaseException as error:
            errors.append(error)

    with Poller(member, timeout=0.2) as poller:
        poller.reads(1)
        threads = [threading.Thread(target=work, args=(tp,)) for tp in TPS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        eventually(lambda: len(finished) == calls * PARTITIONS, "all commits are finished")
        poller.reads(PARTITIONS * RECORDS)
    assert [] == errors
    assert {tp: list(range(RECORDS)) for tp in TPS} == poller.read
    assert {poller.ident} == {thread for _, _, thread in finished}
    for tp in TPS:
        assert list(range(calls)) == [offset for partition, offset, _ in finished if partition == tp.partition]
    assert dict.fromkeys(TPS, calls - 1) == {
        tp: at.offset for tp, at in cluster.committed(member.group_metadata().group_id).items()
    }
