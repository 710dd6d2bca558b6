"""Groups of KIP-848 on a real broker: members join, leave, are fenced and die, with and without members of other
clients.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from kconsumer import Consumer, ConsumerRecords, SubscriptionPattern, TopicPartition
from kconsumer.errors import GroupError, UnsupportedVersionError
from support.brokers.kafka import Kafka
from support.brokers.kafka_admin import wait_until
from support.harnesses.stopwatch import Stopwatch
from support.members.clients import settings
from support.members.group_load import PARTITIONS, all_offsets, drained, everything, load, one_three_two
from support.members.members import (
    MemberProcess,
    assert_all_seen,
    shared_out,
    wait_for,
)
from support.members.remove_member import remove_static_member

pytestmark = [pytest.mark.consumer_protocol, pytest.mark.network_thread]

New = Callable[..., Consumer]


@pytest.fixture
def member(kafka: Kafka, topic_name: str, consumer_type: New) -> Any:
    """Returns a function that makes members of the test's group in this process."""
    with ExitStack() as stack:

        def make(*topics: str, **options: Any) -> Consumer:
            chosen = settings(kafka, topic_name, None, **options)
            del chosen["topics"]
            return stack.enter_context(consumer_type(*topics, **chosen))

        yield make


def poll_until(
    consumers: list[Consumer], condition: Callable[[], object], timeout_s: float = 20, context: object = None
) -> list[bytes]:
    """Poll these consumers until a condition is true. Returns the values of the records; `context` is part of the
    failure's message.
    """
    values: list[bytes] = []
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s; {consumers}; {context}"
        for consumer in consumers:
            values += [record.value for record in consumer.poll(0.05)]
    return values


def tps(topic: str, *partitions: int) -> set[TopicPartition]:
    """Returns partitions of one topic."""
    return {TopicPartition(topic, partition) for partition in partitions}


# --- groups of processes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_one_three_two_members_under_load(kafka: Kafka, topic_name: str, assignor: str) -> None:
    """While the group grows from one to three members and shrinks to two, each record is read once and in order, and
    each partition has one owner at a time. Retained partitions are not interrupted.
    """
    topic = kafka.create_topic(topic_name, PARTITIONS)
    chosen = settings(kafka, topic, None, group_remote_assignor=assignor)
    one_three_two(kafka, topic, chosen, keeps=True)


def test_killed_member_is_replaced_from_its_commits(kafka: Kafka, topic_name: str) -> None:
    """After SIGKILL and the session timeout, the other member continues from the committed offsets."""
    topic = kafka.create_topic(topic_name, PARTITIONS)
    chosen = settings(kafka, topic, None, auto_commit_interval_ms=200)
    with ExitStack() as stack:
        with load(kafka, topic):
            victim = stack.enter_context(MemberProcess("victim", chosen))
            heir = stack.enter_context(MemberProcess("heir", chosen))
            members = [victim, heir]
            wait_for(lambda: shared_out(members, everything(topic)), "two members to share", members)
            wait_for(lambda: victim.consumed() > 500, "the victim to read", members)
            victim.kill()
            wait_for(lambda: shared_out([heir], everything(topic)), "the heir to own all", [heir])
        ends = drained(kafka, topic, members)
        wait_for(lambda: all_offsets(members, ends), "every record to be read by someone", members)
        heir.stop()
        assert_all_seen(members, ends, once=False)


def test_suspended_member_is_fenced_and_comes_back(kafka: Kafka, topic_name: str) -> None:
    """A member suspended by SIGSTOP beyond the session timeout calls on_lost when it resumes, joins again and
    continues; no record is lost.
    """
    topic = kafka.create_topic(topic_name, PARTITIONS)
    chosen = settings(kafka, topic, None, auto_commit_interval_ms=200)
    with ExitStack() as stack:
        with load(kafka, topic):
            sleeper = stack.enter_context(MemberProcess("sleeper", chosen))
            other = stack.enter_context(MemberProcess("other", chosen))
            members = [sleeper, other]
            wait_for(lambda: shared_out(members, everything(topic)), "two members to share", members)
            os.kill(sleeper.pid, signal.SIGSTOP)
            try:
                wait_for(lambda: len(other.owned()) == PARTITIONS, "the other member to own all", [other])
            finally:
                os.kill(sleeper.pid, signal.SIGCONT)
            wait_for(lambda: sleeper.seen("lost"), "on_lost", members)
            wait_for(lambda: shared_out(members, everything(topic)), "two members to share again", members)
        ends = drained(kafka, topic, members)
        wait_for(lambda: all_offsets(members, ends), "every record to be read by someone", members)
        for member in members:
            member.stop()
        assert_all_seen(members, ends, once=False)


# --- one or two members in this process ------------------------------------------------------------------------------


def test_unaffected_partitions_keep_flowing(kafka: Kafka, topic_name: str, member: New) -> None:
    """While one partition moves to another member, reading of the other partition is not interrupted."""
    topic = kafka.create_topic(topic_name, 2)
    done = threading.Event()

    def produce() -> None:
        while not done.wait(0.01):
            kafka.produce(topic, [b"x"] * 2, config={"linger.ms": 0})

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        first = member(topic)
        poll_until([first], lambda: len(first.assignment()) == 2)
        seen: dict[TopicPartition, list[float]] = {}
        second = member(topic)
        deadline = time.monotonic() + 20
        while not (first.assignment() and second.assignment()):
            assert time.monotonic() < deadline
            note(first.poll(0.02), seen)
            second.poll(0.02)
        (kept,) = first.assignment()
        until = time.monotonic() + 1
        while time.monotonic() < until:
            note(first.poll(0.02), seen)
    finally:
        done.set()
        thread.join()
    gaps = [later - earlier for earlier, later in zip(seen[kept], seen[kept][1:], strict=False)]
    assert max(gaps) < 1.0, f"longest gap {max(gaps):.3f} s"


def note(records: ConsumerRecords, seen: dict[TopicPartition, list[float]]) -> None:
    """Record when each partition was read."""
    for tp in records.by_partition():
        seen.setdefault(tp, []).append(time.monotonic())


def test_subscription_changes(kafka: Kafka, topic_name: str, member: New) -> None:
    """When a topic is added and another one removed, callbacks get only the changed partitions."""
    one, two = kafka.create_topic(f"{topic_name}-1"), kafka.create_topic(f"{topic_name}-2")
    calls: list[tuple[str, set[TopicPartition]]] = []
    consumer = member()

    def subscribe(*topics: str) -> None:
        consumer.subscribe(
            topics,
            on_assign=lambda _c, ps: ps and calls.append(("assigned", set(ps))),
            on_revoke=lambda _c, ps: calls.append(("revoked", set(ps))),
        )

    subscribe(one)
    poll_until([consumer], lambda: consumer.assignment() == tps(one, 0))
    subscribe(one, two)
    poll_until([consumer], lambda: consumer.assignment() == tps(one, 0) | tps(two, 0))
    subscribe(two)
    poll_until([consumer], lambda: consumer.assignment() == tps(two, 0))
    assert [
        ("assigned", tps(one, 0)),
        ("assigned", tps(two, 0)),
        ("revoked", tps(one, 0)),
    ] == calls


def test_topic_created_enlarged_and_deleted(kafka: Kafka, topic_name: str, member: New) -> None:
    """A subscribed topic is assigned when it is created, enlarged or deleted, without a rejoin."""
    consumer = member(topic_name, metadata_max_age_ms=300)
    consumer.poll(0.5)
    assert frozenset() == consumer.assignment()
    kafka.create_topic(topic_name, 1)
    kafka.produce(topic_name, [b"a"])
    assert [b"a"] == poll_until([consumer], lambda: consumer.assignment() == tps(topic_name, 0) and at_end(consumer))
    kafka.add_partitions(topic_name, 3)
    poll_until([consumer], lambda: consumer.assignment() == tps(topic_name, 0, 1, 2))
    kafka.delete_topic(topic_name)
    poll_until([consumer], lambda: consumer.assignment() == frozenset())


def at_end(consumer: Consumer) -> bool:
    """Returns whether all written records were consumed."""
    return all(status.lag == 0 and status.position for status in consumer.partition_states().values())


def test_pattern_of_the_broker(kafka: Kafka, topic_name: str, member: New) -> None:
    """The coordinator evaluates the pattern. A topic that is created later is assigned, and its records are
    returned.
    """
    one = kafka.create_topic(f"{topic_name}.one")
    kafka.produce(one, [b"1"])
    consumer = member()
    consumer.subscribe(SubscriptionPattern(re.escape(topic_name) + r"\..*"))
    assert [b"1"] == poll_until([consumer], lambda: consumer.assignment() == tps(one, 0) and at_end(consumer))
    other = kafka.create_topic(f"{topic_name}.two")
    kafka.produce(other, [b"2"])
    values = poll_until([consumer], lambda: consumer.assignment() == tps(one, 0) | tps(other, 0) and at_end(consumer))
    assert [b"2"] == values


def test_pattern_that_is_none(member: New) -> None:
    """A pattern that is not valid RE2 ends the membership with the broker's error message."""
    consumer = member()
    consumer.subscribe(SubscriptionPattern("(["))
    with pytest.raises(Exception, match="regular expression"):
        poll_until([consumer], lambda: False, 10)


def test_no_topics_of_a_pattern_after_a_leave_that_was_not_sent(kafka: Kafka, topic_name: str, member: New) -> None:
    """The coordinator keeps the pattern of a member id that joins again without the pattern field, so the member sends
    an empty pattern.
    """
    matched, named = (kafka.create_topic(f"{topic_name}-{suffix}") for suffix in ("matched", "named"))
    consumer = member()
    consumer.subscribe(SubscriptionPattern(re.escape(matched)))
    poll_until([consumer], lambda: consumer.assignment() == {TopicPartition(matched, 0)})
    parts = consumer._engine.components
    with parts.lock:  # so that the network thread does not look it up again before the member has left
        parts.group.coordinator.mark_unknown("lost in this test", parts.clock.now())
        consumer.unsubscribe()
    consumer.subscribe([named])
    seen: set[TopicPartition] = set()

    def joined() -> bool:
        seen.update(consumer.assignment())
        return TopicPartition(named, 0) in seen and consumer._engine._group_idle()

    poll_until([consumer], joined)
    assert {TopicPartition(named, 0)} == seen


def test_static_member_returns(kafka: Kafka, topic_name: str, member: New) -> None:
    """close() keeps a static member in the group. After its restart it owns the same partitions, and no other member is
    affected.
    """
    topic = kafka.create_topic(topic_name, 4)
    calls: list[object] = []
    first = member(group_instance_id="one")
    first.subscribe([topic], on_assign=lambda *a: calls.append(a), on_revoke=lambda *a: calls.append(a))
    second = member(topic, group_instance_id="two")
    poll_until([first, second], lambda: len(first.assignment()) == len(second.assignment()) == 2)
    had = second.assignment()
    second.close()
    calls.clear()
    back = member(topic, group_instance_id="two")
    poll_until([first, back], lambda: len(back.assignment()) == 2)
    assert (had, []) == (back.assignment(), calls)


def test_static_member_leaves_for_good_with_leave_group(kafka: Kafka, topic_name: str, member: New) -> None:
    """close(leave_group=True) removes a static member: the other member owns all partitions at once."""
    topic = kafka.create_topic(topic_name, 4)
    first, second = member(topic, group_instance_id="one"), member(topic, group_instance_id="two")
    poll_until([first, second], lambda: len(first.assignment()) == len(second.assignment()) == 2)
    second.close(leave_group=True)
    poll_until([first], lambda: len(first.assignment()) == 4, 5)


def test_second_consumer_with_the_same_instance_id(kafka: Kafka, topic_name: str, member: New) -> None:
    """While the first consumer is alive, the coordinator rejects the second one permanently and the first one
    continues. In the classic protocol it is the opposite.
    """
    topic = kafka.create_topic(topic_name, 1)
    first, second = member(topic, group_instance_id="same"), member(topic, group_instance_id="same")
    poll_until([first], lambda: len(first.assignment()) == 1)
    for _ in range(2):
        with pytest.raises(GroupError, match="same"):
            poll_until([second], lambda: False)
    kafka.produce(topic, [b"x"])
    assert [b"x"] == poll_until([first], lambda: at_end(first))


def test_member_removed_by_an_admin(kafka: Kafka, topic_name: str, member: New) -> None:
    """A member that an administrator removed calls on_lost and joins again with the same member id."""
    topic = kafka.create_topic(topic_name, 1)
    calls: list[str] = []
    consumer = member(group_instance_id="static")
    consumer.subscribe(
        [topic], on_assign=lambda _c, ps: ps and calls.append("assigned"), on_lost=lambda *_: calls.append("lost")
    )
    poll_until([consumer], lambda: calls == ["assigned"])
    consumer.position(TopicPartition(topic, 0))  # a look-up in flight would fail after the removal
    before = consumer.group_metadata()
    remove_static_member(kafka, topic_name, "static")
    poll_until([consumer], lambda: calls[:3] == ["assigned", "lost", "assigned"], context=calls)
    assert before.member_id == consumer.group_metadata().member_id


def test_caller_that_does_not_poll(kafka: Kafka, topic_name: str, member: New) -> None:
    """After max_poll_interval_ms without a poll the member leaves by itself; the next poll calls on_lost and joins
    again.
    """
    topic = kafka.create_topic(topic_name, 1)
    calls: list[str] = []
    consumer = member(max_poll_interval_ms=1500)
    consumer.subscribe(
        [topic], on_assign=lambda _c, ps: ps and calls.append("assigned"), on_lost=lambda *_: calls.append("lost")
    )
    poll_until([consumer], lambda: calls == ["assigned"])
    wait_until(lambda: kafka.group_state(topic_name) == "EMPTY", 10, "the member to leave")
    assert ["assigned"] == calls
    poll_until([consumer], lambda: calls[:3] == ["assigned", "lost", "assigned"], context=calls)


@pytest.mark.parametrize("kind", ["assigned", "revoked"])
def test_callback_that_raises(kafka: Kafka, topic_name: str, member: New, kind: str) -> None:
    """poll() raises the error of a callback and calls the callback again later. Until it returns without an error,
    partitions passed to on_assign are not read and partitions passed to on_revoke are not assigned to another member.
    """
    topic = kafka.create_topic(topic_name, 2)
    for partition in (0, 1):
        kafka.produce(topic, [b"x"], partition=partition)
    failures = [ValueError("no"), ValueError("not yet")]

    def fail(_consumer: Consumer, partitions: object) -> None:
        if partitions and failures:
            raise failures.pop(0)

    consumer = member()
    if kind == "assigned":
        consumer.subscribe([topic], on_assign=fail)
        other = consumer
    else:
        consumer.subscribe([topic], on_revoke=fail)
        poll_until([consumer], lambda: len(consumer.assignment()) == 2 and at_end(consumer))
        other = member(topic)
    for text in ("no", "not yet"):
        with pytest.raises(ValueError, match=text):
            poll_until([other, consumer], lambda: False)
        assert other is consumer or not other.assignment()
    values = poll_until([other, consumer], lambda: bool(other.assignment()) and at_end(other))
    assert [b"x"] * 2 == values if other is consumer else [] == values, "what was committed is not read again"


def test_callback_longer_than_the_rebalance_timeout(kafka: Kafka, topic_name: str, member: New) -> None:
    """on_revoke takes longer than max_poll_interval_ms. The member is removed from the group, calls on_lost for its
    remaining partitions, joins again and owns its share.
    """
    topic = kafka.create_topic(topic_name, 2)
    calls: list[str] = []

    def on_revoke(_consumer: Consumer, _partitions: object) -> None:
        calls.append("revoked")
        time.sleep(3)

    slow = member(max_poll_interval_ms=1000)
    slow.subscribe(
        [topic],
        on_assign=lambda _c, ps: ps and calls.append("assigned"),
        on_revoke=on_revoke,
        on_lost=lambda *_: calls.append("lost"),
    )
    poll_until([slow], lambda: len(slow.assignment()) == 2)
    other = member(topic)
    poll_until([slow, other], lambda: len(slow.assignment()) == len(other.assignment()) == 1, 30)
    assert ["revoked", "lost", "assigned"] == calls[calls.index("revoked") :][:3]


def test_commits_inside_callbacks(kafka: Kafka, topic_name: str, member: New) -> None:
    """commit() in on_assign and on_revoke succeeds; reading, and the next owner, start at the committed offsets."""
    topic = kafka.create_topic(topic_name, 2)
    for partition in range(2):
        kafka.produce(topic, [b"%d" % n for n in range(10)], partition=partition)
    first = member(enable_auto_commit=False)
    first.subscribe(
        [topic],
        on_assign=lambda consumer, ps: consumer.commit(dict.fromkeys(ps, 2)),
        on_revoke=lambda consumer, ps: consumer.commit(dict.fromkeys(ps, 7)),
    )
    values = poll_until([first], lambda: len(first.assignment()) == 2 and at_end(first))
    assert [value for n in range(2, 10) for value in [b"%d" % n] * 2] == sorted(values)
    assert {0: 2, 1: 2} == kafka.committed(topic_name, topic)
    second = member(topic, enable_auto_commit=False)
    values = poll_until(
        [second, first], lambda: second.assignment() and at_end(second) and len(first.assignment()) == 1
    )
    assert [b"7", b"8", b"9"] == values[-3:]
    assert [2, 7] == sorted(kafka.committed(topic_name, topic).values())


def test_positions_are_committed_before_on_revoke(kafka: Kafka, topic_name: str, member: New) -> None:
    """With auto-commit, the offsets of returned records are committed when on_revoke runs and the partition is still
    owned. on_assign follows without new partitions, in the same epoch or a later one.
    """
    topic = kafka.create_topic(topic_name, 2)
    for partition in (0, 1):
        kafka.produce(topic, [b"x"] * 10, partition=partition)
    story: list[tuple[str, int, list[int | None], bool]] = []

    def note(kind: str) -> Callable[[Consumer, Any], None]:
        def hook(consumer: Consumer, partitions: Any) -> None:
            committed = [at and at.offset for at in consumer.committed(partitions).values()]
            story.append((kind, len(partitions), committed, consumer.assignment().issuperset(partitions)))

        return hook

    first = member(auto_commit_interval_ms=3_600_000)
    first.subscribe([topic], on_assign=note("assigned"), on_revoke=note("revoked"))
    poll_until([first], lambda: len(first.assignment()) == 2 and at_end(first))
    second = member(topic)
    poll_until([first, second], lambda: len(second.assignment()) == 1 and story[-1][:2] == ("assigned", 0))
    nonempty = [call for call in story if call != ("assigned", 0, [], True)]
    assert [("assigned", 2, [None, None], True), ("revoked", 1, [10], True)] == nonempty


def test_unsubscribing_inside_a_callback(kafka: Kafka, topic_name: str, member: New) -> None:
    """unsubscribe() inside on_assign leaves the group for good."""
    topic = kafka.create_topic(topic_name, 1)
    consumer = member()
    calls: list[str] = []

    def on_assign(consumer: Consumer, partitions: object) -> None:
        if partitions:
            calls.append("assigned")
            consumer.unsubscribe()

    consumer.subscribe([topic], on_assign=on_assign, on_revoke=lambda *_: calls.append("revoked"))
    watch = Stopwatch()
    assert not consumer.poll(10)
    assert watch.seconds() < 8
    assert ["assigned", "revoked"] == calls
    wait_until(lambda: kafka.group_state(topic_name) == "EMPTY", 5, "the member to leave")


def test_close_in_the_middle_of_a_reconciliation(kafka: Kafka, topic_name: str, member: New) -> None:
    """A member closes while the coordinator waits for it to revoke partitions. It closes at once, and the other member
    gets all partitions.
    """
    topic = kafka.create_topic(topic_name, 4)
    first, second = member(topic), member(topic)
    poll_until([first], lambda: len(first.assignment()) == 4)
    second.poll(1.0)  # joined; the first member has not received the change yet
    watch = Stopwatch()
    first.close(5)
    assert watch.seconds() < 5
    poll_until([second], lambda: len(second.assignment()) == 4, 10)


def test_old_broker(kafka39: Kafka, topic_name: str) -> None:
    """With a broker that lacks the protocol, the error names the option to change, and close() returns soon."""
    with Consumer(
        topic_name,
        bootstrap_servers=kafka39.bootstrap_servers,
        group_id=topic_name,
        group_protocol="consumer",
    ) as consumer:
        with pytest.raises(UnsupportedVersionError, match='group_protocol="classic"'):
            poll_until([consumer], lambda: False)
        watch = Stopwatch()
    assert watch.seconds() < 2
