"""A ShareConsumer with a real broker: scenarios of Java's ShareConsumerTest, and the programs of docs/share.md."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import pytest

from kconsumer import AcknowledgeType, ShareConsumer, ShareRecord
from kconsumer.aio import AsyncShareConsumer
from kconsumer.errors import StateError
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
