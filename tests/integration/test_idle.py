"""A consumer with nothing to read waits; it does not spin."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer import Consumer
from kconsumer.engine.classic import ClassicEngine
from support.kafka import Kafka


def test_idle_member_takes_few_steps(kafka: Kafka, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three seconds of idle polling, with auto-commits, heartbeats and empty fetches, take some dozen steps."""
    kafka.create_topic(topic_name, 3)
    steps = 0
    step = ClassicEngine._step

    def counted(*args: Any, **kwargs: Any) -> None:
        nonlocal steps
        steps += 1
        step(*args, **kwargs)

    with Consumer(
        topic_name,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=topic_name,
        auto_commit_interval_ms=100,
        heartbeat_interval_ms=500,
    ) as consumer:
        while not consumer.assignment():
            consumer.poll(0.1)
        consumer.poll(1)
        monkeypatch.setattr(ClassicEngine, "_step", counted)
        consumer.poll(3)
    assert steps < 100
