"""A signal handler that raises never leaves a SignalSafeLock locked."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

import pytest

from kconsumer._common.signal_safe_lock import SignalSafeLock
from support.harnesses.interruptions import Interruption, handler, interrupted

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the signals are those of POSIX")


@pytest.fixture(scope="module")
def thread() -> Iterator[ThreadPoolExecutor]:
    """Another thread."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


def is_free(lock: SignalSafeLock, thread: ThreadPoolExecutor) -> bool:
    """Returns whether another thread can acquire the lock. Releases it again."""

    def acquire() -> bool:
        acquired = lock.acquire(blocking=False)
        if acquired:
            lock.release()
        return acquired

    return thread.submit(acquire).result()


def test_a_block_interrupted_at_any_point(thread: ThreadPoolExecutor) -> None:
    """After an exception of a handler at each point of a `with` block, the lock is free."""
    lock, entered = SignalSafeLock(), []

    def block() -> None:
        with lock:
            entered.append(True)

    points = 0
    while interrupted(block, points + 1):
        points += 1
        assert is_free(lock, thread), f"interrupted at point {points}"
    assert points > 2
    assert entered


def test_an_inner_block_interrupted_at_any_point(thread: ThreadPoolExecutor) -> None:
    """An exception in an inner block of the same lock releases what the inner block has acquired, and no more."""
    lock, entered = SignalSafeLock(), []

    def block() -> None:
        with lock:
            entered.append(True)

    points, again = 0, True
    while again:
        with lock:
            points += 1
            again = interrupted(block, points)
            assert not is_free(lock, thread), f"interrupted at point {points}"
        assert is_free(lock, thread), f"interrupted at point {points}"
    assert points > 2


def test_an_interrupted_wait_for_the_lock(thread: ThreadPoolExecutor) -> None:
    """The exception of a handler ends the wait for a lock that another thread holds, and leaves it to that thread."""
    lock, main = SignalSafeLock(), threading.get_ident()
    held, waiting = threading.Event(), threading.Event()
    places: list[tuple[FrameType | None, int]] = []
    interruptions: list[Interruption] = []

    def interrupt(_number: int, frame: FrameType | None) -> None:
        place = frame, frame.f_lasti if frame else 0
        if place in places and not interruptions:  # two signals during one instruction: the main thread waits there
            interruptions.append(Interruption())
            raise interruptions[0]
        places[:] = [place]

    def hold() -> None:
        with lock:
            held.set()
            waiting.wait()
            while not interruptions:
                signal.pthread_kill(main, signal.SIGUSR1)

    with handler(signal.SIGUSR1, interrupt):
        holding = thread.submit(hold)
        held.wait()
        waiting.set()
        with pytest.raises(Interruption), lock:
            pytest.fail("two threads hold the lock")
        holding.result()
    assert is_free(lock, thread)


def test_a_condition_of_the_lock(thread: ThreadPoolExecutor) -> None:
    """A `threading.Condition` accepts the lock: it releases it during a wait, and holds it afterwards."""
    lock, notified = SignalSafeLock(), []
    condition = threading.Condition(lock)

    def notify() -> None:
        with lock:
            notified.append(True)
            condition.notify()

    with lock:
        notifying = thread.submit(notify)
        assert condition.wait_for(lambda: notified, timeout=10)
    notifying.result()
