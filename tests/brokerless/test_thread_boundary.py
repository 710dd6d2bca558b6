"""Calls that cross between the caller's thread and the network thread at any moment: wakeups, polls and fetches.

The broker is scripted, the network is real. Tests that apply to both engines run with both. Members that seek, pause
and unsubscribe meanwhile are in `test_random_use.py`, and for hours in virtual time in the simulation.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kconsumer import Consumer, TopicPartition
from kconsumer.engine.network_thread import NetworkThread
from kconsumer.errors import WakeupError
from support.fakes.log_broker import LogBroker
from support.harnesses.inside import engine_of, parts_of
from support.harnesses.threads import eventually

pytestmark = pytest.mark.network_thread

ENGINES = ["classic", "threaded"]
RECORDS, BATCH = 8000, 10
ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
WAKEUPS = 25


@pytest.fixture
def broker() -> Iterator[LogBroker]:
    """A broker with two partitions of equally many records, whose values are their offsets."""
    with LogBroker(2) as broker:
        for log in broker.logs:
            for _ in range(RECORDS // BATCH):
                log.append(BATCH)
        yield broker


@pytest.fixture
def consumer(broker: LogBroker, request: pytest.FixtureRequest) -> Iterator[Consumer]:
    """A consumer that reads both partitions from the beginning, with the engine of the test."""
    made = Consumer(
        bootstrap_servers=broker.address,
        engine=request.param,
        auto_offset_reset="none",
        max_poll_records=request.node.callspec.params.get("at_most", 7),
        max_partition_fetch_bytes=1000,  # many fetches, so that one is always in flight
    )
    made.assign([ZERO, ONE])
    made.seek(ZERO, 0)
    made.seek(ONE, 0)
    yield made
    made.close(1)


both_engines = pytest.mark.parametrize("consumer", ENGINES, indirect=True)
network_thread = pytest.mark.parametrize("consumer", ["threaded"], indirect=True)


class Reader:
    """Checks that each record is the next one of its partition."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.next = {ZERO: 0, ONE: 0}

    def poll(self, timeout: float) -> int:
        """Poll once. Returns the number of records."""
        return self.take(self.consumer.poll(timeout))

    def take(self, records: Any) -> int:
        """Check the records of a poll."""
        for record in records:
            tp = record.topic_partition
            assert (self.next[tp], b"%d" % record.offset) == (record.offset, record.value)
            self.next[tp] += 1
        return len(records)


# --- wakeup --------------------------------------------------------------------------------------------------------


def woken_by_thread(consumer: Consumer) -> None:
    """Call wakeup() from another thread."""
    consumer.wakeup()


def woken_by_signal(consumer: Consumer) -> None:
    """Call wakeup() in a signal handler, which runs in the main thread between two of its calls."""
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGUSR1)


@both_engines
@pytest.mark.parametrize("wake", [woken_by_thread, woken_by_signal])
def test_each_wakeup_ends_one_poll(consumer: Consumer, wake: Callable[[Consumer], None]) -> None:
    """Each wakeup is raised once, by a poll that waits or by one that has records; no wakeup and no record is lost."""
    raised = threading.Semaphore(0)
    late: list[int] = []

    def keep_waking() -> None:
        rng = random.Random(1)
        for number in range(WAKEUPS):
            time.sleep(rng.random() / 500)
            wake(consumer)
            if not raised.acquire(timeout=20):
                late.append(number)
                return

    before = signal.signal(signal.SIGUSR1, lambda *_: consumer.wakeup())
    waker = threading.Thread(target=keep_waking)
    reader, count = Reader(consumer), 0
    try:
        waker.start()
        while waker.is_alive():
            try:
                reader.poll(0.5)
            except WakeupError:
                count += 1
                raised.release()
    finally:
        waker.join()
        signal.signal(signal.SIGUSR1, before)
    assert (WAKEUPS, []) == (count, late)


# --- between polls -------------------------------------------------------------------------------------------------


@network_thread
def test_what_is_assigned_can_be_asked_while_its_order_changes(consumer: Consumer) -> None:
    """While the network thread changes the order of partitions, assignment() returns all of them."""
    everything = {TopicPartition("many", number) for number in range(100)}
    consumer.assign(everything)
    consumer.pause(*everything)
    engine, ended = engine_of(consumer), threading.Event()

    def take_turns() -> None:
        while not ended.is_set():
            for tp in everything:
                with engine.lock:
                    engine.components.assignment.move_to_end(tp)

    thread = threading.Thread(target=take_turns)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        for _ in range(200):
            assert everything == consumer.assignment() == consumer.paused()
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(before)


@both_engines
def test_poll_without_waiting_reads_all_there_is(consumer: Consumer) -> None:
    """Repeated poll(0) calls return the records of every partition, in order."""
    reader, deadline = Reader(consumer), time.monotonic() + 60
    while min(reader.next.values()) < 300:
        assert time.monotonic() < deadline, reader.next
        reader.poll(0)


@network_thread
def test_the_network_thread_rests_when_there_is_nothing_to_do(consumer: Consumer) -> None:
    """Neither a poll that waits nor repeated polls without a timeout cause needless rounds of the network thread."""
    consumer.pause(ZERO, ONE)
    engine: Any = engine_of(consumer)
    consumer.poll(0.3)  # lets pending work complete
    rounds = 0
    one_round = engine.driver._network._run_once

    def counted() -> None:
        nonlocal rounds
        rounds += 1
        one_round()

    engine.driver._network._run_once = counted
    consumer.poll(0.5)
    assert rounds <= 5
    rounds, polls, until = 0, 0, time.monotonic() + 0.5
    while time.monotonic() < until:
        consumer.poll(0)
        polls += 1
    assert rounds <= min(polls, 0.5 / 0.05 + 5)


@network_thread
def test_the_fetches_of_a_caller_that_is_never_suspended_are_sent(consumer: Consumer) -> None:
    """The fetch that a poll made is sent by the next poll, even if that returns records. The network thread need not
    wait until the interpreter suspends the caller's thread, which in this test never happens.
    """
    driver: Any = engine_of(consumer).driver
    dispatcher, fetch = parts_of(consumer).dispatcher, parts_of(consumer).fetch
    reader = Reader(consumer)
    reader.poll(10)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e6)
    try:
        made = 0
        while made < 5:
            # The broker's thread, too, runs only while this thread waits, and no poll makes a fetch while one is in
            # flight.
            eventually(lambda: not fetch.has_in_flight, "the response")
            assert max(reader.next.values()) < RECORDS
            reader.poll(1)
            if not driver.has_urgent_io:
                continue
            made += 1
            polls = 0
            while driver.has_urgent_io or dispatcher.waiting:
                assert polls < 20  # 1 ms each, on a machine with other work
                reader.poll(0)
                polls += 1
    finally:
        sys.setswitchinterval(before)


@network_thread
def test_a_fetch_made_while_others_are_written_is_still_to_be_sent(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll makes a fetch while the network thread writes earlier requests. The fetch stays urgent until it has been
    written, too.
    """
    engine: Any = engine_of(consumer)
    driver, components = engine.driver, engine.components
    client, fetch, dispatcher = components.client, components.fetch, components.dispatcher
    reader, seen = Reader(consumer), []
    reader.poll(10)
    eventually(lambda: not fetch.has_in_flight, "the response")
    flush, inside, proceed = client.flush, threading.Event(), threading.Event()

    def slow_flush(now: float) -> None:
        seen.append((bool(driver.has_urgent_io), dispatcher.waiting))
        inside.set()
        assert proceed.wait(20)
        flush(now)

    monkeypatch.setattr(client, "flush", slow_flush)
    client.wakeup()
    assert inside.wait(20)
    while not driver.has_urgent_io:
        assert reader.poll(0)
    assert [(False, 0)] == seen
    proceed.set()
    eventually(lambda: not driver.has_urgent_io, "the fetch to be written")
    assert (True, 0) == seen[1]


# --- what fails ----------------------------------------------------------------------------------------------------


@network_thread
def test_a_thread_that_cannot_be_started(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    """While no thread can be started, each call raises the system's error; afterwards calls work."""

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(NetworkThread, "start", refuse)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="start new thread"):
                consumer.poll(20)
    assert Reader(consumer).poll(20)
