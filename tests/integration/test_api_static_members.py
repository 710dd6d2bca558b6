"""Static members (KIP-345): restarts within the session, leaders that restart, fenced duplicates, leaving."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kconsumer import Assignment, Assignor, ClusterView, Consumer, RebalanceListener, Subscription, TopicPartition
from kconsumer.assignors import load
from kconsumer.errors import FencedInstanceIdError
from support.brokers.kafka import Kafka
from support.harnesses.polling import Recorder, await_assignment, poll_until, polled, read, tps
from support.harnesses.stopwatch import Stopwatch

pytestmark = pytest.mark.classic_protocol

New = Callable[..., Consumer]
SESSION_MS = 20_000


class CountingRange(Assignor):
    """The range assignor; counts how often this member assigned as the leader."""

    name = "counting-range"

    def __init__(self) -> None:
        self.range = load("range")
        self.assigned = 0

    def assign(self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        """Assign as the range assignor does, and count the call."""
        self.assigned += 1
        return self.range.assign(cluster, subscriptions)


@pytest.fixture
def member(topic_name: str, new_consumer: New) -> New:
    """Returns a function that makes members of one group with a long session timeout."""

    def make(instance: str | None, *topics: str, **options: Any) -> Consumer:
        chosen = {
            "group_id": topic_name,
            "group_instance_id": instance,
            "assignors": ["range"],
            "enable_auto_commit": False,
            "session_timeout_ms": SESSION_MS,
            "metadata_max_age_ms": 300,
            **options,
        }
        return new_consumer(*topics, **chosen)

    return make


def spread(*members: Consumer) -> None:
    """Poll until each member owns one of two partitions."""
    poll_until(members, lambda: [1] * len(members) == [len(member.assignment()) for member in members])


def test_a_leader_that_restarts_takes_over_what_there_is(kafka: Kafka, topic: str, member: New) -> None:
    """When a static leader restarts, the coordinator skips the assignment (KIP-814). The new leader computes none, all
    members keep their partitions and generation, and the leader still assigns partitions that are added later.
    """
    listener = Recorder()
    before, after = CountingRange(), CountingRange()
    leader = member("leader", topic, assignors=[before])
    await_assignment(leader, *tps(topic, 0, 1))
    follower = member("follower", assignors=[CountingRange()])
    follower.subscribe([topic], listener=listener)
    spread(leader, follower)
    poll_until([leader, follower], lambda: bool(listener.calls))
    mine, calls = leader.assignment(), list(listener.calls)
    generation = leader.group_metadata().generation_id
    assert before.assigned >= 2
    leader.close()
    again = member("leader", topic, assignors=[after])
    poll_until([again, follower], lambda: again.assignment() == mine)
    for _ in range(5):
        again.poll(0.1)
        follower.poll(0.1)
    assert (0, calls) == (after.assigned, listener.calls)
    assert {generation} == {consumer.group_metadata().generation_id for consumer in (again, follower)}
    kafka.add_partitions(topic, 4)
    poll_until([again, follower], lambda: [2, 2] == [len(m.assignment()) for m in (again, follower)])
    assert 1 <= after.assigned
    assert generation < again.group_metadata().generation_id


def test_a_restart_with_another_subscription_rebalances(kafka: Kafka, topic: str, member: New) -> None:
    """A static member that restarts with another subscription causes a rebalance and does not keep partitions of other
    topics.
    """
    other = kafka.create_topic(f"{topic}-other", 1)
    stays, restarts = member("stays", topic), member("restarts", topic)
    spread(stays, restarts)
    restarts.close()
    again = member("restarts", other)
    poll_until(
        [stays, again],
        lambda: stays.assignment() == frozenset(tps(topic, 0, 1)) and again.assignment() == frozenset(tps(other, 0)),
    )


def test_a_member_that_does_not_come_back_is_replaced(kafka: Kafka, topic: str, member: New) -> None:
    """Partitions of a static member that does not return are read by no member until its session times out, and then
    move to the others.
    """
    stays = member("stays", topic, session_timeout_ms=2500)
    gone = member("gone", topic, session_timeout_ms=2500)
    spread(stays, gone)
    gone.close()
    closed_at = time.monotonic()
    poll_until(stays, lambda: len(stays.assignment()) == 2)
    assert time.monotonic() - closed_at > 1.0


def test_a_duplicate_takes_the_place_of_a_member_that_is_alive(topic: str, member: New) -> None:
    """The fenced consumer learns of the duplicate from its heartbeats, and its next poll raises. No listener of another
    consumer is called, and closing the fenced consumer takes no partitions from the new one.
    """
    listener = Recorder()
    other = member("other")
    other.subscribe([topic], listener=listener)
    old = member("same", topic)
    spread(other, old)
    poll_until([other, old], lambda: listener.kinds[-1] == "assigned")
    place, calls = old.assignment(), list(listener.calls)
    new = member("same", topic)
    poll_until([other, new], lambda: new.assignment() == place)
    with polled(new, other) as errors:
        with pytest.raises(FencedInstanceIdError, match="group_instance_id"):
            poll_until(old, lambda: False)
        watch = Stopwatch()
        old.close()
        assert watch.seconds() < 5
        time.sleep(0.5)
    assert ([], calls) == (errors, listener.calls)
    assert place == new.assignment()
    new.seek_to_beginning()
    assert 10 == len(read(new, 10))
    new.commit()


def test_a_join_that_unsubscribe_abandoned_does_not_fence_the_successor(topic: str, member: New) -> None:
    """A static member waits for the group to join, unsubscribes, subscribes again and closes. The next consumer with
    its group_instance_id joins and is not fenced.
    """
    other, old = member("other", topic), member("same", topic)
    spread(other, old)
    old.subscribe([topic, f"{topic}-more"])
    for _ in range(5):
        old.poll(0.2)  # the coordinator waits for the other member's JoinGroup
    old.unsubscribe()
    old.subscribe([topic])
    old.poll(0.5)
    old.close()
    new = member("same", topic)
    for _ in range(5):
        new.poll(0.2)
    spread(other, new)
    with polled(other, new) as errors:
        time.sleep(1)  # time for heartbeats, whose responses would report the fencing
    assert [] == errors


def test_partitions_withheld_from_a_static_member_that_closes_find_an_owner(topic: str, member: New) -> None:
    """A cooperative static member must revoke a partition, and closes before it joins again. Its successor and the
    other member own both partitions long before a session times out.
    """

    class Raises(RebalanceListener):
        def on_partitions_revoked(self, consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
            raise RuntimeError("on_revoke")

    options = {"assignors": ["cooperative-sticky"]}
    old, other = member("same", **options), member("other", topic, **options)
    old.subscribe([topic], listener=Raises())
    await_assignment(old, *tps(topic, 0, 1))
    with polled(other), pytest.raises(RuntimeError, match="on_revoke"):
        poll_until(old, lambda: False)
    old.subscribe([topic])  # without the listener
    old.close()
    new = member("same", topic, **options)
    spread(other, new)


def test_commits_of_a_fenced_member(topic: str, member: New) -> None:
    """Every commit of the fenced consumer raises the fencing error and does not change the group's offsets."""
    old = member("same", topic)
    await_assignment(old, *tps(topic, 0, 1))
    new = member("same", topic)
    await_assignment(new, *tps(topic, 0, 1))
    zero = TopicPartition(topic, 0)
    for _ in range(2):
        with pytest.raises(FencedInstanceIdError):
            old.commit({zero: 7})
    assert {zero: None} == new.committed([zero])


def test_unsubscribing_keeps_a_static_members_place(kafka: Kafka, topic: str, member: New) -> None:
    """unsubscribe() of a static member sends no LeaveGroup. After subscribing again, the member owns the same
    partitions.
    """
    consumer, other = member("i", topic), member("other", topic)
    spread(consumer, other)
    mine, generation = consumer.assignment(), other.group_metadata().generation_id
    consumer.unsubscribe()
    consumer.subscribe([topic])
    poll_until([consumer, other], lambda: consumer.assignment() == mine)
    assert generation == other.group_metadata().generation_id
