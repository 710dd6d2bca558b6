"""The resolver: how often it calls the system's resolver, and with how many threads."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from kconsumer.net.background import MAX_THREADS
from kconsumer.net.resolver import Lookup, Resolver
from kconsumer.net.transport import Address, resolve_canonical


class Jobs:
    """Collects the jobs that would run on threads."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.asked: list[str] = []
        self.wakes = 0
        self.resolver = Resolver(self.wake, self.waiting.append)

    def resolve(self, host: str, port: int) -> list[Address]:
        self.asked.append(host)
        if host == "unknown":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [Address(2, ("10.0.0.1", port))]

    def wake(self) -> None:
        self.wakes += 1


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


def test_the_name_of_a_numeric_address_is_a_lookup_of_its_own(jobs: Jobs) -> None:
    """A thread looks up the name of a numeric address; a caller that only needs the address does not wait for it."""
    named = jobs.resolver.look_up(resolve_canonical, "127.0.0.1", 7)
    assert jobs.resolver.look_up(jobs.resolve, "127.0.0.1", 7).completed
    assert not named.completed
    jobs.waiting.pop()()
    name = socket.getnameinfo(("127.0.0.1", 7), 0)[0]
    assert [Address(socket.AF_INET, ("127.0.0.1", 7), name)] == named.found


def test_threads_are_few(jobs: Jobs) -> None:
    """The number of threads is limited, however many names hang; each thread continues with waiting names."""
    lookups = [jobs.resolver.look_up(jobs.resolve, f"host{i}", 1) for i in range(3 * MAX_THREADS)]
    assert MAX_THREADS == len(jobs.waiting)
    jobs.waiting.pop()()
    assert all(lookup.completed for lookup in lookups)
    assert [f"host{i}" for i in range(3 * MAX_THREADS)] == jobs.asked
    jobs.resolver.look_up(jobs.resolve, "another", 1)
    assert MAX_THREADS == len(jobs.waiting)


def test_without_a_thread_the_caller_asks() -> None:
    """If no thread can be started the calling thread resolves the name."""

    def refuse(_: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    def resolve(host: str, port: int) -> list[Address]:
        return [Address(2, (host, port))]

    resolver = Resolver(lambda: None, refuse)
    lookup: Lookup = resolver.look_up(resolve, "a", 1)
    assert lookup.completed
    assert not resolver.look_up(resolve, "b", 1).error
