"""Staying in a group: heartbeats while the caller is busy, the poll interval, static members, forced rebalances."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from kconsumer import Consumer, GroupMetadata
from kconsumer.errors import CommitFailedError
from support.brokers.kafka import Kafka
from support.brokers.kafka_admin import wait_until
from support.harnesses.polling import Recorder, await_assignment, poll_until, read, tps

pytestmark = pytest.mark.classic_protocol

New = Callable[..., Consumer]


@pytest.fixture
def member(topic_name: str, new_consumer: New) -> New:
    """Returns a function that makes members of one group with a session timeout of about a second."""

    def make(*topics: str, **options: Any) -> Consumer:
        chosen = {
            "group_id": topic_name,
            "assignors": ["range"],
            "enable_auto_commit": False,
            "session_timeout_ms": 1000,
            **options,
        }
        return new_consumer(*topics, **chosen)

    return make


def still_a_member(consumer: Consumer, listener: Recorder) -> None:
    """Check that committing succeeds and no rebalance happens, so the member's session has not timed out."""
    calls = list(listener.calls)
    generation = consumer.group_metadata().generation_id
    consumer.commit({next(iter(consumer.assignment())): 1})
    for _ in range(3):
        consumer.poll(0.1)
    assert calls == listener.calls
    assert generation == consumer.group_metadata().generation_id


# --- the caller is busy ---


def test_computation_between_polls_longer_than_the_session(topic: str, member: New) -> None:
    """The heartbeat thread sends heartbeats while the caller runs pure Python code."""
    listener = Recorder()
    session_s = 1 + 8 * sys.getswitchinterval()  # the heartbeat thread must acquire the interpreter lock several times
    consumer = member(session_timeout_ms=int(session_s * 1000))
    consumer.subscribe([topic], listener=listener)
    await_assignment(consumer, *tps(topic, 0, 1))
    deadline = time.monotonic() + session_s + 1
    while time.monotonic() < deadline:
        sum(number * number for number in range(10_000))
    still_a_member(consumer, listener)


# --- the poll interval ---


def test_poll_interval_exceeded(kafka: Kafka, topic: str, member: New) -> None:
    """A member that does not poll for max_poll_interval_ms leaves the group. A commit fails, and the next poll calls
    on_lost and rejoins (Java testMaxPollIntervalMs).
    """
    both = tps(topic, 0, 1)
    listener = Recorder()
    consumer = member(max_poll_interval_ms=700)
    consumer.subscribe([topic], listener=listener)
    await_assignment(consumer, *both)
    before = consumer.group_metadata()
    wait_until(lambda: kafka.group_state(topic) == "EMPTY", 5, "the idle member to leave")
    with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
        consumer.commit({both[0]: 5})
    assert frozenset(both) == consumer.assignment(), "nothing happens behind the caller's back"
    poll_until(consumer, lambda: listener.count("assigned") == 2)
    assert [("lost", both), ("assigned", both)] == listener.calls[1:]
    assert before.member_id != consumer.group_metadata().member_id
    consumer.commit({both[0]: 5})


def test_partitions_of_an_idle_member_go_to_another(topic: str, member: New) -> None:
    """Another member takes over the partitions of an idle one. When the idle member polls again, the two share the
    partitions (Java testMultiConsumerSessionTimeoutOnStopPolling).
    """
    both = frozenset(tps(topic, 0, 1))
    idle, busy = member(topic, max_poll_interval_ms=1000), member(topic)
    poll_until([idle, busy], lambda: [1, 1] == [len(idle.assignment()), len(busy.assignment())])
    poll_until(busy, lambda: busy.assignment() == both)
    poll_until([idle, busy], lambda: idle.assignment() | busy.assignment() == both and len(busy.assignment()) == 1)


def test_interval_commit_after_the_membership_was_lost(topic: str, member: New) -> None:
    """An automatic commit that the coordinator rejects is logged, not raised."""
    consumer = member(topic, max_poll_interval_ms=500, enable_auto_commit=True, auto_commit_interval_ms=800)
    read(consumer, 20)
    time.sleep(1.2)
    assert 20 == len(read(consumer, 20)), "from the beginning: nothing had been committed"
    partitions = tps(topic, 0, 1)
    poll_until(consumer, lambda: [10, 10] == [at and at.offset for at in consumer.committed(partitions).values()])


def test_leaving_and_joining_again_while_others_hold_up_the_join(kafka: Kafka, topic: str, member: New) -> None:
    """While another member delays the join, a member unsubscribes and subscribes again. It is in the group as soon as
    the other member polls.
    """
    options = {"session_timeout_ms": 20_000, "heartbeat_interval_ms": 200}
    busy, waiting = member(topic, **options), member(topic, **options)
    await_assignment(busy, *tps(topic, 0, 1))
    poll_until(waiting, lambda: kafka.group_state(topic) == "PREPARING_REBALANCING")
    waiting.unsubscribe()
    waiting.subscribe([topic])
    poll_until([busy, waiting], lambda: [1, 1] == [len(busy.assignment()), len(waiting.assignment())])


def test_interrupt_during_close_leaves_nothing_behind(topic: str, member: New) -> None:
    """A KeyboardInterrupt in on_revoke during close() is propagated, and the consumer's thread has ended
    nevertheless.
    """

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    consumer = member()
    consumer.subscribe([topic], on_revoke=interrupt)
    await_assignment(consumer, *tps(topic, 0, 1))
    names = {f"kconsumer-heartbeat-{topic}", f"kconsumer-network-{topic}"}
    assert names & {thread.name for thread in threading.enumerate()}
    with pytest.raises(KeyboardInterrupt):
        consumer.close()
    assert not names & {thread.name for thread in threading.enumerate()}
    consumer.close()


# --- group metadata and forced rebalances ---


def test_group_metadata(kafka: Kafka, topic: str, member: New) -> None:
    """group_metadata() contains group id and group_instance_id from the start. Generation and member id are set after
    joining and cleared by unsubscribe().
    """
    consumer = member(group_instance_id="instance")
    assert GroupMetadata(topic, -1, "", "instance") == consumer.group_metadata()
    consumer.subscribe([topic])
    await_assignment(consumer, *tps(topic, 0, 1))
    joined = consumer.group_metadata()
    assert (topic, 1, "instance") == (joined.group_id, joined.generation_id, joined.group_instance_id)
    assert joined.member_id.startswith("instance-")
    consumer.enforce_rebalance()
    poll_until(consumer, lambda: consumer.group_metadata().generation_id == 2)
    assert joined.member_id == consumer.group_metadata().member_id
    consumer.unsubscribe()
    assert GroupMetadata(topic, -1, "", "instance") == consumer.group_metadata()


def test_enforce_rebalance(topic: str, member: New) -> None:
    """The next poll after any number of enforce_rebalance() calls rejoins once; every member gets a new generation."""
    listeners = Recorder(), Recorder()
    consumers = [member(), member()]
    for consumer, listener in zip(consumers, listeners, strict=True):
        consumer.subscribe([topic], listener=listener)
    poll_until(consumers, lambda: [1, 1] == [len(consumer.assignment()) for consumer in consumers])
    poll_until(consumers, lambda: all(listener.kinds[-1] == "assigned" for listener in listeners))
    before = {consumer.group_metadata().generation_id for consumer in consumers}
    counts = [listener.count("assigned") for listener in listeners]
    consumers[0].enforce_rebalance("because")
    consumers[0].enforce_rebalance()
    poll_until(
        consumers,
        lambda: all(n < listener.count("assigned") for n, listener in zip(counts, listeners, strict=True)),
    )
    for _ in range(5):
        for consumer in consumers:
            consumer.poll(0.05)
    (generation,) = before
    assert {generation + 1} == {consumer.group_metadata().generation_id for consumer in consumers}


# --- static members ---


def test_static_member_that_exceeds_the_poll_interval(kafka: Kafka, topic: str, member: New) -> None:
    """A static member that exceeds the poll interval stops sending heartbeats without LeaveGroup. It keeps its
    partitions until its session times out; then they are assigned to the other member.
    """
    consumer = member(topic, group_instance_id="i", max_poll_interval_ms=500, session_timeout_ms=2000)
    listener = Recorder()
    consumer.subscribe([topic], listener=listener)
    await_assignment(consumer, *tps(topic, 0, 1))
    time.sleep(1.2)
    assert "STABLE" == kafka.group_state(topic)
    wait_until(lambda: kafka.group_state(topic) == "EMPTY", 10, "the session to end")
    poll_until(consumer, lambda: listener.count("assigned") == 2)
    assert ["assigned", "lost", "assigned"] == listener.kinds
    consumer.seek_to_beginning()
    assert 20 == len(read(consumer, 20))
