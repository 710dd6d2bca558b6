"""Subscriptions of the consumer protocol by regular expressions, which the broker evaluates."""

from __future__ import annotations

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from support.fakes.cluster_client import advance
from support.fakes.consumer_members import FakeConsumerMember, describe, settle


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    for name in ("t1", "t2", "u1"):
        cluster.create_topic(name)
    return cluster


def subscriber(cluster: Cluster, clock: VirtualClock, regex: str, member_id: str = "m0") -> FakeConsumerMember:
    """Returns a member that subscribes to an expression."""
    return FakeConsumerMember(cluster, clock, member_id, None, subscribed_topic_regex=regex)


def test_a_second_member_with_the_same_expression(cluster: Cluster, clock: VirtualClock) -> None:
    """An expression that is resolved already begins a new group epoch at once."""
    one, two = subscriber(cluster, clock, "t."), subscriber(cluster, clock, "t.", "m1")
    one.join()
    settle(one)
    assert 3 == two.join().member_epoch
    settle(one, two)
    assert [1, 1] == [sum(map(len, member.assigned.values())) for member in (one, two)]


def test_new_topics_match_ten_seconds_after_the_last_time(cluster: Cluster, clock: VirtualClock) -> None:
    """An expression is resolved again when a topic was created, but not within 10 s after the last time."""
    member = subscriber(cluster, clock, "t.")
    member.join()
    advance(cluster, clock, 1000)
    cluster.create_topic("t3")
    advance(cluster, clock, 9000)
    settle(member, rounds=1)
    assert "t3" not in member.assigned
    settle(member, rounds=3)
    assert ["t1", "t2", "t3"] == sorted(member.assigned)


def test_names_and_an_expression(cluster: Cluster, clock: VirtualClock) -> None:
    """A member may subscribe to names and to an expression; an empty expression ends its part."""
    member = subscriber(cluster, clock, "t.")
    member.topics = ["u1"]
    member.join()
    settle(member)
    assert ["t1", "t2", "u1"] == sorted(member.assigned)
    member.heartbeat(subscribed_topic_regex="", topic_partitions=member.owned(member.assigned))
    settle(member)
    assert ["u1"] == list(member.assigned)
    (row,) = describe(member).members
    assert (["u1"], "") == (row.subscribed_topic_names, row.subscribed_topic_regex)


@pytest.mark.parametrize("regex", ["(", "a(?=b)", "a(?!b)", r"(a)\1", "a++", "(?>a)", "[z-a]"])
def test_invalid_expressions(cluster: Cluster, clock: VirtualClock, regex: str) -> None:
    """An expression that RE2 rejects gets INVALID_REGULAR_EXPRESSION, and the member does not join."""
    response = subscriber(cluster, clock, regex).join()
    assert Errors.INVALID_REGULAR_EXPRESSION == response.error_code
    assert response.error_message.startswith(f"SubscribedTopicRegex `{regex}` is not a valid regular expression: ")
    assert cluster.groups.get("g") is None
