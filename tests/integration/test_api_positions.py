"""Positions: where reading starts, seeking, and what happens when a position is outside the log."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kconsumer import Consumer, OffsetAndMetadata, TopicPartition
from kconsumer.errors import NoOffsetForPartitionError, OffsetOutOfRangeError, StateError, TimeoutError
from support.brokers.kafka import Kafka
from support.harnesses.polling import numbered, poll_until, read, tps, values
from support.harnesses.stopwatch import Stopwatch

New = Callable[..., Consumer]


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_seek_to_end_beginning_and_middle(kafka: Kafka, topic_name: str, new_consumer: New, compression: str) -> None:
    """position() returns the offset of each seek before any poll, and polls read from there (Java testSeek)."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(50), compression=compression, config={"linger.ms": 200})
    (tp,) = tps(topic_name, 0)
    consumer = new_consumer()
    consumer.assign([tp])
    consumer.seek_to_end(tp)
    assert 50 == consumer.position(tp)
    assert not consumer.poll(0.05)
    consumer.seek_to_beginning(tp)
    assert 0 == consumer.position(tp)
    assert numbered(50) == values(read(consumer, 50))
    assert 50 == consumer.position(tp)
    consumer.seek(tp, 25)
    assert 25 == consumer.position(tp)
    assert numbered(25, 25) == values(read(consumer, 25))


def test_seek_without_partitions_is_for_all_assigned(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """seek_to_end() and seek_to_beginning() without arguments move every assigned partition."""
    kafka.create_topic(topic_name, 2)
    for partition in (0, 1):
        kafka.produce(topic_name, numbered(3 + partition), partition=partition)
    consumer = new_consumer()
    both = tps(topic_name, 0, 1)
    consumer.assign(both)
    consumer.seek_to_end()
    assert [3, 4] == [consumer.position(tp) for tp in both]
    consumer.seek_to_beginning()
    assert [0, 0] == [consumer.position(tp) for tp in both]


def test_seek_while_records_are_buffered(ten: TopicPartition, new_consumer: New) -> None:
    """After a seek no record buffered for the old position is returned; the next record is the one at the sought
    offset.
    """
    consumer = new_consumer(max_poll_records=3)
    consumer.assign([ten])
    assert [b"0", b"1", b"2"] == values(read(consumer, 3))
    consumer.seek(ten, 8)
    assert [b"8", b"9"] == values(read(consumer, 2))
    consumer.seek(ten, 1)
    assert [b"1", b"2", b"3"] == values(read(consumer, 3))
    assert 4 == consumer.position(ten)


def test_last_seek_counts(ten: TopicPartition, new_consumer: New) -> None:
    """The last of several seeks takes effect: seek() replaces a lazy seek_to_end(), and the reverse."""
    consumer = new_consumer()
    consumer.assign([ten])
    consumer.seek_to_end(ten)
    consumer.seek(ten, 4)
    assert 4 == consumer.position(ten)
    consumer.seek_to_beginning(ten)
    consumer.seek_to_end(ten)
    assert 10 == consumer.position(ten)
    consumer.seek(ten, 2)
    consumer.seek_to_beginning(ten)
    assert b"0" == values(read(consumer, 10))[0]


def test_seek_with_leader_epoch_is_validated(ten: TopicPartition, new_consumer: New) -> None:
    """A position set by seek() with the present leader epoch is validated with the leader before it is read."""
    consumer = new_consumer()
    consumer.assign([ten])
    consumer.seek(ten, OffsetAndMetadata(6, "ignored", 0))
    assert 6 == consumer.position(ten)
    assert numbered(4, 6) == values(read(consumer, 4))


def test_calls_on_partitions_that_are_not_assigned(ten: TopicPartition, new_consumer: New) -> None:
    """seek(), seek_to_end(), seek_to_beginning(), position(), pause(), resume() and current_lag() raise for a partition
    that is not assigned.
    """
    consumer = new_consumer()
    other = TopicPartition(ten.topic, 7)
    consumer.assign([ten])
    calls: list[Callable[[], object]] = [
        lambda: consumer.seek(other, 1),
        lambda: consumer.seek_to_end(other),
        lambda: consumer.seek_to_beginning(other),
        lambda: consumer.position(other),
        lambda: consumer.pause(other),
        lambda: consumer.resume(other),
        lambda: consumer.current_lag(other),
    ]
    for call in calls:
        with pytest.raises(StateError, match="not assigned"):
            call()


def test_position_gives_up_after_its_timeout(topic_name: str, ten: TopicPartition, new_consumer: New) -> None:
    """position() of a topic that does not exist raises after its own timeout (Java testPositionRespectsTimeout)."""
    consumer = new_consumer()
    missing = TopicPartition(f"{topic_name}-missing", 15)
    consumer.assign([missing])
    watch = Stopwatch()
    with pytest.raises(TimeoutError, match=f"{topic_name}-missing-15"):
        consumer.position(missing, timeout=0.7)
    assert 0.6 < watch.clock()
    assert watch.seconds() < 1.5


# --- where reading starts ---


def test_reset_latest_reads_only_what_comes_later(kafka: Kafka, ten: TopicPartition, new_consumer: New) -> None:
    """With auto_offset_reset="latest" the position is the end of the log, and only later records are read."""
    consumer = new_consumer(auto_offset_reset="latest")
    consumer.assign([ten])
    assert 10 == consumer.position(ten)
    kafka.produce(ten.topic, [b"new"])
    assert [b"new"] == values(read(consumer, 1))


def test_reset_none_without_commit_raises(ten: TopicPartition, topic_name: str, new_consumer: New) -> None:
    """With auto_offset_reset="none" and no commit, poll and position raise an error that names the partition, until the
    user seeks.
    """
    consumer = new_consumer(auto_offset_reset="none", group_id=topic_name)
    consumer.assign([ten])
    with pytest.raises(NoOffsetForPartitionError, match=str(ten)) as caught:
        consumer.poll(15)
    assert (ten,) == caught.value.partitions
    with pytest.raises(NoOffsetForPartitionError):
        consumer.position(ten)
    consumer.seek(ten, 9)
    assert [b"9"] == values(read(consumer, 1))


def test_reset_none_raises_also_from_polls_that_do_not_wait(
    ten: TopicPartition, topic_name: str, new_consumer: New
) -> None:
    """Repeated poll(0) eventually raises (Java testNoOffsetForPartitionExceptionOnPollZero)."""
    consumer = new_consumer(auto_offset_reset="none", group_id=topic_name)
    consumer.assign([ten])

    def poll_on() -> None:
        for _ in range(500):
            consumer.poll(0)
            time.sleep(0.01)

    with pytest.raises(NoOffsetForPartitionError):
        poll_on()


def test_reset_none_with_commit_reads_from_there(ten: TopicPartition, topic_name: str, new_consumer: New) -> None:
    """With auto_offset_reset="none" reading starts at the committed offset."""
    consumer = new_consumer(auto_offset_reset="none", group_id=topic_name)
    consumer.assign([ten])
    consumer.commit({ten: 7})
    assert numbered(3, 7) == values(read(consumer, 3))


def test_reset_by_duration(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """With by_duration reading starts at the first record that is not older than the duration, or at the end if there
    is none.
    """
    kafka.create_topic(topic_name)
    now = int(time.time() * 1000)
    hour = 3_600_000
    kafka.produce(topic_name, numbered(4), timestamps=[now - age * hour for age in (4, 3, 2, 1)])
    (tp,) = tps(topic_name, 0)
    for duration, expected in (("PT2H30M", 2), ("P1D", 0), ("PT30M", 4)):
        consumer = new_consumer(auto_offset_reset=f"by_duration:{duration}")
        consumer.assign([tp])
        assert expected == consumer.position(tp)


def test_committed_offset_comes_before_the_reset_policy(
    ten: TopicPartition, topic_name: str, new_consumer: New
) -> None:
    """A new consumer of the group starts at the committed offset. A consumer without a group starts at the offset of
    the reset policy.
    """
    first = new_consumer(group_id=topic_name)
    first.assign([ten])
    first.commit({ten: 4})
    second = new_consumer(group_id=topic_name)
    second.assign([ten])
    assert 4 == second.position(ten)
    third = new_consumer()
    third.assign([ten])
    assert 0 == third.position(ten)


@pytest.mark.parametrize(("policy", "count"), [("earliest", 10), ("latest", 0)])
def test_committed_offset_outside_the_log(
    ten: TopicPartition, topic_name: str, new_consumer: New, policy: str, count: int
) -> None:
    """A committed offset outside the log is replaced by the offset of the reset policy."""
    consumer = new_consumer(group_id=topic_name, auto_offset_reset=policy)
    consumer.assign([ten])
    consumer.commit({ten: 1000})
    assert 1000 == consumer.position(ten)
    assert count == len(poll_until(consumer, lambda: consumer.position(ten) == 10))


# --- outside the log ---


def test_out_of_range_without_policy_raises(ten: TopicPartition, new_consumer: New) -> None:
    """With auto_offset_reset="none" each poll raises OffsetOutOfRangeError with partition and offset until the user
    seeks (Java testFetchInvalidOffset).
    """
    consumer = new_consumer(auto_offset_reset="none")
    consumer.assign([ten])
    consumer.seek(ten, 11)
    for _ in range(2):
        with pytest.raises(OffsetOutOfRangeError, match=r"11") as caught:
            poll_until(consumer, lambda: False)
        assert {ten: 11} == caught.value.offsets
    assert 11 == consumer.position(ten)
    consumer.seek(ten, 5)
    assert numbered(5, 5) == values(read(consumer, 5))


def test_deleted_records_are_skipped(kafka: Kafka, ten: TopicPartition, new_consumer: New) -> None:
    """When the log start has moved past the position, "earliest" continues at the new start and "none" raises."""
    reader = new_consumer(max_poll_records=2)
    strict = new_consumer(auto_offset_reset="none")
    for consumer in (reader, strict):
        consumer.assign([ten])
        consumer.seek(ten, 3)
    kafka.delete_records(ten.topic, {0: 6})
    assert {ten: 6} == reader.beginning_offsets([ten])
    assert [6, 7] == [record.offset for record in read(reader, 2)]
    with pytest.raises(OffsetOutOfRangeError) as caught:
        poll_until(strict, lambda: False)
    assert {ten: 3} == caught.value.offsets


def test_error_of_one_partition_does_not_lose_records_of_another(
    kafka: Kafka, topic_name: str, new_consumer: New
) -> None:
    """Each poll raises the out-of-range error of one partition once; all records of the other partition are
    returned.
    """
    kafka.create_topic(topic_name, 2)
    kafka.produce(topic_name, numbered(20), partition=1)
    bad, good = tps(topic_name, 0, 1)
    consumer = new_consumer(auto_offset_reset="none", max_poll_records=3)
    consumer.assign([bad, good])
    consumer.seek(bad, 100)
    consumer.seek(good, 0)
    seen: list[bytes | None] = []
    errors: list[dict[TopicPartition, int]] = []
    deadline = time.monotonic() + 20
    while (len(seen) < 20 or not errors) and time.monotonic() < deadline:
        try:
            seen += values(consumer.poll(0.5))
        except OffsetOutOfRangeError as error:
            errors.append(error.offsets)
    assert numbered(20) == seen
    assert {bad: 100} == errors[0]


# --- assign ---


def test_assign_keeps_positions_of_kept_partitions(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """A partition that stays in the assignment keeps its position; one that is removed and added again starts again."""
    kafka.create_topic(topic_name, 2)
    for partition in (0, 1):
        kafka.produce(topic_name, numbered(10), partition=partition)
    zero, one = tps(topic_name, 0, 1)
    consumer = new_consumer()
    consumer.assign([zero])
    consumer.seek(zero, 4)
    consumer.assign([zero, one])
    assert frozenset({zero, one}) == consumer.assignment()
    assert (4, 0) == (consumer.position(zero), consumer.position(one))
    consumer.seek(one, 8)
    consumer.assign([one])
    assert numbered(2, 8) == values(read(consumer, 2))
    consumer.assign([zero, one])
    assert (0, 10) == (consumer.position(zero), consumer.position(one))


def test_assign_in_place_of_a_partition_with_buffered_records(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """Records buffered for a partition that was dropped by assign() are not returned."""
    kafka.create_topic(topic_name, 2)
    kafka.produce(topic_name, [b"zero"] * 10, partition=0)
    kafka.produce(topic_name, [b"one"] * 10, partition=1)
    zero, one = tps(topic_name, 0, 1)
    consumer = new_consumer(max_poll_records=1)
    consumer.assign([zero])
    read(consumer, 1)
    consumer.assign([one])
    assert [b"one"] * 10 == [value for _ in range(10) for value in values(read(consumer, 1))]


def test_nothing_assigned_is_unsubscribing(ten: TopicPartition, new_consumer: New) -> None:
    """assign([]) and unsubscribe() both end an assignment; poll() then raises StateError."""
    consumer = new_consumer()
    for end in (lambda: consumer.assign([]), consumer.unsubscribe):
        consumer.assign([ten])
        assert frozenset({ten}) == consumer.assignment()
        end()
        assert frozenset() == consumer.assignment()
        with pytest.raises(StateError, match="subscribe"):
            consumer.poll(0)


def test_without_a_group(ten: TopicPartition, new_consumer: New) -> None:
    """assign() works without a group: reading starts at "earliest", "latest" and explicit offsets, and commits raise an
    error that names the missing option (Java testConsumingWithNullGroupId).
    """
    first, second, third = (new_consumer(auto_offset_reset=r) for r in ("earliest", "latest", "none"))
    for consumer in (first, second, third):
        consumer.assign([ten])
    third.seek(ten, 1)
    assert (10, 0, 9) == (len(read(first, 10)), len(second.poll(0.3)), len(read(third, 9)))
    for call in (first.commit, first.commit_async, lambda: first.committed([ten]), first.group_metadata):
        with pytest.raises(StateError, match="group_id"):
            call()


def test_position_without_policy_raises_at_once(kafka: Kafka, topic_name: str, new_consumer: New) -> None:
    """position() raises at once if there is neither a group nor a reset policy."""
    kafka.create_topic(topic_name, 2)
    zero, one = tps(topic_name, 0, 1)
    consumer = new_consumer(auto_offset_reset="none", fetch_max_wait_ms=100)
    consumer.assign([zero])
    consumer.seek(zero, 0)
    consumer.poll(0.3)
    consumer.assign([zero, one])
    watch = Stopwatch()
    with pytest.raises(NoOffsetForPartitionError, match=str(one)):
        consumer.position(one, timeout=10)
    assert watch.seconds() < 1


@pytest.mark.parametrize(
    ("sought", "policy", "expected"),
    [
        (
            2,
            "latest",
            "before the start of the log: continuing at offset 10 (latest); up to 8 records were deleted",
        ),
        (
            2,
            "earliest",
            "before the start of the log: continuing at offset 8 (earliest); up to 6 records were deleted",
        ),
        (27, "latest", "after the end of the log: continuing at offset 10 (latest); up to 17 records are read again"),
        (
            27,
            "earliest",
            "after the end of the log: continuing at offset 8 (earliest); up to 19 records are read again",
        ),
    ],
)
def test_a_reset_of_a_lost_position_is_a_warning(
    kafka: Kafka,
    ten: TopicPartition,
    new_consumer: New,
    caplog: pytest.LogCaptureFixture,
    sought: int,
    policy: str,
    expected: str,
) -> None:
    """If the position is outside of the log, which is 8 to 10, one warning has both offsets, the cause and how many
    records are concerned.
    """
    kafka.delete_records(ten.topic, {0: 8})
    consumer = new_consumer(auto_offset_reset=policy)
    consumer.assign([ten])
    consumer.seek(ten, sought)
    poll_until(consumer, lambda: consumer.position(ten) != sought)
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert f"offset {sought} of {ten} is out of range, {expected}" in warning


def test_the_first_position_is_no_warning(
    ten: TopicPartition, new_consumer: New, caplog: pytest.LogCaptureFixture
) -> None:
    """If a partition never had a position, nothing was lost."""
    consumer = new_consumer(auto_offset_reset="latest")
    consumer.assign([ten])
    assert 10 == consumer.position(ten)
    assert [] == [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
