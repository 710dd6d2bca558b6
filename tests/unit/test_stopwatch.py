"""What tests measure durations with."""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing.synchronize import Barrier

from support.stopwatch import Stopwatch

WORK_S = 0.3


def spin(seconds: float) -> float:
    """Use a processor for so long; how long that took."""
    began, until = time.monotonic(), time.thread_time() + seconds
    while time.thread_time() < until:
        pass
    return time.monotonic() - began


def compete(cpus: set[int], ready: Barrier) -> None:
    """Want one of these processors until killed."""
    os.sched_setaffinity(0, cpus)
    ready.wait(60)
    spin(60)


def test_waiting_and_working_count() -> None:
    """A stopwatch counts what a process waits for events, and what it computes."""
    watch = Stopwatch()
    time.sleep(0.1)
    assert 0.05 < watch.seconds() < 1
    spin(WORK_S)
    assert WORK_S < watch.seconds() < 2


def test_waiting_for_a_processor_does_not_count() -> None:
    """Where four others want the same processor, the clock shows far more than the stopwatch."""
    before = os.sched_getaffinity(0)
    only = {min(before)}
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(5)
    others = [context.Process(target=compete, args=(only, ready)) for _ in range(4)]
    for other in others:
        other.start()
    try:
        os.sched_setaffinity(0, only)
        ready.wait(60)
        watch = Stopwatch()
        clock_s = spin(WORK_S)
        assert watch.seconds() < clock_s * 0.6
    finally:
        os.sched_setaffinity(0, before)
        for other in others:
            other.kill()
