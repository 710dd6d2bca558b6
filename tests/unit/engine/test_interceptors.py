"""The chain of interceptors: its order, and that its failures do not reach the consumer."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kconsumer import ConsumerRecords, OffsetAndMetadata, TopicPartition
from kconsumer.engine.interceptors import Interceptors

TP = TopicPartition("t", 0)
OFFSETS = {TP: OffsetAndMetadata(5)}


class Named:
    """An interceptor that records its calls and does what the test sets."""

    def __init__(self, name: str, calls: list[tuple[Any, ...]], returns: Any = None, raises: bool = False) -> None:
        self.name, self.calls, self.returns, self.raises = name, calls, returns, raises

    def on_consume(self, records: ConsumerRecords) -> Any:
        self._note("consume", records)
        return records if self.returns is None else self.returns

    def on_commit(self, offsets: Any) -> None:
        self._note("commit", offsets)

    def close(self) -> None:
        self._note("close", None)

    def _note(self, what: str, given: Any) -> None:
        self.calls.append((self.name, what, given))
        if self.raises:
            raise RuntimeError("broken")


class OnlyCommits:
    """An interceptor with one of the three methods."""

    def __init__(self) -> None:
        self.offsets: list[Any] = []

    def on_commit(self, offsets: Any) -> None:
        self.offsets.append(offsets)


def records() -> ConsumerRecords:
    """Returns an empty result, which is a different object for each call."""
    return ConsumerRecords()


def test_each_receives_the_result_of_the_previous_one() -> None:
    """Interceptors run in the configured order, and the caller receives the result of the last one."""
    calls: list[tuple[Any, ...]] = []
    first, second, given = records(), records(), records()
    chain = Interceptors([Named("a", calls, first), OnlyCommits(), Named("b", calls, second)])
    assert chain.consumed(given) is second
    assert [("a", "consume"), ("b", "consume")] == [call[:2] for call in calls]
    assert calls[0][2] is given
    assert calls[1][2] is first


def test_commits_reach_all() -> None:
    """Commits are passed to all interceptors, also to one without on_consume."""
    calls: list[tuple[Any, ...]] = []
    other = OnlyCommits()
    chain = Interceptors([Named("a", calls), other])
    chain.committed(OFFSETS)
    chain.close()
    assert [("a", "commit", OFFSETS), ("a", "close", None)] == calls
    assert [OFFSETS] == other.offsets


def test_failures_are_logged_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    """An exception or a wrong result of one interceptor reaches neither the caller nor the other interceptors."""
    calls: list[tuple[Any, ...]] = []
    given = records()
    chain = Interceptors([Named("a", calls, raises=True), Named("b", calls, returns=[]), Named("c", calls)])
    with caplog.at_level(logging.WARNING):
        assert chain.consumed(given) is given
        chain.committed(OFFSETS)
        chain.close()
    assert 9 == len(calls)
    assert calls[2][2] is given
    assert ["on_consume failed", "on_consume returned", "on_commit failed", "close failed"] == [
        " ".join(record.getMessage().rpartition(">: ")[2].split()[:2]) for record in caplog.records
    ]


def test_interrupts_pass() -> None:
    """KeyboardInterrupt inside an interceptor is raised to the caller."""

    class Slow:
        def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Interceptors([Slow()]).consumed(records())
