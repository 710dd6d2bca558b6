"""Scenarios of Produce and InitProducerId without transactions."""

from __future__ import annotations

from typing import Any

from kconsumer.schema.fetch import FETCH, FetchPartition, FetchTopic
from kconsumer.schema.produce import PRODUCE, PartitionProduceData, TopicProduceData
from kconsumer.schema.transactions import INIT_PRODUCER_ID
from kconsumer.testing.batches import Rec, build_batch, build_message_set
from kconsumer.testing.cluster.stored_batch import split_batches
from support.scenarios.metadata import UNKNOWN_ID
from support.scenarios.scenario import TIMESTAMP, Run, scenarios

SOME_VERSIONS = [3, 7, 9, 12]


def produce(run: Run, version: int, topic: str, data: bytes | None, partition: int = 0, **fields: Any) -> Any:
    """Record the response to a Produce request with one partition, named by topic name or since v13 by id."""
    named = {"topic_id": run.topic_id(topic)} if version >= 13 else {"name": topic}
    rows = [TopicProduceData(**named, partition_data=[PartitionProduceData(index=partition, records=data)])]
    return run.call(PRODUCE, version, **{"acks": -1, "timeout_ms": 5000, "topic_data": rows, **fields})


def read(run: Run, topic: str, offset: int = 0, partition: int = 0, isolation_level: int = 0) -> Any:
    """Record what a partition contains from an offset on."""
    row = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    return run.call(
        FETCH,
        12,
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=isolation_level,
        topics=[FetchTopic(topic=topic, partitions=[row])],
    )


def batch(*values: bytes, **fields: Any) -> bytes:
    """Returns a batch with a fixed timestamp."""
    return build_batch(values, **{"timestamp": TIMESTAMP, **fields})


def idempotent(producer: Any, sequence: int, *values: bytes, **fields: Any) -> bytes:
    """Returns a batch of an idempotent producer."""
    known = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    return batch(*values, **{**known, "base_sequence": sequence, **fields})


@scenarios(PRODUCE)
def values(run: Run, version: int) -> None:
    """Two batches get the next offsets."""
    topic = run.topic()
    produce(run, version, topic, batch(b"a", b"b"))
    produce(run, version, topic, batch(b"c"))
    read(run, topic)


@scenarios(PRODUCE, versions=SOME_VERSIONS, cases={"leader": 1, "wrong": 2, "wrong-negative": -2})
def acks(run: Run, version: int, acks: int) -> None:
    """A producer waits for the leader; other values of acks are refused."""
    produce(run, version, run.topic(), batch(b"a"), acks=acks)


@scenarios(PRODUCE, versions=[3, 13])
def no_acks(run: Run, version: int) -> None:
    """Without acks there is no response, and the records are stored."""
    topic = run.topic()
    named = {"topic_id": run.topic_id(topic)} if version >= 13 else {"name": topic}
    rows = [TopicProduceData(**named, partition_data=[PartitionProduceData(index=0, records=batch(b"a"))])]
    run.send(PRODUCE, version, acks=0, timeout_ms=5000, topic_data=rows)
    read(run, topic)


@scenarios(PRODUCE, versions=SOME_VERSIONS)
def unknown_partition(run: Run, version: int) -> None:
    """A partition and a topic that do not exist, and a negative partition."""
    topic = run.topic()
    produce(run, version, topic, batch(b"a"), 7)
    produce(run, version, topic, batch(b"a"), -1)
    produce(run, version, run.name("none"), batch(b"a"))


@scenarios(PRODUCE, versions=[13])
def unknown_topic_id(run: Run, version: int) -> None:
    """A topic id that does not exist."""
    rows = [TopicProduceData(topic_id=UNKNOWN_ID, partition_data=[PartitionProduceData(index=0, records=batch(b"a"))])]
    run.call(PRODUCE, version, acks=-1, timeout_ms=5000, topic_data=rows)


MALFORMED = {
    "bad-crc": batch(b"a", crc=1),
    "empty": b"",
    "incomplete": batch(b"abcdef")[:-3],
    "two-batches": batch(b"a") + batch(b"b"),
    "message-set": build_message_set([b"a"], magic=1),
    "magic": batch(b"a")[:16] + b"\x07" + batch(b"a")[17:],
    "offset-gap": build_batch([Rec(b"a", offset=0), Rec(b"b", offset=5)], timestamp=TIMESTAMP),
    "count": batch(b"a", b"b", record_count=3),
    "no-records": batch(last_offset_delta=0, record_count=0),
    "control": batch(b"a", control=True),
    "transactional-without-id": batch(b"a", transactional=True, producer_id=9, producer_epoch=0, base_sequence=0),
}


@scenarios(PRODUCE, versions=[9])
def null_records(run: Run, version: int) -> None:
    """A request without records has no response."""
    rows = [TopicProduceData(name=run.topic(), partition_data=[PartitionProduceData(index=0, records=None)])]
    run.waits(run.send(PRODUCE, version, acks=-1, timeout_ms=100, topic_data=rows))


@scenarios(PRODUCE, versions=[9], cases={codec: codec for codec in ("uncompressed", "gzip", "snappy", "lz4", "zstd")})
def compression_of_a_topic(run: Run, version: int, codec: str) -> None:
    """The broker compresses the records of a topic again, if it has a codec of its own."""
    topic = run.topic(compression_type=codec)
    for given in ("none", "gzip", "zstd"):
        produce(run, version, topic, batch(b"a" * 50, b"b" * 50, codec=given))
    row = FetchPartition(partition=0, partition_max_bytes=1 << 20)
    response = run.prepare(FETCH, 12, max_wait_ms=0, topics=[FetchTopic(topic=topic, partitions=[row])])
    stored = split_batches(bytes(response.responses[0].partitions[0].records))
    run.note("stored", [(b.codec, b.base_offset, [(r.offset, r.value) for r in b.records()]) for b in stored])


RANGES = {
    "before": {"message_timestamp_before_max_ms": "60000"},
    "after": {"message_timestamp_after_max_ms": "60000"},
    "wide": {"message_timestamp_after_max_ms": "999999999"},
    "defaults": {},
    "append-time": {"message_timestamp_type": "LogAppendTime", "message_timestamp_before_max_ms": "60000"},
}


@scenarios(PRODUCE, versions=[9], cases=RANGES)
def timestamp_limits(run: Run, version: int, configs: dict[str, Any]) -> None:
    """How far the timestamp of a record may be from the time of the broker."""
    topic = run.topic(**configs)
    now = run.wall_ms()
    for seconds in (-600, -30, 30, 600, 7200):
        produce(run, version, topic, build_batch([b"a"], timestamp=now + seconds * 1000))
    produce(run, version, topic, build_batch([b"a"], timestamp=-1))


@scenarios(PRODUCE, versions=[7, 9], cases=MALFORMED)
def malformed(run: Run, version: int, data: bytes) -> None:
    """Bytes that are no batch, or not one that a producer may send."""
    topic = run.topic()
    produce(run, version, topic, data)
    read(run, topic)


@scenarios(PRODUCE, versions=[3, 9], cases=["none", "gzip", "snappy", "lz4", "zstd"])
def codecs(run: Run, version: int, codec: str) -> None:
    """Each codec; zstd is refused in old versions."""
    topic = run.topic()
    produce(run, version, topic, batch(b"a" * 100, b"b" * 100, codec=codec))
    read(run, topic)


@scenarios(PRODUCE, versions=[7, 9])
def too_large(run: Run, version: int) -> None:
    """A batch larger than max.message.bytes."""
    topic = run.topic(max_message_bytes="200")
    produce(run, version, topic, batch(b"a" * 300))
    produce(run, version, topic, batch(b"a" * 50))


@scenarios(PRODUCE, versions=[9])
def compacted_without_key(run: Run, version: int) -> None:
    """A record without a key in a compacted topic."""
    topic = run.topic(cleanup_policy="compact")
    produce(run, version, topic, batch(b"a"))
    produce(run, version, topic, build_batch([(b"k", b"v")], timestamp=TIMESTAMP))
    produce(run, version, topic, build_batch([(b"k", b"v"), (None, b"w")], timestamp=TIMESTAMP))


@scenarios(PRODUCE, versions=[3, 9])
def log_append_time(run: Run, version: int) -> None:
    """A topic whose broker sets the timestamps."""
    topic = run.topic(message_timestamp_type="LogAppendTime")
    produce(run, version, topic, batch(b"a", b"b"))
    read(run, topic)


@scenarios(PRODUCE, versions=[9])
def min_insync_replicas(run: Run, version: int) -> None:
    """A topic that wants two in-sync replicas has one."""
    topic = run.topic(min_insync_replicas="2")
    produce(run, version, topic, batch(b"a"))
    produce(run, version, topic, batch(b"a"), acks=1)


@scenarios(PRODUCE, versions=[3, 9, 12])
def several_partitions(run: Run, version: int) -> None:
    """A request with several topics and partitions, some of which do not exist."""
    one, two = run.topic("one", 2), run.topic("two")
    rows = [
        TopicProduceData(name=name, partition_data=[PartitionProduceData(index=i, records=batch(b"a")) for i in (1, 0)])
        for name in (one, two)
    ]
    run.call(PRODUCE, version, acks=-1, timeout_ms=5000, topic_data=rows)


@scenarios(PRODUCE, versions=[3, 12])
def nothing(run: Run, version: int) -> None:
    """A request without topics."""
    run.call(PRODUCE, version, acks=-1, timeout_ms=5000, topic_data=[])


@scenarios(INIT_PRODUCER_ID, versions=range(6))
def producer_id(run: Run, version: int) -> None:
    """Each idempotent producer gets another id."""
    for _ in range(2):
        run.call(INIT_PRODUCER_ID, version, transactional_id=None, transaction_timeout_ms=1000)


@scenarios(INIT_PRODUCER_ID, versions=[3, 4, 5])
def producer_id_again(run: Run, version: int) -> None:
    """An idempotent producer names its last id and epoch."""
    first = run.call(INIT_PRODUCER_ID, version, transactional_id=None, transaction_timeout_ms=1000)
    run.call(
        INIT_PRODUCER_ID,
        version,
        transactional_id=None,
        transaction_timeout_ms=1000,
        producer_id=first.producer_id,
        producer_epoch=first.producer_epoch,
    )


def new_producer(run: Run) -> Any:
    """Returns the id and epoch of a new idempotent producer."""
    return run.prepare(INIT_PRODUCER_ID, 1, transactional_id=None, transaction_timeout_ms=1000)


@scenarios(PRODUCE, versions=[3, 8, 9, 12])
def sequence(run: Run, version: int) -> None:
    """Sequence numbers: the next one, a duplicate of the last batch, of an older one, and a gap."""
    topic, producer = run.topic(), new_producer(run)
    for number in (0, 2, 4, 4, 2, 9, 6, 5):
        produce(run, version, topic, idempotent(producer, number, b"a", b"b"))
    read(run, topic)


@scenarios(PRODUCE, versions=[9])
def old_duplicate(run: Run, version: int) -> None:
    """A broker remembers five batches of a producer, and refuses older duplicates."""
    topic, producer = run.topic(), new_producer(run)
    for number in (0, 1, 2, 3, 4, 5, 1, 0):
        produce(run, version, topic, idempotent(producer, number, b"a"))


@scenarios(PRODUCE, versions=[9], cases={"zero": 0, "five": 5, "none": -1})
def first_sequence(run: Run, version: int, number: int) -> None:
    """The first batch of a producer has any sequence number, but must have one."""
    topic, producer = run.topic(), new_producer(run)
    produce(run, version, topic, idempotent(producer, number, b"a"))


@scenarios(PRODUCE, versions=[9])
def producer_epochs(run: Run, version: int) -> None:
    """A newer epoch begins at 0, and fences the older one."""
    topic, producer = run.topic(), new_producer(run)
    produce(run, version, topic, idempotent(producer, 0, b"a"))
    produce(run, version, topic, idempotent(producer, 3, b"b", producer_epoch=1))
    produce(run, version, topic, idempotent(producer, 0, b"b", producer_epoch=1))
    produce(run, version, topic, idempotent(producer, 1, b"a"))
    read(run, topic)


@scenarios(PRODUCE, versions=[9])
def sequence_by_partition(run: Run, version: int) -> None:
    """Each partition has sequence numbers of its own."""
    topic, producer = run.topic(partitions=2), new_producer(run)
    produce(run, version, topic, idempotent(producer, 0, b"a"), 0)
    produce(run, version, topic, idempotent(producer, 0, b"a"), 1)
    produce(run, version, topic, idempotent(producer, 2, b"a"), 1)


@scenarios(PRODUCE, versions=[9], cases=["old", "future", "none"])
def timestamps(run: Run, version: int, which: str) -> None:
    """Timestamps long ago and far in the future, and records without one."""
    topic = run.topic()
    timestamp = {"old": 1000, "future": TIMESTAMP * 3, "none": -1}[which]
    produce(run, version, topic, batch(b"a", timestamp=timestamp))
    read(run, topic)
