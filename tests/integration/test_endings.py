"""How a consumer stops: wakeup, Ctrl-C, fork and garbage collection. The effects of close() in each state are in
test_close_states.py.
"""

from __future__ import annotations

import os
import threading

from kconsumer import Consumer


def test_constructor_connects_nothing_and_starts_nothing() -> None:
    """The constructor opens no descriptor and starts no thread, even if no process listens at the address."""
    descriptors, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    consumer = Consumer("t", bootstrap_servers="127.0.0.1:1", group_id="g")
    assert (descriptors, threads) == (len(os.listdir("/proc/self/fd")), threading.active_count())
    consumer.close()
