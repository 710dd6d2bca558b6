"""A consumer without records to read waits and does not spin, and a poll that finds nothing is cheap.

The tests count steps instead of measuring time, so that a loaded machine changes nothing. benchmarks/idle.py measures
the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from kconsumer import Consumer
from kconsumer.engine.classic import ClassicDriver
from kconsumer.engine.threaded import ThreadedDriver
from support.brokers.kafka import Kafka
from support.harnesses.polling import poll_until

ENGINES: dict[str, dict[str, Any]] = {
    "classic": {"heartbeat_interval_ms": 500},
    "threaded": {"heartbeat_interval_ms": 500, "engine": "threaded"},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.fixture(params=["classic", "threaded", pytest.param("consumer", marks=pytest.mark.consumer_protocol)])
def idle(request: pytest.FixtureRequest, kafka: Kafka, topic_name: str) -> Any:
    """A member that owns three empty partitions and commits every 100 ms."""
    kafka.create_topic(topic_name, 3)
    with Consumer(
        topic_name,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=topic_name,
        auto_commit_interval_ms=100,
        **ENGINES[request.param],
    ) as consumer:
        poll_until(consumer, lambda: len(consumer.assignment()) == 3)
        consumer.poll(1)
        yield consumer


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Returns a function that counts calls of a method: each call appends the name to the returned list."""
    calls: list[str] = []

    def count(owner: type, name: str) -> list[str]:
        original = getattr(owner, name)

        def noted(*args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, noted)
        return calls

    return count


def test_idle_member_takes_few_steps(idle: Consumer, counted: Callable[..., list[str]]) -> None:
    """Three seconds of idle polling, with auto-commits, heartbeats and empty fetches, take a few dozen steps."""
    counted(ClassicDriver, "_step")
    calls = counted(ThreadedDriver, "_poll_managers")
    idle.poll(3)
    assert calls
    assert len(calls) < 150, calls


def test_record_is_found_by_polls_that_do_not_wait(kafka: Kafka, topic_name: str, idle: Consumer) -> None:
    """A record that arrives between polls without a timeout is returned by one of them. The result of a commit is
    reported by one of them. Many polls before them return nothing.
    """
    for _ in range(100):
        assert not idle.poll(0)
    kafka.produce(topic_name, [b"x"])
    errors: list[object] = []
    records: list[bytes | None] = []
    deadline = time.monotonic() + 10
    while not errors:
        assert time.monotonic() < deadline, (records, errors)
        found = idle.poll(0)
        if found:
            records += [record.value for record in found]
            idle.commit_async(found, lambda _offsets, error: errors.append(error))
    assert [b"x"] == records
    assert [None] == errors
