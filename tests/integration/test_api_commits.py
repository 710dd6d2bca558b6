"""Committing and reading commits: which offsets are committed, by which member, in which order, and what callbacks
receive.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kconsumer import Consumer, OffsetAndMetadata, TopicPartition
from kconsumer.errors import BrokerError, CommitFailedError, KafkaError, TimeoutError, WakeupError
from support.brokers.kafka import Kafka
from support.harnesses.polling import Recorder, await_assignment, numbered, poll_until, read, tps, values
from support.harnesses.stopwatch import Stopwatch

New = Callable[..., Consumer]


class Outcomes:
    """A commit callback that records its arguments and its thread."""

    def __init__(self) -> None:
        self.offsets: list[dict[TopicPartition, OffsetAndMetadata]] = []
        self.errors: list[KafkaError] = []
        self.threads: set[int] = set()

    def __call__(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], error: KafkaError | None) -> None:
        self.threads.add(threading.get_ident())
        if error is None:
            self.offsets.append(dict(offsets))
        else:
            self.errors.append(error)

    def __len__(self) -> int:
        return len(self.offsets) + len(self.errors)


@pytest.fixture
def member(topic_name: str, new_consumer: New) -> New:
    """Returns a function that makes consumers of one group without automatic commits."""

    def make(*topics: str, **options: object) -> Consumer:
        return new_consumer(*topics, **{"group_id": topic_name, "enable_auto_commit": False, **options})

    return make


# --- synchronous commits ---


def test_position_and_commit(kafka: Kafka, ten: TopicPartition, member: New) -> None:
    """commit() commits what position() says; another consumer of the group continues there (Java
    testPositionAndCommit)."""
    consumer = member()
    elsewhere = TopicPartition(ten.topic, 15)
    assert {elsewhere: None} == consumer.committed([elsewhere])
    consumer.assign([ten])
    assert 0 == consumer.position(ten)
    consumer.commit()
    assert OffsetAndMetadata(0) == consumer.committed([ten])[ten]
    read(consumer, 10)
    assert 10 == consumer.position(ten)
    consumer.commit()
    assert {ten: OffsetAndMetadata(10, "", 0)} == consumer.committed([ten])
    kafka.produce(ten.topic, [b"ten"])
    other = member()
    other.assign([ten])
    assert [b"ten"] == values(read(other, 1))


def test_commit_without_time_is_sent_all_the_same(ten: TopicPartition, member: New) -> None:
    """commit(timeout=0) sends one request and raises TimeoutError without waiting for the response (Java
    commitSync).
    """
    consumer = member()
    consumer.assign([ten])
    read(consumer, 10)
    consumer.commit()
    with pytest.raises(TimeoutError):
        consumer.commit({ten: 5}, timeout=0)
    assert OffsetAndMetadata(5) == consumer.committed([ten])[ten]


def test_commit_of_given_offsets(kafka: Kafka, topic_name: str, member: New) -> None:
    """commit() takes ints and OffsetAndMetadata for single partitions; positions and commits of other partitions do not
    change (Java testCommitSpecifiedOffsets).
    """
    kafka.create_topic(topic_name, 2)
    kafka.produce(topic_name, numbered(5), partition=0)
    kafka.produce(topic_name, numbered(7), partition=1)
    zero, one = tps(topic_name, 0, 1)
    consumer = member()
    consumer.assign([zero, one])
    positions = consumer.position(zero), consumer.position(one)
    consumer.commit({zero: 3})
    assert {zero: OffsetAndMetadata(3), one: None} == consumer.committed([zero, one])
    assert positions == (consumer.position(zero), consumer.position(one))
    consumer.commit({one: OffsetAndMetadata(5)})
    assert {zero: OffsetAndMetadata(3), one: OffsetAndMetadata(5)} == consumer.committed([zero, one])
    assert {0: 3, 1: 5} == kafka.committed(topic_name, topic_name)


def test_metadata_and_epoch_of_commits(ten: TopicPartition, member: New) -> None:
    """committed() returns the metadata and the leader epoch that were committed; None means no metadata (Java
    testCommitMetadata).
    """
    consumer = member()
    consumer.assign([ten])
    for offset in (OffsetAndMetadata(5, "föö", 15), OffsetAndMetadata(10, "bar"), OffsetAndMetadata(5)):
        consumer.commit({ten: offset})
        assert offset == consumer.committed([ten])[ten]
    consumer.commit({ten: OffsetAndMetadata(6, None)})  # type: ignore[arg-type]  # as careless callers do
    assert "" == consumer.committed([ten])[ten].metadata


def test_metadata_that_is_too_long(ten: TopicPartition, member: New) -> None:
    """commit() raises at once if the broker rejects the metadata as too long; the earlier commit is kept."""
    consumer = member()
    consumer.assign([ten])
    consumer.commit({ten: 1})
    with pytest.raises(BrokerError) as caught:
        consumer.commit({ten: OffsetAndMetadata(2, "x" * 5000)})
    assert "OFFSET_METADATA_TOO_LARGE" == caught.value.name
    assert OffsetAndMetadata(1) == consumer.committed([ten])[ten]


def test_nothing_to_commit(ten: TopicPartition, member: New) -> None:
    """commit() succeeds when no partition has a position, and committed([]) returns an empty dict."""
    consumer = member()
    consumer.commit()
    consumer.commit({})
    assert {} == consumer.committed([])
    done = Outcomes()
    consumer.commit_async(callback=done)
    consumer.commit({})
    assert ([{}], []) == (done.offsets, done.errors)


def test_commit_from_a_member(kafka: Kafka, topic_name: str, member: New) -> None:
    """A member's commit carries its generation and is accepted (Java testSubscribeAndCommitSync)."""
    kafka.create_topic(topic_name, 2)
    zero, one = tps(topic_name, 0, 1)
    consumer = member(topic_name)
    await_assignment(consumer, zero, one)
    consumer.seek(zero, 7)
    poll_until(consumer, lambda: consumer.position(one) == 0)
    consumer.pause(zero)
    consumer.commit()
    assert {0: 7, 1: 0} == kafka.committed(topic_name, topic_name)


def test_commit_of_a_stranger_is_refused(kafka: Kafka, topic_name: str, member: New) -> None:
    """A consumer without membership cannot commit in a group that has members."""
    kafka.create_topic(topic_name)
    (tp,) = tps(topic_name, 0)
    inside = member(topic_name)
    await_assignment(inside, tp)
    outside = member()
    outside.assign([tp])
    with pytest.raises(CommitFailedError, match=topic_name):
        outside.commit({tp: 3})
    inside.commit({tp: 1})
    assert 1 == inside.committed([tp])[tp].offset


def test_commit_before_joining_and_after_leaving(ten: TopicPartition, member: New) -> None:
    """A subscriber that never polled, or has left the group, cannot commit. The message of CommitFailedError recommends
    poll().
    """
    consumer = member(ten.topic)
    done = Outcomes()
    watch = Stopwatch()
    with pytest.raises(CommitFailedError, match=r"poll\(\)"):
        consumer.commit({ten: 1})
    await_assignment(consumer, ten)
    consumer.commit({ten: 1})
    consumer.unsubscribe()
    consumer.subscribe([ten.topic])
    with pytest.raises(CommitFailedError, match=r"poll\(\)"):
        consumer.commit({ten: 2})
    consumer.commit_async({ten: 2}, done)
    consumer.close()
    assert [CommitFailedError] == [type(error) for error in done.errors]
    assert watch.seconds() < 5, "none of this waits for anything"


def test_wakeup_before_a_commit(ten: TopicPartition, member: New) -> None:
    """A wakeup between calls ends the next commit() or committed(). commit_async() does not consume it."""
    consumer = member()
    consumer.assign([ten])
    for call in (lambda: consumer.commit({ten: 1}), lambda: consumer.committed([ten])):
        consumer.wakeup()
        consumer.commit_async({ten: 2})
        with pytest.raises(WakeupError):
            call()
    consumer.commit({ten: 3})
    assert 3 == consumer.committed([ten])[ten].offset


# --- asynchronous commits ---


def test_commit_async(ten: TopicPartition, member: New) -> None:
    """Each callback runs once, in order, on the caller's thread inside a later call (Java testAsyncCommit)."""
    consumer = member()
    consumer.assign([ten])
    done = Outcomes()
    for offset in range(1, 6):
        consumer.commit_async({ten: offset}, done)
    assert 0 == len(done), "never inside commit_async itself"
    poll_until(consumer, lambda: len(done) == 5)
    assert [] == done.errors
    assert [{ten: OffsetAndMetadata(offset)} for offset in range(1, 6)] == done.offsets
    assert {threading.get_ident()} == done.threads
    assert 5 == consumer.committed([ten])[ten].offset


def test_callback_runs_in_the_poll_that_waits(ten: TopicPartition, member: New) -> None:
    """A poll that has no records to return waits until the response arrives and the commit callback has run."""
    consumer = member()
    consumer.assign([ten])
    read(consumer, 10)
    done = Outcomes()
    consumer.commit_async(callback=done)
    assert not consumer.poll(1)
    assert [{ten: OffsetAndMetadata(10, "", 0)}] == done.offsets


def test_callbacks_run_before_a_later_commit_returns(kafka: Kafka, topic_name: str, member: New) -> None:
    """commit() waits for earlier commit_async() calls even if it commits no offsets (Java
    testCommitAsyncCompletedBeforeCommitSyncReturns).
    """
    kafka.create_topic(topic_name, 2)
    zero, one = tps(topic_name, 0, 1)
    consumer = member()
    consumer.assign([zero, one])
    done = Outcomes()
    consumer.commit_async({zero: 1}, done)  # the coordinator is not known yet
    consumer.commit({})
    assert ([{zero: OffsetAndMetadata(1)}], []) == (done.offsets, done.errors)
    consumer.commit_async({zero: 2}, done)
    consumer.commit({one: 2})
    assert 2 == len(done)
    consumer.commit_async({zero: 3}, done)
    consumer.commit({})
    assert 3 == len(done)
    assert {zero: 3, one: 2} == {tp: c.offset for tp, c in consumer.committed([zero, one]).items() if c}


def test_later_commit_wins(ten: TopicPartition, member: New) -> None:
    """The offsets of a commit() override those of earlier commit_async() calls."""
    consumer = member()
    consumer.assign([ten])
    for offset in (1, 2, 3):
        consumer.commit_async({ten: offset})
    consumer.commit({ten: 4})
    assert 4 == consumer.committed([ten])[ten].offset


def test_a_flood_of_commits_does_not_cost_the_membership(
    kafka: Kafka, ten: TopicPartition, member: New, engine: dict[str, Any]
) -> None:
    """A member that commits thousands of times for longer than its session timeout stays in the group, because
    heartbeats do not wait behind commits. Every callback runs in order, and the last commit is kept.
    """
    recorder = Recorder()
    session = {} if "group_protocol" in engine else {"session_timeout_ms": 6_000}
    consumer = member(**session)
    consumer.subscribe([ten.topic], listener=recorder)
    await_assignment(consumer, ten)
    before, done, sent = consumer.group_metadata(), Outcomes(), 0
    began = time.monotonic()
    while time.monotonic() - began < 8:
        for _ in range(500):
            sent += 1
            consumer.commit_async({ten: OffsetAndMetadata(1, str(sent))}, done)
        consumer.poll(0)
    consumer.commit({ten: 2})
    assert [] == done.errors
    assert [str(number) for number in range(1, sent + 1)] == [offsets[ten].metadata for offsets in done.offsets]
    assert 2 == consumer.committed([ten])[ten].offset
    assert (["assigned"], before) == (recorder.kinds, consumer.group_metadata())


def test_failed_commit_async_calls_its_callback(ten: TopicPartition, member: New) -> None:
    """The callback of a failed commit_async() receives the offsets and the error; no call raises it."""
    consumer = member()
    consumer.assign([ten])
    done = Outcomes()
    consumer.commit_async({ten: OffsetAndMetadata(1, "x" * 5000)}, done)
    poll_until(consumer, lambda: len(done) == 1)
    assert ["OFFSET_METADATA_TOO_LARGE"] == [getattr(error, "name", "") for error in done.errors]


def test_error_of_a_commit_callback_is_raised_from_the_call(ten: TopicPartition, member: New) -> None:
    """The call in which a commit callback runs raises the callback's error. No records and no later callbacks
    are lost.
    """
    consumer = member(max_poll_records=5)
    consumer.assign([ten])
    assert numbered(5) == values(read(consumer, 5))

    def fail(_offsets: object, _error: object) -> None:
        raise LookupError("from the callback")

    done = Outcomes()
    consumer.commit_async(callback=fail)
    consumer.commit_async(callback=done)
    with pytest.raises(LookupError, match="from the callback"):
        consumer.commit()
    assert numbered(5, 5) == values(read(consumer, 5))
    poll_until(consumer, lambda: len(done) == 1)


def test_on_commit_option_hears_of_commits_without_a_callback(ten: TopicPartition, member: New) -> None:
    """The option on_commit receives the results of commit_async() without a callback and of automatic commits."""
    done = Outcomes()
    consumer = member(enable_auto_commit=True, auto_commit_interval_ms=100, on_commit=done)
    consumer.assign([ten])
    read(consumer, 10)
    poll_until(consumer, lambda: {ten: OffsetAndMetadata(10, "", 0)} in done.offsets)
    consumer.commit_async({ten: 4})
    poll_until(consumer, lambda: {ten: OffsetAndMetadata(4)} in done.offsets)
    assert {threading.get_ident()} == done.threads


# --- automatic commits ---


def test_auto_commit_commits_what_earlier_polls_returned(kafka: Kafka, ten: TopicPartition, member: New) -> None:
    """An automatic commit in poll() contains only records of earlier polls, not the records that this poll returns."""
    consumer = member(enable_auto_commit=True, auto_commit_interval_ms=50, max_poll_records=4)
    consumer.assign([ten])
    read(consumer, 4)
    time.sleep(0.1)
    assert 0 == kafka.committed(ten.topic, ten.topic).get(0, 0), "nothing commits between polls"
    assert 4 == len(consumer.poll(5))
    time.sleep(0.1)
    assert kafka.committed(ten.topic, ten.topic).get(0, 0) <= 4
    consumer.pause(ten)
    poll_until(consumer, lambda: {0: 8} == kafka.committed(ten.topic, ten.topic))


def test_no_auto_commit_when_switched_off(kafka: Kafka, ten: TopicPartition, member: New) -> None:
    """With enable_auto_commit=False neither the interval nor close() commits."""
    consumer = member(ten.topic, auto_commit_interval_ms=20)
    read(consumer, 10)
    for _ in range(5):
        consumer.poll(0.05)
    consumer.close()
    assert {} == kafka.committed(ten.topic, ten.topic)


@pytest.mark.parametrize("woken", [False, True])
def test_close_commits_sought_positions(kafka: Kafka, topic_name: str, member: New, woken: bool) -> None:
    """Auto-commit in close() commits the positions, also after a seek or a wakeup (Java
    testAutoCommitOnClose{,AfterWakeup}).
    """
    kafka.create_topic(topic_name, 2)
    zero, one = tps(topic_name, 0, 1)
    consumer = member(topic_name, enable_auto_commit=True)
    await_assignment(consumer, zero, one)
    consumer.seek(zero, 300)
    consumer.seek(one, 500)
    if woken:
        consumer.wakeup()
    consumer.close()
    assert {0: 300, 1: 500} == kafka.committed(topic_name, topic_name)


def test_rebalance_commits_positions_first(kafka: Kafka, topic_name: str, member: New) -> None:
    """Positions are auto-committed before a rebalance takes partitions away (Java testAutoCommitOnRebalance)."""
    kafka.create_topic(topic_name, 2)
    other = kafka.create_topic(f"{topic_name}-other", 2)
    zero, one = tps(topic_name, 0, 1)
    consumer = member(enable_auto_commit=True)
    listener = Recorder(assigned=lambda c, partitions: c.pause(*partitions))
    consumer.subscribe([topic_name], listener=listener)
    await_assignment(consumer, zero, one)
    consumer.seek(zero, 300)
    consumer.seek(one, 500)
    consumer.subscribe([topic_name, other], listener=listener)
    await_assignment(consumer, zero, one, *tps(other, 0, 1))
    assert {zero: 300, one: 500} == {tp: c.offset for tp, c in consumer.committed([zero, one]).items() if c}
    assert (300, 500) == (consumer.position(zero), consumer.position(one))


def test_unsubscribe_does_not_commit(kafka: Kafka, ten: TopicPartition, member: New) -> None:
    """unsubscribe() leaves without an automatic commit (KAFKA-20119)."""
    consumer = member(ten.topic, enable_auto_commit=True)
    read(consumer, 10)
    consumer.unsubscribe()
    assert {} == kafka.committed(ten.topic, ten.topic)
