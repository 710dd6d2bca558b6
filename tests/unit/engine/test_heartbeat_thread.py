"""When the heartbeat thread runs its next step."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer import Consumer
from kconsumer.coordinator.classic_protocol.state import Member
from kconsumer.coordinator.lookup import CoordinatorManager
from kconsumer.net.client import NetworkClient
from support.harnesses.inside import engine_of, parts_of


@pytest.mark.parametrize(("receiving", "nap_ms"), [(True, 100.0), (False, 3000.0)])
def test_a_response_that_arrives_in_part_is_read_on(
    monkeypatch: pytest.MonkeyPatch, receiving: bool, nap_ms: float
) -> None:
    """One step reads at most a megabyte of a TLS connection. The thread runs the next step after retry_backoff_ms, not
    when the next heartbeat is due.
    """
    monkeypatch.setattr(NetworkClient, "receiving", property(lambda _: receiving))
    monkeypatch.setattr(Member, "heartbeating", property(lambda _: True))
    monkeypatch.setattr(CoordinatorManager, "connection_id", property(lambda _: "+1"))
    consumer = Consumer("t", bootstrap_servers="127.0.0.1:1", group_id="g")
    driver: Any = engine_of(consumer).driver
    monkeypatch.setattr(driver, "flush_managers", lambda *_: None)
    monkeypatch.setattr(parts_of(consumer).dispatcher, "step", lambda _: False)
    group = parts_of(consumer).group
    assert group is not None
    monkeypatch.setattr(group.heartbeat, "time_to_next_ms", lambda _: 3000.0)
    assert nap_ms == driver._heartbeat_step(group)
    consumer.close(0)


@pytest.mark.parametrize("joins", [0, 1])
def test_the_response_to_a_join_is_handled_outside_poll(monkeypatch: pytest.MonkeyPatch, joins: int) -> None:
    """The coordinator expects heartbeats from the response to JoinGroup on. So this response must not wait for the next
    poll, which comes only when the user has processed the last records.
    """
    steps = []
    consumer = Consumer("t", bootstrap_servers="127.0.0.1:1", group_id="g")
    driver: Any = engine_of(consumer).driver
    monkeypatch.setattr(parts_of(consumer).dispatcher, "step", steps.append)
    group: Any = parts_of(consumer).group
    for _ in range(joins):
        group.membership._requests.next()
    assert 100.0 == driver._heartbeat_step(group)
    assert [0.0] * joins == steps
    consumer.close(0)
