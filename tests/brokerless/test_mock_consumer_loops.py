"""A loop over a MockConsumer that has nothing left: how it waits, and what ends it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kconsumer.errors import StateError
from kconsumer.testing import MockConsumer

TP = ("t", 0)
RUNNING_S = 0.5  # how long the loop waits before it is ended
LIMIT_S = 10.0  # after this time, a loop that nothing else has ended gets a wakeup


@contextmanager
def after(delay_s: float, call: Callable[[], object]) -> Iterator[None]:
    """Call a function in another thread after a while, unless the block has ended."""
    timer = threading.Timer(delay_s, call)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def read(consumer: MockConsumer) -> list[object]:
    """Returns the values that a loop gets before an exception ends it, and the exception's type at the end."""
    found: list[object] = []
    try:
        found.extend(record.value for record in consumer)
    except BaseException as error:
        found.append(type(error))
    return found


@pytest.fixture
def consumer() -> Iterator[MockConsumer]:
    with MockConsumer(auto_offset_reset="earliest") as consumer, after(LIMIT_S, consumer.wakeup):
        consumer.assign([TP])
        consumer.add_records(TP, [1, 2])
        yield consumer


def test_a_signal_handler_that_closes(consumer: MockConsumer) -> None:
    """close() in a signal handler ends the loop."""
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: consumer.close())
    try:
        main = threading.main_thread().ident
        assert main is not None
        with after(RUNNING_S, lambda: signal.pthread_kill(main, signal.SIGTERM)):
            assert [1, 2, StateError] == read(consumer)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_what_a_test_schedules(consumer: MockConsumer) -> None:
    """Scheduled calls and errors run in the following polls of the loop."""
    for _ in range(3):
        consumer.schedule(lambda: None)
    consumer.schedule(lambda: consumer.add_records(TP, [3]))
    consumer.schedule(lambda: consumer.raise_next(KeyError()))
    assert [1, 2, 3, KeyError] == read(consumer)


def test_a_poll_before_the_rebalance_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """A subscription without `rebalance` reads nothing, and says so if there are records."""
    with caplog.at_level("WARNING"), MockConsumer("t", group_id="g") as consumer:
        consumer.poll()
        assert "" == caplog.text
        consumer.add_records(TP, [1])
        assert [0, 0] == [len(consumer.poll()) for _ in range(2)]
        assert 1 == caplog.text.count("call rebalance([…])")
