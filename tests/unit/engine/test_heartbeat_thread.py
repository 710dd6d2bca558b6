"""When the heartbeat thread runs its next step."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer import Consumer, ShareConsumer
from kconsumer._internal.requests import UnsentRequest
from kconsumer.coordinator.classic_protocol.state import Member
from kconsumer.coordinator.lookup import CoordinatorManager
from kconsumer.engine.waiting import Wait
from kconsumer.net.client import NetworkClient
from kconsumer.schema.metadata import METADATA
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


@pytest.mark.parametrize("kind", [Consumer, ShareConsumer])
def test_a_poll_does_not_wait_for_what_the_thread_has_received(
    monkeypatch: pytest.MonkeyPatch, kind: type[Consumer[Any, Any]] | type[ShareConsumer[Any, Any]]
) -> None:
    """After a poll has found no records, and before it waits for them, the heartbeat thread may handle the response
    that would end the wait: the poll looks again.
    """
    waits: list[float] = []
    consumer: Any = kind("t", bootstrap_servers="127.0.0.1:1", group_id="g")
    parts, driver = parts_of(consumer), engine_of(consumer).driver
    monkeypatch.setattr(parts.client, "poll", lambda timeout_ms, _now: waits.append(timeout_ms) or [])
    wait = Wait(parts.clock.now() + 60_000.0, fetching=True, managers=False)
    driver.wait(wait)
    driver._try_step(lambda _now: 1.0, 1.0)
    driver.wait(wait)
    driver.wait(wait)
    assert [True, False, True] == [timeout_ms > 0 for timeout_ms in waits]
    consumer.close(0)


def test_a_poll_joins_a_group_although_no_manager_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that had left, because it was not polled, joins with the next poll."""
    consumer: Any = ShareConsumer("t", bootstrap_servers="127.0.0.1:1", group_id="g")
    parts, driver = parts_of(consumer), engine_of(consumer).driver
    polled: list[float] = []
    poll = parts.membership.poll
    monkeypatch.setattr(parts.membership, "poll", lambda now: polled.append(now) or poll(now))
    monkeypatch.setattr(parts.client, "poll", lambda *_: [])
    monkeypatch.setattr(driver, "keep_alive", bool)  # no heartbeat thread
    driver.set_managers_due(1e15)
    parts.fetch.due = 1e15
    consumer.poll(0)
    assert polled
    consumer.close(0)


def test_managers_are_polled_again_if_a_request_fails_as_it_is_sent() -> None:
    """The manager of the request was polled before, so when it is due then is not known."""
    consumer: Any = Consumer("t", bootstrap_servers="127.0.0.1:1", group_id="g")
    parts, driver = parts_of(consumer), engine_of(consumer).driver
    driver.set_managers_due(9.0)
    assert driver.managers_due == 9.0
    parts.dispatcher.submit([UnsentRequest(METADATA, None, lambda _reply: None, node="7")], 0.0)  # there is no node 7
    driver.set_managers_due(9.0)
    assert driver.managers_due == 0.0
    consumer.close(0)
