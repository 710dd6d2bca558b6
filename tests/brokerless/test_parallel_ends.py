"""kconsumer.parallel with MockConsumer: how runs end, revoked and lost partitions, listeners, wrong arguments."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from kconsumer import Consumer, ConsumerRecord, TopicPartition, parallel
from kconsumer.aio import AsyncConsumer
from kconsumer.errors import BrokerError, ConcurrentAccessError, ConfigError, StateError
from kconsumer.parallel import Processor, Retry, process
from kconsumer.parallel.finished_offsets import MAX_METADATA_BYTES
from kconsumer.testing import FakeCluster, MockConsumer
from support.harnesses.parallel_runs import until

TP0, TP1 = TopicPartition("t", 0), TopicPartition("t", 1)
DEADLINE_S = 20.0


@pytest.fixture
def consumer() -> Iterator[MockConsumer]:
    """A consumer that owns two partitions with ten records each, and never runs idle."""
    with MockConsumer(group_id="g", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        consumer.rebalance([TP0, TP1])
        for tp in (TP0, TP1):
            consumer.add_records(tp, [f"{tp.partition}-{n}" for n in range(10)])
        yield consumer


def committed(consumer: MockConsumer) -> dict[TopicPartition, int]:
    """Returns the committed offsets."""
    return {tp: offset.offset for tp, offset in consumer.committed_offsets().items()}


def during_a_poll(consumer: MockConsumer, call: Callable[[], object]) -> None:
    """Let the next poll call a function. The thread of a run uses the consumer meanwhile."""
    end = time.monotonic() + DEADLINE_S
    while True:
        try:
            consumer.schedule(call)
        except ConcurrentAccessError:
            assert time.monotonic() < end
        else:
            return


class Background:
    """A run in a thread of its own."""

    def __init__(self, consumer: Consumer, handler: Callable[[ConsumerRecord], object], **arguments: Any) -> None:
        self.processor = Processor(consumer, handler, **arguments)
        self.results: list[Any] = []
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.results.append(self.processor.run())
        except BaseException as error:
            self.results.append(error)

    def join(self) -> Any:
        """Wait for the end. Returns the summary or the error."""
        self.thread.join(DEADLINE_S)
        [result] = self.results
        return result


class Gate:
    """A handler that waits for `open`, and counts the records that it has started and finished."""

    def __init__(self, *blocked: str) -> None:
        self.blocked = blocked
        self.started: list[str] = []
        self.finished: list[str] = []
        self._open = threading.Event()

    def open(self) -> None:
        """Let the blocked records finish."""
        self._open.set()

    def __call__(self, record: ConsumerRecord) -> None:
        self.started.append(record.value)
        if not self.blocked or record.value in self.blocked:
            self._open.wait(DEADLINE_S)
        self.finished.append(record.value)


@pytest.mark.parametrize("how", ["stop", "wakeup", "processor"])
def test_a_stopped_run_waits_for_handlers(consumer: MockConsumer, how: str) -> None:
    """What runs is finished and committed, nothing more is started, and the positions are those of the rest."""
    gate = Gate()
    run = Background(consumer, gate, workers=3, order="none")
    until(lambda: len(gate.started) == 3)
    {"stop": parallel.stop, "wakeup": consumer.wakeup, "processor": run.processor.stop}[how]()
    until(lambda: run.processor.summary().reason)
    assert [] == run.results
    gate.open()
    summary = run.join()
    assert (3, 0, "wakeup" if how == "wakeup" else "stop") == (summary.processed, summary.abandoned, summary.reason)
    assert 3 == len(gate.started)
    assert 17 == 20 - sum(committed(consumer).get(tp, 0) for tp in (TP0, TP1))
    assert [committed(consumer).get(tp, 0) for tp in (TP0, TP1)] == [consumer.position(tp) for tp in (TP0, TP1)]
    assert 17 == len(consumer.poll())
    assert not consumer.paused()


def test_a_second_run_continues(consumer: MockConsumer) -> None:
    """On the same consumer, the next run takes what the first one has not finished, and nothing else."""
    gate = Gate("0-0", "0-4", "1-2")
    run = Background(consumer, gate, workers=4, order="none", drain_timeout_s=0)
    until(lambda: len(gate.finished) == 17)
    run.processor.stop()
    assert 3 == run.join().abandoned
    again = Gate("none")
    run = Background(consumer, again, workers=4, order="none")
    until(lambda: len(again.finished) == 3)
    run.processor.stop()
    run.join()
    gate.open()
    assert sorted(gate.blocked) == sorted(again.finished)
    assert {TP0: 10, TP1: 10} == committed(consumer)


def test_a_handler_may_stop_the_run(consumer: MockConsumer) -> None:
    """`stop()` in a handler returns at once, and the record of this handler is committed."""

    def handler(record: ConsumerRecord) -> None:
        if record.value == "0-3":
            parallel.stop()

    summary = process(consumer, handler, workers=1, order="partition")
    assert "stop" == summary.reason
    assert committed(consumer)[TP0] >= 4


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run(consumer: MockConsumer, number: signal.Signals) -> None:
    """On the main thread, SIGTERM and SIGINT end a run in order. The handlers are the former ones afterwards."""
    before = signal.getsignal(number)

    def handler(record: ConsumerRecord) -> None:
        if record.value == "0-3":
            os.kill(os.getpid(), number)

    summary = process(consumer, handler, workers=1)
    assert (number.name, 0) == (summary.reason, summary.abandoned)
    assert before is signal.getsignal(number)


def test_a_second_signal_does_not_wait(consumer: MockConsumer) -> None:
    """The second Ctrl-C raises KeyboardInterrupt, although a handler has not returned."""
    gate = Gate()
    processor = Processor(consumer, gate, workers=1)

    def interrupt() -> None:
        until(lambda: gate.started)
        os.kill(os.getpid(), signal.SIGINT)
        until(lambda: processor.summary().reason)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        processor.run()
    thread.join()
    gate.open()
    assert signal.default_int_handler is signal.getsignal(signal.SIGINT)


def test_handlers_of_the_application_stay(consumer: MockConsumer) -> None:
    """A signal handler that is not the default one is not replaced, and may call `stop()`."""
    seen: list[int] = []

    def on_signal(number: int, frame: object) -> None:
        seen.append(number)
        parallel.stop()

    before = signal.signal(signal.SIGTERM, on_signal)
    try:
        summary = process(consumer, lambda record: os.kill(os.getpid(), signal.SIGTERM), workers=1)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert signal.SIGTERM in seen
    assert "stop" == summary.reason


def test_a_listener_that_raises_ends_the_run(consumer: MockConsumer) -> None:
    """The exception of the application's listener is raised, and what was finished is committed before."""

    def on_revoke(source: MockConsumer, partitions: tuple[TopicPartition, ...]) -> None:
        if not run.results and not committed(source):
            raise AssertionError("what was finished is committed before")
        if not run.results:
            raise LookupError("of the application")

    consumer.subscribe(["t"], on_revoke=on_revoke)
    gate = Gate("none")
    run = Background(consumer, gate, order="none", commit_interval_s=1000)
    until(lambda: len(gate.finished) == 20)
    during_a_poll(consumer, lambda: consumer.rebalance([TP1]))
    assert isinstance(run.join(), LookupError)
    assert {TP0: 10, TP1: 10} == committed(consumer)


def test_an_error_of_a_poll_ends_the_run(consumer: MockConsumer) -> None:
    """The error is raised after the handlers have returned and their records are committed."""
    gate = Gate()
    run = Background(consumer, gate, order="none", workers=20)
    until(lambda: len(gate.started) == 20)
    during_a_poll(consumer, partial(consumer.raise_next, BrokerError("no", code=30)))
    gate.open()
    assert isinstance(run.join(), BrokerError)
    assert {TP0: 10, TP1: 10} == committed(consumer)


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=lambda error: type(error).__name__
)
def test_what_is_not_an_exception_ends_the_run(consumer: MockConsumer, error: BaseException) -> None:
    """It is not tried again and not skipped."""
    attempts: list[str] = []

    def handler(record: ConsumerRecord) -> None:
        if record.value == "1-4":
            attempts.append(record.value)
            raise error

    with pytest.raises(type(error)) as caught:
        process(consumer, handler, order="none", on_failure="skip")
    assert (["1-4"], error) == (attempts, caught.value)
    assert 4 >= committed(consumer).get(TP1, 0)


def test_a_dead_letter_that_fails_ends_the_run(consumer: MockConsumer) -> None:
    """What the callable raises is raised, with the error of the handler as its context."""

    def handler(record: ConsumerRecord) -> None:
        raise ValueError(record.value)

    def dead_letter(record: ConsumerRecord, error: BaseException) -> None:
        raise OSError("the topic is gone")

    with pytest.raises(OSError, match="the topic is gone"):
        process(consumer, handler, workers=1, on_failure=dead_letter, retry=None)
    assert {TP0: 0, TP1: 0} == {tp: committed(consumer).get(tp, 0) for tp in (TP0, TP1)}


def test_pauses_of_the_application_stay(consumer: MockConsumer) -> None:
    """A partition that the application has paused is not read, and is still paused at the end."""
    consumer.pause(TP1)
    gate = Gate()
    run = Background(consumer, gate, workers=1, max_in_flight=2)
    until(lambda: consumer.paused() == {TP0, TP1})
    gate.open()
    until(lambda: len(gate.finished) == 10)
    run.processor.stop()
    run.join()
    assert (True, {TP1}) == (all(value.startswith("0-") for value in gate.finished), set(consumer.paused()))


def test_one_run_for_a_consumer(consumer: MockConsumer) -> None:
    """A second run of the same consumer, or of the same Processor, raises StateError."""
    errors: list[BaseException] = []

    def handler(record: ConsumerRecord) -> None:
        try:
            process(consumer, handler)
        except StateError as error:
            errors.append(error)
        parallel.stop()

    processor = Processor(consumer, handler)
    processor.run()
    assert "another process() call uses this consumer" in str(errors[0])
    with pytest.raises(StateError, match="runs once"):
        processor.run()


def unimportable() -> Callable[[ConsumerRecord], None]:
    """Returns a function that cannot be pickled."""
    return lambda record: None


async def coroutine(record: ConsumerRecord) -> None:
    """A handler for an event loop."""


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"workers": 0}, ConfigError, "workers must be an integer of at least 1, not 0"),
        ({"max_in_flight": 1.5}, ConfigError, "max_in_flight must be an integer"),
        ({"order": "keys"}, ConfigError, "order must be one of 'partition', 'key', 'none', not 'keys'"),
        ({"executor": "fibers"}, ConfigError, "executor must be one of 'threads', 'processes', 'asyncio'"),
        ({"on_revoke": "wait"}, ConfigError, "on_revoke must be one of 'drain', 'abandon'"),
        ({"on_failure": "ignore"}, ConfigError, "on_failure must be 'stop', 'skip', or a callable"),
        ({"retry": 3}, ConfigError, r"retry must be a Retry, such as Retry\(attempts=3, backoff_s=0.1\), not 3"),
        ({"drain_timeout_s": -1}, ConfigError, "drain_timeout_s must be a number of seconds"),
        ({"commit_interval_s": float("nan")}, ConfigError, "commit_interval_s must be a number of seconds"),
        ({"handler": None}, TypeError, "the handler must be a callable that takes a record"),
        ({"handler": coroutine}, TypeError, "the handler is a coroutine function: use executor='asyncio'"),
        ({"on_failure": coroutine}, TypeError, "on_failure is a coroutine function"),
        ({"executor": "processes", "handler": unimportable()}, ConfigError, "cannot be pickled .*: use a function at"),
    ],
)
def test_wrong_arguments(consumer: MockConsumer, arguments: dict[str, Any], error: Any, message: str) -> None:
    """An argument that is not possible raises an error that says what to change."""
    chosen = {"handler": print, **arguments}
    with pytest.raises(error, match=message):
        process(consumer, **chosen)


def test_wrong_consumers() -> None:
    """The consumer must have a group, must not auto-commit, and must be a Consumer."""
    with MockConsumer(group_id="g") as consumer, pytest.raises(ConfigError, match="give enable_auto_commit=False"):
        process(consumer, print)
    with MockConsumer() as consumer, pytest.raises(ConfigError, match="needs a group: give group_id="):
        process(consumer, print)
    other: Any = AsyncConsumer
    with pytest.raises(TypeError, match=r"takes a kconsumer.Consumer, not ABCMeta"):
        process(other, print)


def test_a_plain_function_in_an_event_loop_is_refused(consumer: MockConsumer) -> None:
    """With executor="asyncio", a handler that returns nothing to await ends the run with an error that says so."""
    with pytest.raises(TypeError, match="the handler must be a coroutine function; it returned None"):
        process(consumer, lambda record: None, executor="asyncio", retry=None)


SCRIPT = """
from kconsumer.parallel import process
from kconsumer.testing import MockConsumer

def handler(record):
    pass

OPTIONS = dict(group_id="g", auto_offset_reset="earliest", enable_auto_commit=False, consumer_timeout_ms=1)
{guard}consumer = MockConsumer(**OPTIONS)
{guard}consumer.assign([("t", 0)])
{guard}consumer.add_records(("t", 0), ["a", "b"])
{guard}print(process(consumer, handler, workers=1, executor="processes").processed)
{guard}consumer.close()
"""


def test_a_script_needs_a_guard_for_processes(tmp_path: Any) -> None:
    """A script that calls process() under `if __name__ == "__main__"` works; without it, the error says so."""
    results = []
    for name, guard in (("guarded", "if __name__ == '__main__': "), ("bare", "")):
        file = tmp_path / f"{name}.py"
        file.write_text(SCRIPT.format(guard=guard))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        results.append(
            subprocess.run([sys.executable, str(file)], capture_output=True, text=True, env=environment, timeout=60)
        )
    guarded, bare = results
    assert (0, "2\n", "") == (guarded.returncode, guarded.stdout, guarded.stderr)
    assert 1 == bare.returncode
    assert "WorkerProcessError: a worker process ended (exit code 1) before it was ready" in bare.stderr
    assert "must call process() under `if __name__" in bare.stderr


@pytest.mark.parametrize("failing", [2, 12])
def test_a_partition_is_paused_before_its_metadata_overflow(failing: int) -> None:
    """While some records wait for retries, no more are taken than fit into the metadata, and a restart repeats none."""
    handled: list[int] = []
    more: list[bool] = []

    def handler(record: ConsumerRecord) -> None:
        if record.offset % failing and not more:
            raise ValueError
        handled.append(record.offset)

    retry = Retry(attempts=2, backoff_s=1000, max_backoff_s=1000)
    with MockConsumer(group_id="g", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.assign([TP0])
        consumer.add_records(TP0, [b""] * 40_000)
        options: dict[str, Any] = {"workers": 1, "order": "none", "max_in_flight": 100_000}
        run = Background(consumer, handler, **options, retry=retry, commit_interval_s=1000)
        until(lambda: TP0 in consumer.paused())
        until(lambda: run.processor.summary().processed > 1000)
        run.processor.stop()
        first = run.join()
        metadata = consumer.committed_offsets()[TP0].metadata
        more.append(True)
        run = Background(consumer, handler, **options)
        until(lambda: len(handled) == 40_000)
        run.processor.stop()
        second = run.join()
    assert len(metadata) <= MAX_METADATA_BYTES
    assert (first.processed - 1, 40_000) == (second.restored, len(set(handled)))
    assert {TP0: 40_000} == committed(consumer)


def test_a_stop_ends_the_wait_for_committed_offsets() -> None:
    """stop() while a run waits for the committed offset of a new partition: it ends at once, and takes no record."""
    processed: list[bytes] = []
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.produce("t", [b"0", b"1"])

        def stop_later(data: bytes) -> bytes:
            cluster.delay("OffsetFetch", 60)
            threading.Timer(0.05, processor.stop).start()
            return data

        consumer = Consumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            value_deserializer=stop_later,
        )
        processor = Processor(consumer, lambda record: processed.append(record.value))
        began = time.monotonic()
        assert 0 == processor.run().processed
        assert time.monotonic() < began + DEADLINE_S
        assert 0 == consumer.position(TP0)
        consumer.close(0.1)
        assert {} == cluster.committed("g")
    assert [] == processed
