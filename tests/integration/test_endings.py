"""How a consumer stops: wakeup, Ctrl-C, fork and garbage collection. The effects of close() in each state are in
test_close_states.py.
"""

from __future__ import annotations

import os
import socket
import threading
from typing import Any

from kconsumer import Consumer
from support.harnesses.stopwatch import Stopwatch

Options = dict[str, Any]


def test_constructor_connects_nothing_and_starts_nothing() -> None:
    """The constructor opens no descriptor and starts no thread, even if no process listens at the address."""
    descriptors, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    consumer = Consumer("t", bootstrap_servers="127.0.0.1:1", group_id="g")
    assert (descriptors, threads) == (len(os.listdir("/proc/self/fd")), threading.active_count())
    consumer.close()


def test_a_listener_that_never_responds(engine: Options) -> None:
    """If a listener never sends a response, poll() and close() return in time."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        consumer = Consumer("t", bootstrap_servers=f"127.0.0.1:{port}", group_id="g", **engine)
        watch = Stopwatch()
        assert not consumer.poll(0.5)
        consumer.close(timeout=1)
        assert watch.seconds() < 2
