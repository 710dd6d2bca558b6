"""The network thread without a broker: when it starts, which errors it survives, how it ends."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kconsumer import Consumer, TopicPartition
from kconsumer._core.lock import Clock
from kconsumer.engine.environment import Environment
from kconsumer.engine.events import ApplicationEvent, ApplicationEvents, Signal
from kconsumer.engine.network_thread import NetworkThread
from kconsumer.errors import ConfigError, KafkaError, StateError
from kconsumer.metrics.registry import Metrics
from kconsumer.types import SubscriptionPattern
from support.harnesses.inside import engine_of, parts_of
from support.harnesses.stopwatch import Stopwatch
from support.harnesses.threads import eventually

pytestmark = pytest.mark.network_thread

UNREACHABLE = "127.0.0.1:1"
WHERE = {"bootstrap_servers": UNREACHABLE, "group_id": "g", "group_protocol": "consumer"}
NAME = "kconsumer-network-g"


def names() -> list[str]:
    """Returns the names of the running threads."""
    return [thread.name for thread in threading.enumerate()]


@contextmanager
def consumer(*topics: str, **options: Any) -> Iterator[Consumer]:
    """A consumer without a broker; the test closes it."""
    made = Consumer(*topics, **{**WHERE, **options})
    try:
        yield made
    finally:
        made.close(1)


# --- the thread ---


def test_the_thread_starts_with_the_first_call_and_ends_with_close() -> None:
    """The constructor starts no thread. The network thread is a daemon whose name contains the group, and close()
    ends it.
    """
    with consumer("t") as made:
        assert NAME not in names()
        made.poll(0)
        (thread,) = [thread for thread in threading.enumerate() if thread.name == NAME]
        assert thread.daemon
    assert not thread.is_alive()


def test_close_does_not_wait_for_a_thread_that_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a call of the network thread does not return, close() returns nevertheless. The thread closes the network
    when its call has ended.
    """
    made = Consumer("t", **WHERE)
    client = parts_of(made).client
    stuck, released = threading.Event(), threading.Event()
    closed: list[str] = []
    poll, close = client.poll, client.close

    def wait_in_poll(timeout_ms: float, now: float) -> Any:
        stuck.set()
        released.wait(30)
        return poll(0.0, now)

    def note_close() -> None:
        closed.append(threading.current_thread().name)
        close()

    made.poll(0)
    monkeypatch.setattr(client, "close", note_close)
    monkeypatch.setattr(client, "poll", wait_in_poll)
    client.wakeup()
    assert stuck.wait(10)
    watch = Stopwatch()
    made.close(0)
    assert watch.seconds() < 5
    assert [] == closed
    released.set()
    eventually(lambda: NAME in closed, "the thread to close the network")
    eventually(lambda: NAME not in names(), "the thread to end")


def test_a_forgotten_classic_consumer_leaves_no_thread() -> None:
    """The heartbeat thread ends with its consumer, whether the consumer was closed or dropped."""
    made = Consumer("t", bootstrap_servers=UNREACHABLE, group_id="forgotten")
    made.poll(0)
    assert "kconsumer-heartbeat-forgotten" in names()
    holder = [made]
    del made
    with pytest.warns(ResourceWarning, match="unclosed"):
        holder.clear()
    eventually(lambda: "kconsumer-heartbeat-forgotten" not in names(), "the thread to end")


def test_a_round_that_fails_is_not_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """The thread logs an error of a round, pauses, and continues until it is stopped."""
    rounds: list[int] = []

    def one_round() -> None:
        rounds.append(len(rounds))
        if len(rounds) == 1:
            raise ValueError("the first round")
        time.sleep(0.001)

    thread = NetworkThread("rounds", one_round, lambda: None, Environment())
    thread.start()
    eventually(lambda: len(rounds) > 3, "more rounds")
    thread.stop()
    assert not thread.is_alive()
    assert "the first round" in caplog.text


def test_a_manager_that_fails_is_reported_and_the_others_continue() -> None:
    """A bug's error in one manager is raised once by a call that waits, and metadata is still requested."""
    with consumer() as made:
        made.assign([TopicPartition("t", 0)])
        engine: Any = engine_of(made)
        broken = engine.components.offsets
        engine.components.managers = [m for m in engine.components.managers if m is not broken]
        made.poll(0)

        class Broken:
            def poll(self, _now: float) -> Any:
                engine.components.managers.remove(self)
                raise ValueError("a fault")

        engine.components.managers.insert(0, Broken())
        began = time.monotonic()
        with pytest.raises(KafkaError, match="a fault"):
            made.poll(60)
        assert time.monotonic() - began < 20
        assert not made.poll(0.1)


# --- what crosses over ---


def test_a_signal_before_the_wait_is_not_lost() -> None:
    """A signal before a wait ends that wait, however often it was given; the next wait blocks."""
    signal = Signal(Metrics(), Clock(), threading.Lock())
    for _ in range(3):
        signal.notify()
    assert signal.wait(float("inf"))
    assert not signal.wait(0)


def test_events_come_in_order_and_once() -> None:
    """The network thread takes queued events in the order in which they were added, each once."""
    events = ApplicationEvents(Metrics())
    put = [ApplicationEvent(joining=bool(n)) for n in range(3)]
    for event in put:
        events.put(event, 1.0)
    assert put == list(events.drain(2.0))
    assert [] == list(events.drain(3.0))


# --- calls without a broker ---


def test_threads_switch_at_any_moment() -> None:
    """With a switch interval of a microsecond, consumers can be made, used and closed."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(5):
            with consumer("t") as made:
                for _ in range(20):
                    made.poll(0)
                made.unsubscribe()
                made.subscribe(["u"])
                made.poll(0.01)
            assert NAME not in names()
    finally:
        sys.setswitchinterval(before)


# --- options ---


@pytest.mark.parametrize(
    "options",
    [
        {"session_timeout_ms": 10_000},
        {"heartbeat_interval_ms": 1000},
        {"assignors": ["range"]},
        {"partition_assignment_strategy": ["range"]},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_of_the_classic_protocol_are_refused(options: dict[str, Any]) -> None:
    """The error names the option of the classic protocol and that protocol."""
    with pytest.raises(ConfigError, match=rf"{next(iter(options))}.*group_protocol='classic'"):
        Consumer("t", **WHERE, **options)


def test_options_of_the_consumer_protocol_are_refused_by_the_classic_one() -> None:
    """The classic protocol rejects options of the consumer protocol."""
    with pytest.raises(ConfigError, match=r"group_remote_assignor.*group_protocol='consumer'"):
        Consumer("t", bootstrap_servers=UNREACHABLE, group_id="g", group_remote_assignor="range")
    with (
        Consumer(bootstrap_servers=UNREACHABLE, group_id="g") as made,
        pytest.raises(StateError, match="group_protocol"),
    ):
        made.subscribe(SubscriptionPattern("a.*"))


def test_the_consumer_protocol_has_a_network_thread() -> None:
    """The error says that engine="classic" cannot be combined with the consumer protocol."""
    with pytest.raises(ConfigError, match=r"engine.*group_protocol='consumer'"):
        Consumer("t", **WHERE, engine="classic")
