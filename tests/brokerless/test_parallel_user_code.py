"""kconsumer.parallel with functions of the user that do what they should not: nothing is lost, and no run hangs."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kconsumer import Consumer, ConsumerRecord, TopicPartition
from kconsumer.errors import RecordDeserializationError
from kconsumer.parallel import Batch, CircuitBreaker, DeadLetters, PartialBatchError, Processor, Retry, process, stop
from kconsumer.testing import FakeCluster, MockConsumer
from support.harnesses.parallel_handlers import fail_in_its_own_way
from support.harnesses.parallel_runs import options, run_until_finished, until

TP0, TP1 = TopicPartition("t", 0), TopicPartition("t", 1)
EXECUTORS = ("threads", "asyncio")


@pytest.fixture
def consumer() -> Iterator[MockConsumer]:
    """A consumer of two partitions with ten records each."""
    options: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with MockConsumer(**options, consumer_timeout_ms=100) as consumer:
        consumer.assign([TP0, TP1])
        for tp in (TP0, TP1):
            consumer.add_records(tp, [f"{tp.partition}-{n}" for n in range(10)])
        yield consumer


class Calls:
    """A handler that counts its calls, for each executor."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def handler(self, executor: str) -> Callable[[ConsumerRecord], Any]:
        """Returns the handler for an executor."""
        return self.handle_async if executor == "asyncio" else self.handle

    def handle(self, record: ConsumerRecord) -> None:
        """Count a call."""
        self.seen[record.value] += 1

    async def handle_async(self, record: ConsumerRecord) -> None:
        """Count a call."""
        self.handle(record)


def test_a_thread_that_cannot_be_started(consumer: MockConsumer, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the system has no more threads, the run ends with this error, its other threads end, and nothing is lost."""
    start, started = threading.Thread.start, threading.active_count()

    def start_three(thread: threading.Thread) -> None:
        if thread.name.endswith("-3"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_three)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        process(consumer, Calls().handle, workers=8)
    until(lambda: threading.active_count() <= started)
    monkeypatch.undo()
    assert 20 == process(consumer, Calls().handle).processed


class ChangingKey:
    """A key whose hash is another one each time."""

    hashes = 0

    def __hash__(self) -> int:
        ChangingKey.hashes += 1
        return ChangingKey.hashes


class OwnError(BaseException):
    """Not an Exception."""


@pytest.mark.parametrize("error", [LookupError, StopIteration, OwnError])
def test_an_order_that_raises_loses_nothing(consumer: MockConsumer, error: type[BaseException]) -> None:
    """The error ends the run, and another run on the same consumer processes what the first one has not."""

    def order(record: ConsumerRecord) -> str:
        if record.value == "0-7":
            raise error("no order")
        return record.value

    calls = Calls()
    with pytest.raises((error, RuntimeError)) as raised:
        process(consumer, calls.handle, order=order)
    assert error in (type(raised.value), type(raised.value.__cause__))
    process(consumer, calls.handle)
    assert {f"{p}-{n}" for p in (0, 1) for n in range(10)} == set(calls.seen)
    assert {TP0: 10, TP1: 10} == {tp: offset.offset for tp, offset in consumer.committed_offsets().items()}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_keys_that_change_end_the_run(consumer: MockConsumer, executor: Any) -> None:
    """If the hash of a key changes while its record is processed, the run ends with an error."""
    with pytest.raises(KeyError):
        process(consumer, Calls().handler(executor), order=lambda record: ChangingKey(), executor=executor)


def test_an_interrupted_run_loses_nothing(consumer: MockConsumer) -> None:
    """After a second Ctrl-C, the positions are those of the first records that were not finished."""
    gate, calls = threading.Event(), Calls()
    started = threading.Event()

    def handler(record: ConsumerRecord) -> None:
        started.set()
        gate.wait(20)

    processor = Processor(consumer, handler, workers=1, order="none")

    def interrupt() -> None:
        started.wait(20)
        signal.raise_signal(signal.SIGINT)
        until(lambda: processor.summary().reason)
        signal.raise_signal(signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        processor.run()
    thread.join()
    gate.set()
    process(consumer, calls.handle)
    assert 20 == len(calls.seen)


async def _nothing() -> None:
    pass


def _yielding(*arguments: Any) -> Iterator[None]:
    yield


async def _yielding_async(*arguments: Any) -> Any:
    yield


@pytest.mark.parametrize("what", [_yielding, _yielding_async])
@pytest.mark.parametrize("name", ["handler", "on_failure"])
def test_generator_functions_are_refused(consumer: MockConsumer, what: Any, name: str) -> None:
    """Nothing would iterate over their results, so they would do nothing."""
    with pytest.raises(TypeError, match=r"is a generator function, over whose results nothing iterates"):
        process(consumer, **{"handler": print, name: what})


@pytest.mark.parametrize("result", [_nothing, _yielding, _yielding_async])
@pytest.mark.parametrize("arguments", [{}, {"handler_timeout_s": 10}, {"batch": Batch(5)}])
def test_results_that_nothing_awaits_are_failures(
    consumer: MockConsumer, result: Callable[[], object], arguments: dict[str, Any]
) -> None:
    """A function that returns a coroutine or a generator has not processed its record, so this is not committed."""
    with pytest.raises(TypeError, match=r"the handler returned .* and so has done nothing yet"):
        process(consumer, lambda record: result(), retry=None, **arguments)
    assert {0} >= {offset.offset for offset in consumer.committed_offsets().values()}

    def fail(record: object) -> None:
        raise ValueError

    with pytest.raises(TypeError, match=r"on_failure returned .* and so has done nothing yet"):
        process(consumer, fail, retry=None, on_failure=lambda record, error: result(), **arguments)
    assert {0} >= {offset.offset for offset in consumer.committed_offsets().values()}


def test_a_coroutine_that_raises_generator_exit_ends_the_run(consumer: MockConsumer) -> None:
    """Its record is not finished, and the run does not wait for it."""

    async def handler(record: ConsumerRecord) -> None:
        raise GeneratorExit

    with pytest.raises(GeneratorExit):
        process(consumer, handler, executor="asyncio")


def test_an_on_failure_that_is_cancelled_ends_the_run(consumer: MockConsumer) -> None:
    """The run raises no CancelledError, because its own task was not cancelled."""

    async def fail(record: ConsumerRecord) -> None:
        raise ValueError

    async def on_failure(record: ConsumerRecord, error: BaseException) -> None:
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="on_failure was cancelled"):
        process(consumer, fail, executor="asyncio", retry=None, on_failure=on_failure)


def test_errors_in_a_partial_batch_may_be_anything(consumer: MockConsumer) -> None:
    """What is no error, or is falsy, stands for the error of the batch, and the other records are finished."""
    dead: list[tuple[str, type]] = []

    def handler(records: list[ConsumerRecord]) -> None:
        values = [record.value for record in records]
        records.clear()
        odd: Any = {at: ("text", FalsyError())[at % 2] for at, value in enumerate(values) if value in ("0-3", "0-4")}
        if odd:
            raise PartialBatchError(odd)

    summary = process(
        consumer,
        handler,
        workers=1,
        order="none",
        batch=Batch(20),
        retry=None,
        on_failure=lambda record, error: dead.append((record.value, type(error))),
    )
    assert (18, 2) == (summary.processed, summary.failed)
    assert {"0-3", "0-4"} == {value for value, _ in dead}


class FalsyError(Exception):
    """An error with a length of 0."""

    def __len__(self) -> int:
        return 0


def test_errors_that_cannot_be_pickled(consumer: MockConsumer) -> None:
    """Of a batch in a worker process, only the records that the handler names have failed."""
    dead: list[str] = []
    summary = process(
        consumer,
        fail_in_its_own_way,
        workers=1,
        order="none",
        executor="processes",
        batch=Batch(20),
        retry=None,
        on_failure=lambda record, error: dead.append(record.value),
    )
    assert (["0-3"], 19, 1) == (dead, summary.processed, summary.failed)


def refuse(data: bytes) -> str:
    """A deserializer that refuses one record."""
    if data == b"refused":
        raise ValueError(data)
    return data.decode()


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with a topic of ten records, of which a deserializer refuses the sixth one."""
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.produce("t", [("k", "refused" if n == 5 else str(n)) for n in range(10)])
        yield cluster


def test_an_order_that_does_not_expect_bytes(cluster: FakeCluster) -> None:
    """A record that a deserializer refuses goes to `on_failure`, though the order is a function of its value."""
    dead: list[object] = []
    with Consumer("t", **options(cluster, value_deserializer=refuse)) as consumer:
        processor = Processor(
            consumer,
            lambda record: None,
            order=lambda record: int(record.value) % 2,
            on_failure=lambda record, error: dead.append(record.value),
        )
        summary = run_until_finished(processor, 10)
    assert ([b"refused"], 9, 1) == (dead, summary.processed, summary.failed)


def test_a_refused_record_closes_no_circuit(cluster: FakeCluster) -> None:
    """If the record that is tried after the pause is one that a deserializer refuses, another one is tried."""
    dead: list[object] = []

    def handler(record: ConsumerRecord) -> None:
        if record.value == "4":
            raise ConnectionError

    with Consumer("t", **options(cluster, value_deserializer=refuse)) as consumer:
        processor = Processor(
            consumer,
            handler,
            circuit_breaker=CircuitBreaker(1, 0.02),
            retry=None,
            on_failure=lambda record, error: dead.append(record.value),
        )
        summary = run_until_finished(processor, 10)
    assert (["4", b"refused"], 8, 2) == (dead, summary.processed, summary.failed)


def test_a_position_that_goes_back_to_a_refused_record() -> None:
    """The handler does not get its bytes."""
    seen, dead = set(), []
    error = RecordDeserializationError("refused", topic_partition=TP0, offset=3, value=b"bytes")

    def handler(record: ConsumerRecord) -> None:
        seen.add(record.value)
        if record.value == "9" and not dead:
            until(lambda: raise_next(consumer, error))

    def on_failure(record: ConsumerRecord, error: BaseException) -> None:
        dead.append(record.value)
        stop()

    with MockConsumer(group_id="g", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.assign([TP0])
        consumer.add_records(TP0, [str(n) for n in range(10)])
        process(consumer, handler, on_failure=on_failure)
    assert ([b"bytes"], {str(n) for n in range(10)}) == (dead, seen)


def raise_next(consumer: MockConsumer, error: BaseException) -> bool:
    """Let the next poll raise an error. Returns False if another thread uses the consumer."""
    try:
        consumer.raise_next(error)
    except Exception:
        return False
    return True


class MuteError(Exception):
    """An error without a text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Producer:
    """A producer like that of kafka-python, which is also the future of what it sends."""

    def __init__(self) -> None:
        self.headers: list[dict[str, bytes]] = []

    def send(self, *_: object, headers: list[tuple[str, bytes]], **__: object) -> Producer:
        """Note the headers."""
        self.headers.append(dict(headers))
        return self

    def get(self, timeout_s: float) -> None:
        """Return at once."""


def test_a_dead_letter_of_an_error_without_text(consumer: MockConsumer) -> None:
    """It is written, though str() of its error raises."""

    def handler(record: ConsumerRecord) -> None:
        if record.value == "1-1":
            raise MuteError

    producer = Producer()
    summary = process(consumer, handler, retry=Retry(2, 0), on_failure=DeadLetters(producer, "dead"))
    assert (19, 1) == (summary.processed, summary.failed)
    assert b"its text is unknown: str() raised RuntimeError" == producer.headers[0]["kafka_dlt-exception-message"]
