"""Groups of KIP-848 on a real broker: members join, leave, are fenced and die, with and without members of other
clients.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from kconsumer import Consumer, ConsumerRecords, SubscriptionPattern, TopicPartition
from kconsumer.errors import GroupError
from support.brokers.kafka import Kafka
from support.harnesses.inside import engine_of, parts_of
from support.members.clients import settings
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
    parts = parts_of(consumer)
    with parts.lock:  # so that the network thread does not look it up again before the member has left
        parts.group.coordinator.mark_unknown("lost in this test", parts.clock.now())
        consumer.unsubscribe()
    consumer.subscribe([named])
    seen: set[TopicPartition] = set()

    def joined() -> bool:
        seen.update(consumer.assignment())
        return TopicPartition(named, 0) in seen and engine_of(consumer)._group_idle()

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
