"""Subscribing: names and patterns, growing and shrinking, new topics and partitions, and leaving again."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from kconsumer import Consumer, SubscriptionPattern, TopicPartition
from kconsumer.errors import InvalidTopicError, StateError
from support.brokers.kafka import Kafka
from support.brokers.kafka_admin import wait_until
from support.harnesses.polling import Recorder, await_assignment, numbered, poll_until, read, tps, values
from support.harnesses.stopwatch import Stopwatch

New = Callable[..., Consumer]


@pytest.fixture
def member(topic_name: str, new_consumer: New) -> New:
    """Returns a function that makes members of one group that refresh metadata often."""

    def make(*topics: str, **options: object) -> Consumer:
        return new_consumer(*topics, **{"group_id": topic_name, "metadata_max_age_ms": 200, **options})

    return make


# --- names ---


def test_subscription_values(kafka: Kafka, topic_name: str, member: New) -> None:
    """subscription() returns the new subscription at once. assignment() changes with the first polls. Both return
    copies.
    """
    topic = kafka.create_topic(topic_name, 2)
    consumer = member()
    assert (frozenset(), frozenset()) == (consumer.subscription(), consumer.assignment())
    consumer.subscribe([topic])
    subscription, assignment = consumer.subscription(), consumer.assignment()
    assert (frozenset({topic}), frozenset()) == (subscription, assignment)
    await_assignment(consumer, *tps(topic, 0, 1))
    assert frozenset() == assignment
    consumer.unsubscribe()
    assert (frozenset(), frozenset()) == (consumer.subscription(), consumer.assignment())


def test_growing_and_shrinking(kafka: Kafka, topic_name: str, member: New) -> None:
    """subscribe() replaces the previous subscription (Java test{Expanding,Shrinking}TopicSubscriptions)."""
    topic, other = kafka.create_topic(topic_name, 2), f"{topic_name}-other"
    consumer = member(topic)
    await_assignment(consumer, *tps(topic, 0, 1))
    kafka.create_topic(other, 2)
    consumer.subscribe([topic, other])
    await_assignment(consumer, *tps(topic, 0, 1), *tps(other, 0, 1))
    consumer.subscribe([other])
    await_assignment(consumer, *tps(other, 0, 1))
    assert frozenset({other}) == consumer.subscription()


def test_changed_subscription_returns_nothing_of_the_old_topic(kafka: Kafka, topic_name: str, member: New) -> None:
    """After subscribe() no record of a topic that is no longer subscribed is returned, not even a buffered one."""
    old, new = kafka.create_topic(topic_name), kafka.create_topic(f"{topic_name}-new")
    kafka.produce(old, numbered(100))
    kafka.produce(new, [b"new"] * 5)
    consumer = member(old, max_poll_records=1)
    read(consumer, 1)
    consumer.subscribe([new])
    assert [b"new"] * 5 == [value for _ in range(5) for value in values(read(consumer, 1))]
    assert {TopicPartition(new, 0)} == consumer.assignment()


def test_subscribing_back_and_forth_leaves_nothing_unread(kafka: Kafka, topic_name: str, member: New) -> None:
    """A topic that is missing from the subscription for one poll loses no records, whether or not a rebalance happened
    meanwhile.
    """
    topic, other = kafka.create_topic(topic_name), kafka.create_topic(f"{topic_name}-other")
    both = (*tps(topic, 0), *tps(other, 0))
    consumer = member(topic, other)
    await_assignment(consumer, *both)
    for number in range(5):
        consumer.subscribe([topic])
        consumer.poll(0)
        consumer.subscribe([topic, other])
        value = b"%d" % number
        kafka.produce(topic, [value])
        kafka.produce(other, [value])
        assert [value, value] == values(read(consumer, 2))
    assert set(both) == consumer.assignment()
    states = consumer.partition_states()
    assert "revoking" not in {status.state.value for status in states.values()}, states


def test_unsubscribed_topic_is_not_read_while_the_group_rebalances(
    kafka: Kafka, topic_name: str, member: New, engine: dict[str, object]
) -> None:
    """No record of the unsubscribed topic is returned during a long rebalance, in which another member does not
    poll.
    """
    names = [kafka.create_topic(f"{topic_name}-{suffix}") for suffix in ("kept", "gone", "idle")]
    kept, gone, others = names
    classic = "group_protocol" not in engine
    options: dict[str, object] = {"max_poll_records": 1} | ({"assignors": ["cooperative-sticky"]} if classic else {})
    consumer = member(kept, gone, **options)
    await_assignment(consumer, *tps(kept, 0), *tps(gone, 0))  # first, so that it leads the group
    idle = member(others, **options)
    poll_until([consumer, idle], lambda: len(consumer.assignment()) == 2 and idle.assignment())
    if classic:
        consumer.enforce_rebalance()
        poll_until(consumer, lambda: kafka.group_state(topic_name) == "PREPARING_REBALANCING")
    consumer.subscribe([kept])
    for name in (kept, gone):
        kafka.produce(name, numbered(10))
    returned = [record.topic for _ in range(30) for record in consumer.poll(0.05)]
    assert {kept} == set(returned)


@pytest.mark.classic_protocol
def test_unsubscribe_and_subscribe_again(kafka: Kafka, topic_name: str, member: New) -> None:
    """unsubscribe() leaves the group at once. A later subscribe() joins again and reads from the committed offsets."""
    topic = kafka.create_topic(topic_name)
    kafka.produce(topic, numbered(10))
    consumer = member(topic, enable_auto_commit=False, max_poll_records=4)
    read(consumer, 4)
    consumer.commit()
    read(consumer, 4)
    first = consumer.group_metadata()
    consumer.unsubscribe()
    wait_until(lambda: kafka.group_state(topic_name) == "EMPTY", 10, "an empty group")
    assert frozenset() == consumer.assignment()
    with pytest.raises(StateError, match="subscribe"):
        consumer.poll(0)
    consumer.subscribe([topic])
    assert numbered(4, 4) == values(read(consumer, 4))
    second = consumer.group_metadata()
    assert first.member_id != second.member_id
    assert "STABLE" == kafka.group_state(topic_name)


def test_subscribing_to_nothing_is_unsubscribing(kafka: Kafka, topic_name: str, member: New) -> None:
    """subscribe([]) leaves the group (Java testUnsubscribeTopic)."""
    topic = kafka.create_topic(topic_name)
    listener = Recorder()
    consumer = member()
    consumer.subscribe([topic], listener=listener)
    await_assignment(consumer, *tps(topic, 0))
    consumer.subscribe([])
    assert (frozenset(), frozenset()) == (consumer.assignment(), consumer.subscription())
    assert [("assigned", tps(topic, 0)), ("revoked", tps(topic, 0))] == listener.calls[-2:]


@pytest.mark.classic_protocol
def test_what_cannot_be_subscribed_to(member: New) -> None:
    """subscribe() rejects blank names, empty patterns, a listener together with callables, and broker-side patterns,
    which the classic protocol does not have.
    """
    consumer = member()
    with pytest.raises(ValueError, match="topic name"):
        consumer.subscribe(["ok", " "])
    with pytest.raises(ValueError, match="pattern"):
        consumer.subscribe(re.compile(""))
    with pytest.raises(ValueError, match="not both"):
        consumer.subscribe(["t"], listener=Recorder(), on_assign=lambda *_: None)
    with pytest.raises(StateError, match=r"re\.compile"):
        consumer.subscribe(SubscriptionPattern("t.*"))
    assert frozenset() == consumer.subscription()


@pytest.mark.parametrize("end", ["close", "unsubscribe"])
def test_illegal_topic_can_be_left(topic_name: str, member: New, end: str) -> None:
    """After InvalidTopicError the consumer can unsubscribe or close (Java testSubscribeInvalidTopicCan…)."""
    consumer = member("topic abc")
    with pytest.raises(InvalidTopicError, match="topic abc"):
        poll_until(consumer, lambda: False, timeout_s=5)
    getattr(consumer, end)()


def test_illegal_topic_next_to_a_good_one(kafka: Kafka, topic_name: str, member: New) -> None:
    """After the error, a new subscription without the invalid name works."""
    topic = kafka.create_topic(topic_name)
    kafka.produce(topic, [b"v"])
    consumer = member("topic abc", topic)
    with pytest.raises(InvalidTopicError):
        poll_until(consumer, lambda: False, timeout_s=5)
    consumer.subscribe([topic])
    assert [b"v"] == values(read(consumer, 1))


def test_topic_that_is_created_after_subscribing(kafka: Kafka, topic_name: str, member: New) -> None:
    """A member that subscribes to a missing topic is assigned nothing, and gets the partitions once the topic is
    created.
    """
    consumer = member(topic_name)
    assert not consumer.poll(0.5)
    kafka.create_topic(topic_name, 2)
    kafka.produce(topic_name, [b"v"], partition=1)
    assert [b"v"] == values(read(consumer, 1))
    assert {*tps(topic_name, 0, 1)} == consumer.assignment()


def test_new_partitions_are_noticed(kafka: Kafka, topic_name: str, member: New) -> None:
    """Partitions added to a subscribed topic are assigned, and read from the beginning with `earliest`."""
    topic = kafka.create_topic(topic_name)
    kafka.produce(topic, numbered(3), partition=0)
    consumer = member(topic)
    read(consumer, 3)
    kafka.add_partitions(topic, 3)
    kafka.produce(topic, [b"new"], partition=2)
    assert [b"new"] == values(read(consumer, 1))
    assert {*tps(topic, 0, 1, 2)} == consumer.assignment()


@pytest.mark.parametrize(("reset", "skipped"), [("latest", [b"early"]), ("by_duration:PT1H", [])])
def test_records_written_before_a_new_partition_is_discovered(
    kafka: Kafka, topic_name: str, member: New, reset: str, skipped: list[bytes]
) -> None:
    """A new partition has no commit, so with `latest` what is written to it before the group reads it is skipped, as in
    Java (KAFKA-20539).
    """
    topic = kafka.create_topic(topic_name)
    kafka.produce(topic, [b"before"])
    with member(topic) as consumer:
        read(consumer, 1)
    kafka.add_partitions(topic, 2)
    kafka.produce(topic, [b"early"], partition=1)
    consumer = member(topic, auto_offset_reset=reset)
    records = await_assignment(consumer, *tps(topic, 0, 1))
    assert consumer.position((topic, 1)) == len(skipped) + len(records)
    kafka.produce(topic, [b"late"], partition=1)
    records = [*records, *read(consumer, 2 - len(skipped) - len(records))]
    assert [b"early", b"late"] == skipped + values(records)


def test_new_partitions_have_a_reset_policy_of_their_own(kafka: Kafka, topic_name: str, member: New) -> None:
    """With `auto_offset_reset_new_partitions`, what was written before the member learned of the partition is read."""
    topic = kafka.create_topic(topic_name)
    kafka.produce(topic, [b"before"])
    consumer = member(topic, auto_offset_reset="latest", auto_offset_reset_new_partitions="earliest")
    assert [] == await_assignment(consumer, *tps(topic, 0))
    assert 1 == consumer.position((topic, 0))
    kafka.add_partitions(topic, 2)
    kafka.produce(topic, [b"early"], partition=1)
    assert [b"early"] == values(read(consumer, 1))


def test_deleted_topic_is_noticed(kafka: Kafka, topic_name: str, member: New) -> None:
    """The partitions of a deleted topic are removed from the assignment; the positions in other topics are
    committed.
    """
    topic, other = kafka.create_topic(topic_name), kafka.create_topic(f"{topic_name}-other")
    kafka.produce(other, numbered(3))
    consumer = member(topic, other)
    read(consumer, 3)
    assert {*tps(topic, 0), *tps(other, 0)} == consumer.assignment()
    kafka.delete_topic(topic)
    kafka.produce(other, [b"v"])
    records = await_assignment(consumer, *tps(other, 0))
    assert [b"v"] == values([*records, *read(consumer, 1 - len(records))])
    consumer.close()
    assert {0: 4} == kafka.committed(topic_name, other)


@pytest.mark.parametrize("subscribed", [True, False])
def test_topic_that_is_re_created(kafka: Kafka, topic_name: str, member: New, subscribed: bool) -> None:
    """A topic that is deleted and created again under the same name is read from the reset policy's offset, because
    positions and commits of the old topic are outside the new log.
    """
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(10))
    consumer = member(topic_name) if subscribed else member()
    if not subscribed:
        consumer.assign(tps(topic_name, 0))
    read(consumer, 10)
    consumer.commit()
    kafka.delete_topic(topic_name)
    poll_until(consumer, lambda: not consumer.partitions_for(topic_name))
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [b"a", b"b", b"c"])
    assert [b"a", b"b", b"c"] == values(read(consumer, 3))


@pytest.mark.parametrize("subscribed", [True, False])
def test_topic_that_is_re_created_and_longer(kafka: Kafka, topic_name: str, member: New, subscribed: bool) -> None:
    """A topic is deleted and created again between two polls, and the new log contains the old position. The position
    is not kept, because the records before it would be skipped. If the group revokes and reassigns the partition,
    uncommitted records are read twice.
    """
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(10))
    consumer = member(topic_name, enable_auto_commit=False) if subscribed else member(enable_auto_commit=False)
    if not subscribed:
        consumer.assign(tps(topic_name, 0))
    read(consumer, 10)
    kafka.delete_topic(topic_name)
    kafka.create_topic(topic_name)
    written, returned = numbered(20, start=100), []
    kafka.produce(topic_name, written)

    def all_returned() -> bool:
        returned.extend(values(consumer.poll(0.1)))
        return set(written) <= set(returned)

    wait_until(all_returned, 20, "the records of the new topic")
    assert written == list(dict.fromkeys(returned))


def test_close_after_the_topic_was_deleted(kafka: Kafka, topic_name: str, member: New) -> None:
    """The automatic commit in close() does not wait for a deleted topic; positions in other partitions are
    committed.
    """
    topic, other = kafka.create_topic(topic_name), kafka.create_topic(f"{topic_name}-other")
    kafka.produce(other, numbered(3))
    consumer = member()
    consumer.assign([*tps(topic, 0), *tps(other, 0)])
    read(consumer, 3)
    assert 0 == consumer.position(TopicPartition(topic, 0))
    kafka.delete_topic(topic)
    watch = Stopwatch()
    consumer.close()
    assert watch.seconds() < 3
    assert {0: 3} == kafka.committed(topic_name, other)


# --- patterns ---


def test_pattern_subscription(kafka: Kafka, topic_name: str, member: New) -> None:
    """A pattern must match the whole topic name; a matching topic created later is subscribed with the next metadata
    (Java testPatternSubscription).
    """
    for suffix in ("c", "tblablac", "tblablak", "tblab1"):
        kafka.create_topic(topic_name + suffix, 2)
    consumer = member()
    consumer.subscribe(re.compile(f"{topic_name}.*c"))
    assert frozenset() == consumer.subscription(), "not known before metadata is there"
    expected = [*tps(topic_name + "c", 0, 1), *tps(topic_name + "tblablac", 0, 1)]
    await_assignment(consumer, *expected)
    assert {topic_name + "c", topic_name + "tblablac"} == consumer.subscription()
    kafka.create_topic(topic_name + "somec", 2)
    await_assignment(consumer, *expected, *tps(topic_name + "somec", 0, 1))
    consumer.unsubscribe()
    assert (frozenset(), frozenset()) == (consumer.assignment(), consumer.subscription())


def test_pattern_replaces_pattern(kafka: Kafka, topic_name: str, member: New) -> None:
    """A second pattern takes effect without waiting for metadata.max.age.ms (Java
    testSubsequentPatternSubscription).
    """
    for suffix in ("-topic", "-foo"):
        kafka.create_topic(topic_name + suffix)
    consumer = member(metadata_max_age_ms=300_000)
    consumer.subscribe(re.compile(f"{topic_name}-.*o.*"))
    await_assignment(consumer, *tps(topic_name + "-topic", 0), *tps(topic_name + "-foo", 0))
    kafka.create_topic(topic_name + "-bar")
    consumer.subscribe(re.compile(f"{topic_name}-..."))
    await_assignment(consumer, *tps(topic_name + "-foo", 0), *tps(topic_name + "-bar", 0))
    assert {topic_name + "-foo", topic_name + "-bar"} == consumer.subscription()


def test_pattern_that_matches_nothing_yet(kafka: Kafka, topic_name: str, member: New) -> None:
    """The member joins without topics; the first matching topic is subscribed when it is created."""
    consumer = member()
    consumer.subscribe(re.compile(f"{topic_name}-[0-9]+"))
    assert not consumer.poll(0.5)
    assert frozenset() == consumer.assignment()
    topic = kafka.create_topic(f"{topic_name}-17")
    kafka.produce(topic, [b"v"])
    assert [b"v"] == values(read(consumer, 1))


def test_matching_topic_that_is_deleted(kafka: Kafka, topic_name: str, member: New) -> None:
    """A deleted topic is removed from the subscription of a pattern."""
    topics = [kafka.create_topic(f"{topic_name}-{letter}") for letter in "ab"]
    consumer = member()
    consumer.subscribe(re.compile(f"{topic_name}-."))
    await_assignment(consumer, *(tp for topic in topics for tp in tps(topic, 0)))
    kafka.delete_topic(topics[0])
    await_assignment(consumer, *tps(topics[1], 0))
    assert {topics[1]} == consumer.subscription()


@pytest.mark.parametrize("excluded", [True, False])
def test_internal_topics_and_patterns(kafka: Kafka, topic_name: str, member: New, excluded: bool) -> None:
    """With exclude_internal_topics a pattern does not match __consumer_offsets."""
    topic = kafka.create_topic(topic_name)
    kafka.coordinator_of(topic_name)  # makes the broker create __consumer_offsets
    consumer = member(exclude_internal_topics=excluded, auto_offset_reset="latest")
    consumer.subscribe(re.compile(f"{topic_name}|__consumer_offsets"))
    poll_until(consumer, consumer.assignment)
    expected = {topic} if excluded else {topic, "__consumer_offsets"}
    assert expected == consumer.subscription() == {tp.topic for tp in consumer.assignment()}


def test_internal_topic_by_name(kafka: Kafka, topic_name: str, member: New) -> None:
    """An internal topic can be subscribed by name and assigned, whatever exclude_internal_topics is set to."""
    kafka.coordinator_of(topic_name)
    consumer = member("__consumer_offsets", auto_offset_reset="latest")
    poll_until(consumer, consumer.assignment)
    assert {"__consumer_offsets"} == {tp.topic for tp in consumer.assignment()}
