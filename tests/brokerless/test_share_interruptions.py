"""A ShareConsumer that user code interrupts, re-enters or abandons, on the model of a cluster: no record is lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow
import pytest

from kconsumer import ShareConsumer
from kconsumer.errors import KafkaError, StateError
from kconsumer.testing import FakeCluster
from support.members.share_groups import configure_group, poll_records

pytestmark = pytest.mark.network_thread

EARLIEST = {"share.auto.offset.reset": "earliest"}


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with a topic of three records, and the configuration of the group g."""
    with FakeCluster(group_share_heartbeat_interval_ms=200) as cluster:
        cluster.create_topic("t", partitions=1)
        cluster.produce("t", [b"0", b"1", b"2"])
        configure_group(cluster.bootstrap_servers, "g", EARLIEST)
        yield cluster


def make(cluster: FakeCluster, **options: Any) -> ShareConsumer:
    """Returns a member of the group g."""
    return ShareConsumer("t", bootstrap_servers=cluster.bootstrap_servers, group_id="g", **options)


def deliveries(consumer: ShareConsumer, count: int) -> list[tuple[int, int]]:
    """Returns offset and delivery count of the next records."""
    return [(record.offset, record.delivery_count) for record in poll_records(consumer, count)]


def test_ctrl_c_in_a_poll(cluster: FakeCluster) -> None:
    """A signal handler that raises while poll() waits or decodes loses no records: the next poll returns them."""
    raised = 0

    def interrupt(number: int, frame: object) -> None:
        nonlocal raised
        raised += 1
        raise KeyboardInterrupt

    def deserialize(data: bytes) -> bytes:
        if not raised:
            signal.raise_signal(signal.SIGINT)
        return data

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with make(cluster, value_deserializer=deserialize) as consumer:
            with pytest.raises(KeyboardInterrupt):
                poll_records(consumer, 3)
            assert [(0, 2), (1, 2), (2, 2)] == deliveries(consumer, 3)
    finally:
        signal.signal(signal.SIGINT, before)
    assert 1 == raised


def test_a_deserializer_calls_the_consumer(cluster: FakeCluster) -> None:
    """Polls and commits inside a deserializer are refused."""
    errors: list[str] = []

    def deserialize(data: bytes) -> bytes:
        for method in (lambda: consumer.poll(0), consumer.commit, consumer.commit_async):
            try:
                method()
            except StateError as error:
                errors.append(str(error))
        return data

    with make(cluster, value_deserializer=deserialize) as consumer:
        assert [0, 1, 2] == [record.offset for record in poll_records(consumer, 3)]
    assert ["poll() and commits cannot be called inside a deserializer"] * 9 == errors


def test_a_callback_that_raises(cluster: FakeCluster) -> None:
    """An error of on_acknowledge is raised from the call that runs it; the acknowledgement stands."""

    def fail(offsets: object, error: KafkaError | None) -> None:
        raise ZeroDivisionError

    with make(cluster, on_acknowledge=fail) as consumer:
        poll_records(consumer, 3)
        with pytest.raises(ZeroDivisionError):
            consumer.commit()
        assert not consumer.poll(0.3)


def test_close_inside_a_callback(cluster: FakeCluster) -> None:
    """on_acknowledge may close the consumer: the running poll ends."""
    calls: list[object] = []

    def close(offsets: object, error: KafkaError | None) -> None:
        calls.append(offsets)
        consumer.close()

    consumer = make(cluster, on_acknowledge=close)
    poll_records(consumer, 3)
    consumer.commit_async()
    with suppress(StateError):  # if the poll was waiting
        while not calls:
            consumer.poll(0.2)
    with pytest.raises(StateError, match="closed"):
        consumer.poll(0)


def test_an_abandoned_consumer(cluster: FakeCluster) -> None:
    """A consumer that is dropped with its connections releases its records; another member receives them."""
    consumer = make(cluster)
    poll_records(consumer, 3)
    with pytest.warns(ResourceWarning):
        del consumer
    with make(cluster) as other:
        assert [(0, 2), (1, 2), (2, 2)] == deliveries(other, 3)


def test_arrow(cluster: FakeCluster) -> None:
    """The records of a poll become Arrow columns without deserializers; the next poll accepts them."""
    with make(cluster, value_deserializer=int) as consumer:
        while not (batch := consumer.poll_arrow(1.0, columns=["offset", "value"])).num_rows:
            pass
        table = pyarrow.record_batch(batch)
        assert {"offset": [0, 1, 2], "value": [b"0", b"1", b"2"]} == table.to_pydict()
        assert not consumer.poll(0.3)
        with pytest.raises(ValueError, match="nonsense"):
            consumer.poll_arrow(0, columns=["nonsense"])


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_a_commit_inside_a_loop(cluster: FakeCluster, mode: str) -> None:
    """A loop continues after a commit. The records that it has not reached are released by the next poll."""
    with make(cluster, share_acknowledgement_mode=mode) as consumer:
        seen = []
        for record in consumer:
            seen.append(record.offset)
            if mode == "explicit":
                record.ack()
            assert [None] == list(consumer.commit().values())
            if record.offset == 1:
                break
        assert [0, 1] == seen
        assert [(2, 2)] == deliveries(consumer, 1)
