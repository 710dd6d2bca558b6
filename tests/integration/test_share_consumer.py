"""A ShareConsumer with a real broker: scenarios of Java's ShareConsumerTest, and the programs of docs/share.md."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import pytest

from kconsumer import AcknowledgeType, ShareConsumer, ShareRecord, TopicPartition, groups
from kconsumer.aio import AsyncShareConsumer
from kconsumer.errors import BrokerError, KafkaError, RecordDeserializationError, StateError
from support.brokers.kafka import Kafka
from support.harnesses.doc_blocks import BLOCKS, Block, run_python
from support.members.share_groups import configure_group, poll_records, share_records

pytestmark = [pytest.mark.network_thread, pytest.mark.consumer_protocol]

EARLIEST = {"share.auto.offset.reset": "earliest"}
PAGE = "docs/share.md"
MakeConsumer = Callable[..., ShareConsumer]


@pytest.fixture
def make_consumer(kafka: Kafka, topic_name: str) -> Any:
    """Creates members of a share group that begins at the start of the topic; both have the name of the test."""
    with ExitStack() as stack:

        def make(config: Mapping[str, str] = EARLIEST, **options: Any) -> ShareConsumer:
            configure_group(kafka.bootstrap_servers, topic_name, {**EARLIEST, **config})
            consumer = ShareConsumer(
                topic_name, bootstrap_servers=kafka.bootstrap_servers, group_id=topic_name, **options
            )
            stack.callback(consumer.close, 10.0)
            return consumer

        yield make


def values(count: int) -> list[bytes]:
    """Returns different values of records."""
    return [b"%d" % number for number in range(count)]


def offsets(records: list[ShareRecord]) -> list[int]:
    """Returns the offsets of records."""
    return [record.offset for record in records]


def test_implicit_mode(kafka: Kafka, topic_name: str, make_consumer: MakeConsumer) -> None:
    """Each record arrives once; commit() accepts the last ones, and a later member receives only new records."""
    kafka.create_topic(topic_name, 2)
    for partition in (0, 1):
        kafka.produce(topic_name, values(700), partition=partition)
    first = make_consumer()
    assert first.acquisition_lock_timeout_ms() is None
    records = poll_records(first, 1400)
    assert {(p, o, 1) for p in (0, 1) for o in range(700)} == {
        (record.partition, record.offset, record.delivery_count) for record in records
    }
    assert set(values(700)) == {record.value for record in records}
    results = first.commit()
    assert results
    assert {None} == set(results.values())
    assert 30_000 == first.acquisition_lock_timeout_ms()
    first.close()
    kafka.produce(topic_name, [b"new"], partition=1)
    assert [b"new"] == [record.value for record in poll_records(make_consumer(), 1)]
    described = groups.offsets(topic_name, bootstrap_servers=kafka.bootstrap_servers)
    assert {700} <= {found.end for found in described.values()}


@pytest.mark.parametrize("commits", [False, True], ids=["polls", "commits"])
@pytest.mark.parametrize("acquire_mode", ["batch_optimized", "record_limit"])
def test_no_partition_waits_for_the_end_of_others(
    kafka: Kafka, topic_name: str, make_consumer: MakeConsumer, acquire_mode: str, commits: bool
) -> None:
    """While all partitions have records, each is in one of twice as many responses as there are partitions.

    So it is if a commit between two fetches lets only every second epoch of the session be that of a fetch, too.
    """
    partitions, of_each, polled, polls_ahead = 4, 700, 20, 4
    kafka.create_topic(topic_name, partitions)
    for partition in range(partitions):
        for start in range(0, of_each, 10):  # batches that a poll can return whole
            kafka.produce(topic_name, values(of_each)[start : start + 10], partition=partition)
    consumer = make_consumer(max_poll_records=polled, share_acquire_mode=acquire_mode)
    last, counts = dict.fromkeys(range(partitions), 0), dict.fromkeys(range(partitions), 0)
    longest = total = 0
    while of_each not in counts.values():
        for record in poll_records(consumer, 1):
            total += 1
            last[record.partition] = total
            counts[record.partition] += 1
        longest = max(longest, total - min(last.values()))
        if commits:
            consumer.commit()
    assert longest <= 2 * partitions * polls_ahead * polled


def test_explicit_mode(kafka: Kafka, topic_name: str, make_consumer: MakeConsumer) -> None:
    """Released records come again with a higher delivery count; accepted and rejected ones never do."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, values(9))
    done: list[tuple[dict[TopicPartition, frozenset[int]], KafkaError | None]] = []
    consumer = make_consumer(share_acknowledgement_mode="explicit", on_acknowledge=lambda o, e: done.append((o, e)))
    for record in poll_records(consumer, 9):
        (record.ack, record.release, record.reject)[record.offset % 3]()
    assert {TopicPartition(topic_name, 0): None} == consumer.commit()
    assert [({TopicPartition(topic_name, 0): frozenset(range(9))}, None)] == done
    again = poll_records(consumer, 3)
    assert [(1, 2), (4, 2), (7, 2)] == [(record.offset, record.delivery_count) for record in again]
    for record in again:
        consumer.acknowledge(record)
    consumer.commit_async()
    assert not consumer.poll(1.0)
    assert ({TopicPartition(topic_name, 0): frozenset({1, 4, 7})}, None) == done[-1]


def test_unacknowledged_records_stop_the_next_poll(kafka: Kafka, topic_name: str, make_consumer: MakeConsumer) -> None:
    """In explicit mode a poll names the first record without an acknowledgement; foreign records are refused."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, values(3))
    consumer = make_consumer(share_acknowledgement_mode="explicit")
    first, second, third = poll_records(consumer, 3)
    first.ack()
    with pytest.raises(StateError, match=rf"2 records .* offset 1 of {topic_name}-0"):
        consumer.poll(0)
    second.release()
    consumer.acknowledge(third, AcknowledgeType.REJECT)
    consumer.commit()
    with pytest.raises(StateError, match="cannot be acknowledged"):
        third.ack()


def test_implicit_mode_acknowledges_no_single_records(
    kafka: Kafka, topic_name: str, make_consumer: MakeConsumer
) -> None:
    """The error says which mode acknowledges single records."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, values(1))
    (record,) = poll_records(make_consumer(), 1)
    with pytest.raises(StateError, match="share_acknowledgement_mode='explicit'"):
        record.ack()


def test_a_loop_that_stops_early(kafka: Kafka, topic_name: str, make_consumer: MakeConsumer) -> None:
    """Records that a loop has reached are accepted; the others are released, and come again."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, values(5))
    consumer = make_consumer()
    for record in consumer:
        if record.offset == 1:
            break
    assert [(2, 2), (3, 2), (4, 2)] == [(r.offset, r.delivery_count) for r in poll_records(consumer, 3)]


def test_an_error_in_the_body(kafka: Kafka, topic_name: str, make_consumer: MakeConsumer) -> None:
    """If the body of the with block raises, the records of the last poll are released at once."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, values(2))

    def fail(consumer: ShareConsumer) -> None:
        with consumer:
            assert [0, 1] == offsets(poll_records(consumer, 2))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail(make_consumer())
    assert [(0, 2), (1, 2)] == [(r.offset, r.delivery_count) for r in poll_records(make_consumer(), 2)]


def test_a_lock_that_times_out(kafka: Kafka, topic_name: str, make_consumer: MakeConsumer) -> None:
    """After the lock another member receives the record, and the acknowledgement of the first one fails."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, values(1))
    config = {"share.record.lock.duration.ms": "2000"}
    late = make_consumer(config, share_acknowledgement_mode="explicit")
    (record,) = poll_records(late, 1)
    other = make_consumer(config, share_acknowledgement_mode="explicit")
    (again,) = poll_records(other, 1)
    assert (0, 2) == (again.offset, again.delivery_count)
    record.ack()
    (error,) = late.commit().values()
    assert isinstance(error, BrokerError)
    assert "INVALID_RECORD_STATE" == error.name
    again.ack()
    assert {TopicPartition(topic_name, 0): None} == other.commit()


def test_a_renewed_lock(kafka: Kafka, topic_name: str, make_consumer: MakeConsumer) -> None:
    """A renewed record stays with its member beyond the lock, and the next poll returns it again."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, values(2))
    config = {"share.record.lock.duration.ms": "2000"}
    consumer = make_consumer(config, share_acknowledgement_mode="explicit")
    other = make_consumer(config)
    first, second = poll_records(consumer, 2)
    second.ack()
    for _ in range(4):
        first.renew()
        assert {None} == set(consumer.commit().values())
        (first,) = share_records(consumer.poll(5.0))
        assert not other.poll(0.7)
    assert (0, 1) == (first.offset, first.delivery_count)
    first.ack()
    assert {None} == set(consumer.commit().values())
    assert not other.poll(1.0)


def test_more_members_than_partitions(kafka: Kafka, topic_name: str, make_consumer: MakeConsumer) -> None:
    """Two members receive records of the same partition, none of them twice."""
    kafka.create_topic(topic_name)
    first, second = make_consumer(max_poll_records=5), make_consumer(max_poll_records=5)
    for number in range(20):
        kafka.produce(topic_name, [b"%d" % number] * 5)
    found: dict[ShareConsumer, list[int]] = {first: [], second: []}
    while sum(map(len, found.values())) < 100:
        for consumer, seen in found.items():
            seen += offsets(share_records(consumer.poll(0.3)))
    assert list(range(100)) == sorted(found[first] + found[second])
    assert found[first]
    assert found[second]


def test_record_limit(kafka: Kafka, topic_name: str, make_consumer: MakeConsumer) -> None:
    """With record_limit no poll returns more than `max_poll_records`, although all records are in one batch."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, values(25))
    consumer = make_consumer(share_acquire_mode="record_limit", max_poll_records=10)
    sizes = []
    while sum(sizes) < 25:
        if records := consumer.poll(5.0):
            sizes.append(len(records))
    assert (10, 25) == (max(sizes), sum(sizes))


def test_transactions(kafka: Kafka, topic_name: str, make_consumer: MakeConsumer) -> None:
    """With share.isolation.level=read_committed, aborted records and markers never arrive, and stop nothing."""
    kafka.create_topic(topic_name)
    kafka.produce_transaction(topic_name, [b"aborted"], commit=False)
    kafka.produce_transaction(topic_name, [b"one", b"two"])
    consumer = make_consumer({"share.isolation.level": "read_committed"}, share_acknowledgement_mode="explicit")
    records = poll_records(consumer, 2)
    assert [b"one", b"two"] == [record.value for record in records]
    for record in records:
        record.ack()
    assert {None} == set(consumer.commit().values())
    kafka.produce(topic_name, [b"three"])
    assert [b"three"] == [record.value for record in poll_records(consumer, 1)]


def test_a_record_that_cannot_be_deserialized(kafka: Kafka, topic_name: str, make_consumer: MakeConsumer) -> None:
    """The records before it arrive first, then the error, then the rest; the record is delivered again."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [b"0", b"x", b"2"])
    consumer = make_consumer(value_deserializer=int)
    assert [0] == [record.value for record in poll_records(consumer, 1)]
    with pytest.raises(RecordDeserializationError, match="at offset 1") as caught:
        poll_records(consumer, 1)
    assert b"x" == caught.value.value
    assert [2] == [record.value for record in poll_records(consumer, 1)]
    with pytest.raises(RecordDeserializationError, match="at offset 1"):
        poll_records(consumer, 1)


def test_a_record_that_cannot_be_deserialized_is_rejected(
    kafka: Kafka, topic_name: str, make_consumer: MakeConsumer
) -> None:
    """The program can acknowledge it by its offset. No member receives it again."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [b"0", b"x", b"2"])
    consumer = make_consumer(value_deserializer=int, share_acknowledgement_mode="explicit")
    (record,) = poll_records(consumer, 1)
    record.ack()
    with pytest.raises(RecordDeserializationError, match="at offset 1"):
        poll_records(consumer, 1)
    consumer.acknowledge(topic_name, 0, 1, AcknowledgeType.REJECT)
    (record,) = poll_records(consumer, 1)
    record.ack()
    assert [None] == list(consumer.commit().values())
    assert not consumer.poll(1.0)


def test_unsubscribe(kafka: Kafka, topic_name: str, make_consumer: MakeConsumer) -> None:
    """unsubscribe() releases what was received and leaves the group; the consumer can subscribe again."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, values(2))
    consumer = make_consumer()
    assert frozenset({topic_name}) == consumer.subscription()
    assert [0, 1] == offsets(poll_records(consumer, 2))
    consumer.unsubscribe()
    assert "Empty" == groups.describe(topic_name, bootstrap_servers=kafka.bootstrap_servers).state
    assert frozenset() == consumer.subscription()
    with pytest.raises(StateError, match="subscribe"):
        consumer.poll(0)
    consumer.subscribe([topic_name])
    assert [2, 2] == [record.delivery_count for record in poll_records(consumer, 2)]


def test_metrics(kafka: Kafka, topic_name: str, make_consumer: MakeConsumer) -> None:
    """Records, fetches and acknowledgements are counted under Java's names."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, values(3))
    consumer = make_consumer()
    poll_records(consumer, 3)
    consumer.commit()
    found = {name.name: value for name, value in consumer.metrics().items() if "share-fetch" in name.group}
    assert (3, 3, 0) == (
        found["records-consumed-total"],
        found["acknowledgements-send-total"],
        found["acknowledgements-error-total"],
    )


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if block.page == PAGE and block.language == "python"], ids=lambda b: b.name
)
def test_programs_of_the_page(
    kafka: Kafka, topic_name: str, block: Block, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program of the page runs as it is printed, with another broker, topic and group; Ctrl-C ends an endless one."""
    kafka.create_topic(topic_name)
    configure_group(kafka.bootstrap_servers, topic_name, EARLIEST)
    kafka.produce(topic_name, [b"job"])
    received = 0
    poll, poll_async = ShareConsumer.poll, AsyncShareConsumer.poll

    def counted(self: ShareConsumer, *arguments: Any) -> Any:
        nonlocal received
        if received and "consumer_timeout_ms" not in block.text:
            raise KeyboardInterrupt
        records = poll(self, *arguments)
        received += len(records)
        return records

    async def counted_async(self: AsyncShareConsumer, *arguments: Any) -> Any:
        nonlocal received
        if received:
            signal.raise_signal(signal.SIGINT)
        records = await poll_async(self, *arguments)
        received += len(records)
        return records

    monkeypatch.setattr(ShareConsumer, "poll", counted)
    monkeypatch.setattr(AsyncShareConsumer, "poll", counted_async)
    names = {'"jobs"': f'"{topic_name}"', "localhost:9092": kafka.bootstrap_servers, "10_000": "2_000"}
    for group in ("workers", "checkers", "callers", "async-workers"):
        names[f'"{group}"'] = f'"{topic_name}"'
    run_python(block, names)
    assert 1 == received
    assert ("print" in block.text) == bool(capsys.readouterr().out)
