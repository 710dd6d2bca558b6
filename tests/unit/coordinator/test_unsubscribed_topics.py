"""A partition is fetched and returned only while the subscription contains its topic and the group has
not revoked it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from kconsumer.state.subscription import SubscriptionState
from kconsumer.types import TopicPartition
from support.harnesses.consumer_harness import INTERVAL_MS, ConsumerGroupHarness
from support.harnesses.consumer_state import ConsumerState
from support.harnesses.group_harness import GroupHarness

T, U = TopicPartition("t", 0), TopicPartition("u", 0)


def fetchable(group: ConsumerGroupHarness | GroupHarness) -> tuple[bool, bool]:
    """Returns whether t-0 and u-0 may be fetched."""
    return group.assignment.is_fetchable(T), group.assignment.is_fetchable(U)


def owner(**options: object) -> ConsumerGroupHarness:
    """Returns a stable member of the consumer protocol that reads t-0 and u-0."""
    group = ConsumerGroupHarness("t", "u", **options)
    group.joined({"t": [0], "u": [0]})
    for tp in (T, U):
        group.positions.seek(tp, 1)
    return group


def subscribe_by_pattern(state: SubscriptionState, topics: str) -> None:
    """Subscribe to the topics whose names are one of these letters."""
    state.subscribe_pattern(re.compile(f"[{topics}]"))


@pytest.mark.parametrize("subscribe", [SubscriptionState.subscribe, subscribe_by_pattern])
def test_fetchable_follows_the_subscription(subscribe: Callable[[SubscriptionState, str], object]) -> None:
    """A change takes effect when subscribe() returns, without a poll; a topic that is subscribed again is fetched
    again.
    """
    state = ConsumerState()
    subscribe(state.subscription, "tu")
    state.subscription.assign_from_group([T, U])
    for tp in (T, U):
        state.positions.seek(tp, 1)
    for topics, expected in (("t", [T]), ("u", [U]), ("tu", [T, U])):
        subscribe(state.subscription, topics)
        assert expected == state.assignment.fetchable()


def test_a_new_assignment_of_an_unsubscribed_topic_is_not_fetched() -> None:
    """A new assignment may contain a topic that was just unsubscribed; it is not fetched."""
    state = ConsumerState()
    state.subscription.subscribe("t")
    state.subscription.assign_from_group([T, U])
    for tp in (T, U):
        state.positions.seek(tp, 1)
    assert [T] == state.assignment.fetchable()


# --- consumer protocol ---------------------------------------------------------------------------------------------


def test_an_unsubscribed_topic_is_not_read_while_a_reconciliation_waits() -> None:
    """An unsubscribed topic is not fetched although the reconciliation waits for a callback or a commit."""
    group = owner()
    group.target({"t": [0, 1], "u": [0]}, 2)
    group.poll()
    assert group.membership.due_callback is not None
    group.subscription.subscribe(["t"])
    group.poll()
    assert (True, False) == fetchable(group)


def test_on_revoke_raised_and_the_target_came_back() -> None:
    """If on_revoke raised and the coordinator then assigns the partition again, reading continues."""
    group = owner()
    group.target({"t": [0]}, 2)
    group.poll()
    assert (True, False) == fetchable(group)
    group.run_callbacks(raising=ValueError("no"))
    assert {T, U} == set(group.assignment.assigned())
    group.now += INTERVAL_MS
    (beat,) = group.background()
    group.respond(beat, 3, {"t": [0], "u": [0]})
    group.until_stable()
    assert (True, True) == fetchable(group)
