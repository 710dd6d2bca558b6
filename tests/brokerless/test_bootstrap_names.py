"""What happens while no name in `bootstrap_servers` can be resolved (KIP-909)."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from kconsumer import Consumer, ShareConsumer, groups
from kconsumer.aio import AsyncConsumer
from kconsumer.errors import BootstrapResolutionError
from kconsumer.testing import FakeCluster
from support.harnesses.engines import ENGINES

NAMES = [f"broker{number}.typo.invalid:9092" for number in range(3)]
MESSAGE = r"no name in bootstrap_servers could be resolved.*broker0\.typo\.invalid:9092: .*Name or service not known"
SOON_S = 20.0  # long for a loaded machine, short for a call without an end


class Names:
    """Resolves the names of `NAMES` as the test says, and all others as usual."""

    def __init__(self) -> None:
        self.port: int | None = None  # of the broker that all names are resolved to; None: they are unknown
        self._getaddrinfo = socket.getaddrinfo

    def resolve(self, host: Any, port: Any, *args: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if not name.endswith(".invalid"):
            return self._getaddrinfo(host, port, *args, **options)
        if self.port is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self._getaddrinfo("127.0.0.1", self.port, *args, **options)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    found = Names()
    monkeypatch.setattr(socket, "getaddrinfo", found.resolve)
    return found


def poll_until(consumer: Consumer | ShareConsumer, condition: Callable[[Any], bool]) -> None:
    end = time.monotonic() + SOON_S
    while not condition(consumer.poll(timeout=0.1)):
        assert time.monotonic() < end


@pytest.mark.parametrize("engine", ENGINES)
def test_the_first_call_that_waits_raises(names: Names, engine: str) -> None:
    """The constructor and calls that do not wait raise nothing. The first poll raises an error with all names, at once,
    and so does the first call of another kind.
    """
    with Consumer("t", bootstrap_servers=NAMES, group_id="g", **ENGINES[engine]) as consumer:
        assert frozenset() == consumer.assignment()
        began = time.monotonic()
        with pytest.raises(BootstrapResolutionError, match=MESSAGE) as raised:
            consumer.poll(timeout=60.0)
        assert all(name in str(raised.value) for name in NAMES)
        for call in (consumer.list_topics, lambda: consumer.end_offsets([("t", 0)]), lambda: consumer.poll(60.0)):
            with pytest.raises(BootstrapResolutionError, match=MESSAGE):
                call()
        assert time.monotonic() - began < SOON_S


def test_other_clients_raise_it_too(names: Names) -> None:
    """Share consumers, asyncio consumers and the functions for groups raise the same error."""
    with (
        ShareConsumer("t", bootstrap_servers=NAMES, group_id="g") as share,
        pytest.raises(BootstrapResolutionError, match=MESSAGE),
    ):
        share.poll(timeout=60.0)
    with pytest.raises(BootstrapResolutionError, match=MESSAGE):
        groups.list(NAMES)

    async def poll() -> None:
        async with AsyncConsumer("t", bootstrap_servers=NAMES, group_id="g") as consumer:
            await consumer.poll(60.0)

    with pytest.raises(BootstrapResolutionError, match=MESSAGE):
        asyncio.run(poll())


@pytest.mark.parametrize("engine", ENGINES)
def test_a_name_that_resolves_in_time_is_no_error(names: Names, engine: str) -> None:
    """While bootstrap_resolve_timeout_ms lasts, polls are empty. When a name resolves, the consumer reads."""
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.produce("t", [b"1"])
        options = {"auto_offset_reset": "earliest", "bootstrap_resolve_timeout_ms": 600_000, **ENGINES[engine]}
        with Consumer("t", bootstrap_servers=NAMES, group_id="g", **options) as consumer:
            for _ in range(5):
                assert not consumer.poll(timeout=0.1)
            names.port = int(cluster.bootstrap_servers.rpartition(":")[2])
            poll_until(consumer, bool)


def test_the_timeout_is_named(names: Names) -> None:
    """After bootstrap_resolve_timeout_ms a poll raises, and not before."""
    with Consumer("t", bootstrap_servers=NAMES, group_id="g", bootstrap_resolve_timeout_ms=1000) as consumer:
        began = time.monotonic()
        with pytest.raises(BootstrapResolutionError, match=r"within 1000 ms \(bootstrap_resolve_timeout_ms\)"):
            consumer.poll(timeout=60.0)
        assert 1.0 <= time.monotonic() - began < SOON_S


def test_the_client_continues_after_the_error(names: Names) -> None:
    """A program that catches the error and polls again reads as soon as a name resolves, unlike Java's."""
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.produce("t", [b"1"])
        with Consumer("t", bootstrap_servers=NAMES, group_id="g", auto_offset_reset="earliest") as consumer:
            with pytest.raises(BootstrapResolutionError):
                consumer.poll(timeout=60.0)
            names.port = int(cluster.bootstrap_servers.rpartition(":")[2])
            poll_until(consumer, bool)


def test_one_name_that_resolves_is_enough(names: Names) -> None:
    """If one of several bootstrap servers can be resolved, the others are no error."""
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.produce("t", [b"1"])
        servers = [*NAMES, cluster.bootstrap_servers]
        with Consumer("t", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest") as consumer:
            poll_until(consumer, bool)


def test_names_that_are_lost_later_are_no_error(names: Names) -> None:
    """After the first connection, names that cannot be resolved any more only cause warnings."""
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.produce("t", [b"1"])
        names.port = int(cluster.bootstrap_servers.rpartition(":")[2])
        options: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
        with Consumer("t", bootstrap_servers=NAMES, group_id="g", **options) as consumer:
            poll_until(consumer, bool)
            names.port = None
            cluster.kill(1)
            for _ in range(20):
                assert not consumer.poll(timeout=0.1)
