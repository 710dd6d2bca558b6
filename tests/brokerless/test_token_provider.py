"""User callables that return credentials: the thread they run on, and what they must not block."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kconsumer import Consumer
from support.harnesses.inside import engine_of


class Provider:
    """Blocks until the test ends; records which threads called it."""

    def __init__(self) -> None:
        self.called = threading.Event()
        self.over = threading.Event()
        self.threads: list[str] = []

    def __call__(self) -> str:
        self.threads.append(threading.current_thread().name)
        self.called.set()
        self.over.wait(30)
        return "secret"


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()
    yield made
    made.over.set()


@pytest.mark.parametrize("engine", ["classic", "threaded"])
@pytest.mark.parametrize("option", ["sasl_oauth_token_provider", "sasl_plain_password"])
def test_credentials_are_got_on_a_thread_of_their_own(provider: Provider, engine: str, option: str) -> None:
    """Neither the polling thread nor the heartbeat thread runs the callable: poll returns in time while it blocks, and
    the engine's lock is free.
    """
    login: dict[str, Any] = {"sasl_mechanism": "OAUTHBEARER", option: provider}
    if option == "sasl_plain_password":
        login = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "alice", option: provider}
    with socket.create_server(("127.0.0.1", 0)) as broker:
        servers = f"127.0.0.1:{broker.getsockname()[1]}"
        login |= {"bootstrap_servers": servers, "security_protocol": "SASL_PLAINTEXT"}
        consumer = Consumer("t", group_id="g", engine=engine, **login)
        try:
            began = time.monotonic()
            while not provider.called.is_set():
                assert time.monotonic() - began < 20
                consumer.poll(0.05)
            began = time.monotonic()
            assert not consumer.poll(0.1)
            assert time.monotonic() - began < 5
            assert engine_of(consumer).lock.acquire(timeout=5)
            engine_of(consumer).lock.release()
            assert ["kconsumer-background"] == provider.threads
        finally:
            consumer.close(0.1)
