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


def test_a_lookup_ends_in_the_background(jobs: Jobs) -> None:
    """A lookup is complete after its thread ran, which then wakes the waiting caller."""
    lookup = jobs.resolver.look_up(jobs.resolve, "a", 1)
    assert (False, False, 0) == (lookup.completed, jobs.resolver.completed_tasks, jobs.wakes)
    jobs.waiting.pop()()
    assert (True, True, 1) == (lookup.completed, jobs.resolver.completed_tasks, jobs.wakes)
    assert [Address(2, ("10.0.0.1", 1))] == lookup.found
    assert lookup.error is None


def test_a_failed_lookup_has_its_error(jobs: Jobs) -> None:
    """An error of the system's resolver is the result of the lookup."""
    lookup = jobs.resolver.look_up(jobs.resolve, "unknown", 1)
    jobs.waiting.pop()()
    assert isinstance(lookup.error, socket.gaierror)
    assert [] == lookup.found


def test_a_name_is_asked_for_once_at_a_time(jobs: Jobs) -> None:
    """Concurrent lookups of a name share one result; a later one resolves it again."""
    first = jobs.resolver.look_up(jobs.resolve, "a", 1)
    assert first is jobs.resolver.look_up(jobs.resolve, "a", 1)
    jobs.waiting.pop()()
    assert first is not jobs.resolver.look_up(jobs.resolve, "a", 1)
    assert 1 == len(jobs.waiting)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "fe80::1%eth0"])
def test_a_numeric_address_needs_no_thread(jobs: Jobs, host: str) -> None:
    """The lookup of a numeric address is complete at once."""
    assert jobs.resolver.look_up(jobs.resolve, host, 1).completed
    assert [] == jobs.waiting


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


def test_after_close_nothing_is_asked(jobs: Jobs) -> None:
    """After close() waiting names are dropped."""
    jobs.resolver.look_up(jobs.resolve, "a", 1)
    jobs.resolver.close()
    jobs.waiting.pop()()
    assert [] == jobs.asked


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
