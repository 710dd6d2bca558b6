"""While a name server is silent, calls end in time, and few threads wait for it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kconsumer import Consumer
from kconsumer.errors import TimeoutError
from kconsumer.net.background import MAX_THREADS

BROKERS = [f"broker{i}.slow.invalid:9092" for i in range(2 * MAX_THREADS)]
SOON_S = 5.0  # long for a loaded machine, short for a silent name server


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names that were looked up; no look-up completes before the test ends."""
    names: list[str] = []
    over = threading.Event()

    def getaddrinfo(host: Any, *_: Any, **__: Any) -> Any:
        names.append(host.decode())
        over.wait(60)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield names
    over.set()


@pytest.mark.parametrize("engine", ["classic", "threaded"])
def test_calls_end_in_time(asked: list[str], engine: str) -> None:
    """poll, a blocking call and close end by their timeouts, and the error says that the name look-up is slow."""
    consumer = Consumer("t", bootstrap_servers=BROKERS, group_id="g", engine=engine)
    began = time.monotonic()
    try:
        assert not consumer.poll(0.1)
        with pytest.raises(TimeoutError, match=r"slow\.invalid.* has not been resolved"):
            consumer.list_topics(0.1)
    finally:
        consumer.close(0.1)
    assert time.monotonic() - began < SOON_S
    assert asked


@pytest.mark.parametrize("engine", ["classic", "threaded"])
def test_few_threads_wait(asked: list[str], engine: str) -> None:
    """Attempts time out and new ones begin, but a consumer never has more than a fixed number of threads that look up
    names.
    """
    options = {"socket_connection_setup_timeout_ms": 20, "socket_connection_setup_timeout_max_ms": 20}
    before = threading.enumerate()
    with Consumer("t", bootstrap_servers=BROKERS, group_id="g", engine=engine, **options) as consumer:
        deadline = time.monotonic() + 20
        while len(asked) < MAX_THREADS:
            assert time.monotonic() < deadline
            consumer.poll(0.05)
        consumer.poll(0.5)
        threads = [thread for thread in threading.enumerate() if thread not in before]
    assert MAX_THREADS == len([thread for thread in threads if thread.name == "kconsumer-background"])
    assert MAX_THREADS == len(set(asked)) == len(asked)
