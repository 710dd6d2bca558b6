"""Staying a member: heartbeats while the caller is busy, the poll interval, static members, forced rebalances."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from kconsumer import Consumer, GroupMetadata, TopicPartition
from kconsumer.errors import CommitFailedError, FencedInstanceIdError, KafkaError
from support.brokers.kafka import Kafka
from support.brokers.kafka_admin import wait_until
from support.harnesses.polling import Recorder, await_assignment, numbered, poll_until, polled, read, tps
from support.harnesses.stopwatch import Stopwatch

pytestmark = pytest.mark.classic_protocol

New = Callable[..., Consumer]


@pytest.fixture
def topic(kafka: Kafka, topic_name: str) -> str:
    """A topic of two partitions with the values 0 to 9 each."""
    kafka.create_topic(topic_name, 2)
    for partition in (0, 1):
        kafka.produce(topic_name, numbered(10), partition=partition)
    return topic_name


@pytest.fixture
def member(topic_name: str, new_consumer: New) -> New:
    """Makes members of one group that are missed after a second."""

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
    """Committing works and no rebalance happens: the coordinator never missed this member."""
    calls = list(listener.calls)
    generation = consumer.group_metadata().generation_id
    consumer.commit({next(iter(consumer.assignment())): 1})
    for _ in range(3):
        consumer.poll(0.1)
    assert calls == listener.calls
    assert generation == consumer.group_metadata().generation_id


# --- the caller is busy ---


def test_pause_between_polls_longer_than_the_session(topic: str, member: New) -> None:
    """The heartbeat thread keeps a member alive while the caller sleeps."""
    listener = Recorder()
    consumer = member()
    consumer.subscribe([topic], listener=listener)
    await_assignment(consumer, *tps(topic, 0, 1))
    time.sleep(2)
    still_a_member(consumer, listener)


def test_computation_between_polls_longer_than_the_session(topic: str, member: New) -> None:
    """The heartbeat thread gets its turns while pure Python computes."""
    listener = Recorder()
    session_s = 1 + 8 * sys.getswitchinterval()  # a heartbeat has to get hold of the interpreter several times
    consumer = member(session_timeout_ms=int(session_s * 1000))
    consumer.subscribe([topic], listener=listener)
    await_assignment(consumer, *tps(topic, 0, 1))
    deadline = time.monotonic() + session_s + 1
    while time.monotonic() < deadline:
        sum(number * number for number in range(10_000))
    still_a_member(consumer, listener)


def test_on_assign_longer_than_the_session(topic: str, member: New) -> None:
    """A slow on_assign does not cost the membership (Java testMaxPollIntervalMsDelayInAssignment)."""
    listener = Recorder(assigned=lambda *_: time.sleep(1.6))
    consumer = member()
    consumer.subscribe([topic], listener=listener)
    await_assignment(consumer, *tps(topic, 0, 1))
    still_a_member(consumer, listener)


def test_on_revoke_longer_than_the_session(kafka: Kafka, topic: str, member: New) -> None:
    """After a slow on_revoke the member may still commit (Java testMaxPollIntervalMsDelayInRevocation)."""
    other = kafka.create_topic(f"{topic}-other")
    zero = TopicPartition(topic, 0)

    def commit_late(consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        if zero in partitions:
            time.sleep(1.6)
            consumer.commit({zero: consumer.position(zero)})

    listener = Recorder(revoked=commit_late)
    consumer = member()
    consumer.subscribe([topic], listener=listener)
    read(consumer, 20)
    consumer.subscribe([other], listener=listener)
    await_assignment(consumer, *tps(other, 0))
    assert {0: 10} == kafka.committed(topic, topic)
    assert ["assigned", "revoked", "assigned"] == listener.kinds


def test_other_blocking_calls_keep_the_membership(topic: str, member: New) -> None:
    """A long blocking call that is not poll() sends heartbeats, too."""
    listener = Recorder()
    consumer = member()
    consumer.subscribe([topic], listener=listener)
    await_assignment(consumer, *tps(topic, 0, 1))
    with pytest.raises(KafkaError):
        consumer.end_offsets([TopicPartition(topic, 99)], timeout=2)
    still_a_member(consumer, listener)


# --- the poll interval ---


def test_poll_interval_exceeded(kafka: Kafka, topic: str, member: New) -> None:
    """Without a poll for max_poll_interval_ms the member leaves; a commit fails, the next poll runs on_lost and
    rejoins (Java testMaxPollIntervalMs)."""
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
    """Another member takes over what the idle one had; when it polls again, they share (Java
    testMultiConsumerSessionTimeoutOnStopPolling)."""
    both = frozenset(tps(topic, 0, 1))
    idle, busy = member(topic, max_poll_interval_ms=1000), member(topic)
    poll_until([idle, busy], lambda: [1, 1] == [len(idle.assignment()), len(busy.assignment())])
    poll_until(busy, lambda: busy.assignment() == both)
    poll_until([idle, busy], lambda: idle.assignment() | busy.assignment() == both and len(busy.assignment()) == 1)


def test_poll_longer_than_the_poll_interval(topic: str, member: New) -> None:
    """A poll() that waits longer than max_poll_interval_ms is not idle (Java
    testMaxPollIntervalMsShorterThanPollTimeout)."""
    listener = Recorder()
    consumer = member(max_poll_interval_ms=500)
    consumer.subscribe([topic], listener=listener)
    read(consumer, 20)
    assert not consumer.poll(1.5)
    still_a_member(consumer, listener)


def test_records_of_an_idle_member_are_read_again_from_the_commit(topic: str, member: New) -> None:
    """After the membership was lost, reading continues at the committed offsets and not at the old positions."""
    consumer = member(topic, max_poll_interval_ms=500)
    read(consumer, 20)
    consumer.commit(dict.fromkeys(tps(topic, 0, 1), 4))
    time.sleep(1.2)
    again = read(consumer, 12)
    assert [4, 4] == [min(r.offset for r in again if r.partition == partition) for partition in (0, 1)]


def test_interval_commit_after_the_membership_was_lost(kafka: Kafka, topic: str, member: New) -> None:
    """An automatic commit that is refused is logged, not raised."""
    consumer = member(topic, max_poll_interval_ms=500, enable_auto_commit=True, auto_commit_interval_ms=800)
    read(consumer, 20)
    time.sleep(1.2)
    assert 20 == len(read(consumer, 20)), "from the beginning: nothing had been committed"
    poll_until(consumer, lambda: {0: 10, 1: 10} == kafka.committed(topic, topic))


def test_closed_member_is_replaced_at_once(topic: str, member: New) -> None:
    """close() leaves: the other member has everything long before the session would end (Java
    testMultiConsumerSessionTimeoutOnClose)."""
    first, second = member(topic, session_timeout_ms=30_000), member(topic, session_timeout_ms=30_000)
    poll_until([first, second], lambda: [1, 1] == [len(first.assignment()), len(second.assignment())])
    with polled(second) as errors:
        first.close()
    watch = Stopwatch()
    await_assignment(second, *tps(topic, 0, 1))
    assert watch.seconds() < 5
    assert [] == errors


def test_leaving_and_joining_again_while_others_hold_up_the_join(kafka: Kafka, topic: str, member: New) -> None:
    """unsubscribe() during such a join, and a new subscription: the member takes part as soon as the other polls."""
    options = {"session_timeout_ms": 20_000, "heartbeat_interval_ms": 200}
    busy, waiting = member(topic, **options), member(topic, **options)
    await_assignment(busy, *tps(topic, 0, 1))
    poll_until(waiting, lambda: kafka.group_state(topic) == "PREPARING_REBALANCING")
    waiting.unsubscribe()
    waiting.subscribe([topic])
    poll_until([busy, waiting], lambda: [1, 1] == [len(busy.assignment()), len(waiting.assignment())])


def test_interrupt_during_close_leaves_nothing_behind(topic: str, member: New) -> None:
    """KeyboardInterrupt in on_revoke at close() passes through; the consumer's thread has ended all the same."""

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
    """Group and instance id from the start; generation and member id once joined, and gone after unsubscribe()."""
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
    """The next poll rejoins, once, however often it was asked for; every member gets a new generation."""
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


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_restart_of_a_static_member_disturbs_nobody(topic: str, member: New, assignor: str) -> None:
    """A static member that closes and comes back within its session gets its partitions back; the other members see
    no rebalance, and nobody's partitions move."""
    listener = Recorder()
    options = {"assignors": [assignor], "session_timeout_ms": 20_000}
    stays = member(group_instance_id="stays", **options)
    stays.subscribe([topic], listener=listener)
    restarts = member(topic, group_instance_id="restarts", **options)
    poll_until([stays, restarts], lambda: [1, 1] == [len(stays.assignment()), len(restarts.assignment())])
    poll_until([stays, restarts], lambda: all(c._engine._group_idle() for c in (stays, restarts)))
    assigned, calls = restarts.assignment(), list(listener.calls)
    generation = stays.group_metadata().generation_id
    restarts.close()
    again = member(topic, group_instance_id="restarts", **options)
    poll_until([stays, again], lambda: again.assignment() == assigned)
    for _ in range(5):
        stays.poll(0.1)
        again.poll(0.1)
    assert calls == listener.calls
    assert generation == stays.group_metadata().generation_id == again.group_metadata().generation_id


def test_dynamic_member_stays_when_told_to(kafka: Kafka, topic: str, member: New) -> None:
    """close(leave_group=False) keeps a dynamic member's place until its session ends (KIP-1092)."""
    consumer = member(topic, session_timeout_ms=1500)
    await_assignment(consumer, *tps(topic, 0, 1))
    consumer.close(leave_group=False)
    assert "STABLE" == kafka.group_state(topic)
    wait_until(lambda: kafka.group_state(topic) == "EMPTY", 10, "the session to end")


def test_second_consumer_with_the_same_instance_id(topic: str, member: New) -> None:
    """The newcomer takes the place; the old one is told that it is fenced by its next commit or poll."""
    options = {"group_instance_id": "same", "session_timeout_ms": 20_000}
    old = member(topic, **options)
    await_assignment(old, *tps(topic, 0, 1))
    new = member(topic, **options)
    await_assignment(new, *tps(topic, 0, 1))
    with pytest.raises(FencedInstanceIdError, match="group_instance_id"):
        old.commit({TopicPartition(topic, 0): 1})
    with pytest.raises(FencedInstanceIdError):
        poll_until(old, lambda: False)
    new.seek_to_beginning()
    assert 20 == len(read(new, 20))
    new.commit()


def test_static_member_notices_partitions_added_while_it_was_away(kafka: Kafka, topic: str, member: New) -> None:
    """After a restart a static leader still sees new partitions (Java
    testStaticConsumerDetectsNewPartitionCreatedAfterRestart)."""
    options = {"group_instance_id": "i", "metadata_max_age_ms": 200, "session_timeout_ms": 20_000}
    first = member(topic, **options)
    await_assignment(first, *tps(topic, 0, 1))
    first.close()
    second = member(topic, **options)
    await_assignment(second, *tps(topic, 0, 1))
    kafka.add_partitions(topic, 3)
    await_assignment(second, *tps(topic, 0, 1, 2))


def test_static_member_that_exceeds_the_poll_interval(kafka: Kafka, topic: str, member: New) -> None:
    """It stops heartbeating without leaving: its place is kept until the session ends, then given away."""
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
