"""`require`, the lookup behind partitions_for and list_topics."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer._internal.managers import PollResult, Promise
from kconsumer.errors import (
    AuthenticationError,
    BrokerConnectionError,
    BrokerError,
    InvalidTopicError,
    TimeoutError,
    TopicAuthorizationError,
)
from kconsumer.metadata.topic_requests import TopicTable
from support.harnesses.manager_driver import (
    RETRY_MS,
    ManagerCase,
    config,
    fail,
    led_by,
    metadata,
    respond,
    topic,
)
from support.harnesses.wiring import make_components

LOST = BrokerConnectionError("lost")


class Case(ManagerCase):
    """A manager whose own update is complete, so that only lookups are sent."""

    def __init__(self, known: Any = None, **options: Any) -> None:
        components = make_components(config(**options))
        self.cluster, self.subscription = components.cluster, components.subscription
        self.manager = components.metadata
        self.subscription.subscribe({"known"})
        respond(self.poll(0.0).requests[0], known or led_by({"known-0": 1}), 0.0)

    def poll(self, now: float) -> PollResult:
        return self.manager.poll(now)


def leaders(promise: Promise[TopicTable]) -> dict[str, list[int | None]]:
    """Returns the leaders in a promise's result."""
    return {
        name: [info.leader.id if info.leader else None for info in infos] for name, infos in promise.result().items()
    }


def test_known_topics_come_from_the_cache() -> None:
    """If all topics are cached no request is sent."""
    case = Case()
    promise = case.manager.fetch(["known"])
    assert {"known": [1]} == leaders(promise)
    assert [] == case.poll(1.0).requests


@pytest.mark.parametrize(("code", "error"), [(29, TopicAuthorizationError), (17, InvalidTopicError), (42, BrokerError)])
def test_final_topic_errors_fail_the_lookup(code: int, error: type[BrokerError]) -> None:
    """Topic errors that are not retriable are raised with the topics."""
    case = Case()
    promise = case.manager.fetch(["new"])
    respond(case.ask(1.0), metadata(topic("new", error=code)), 2.0)
    with pytest.raises(error, match="new"):
        promise.result()


def test_retriable_topic_errors_are_retried() -> None:
    """After LEADER_NOT_AVAILABLE (a topic that is being created) the lookup is repeated after the backoff."""
    case = Case()
    promise = case.manager.fetch(["new"])
    respond(case.ask(1.0), metadata(topic("new", error=5)), 2.0)
    assert (False, RETRY_MS) == (promise.done, case.poll(2.0).wait_ms)
    respond(case.ask(2.0 + RETRY_MS), led_by({"new-0": 1}), 200.0)
    assert {"new": [1]} == leaders(promise)


def test_lost_requests_are_repeated() -> None:
    """After a lost connection or a retriable error of the whole response the lookup is repeated with exponential
    backoff.
    """
    case = Case()
    promise = case.manager.fetch(["new"])
    fail(case.ask(0.0), LOST, 0.0)
    respond(case.ask(100.0), metadata(error=129), 100.0)
    assert [] == case.poll(299.0).requests
    respond(case.ask(300.0), led_by({"new-0": 1}), 300.0)
    assert promise.done


def test_final_errors_fail_the_lookup() -> None:
    """A failed authentication fails the lookup."""
    case = Case()
    promise = case.manager.fetch(["new"])
    fail(case.ask(0.0), AuthenticationError(code=58), 0.0)
    with pytest.raises(AuthenticationError):
        promise.result()


def test_the_deadline_ends_the_lookup() -> None:
    """At its deadline a lookup fails with a TimeoutError that names the topics, caused by the last error."""
    case = Case()
    promise = case.manager.fetch(["new"], deadline=150.0)
    fail(case.ask(0.0), LOST, 0.0)
    assert 100.0 == case.poll(0.0).wait_ms
    case.ask(100.0)
    assert 50.0 == case.poll(100.0).wait_ms
    case.poll(150.0)
    with pytest.raises(TimeoutError, match="new") as caught:
        promise.result()
    assert LOST is caught.value.__cause__
