"""The stopwatch with which tests measure durations."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack

from support.harnesses.stopwatch import Stopwatch

WORK_S = 0.3
COMPETITORS = 4
COMPETE = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
print("ready", flush=True)
while True:
    pass
"""


def work() -> float:
    """Compute for a while. Returns the duration."""
    began, until = time.monotonic(), time.thread_time() + WORK_S
    while time.thread_time() < until:
        pass
    return time.monotonic() - began


def test_waiting_and_working_count() -> None:
    """A stopwatch counts the time that a process waits for events and the time that it computes."""
    watch = Stopwatch()
    time.sleep(0.1)  # a wait that the stopwatch must count
    assert 0.05 < watch.seconds() < 1
    work()
    assert WORK_S < watch.seconds() < 2


def test_waiting_for_a_processor_does_not_count() -> None:
    """If four other processes use the same processor, the stopwatch shows far less than the clock."""
    before = os.sched_getaffinity(0)
    only = min(before)
    command = [sys.executable, "-c", COMPETE, str(only)]
    with ExitStack() as stack:
        for _ in range(COMPETITORS):
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
            stack.callback(process.kill)
            assert process.stdout is not None
            process.stdout.readline()
        stack.callback(os.sched_setaffinity, 0, before)
        os.sched_setaffinity(0, {only})
        watch = Stopwatch()
        clock_s = work()
        assert watch.seconds() < clock_s * 0.6
