"""A ShareConsumer without a broker: its arguments, its guards and its end. Records of a share consumer as objects."""

from __future__ import annotations

import gc
import os
import pickle
import warnings
from typing import Any

import pytest

from kconsumer import AcknowledgeType, ConsumerRecord, ShareConsumer, ShareRecord
from kconsumer._core.decode import acquired_records
from kconsumer.decode import decode_batches
from kconsumer.errors import ForkedConsumerError, StateError, TimeoutError
from kconsumer.testing.batches import Rec, build_batch
from kconsumer.types import TopicPartition


def make(*topics: str, **options: Any) -> ShareConsumer:
    """Returns a consumer of brokers that do not exist."""
    return ShareConsumer(*topics, bootstrap_servers="127.0.0.1:1", group_id="g", **options)


def records(count: int = 3, taken: list[Any] | None = None) -> dict[int, ShareRecord]:
    """Returns acquired records at offsets 0, 1, ….; `taken` receives their acknowledgements."""
    batch = decode_batches(build_batch([Rec(key=b"k", value=b"v")] * count, leader_epoch=4), topic="t")
    acknowledger = None if taken is None else lambda record, kind: taken.append((record.offset, kind))
    return acquired_records(batch, [(0, count - 1, 2)], acknowledger)


def test_a_record_is_a_consumer_record() -> None:
    """It equals the record of a Consumer, is pickled as one, and has a delivery count."""
    (record, *_) = records().values()
    (plain,) = decode_batches(build_batch([Rec(key=b"k", value=b"v")], leader_epoch=4), topic="t")
    assert isinstance(record, ConsumerRecord)
    assert plain == record
    assert (2, TopicPartition("t", 0), 4, b"k", b"v", ()) == (
        record.delivery_count,
        record.topic_partition,
        record.leader_epoch,
        record.key,
        record.value,
        record.headers,
    )
    assert plain == pickle.loads(pickle.dumps(record))
    assert repr(record).startswith("ShareRecord(topic='t', partition=0, offset=0")
    assert repr(record).endswith("delivery_count=2)")


def test_methods_of_a_record() -> None:
    """Each method reports the record with its acknowledge type."""
    taken: list[Any] = []
    (record, *_) = records(taken=taken).values()
    record.ack()
    record.release()
    record.reject()
    record.renew()
    assert [(0, kind) for kind in AcknowledgeType] == taken


def test_a_record_of_another_origin() -> None:
    """A record without a consumer cannot be acknowledged."""
    (record, *_) = records().values()
    with pytest.raises(StateError, match="not returned by a ShareConsumer"):
        record.ack()


def test_records_are_garbage_collected() -> None:
    """A record that refers to itself through its acknowledger is freed by the garbage collector."""

    class Acknowledger:
        records: Any = None

        def __call__(self, record: ShareRecord, kind: int) -> None: ...

    acknowledger = Acknowledger()
    batch = decode_batches(build_batch([Rec()]), topic="t")
    acknowledger.records = acquired_records(batch, [(0, 0, 1)], acknowledger)
    found = [id(acknowledger)]
    del acknowledger
    gc.collect()
    assert [] == [each for each in gc.get_objects() if type(each).__name__ == "Acknowledger" and id(each) in found]


def test_poll_needs_a_subscription() -> None:
    """poll() without a subscription says what to call."""
    with make() as consumer, pytest.raises(StateError, match="subscribe"):
        consumer.poll(0)


@pytest.mark.parametrize(("topics", "error"), [("t", TypeError), ([""], ValueError), (["^t.*"], ValueError)])
def test_wrong_topics(topics: Any, error: type[Exception]) -> None:
    """A string in place of a list, an empty name and a pattern are refused."""
    with make() as consumer, pytest.raises(error):
        consumer.subscribe(topics)


def test_wrong_arguments() -> None:
    """A negative timeout and an unknown acknowledge type are refused."""
    with make("t", share_acknowledgement_mode="explicit") as consumer:
        with pytest.raises(ValueError, match="negative"):
            consumer.poll(-1)
        (record, *_) = records().values()
        with pytest.raises(ValueError, match="7"):
            consumer.acknowledge(record, 7)  # the values of the protocol are accepted, too
        with pytest.raises(StateError, match="offset 0 of t-0 cannot be acknowledged"):
            consumer.acknowledge(record)


def test_commits_without_records() -> None:
    """Without acknowledgements commits return at once."""
    with make("t") as consumer:
        assert {} == consumer.commit()
        consumer.commit_async()
        assert consumer.acquisition_lock_timeout_ms() is None


def test_client_instance_id() -> None:
    """If telemetry is disabled there is no client instance id; without a broker the call times out."""
    with make(enable_metrics_push=False) as consumer, pytest.raises(StateError, match="enable_metrics_push"):
        consumer.client_instance_id()
    with make() as consumer, pytest.raises(TimeoutError, match="client_instance_id"):
        consumer.client_instance_id(timeout=0.01)


def test_unsubscribe_without_a_broker() -> None:
    """unsubscribe(), and subscribe([]), drop the subscription even if no broker can be reached."""
    with make("t") as consumer:
        consumer.poll(0.05)
        consumer.unsubscribe()
        assert frozenset() == consumer.subscription()
        consumer.subscribe(["u"])
        consumer.subscribe([])
        assert frozenset() == consumer.subscription()


def test_closed() -> None:
    """After close() every method but close() raises StateError."""
    consumer = make("t")
    consumer.close()
    consumer.close()
    assert repr(consumer).endswith("closed>")
    for method in (consumer.poll, consumer.commit, consumer.commit_async, consumer.subscription, consumer.metrics):
        with pytest.raises(StateError, match="closed"):
            method()


def test_an_unclosed_consumer() -> None:
    """A consumer that is dropped without close() issues a ResourceWarning that says what to write."""
    consumer = make("t")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del consumer
        gc.collect()
    (warning,) = [w for w in caught if issubclass(w.category, ResourceWarning)]
    assert "with ShareConsumer(…)" in str(warning.message)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child() -> None:
    """A forked child cannot use the consumer of its parent."""
    consumer = make("t")
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            consumer.poll(0)
        except ForkedConsumerError:
            os.write(write, b"refused")
        os._exit(0)
    os.waitpid(child, 0)
    assert b"refused" == os.read(read, 100)
    os.close(read)
    os.close(write)
    consumer.close()
