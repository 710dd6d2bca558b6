"""Code as users write it; it must type-check under `mypy --strict`, and is never run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, ClassVar, assert_type

import kconsumer
from kconsumer import (
    AcknowledgeType,
    Assignment,
    Assignor,
    ClusterView,
    ConnectionStatus,
    Consumer,
    ConsumerConfig,
    ConsumerOptions,
    ConsumerRecord,
    ConsumerRecords,
    ConsumerStatus,
    GroupMetadata,
    GroupStatus,
    HeaderFilter,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionInfo,
    RangeClient,
    RawRecord,
    RebalanceListener,
    RebalanceProtocol,
    ShareConsumer,
    ShareConsumerOptions,
    ShareRecord,
    Subscription,
    TimestampType,
    TopicPartition,
    TopicTable,
    aio,
    decode_batches,
    parallel,
    read_range,
    read_topic,
)
from kconsumer.arrow import RecordBatch
from kconsumer.errors import CommitFailedError, KafkaError, RecordDeserializationError, WakeupError
from kconsumer.health import Health
from kconsumer.testing import MockConsumer


def handle(text: str) -> None:
    """Some work."""


def read_in_a_group() -> None:
    """Subscribe, poll, commit."""
    with Consumer(
        "orders",
        "refunds",
        bootstrap_servers=["a:9092", "b:9092"],
        group_id="billing",
        auto_offset_reset="earliest",
        value_deserializer=json.loads,
    ) as consumer:
        while True:
            records = consumer.poll(timeout=timedelta(seconds=1), max_records=100)
            assert_type(records, ConsumerRecords[bytes | None, Any])
            if not records:
                continue
            for partition in records.partitions():
                for record in records.records(partition):
                    handle(f"{record.key!r} {record.value!r}")
            consumer.commit(records, timeout=5.0)
            for record in records:
                consumer.commit(record)
                consumer.store_offsets(record)
            consumer.store_offsets(records)
            consumer.store_offsets({("orders", 0): 7})


def tables(servers: str) -> None:
    """Deserializers decide the types of keys and values; neither is None."""
    assert_type(TopicTable("t", bootstrap_servers=servers), TopicTable[bytes, bytes])
    table = TopicTable(
        "t", bootstrap_servers=servers, key_deserializer=bytes.decode, value_deserializer=int, max_entries=9
    )
    assert_type(table, TopicTable[str, int])
    assert_type([table["a"], table.get("a"), *table.values()], list[int | None])
    entries: Mapping[str, int] = table
    assert_type(dict(entries), dict[str, int])

    def changed(key: str, value: int | None) -> None:
        handle(f"{key} {value}")

    table.on_change(changed)
    table.wait_ready(timedelta(minutes=1))
    assert_type(table.status().records_left, int | None)
    assert_type(table.to_arrow().num_rows, int)
    assert_type(TopicTable("t", bootstrap_servers=servers, value_deserializer="json"), TopicTable[Any, Any])
    options = {"bootstrap_servers": servers, "client_id": "c"}
    assert_type(TopicTable("t", **options), TopicTable[Any, Any])


def read_one_by_one(consumer: Consumer) -> None:
    """Iterate; the fields of a record."""
    for record in consumer:
        assert_type(record, ConsumerRecord)
        assert_type(record.topic, str)
        assert_type(record.offset, int)
        assert_type(record.key, Any)
        assert_type(record.value, Any)  # bytes | None, or what the deserializer makes
        assert_type(record.timestamp, int)
        assert_type(record.timestamp_type, TimestampType)
        assert_type(record.leader_epoch, int | None)
        assert_type(record.topic_partition, TopicPartition)
        for name, value in record.headers:
            assert_type(name, str)
            assert_type(value, bytes | None)


def read_by_hand() -> None:
    """Assign and seek, without a group."""
    consumer = Consumer.from_config({"bootstrap.servers": "a:9092", "max.poll.records": "10"})
    partitions = [TopicPartition("orders", info.partition) for info in consumer.partitions_for("orders")]
    consumer.assign(partitions)
    assert_type(consumer.assignment(), frozenset[TopicPartition])
    first, end = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    assert_type(first, dict[TopicPartition, int])
    for partition, found in consumer.offsets_for_times(dict.fromkeys(partitions, 1_700_000_000_000)).items():
        assert_type(found, OffsetAndTimestamp | None)
        consumer.seek(partition, found.offset if found else end[partition])
    consumer.seek_to_beginning(*partitions)
    consumer.pause(partitions[0])
    consumer.resume(*consumer.paused())
    assert_type(consumer.position(partitions[0]), int)
    assert_type(consumer.current_lag(partitions[0]), int | None)
    for status in consumer.partition_states().values():
        handle(f"{status.state.value} {status.reason}")
    assert_type(consumer.health(max_lag=100), Health)
    with kconsumer.health.serve(consumer, 0, max_lag=100) as server, kconsumer.health.write(consumer, "health"):
        handle(f"{server.host}:{server.port} {consumer.health().ok} {consumer.health().reasons}")
    whole = consumer.status()
    assert_type(whole, ConsumerStatus)
    assert_type(whole.group, GroupStatus | None)
    assert_type(whole.connections, tuple[ConnectionStatus, ...])
    assert_type(whole.connections[0].last_error, KafkaError | None)
    handle(f"{whole.partitions[partitions[0]].state.value} {whole}")
    consumer.close(timeout=5.0, leave_group=False)


def partitions_as_pairs(consumer: Consumer, records: ConsumerRecords, client: RangeClient) -> None:
    """A (topic, partition) pair goes where a TopicPartition does; results have TopicPartitions."""
    pair, whole = ("orders", 0), TopicPartition("orders", 1)
    consumer.assign([pair, whole])
    consumer.assign([("orders", 0), ("orders", 1)])
    consumer.seek(("orders", 0), 5)
    consumer.seek(pair, OffsetAndMetadata(5))
    consumer.seek_to_beginning(("orders", 0), whole)
    consumer.seek_to_end(("orders", 0))
    consumer.pause(("orders", 0))
    consumer.resume(pair)
    assert_type(consumer.position(("orders", 0)), int)
    assert_type(consumer.current_lag(("orders", 0)), int | None)
    assert_type(consumer.committed([("orders", 0)]), dict[TopicPartition, OffsetAndMetadata | None])
    assert_type(consumer.beginning_offsets([("orders", 0)]), dict[TopicPartition, int])
    assert_type(consumer.end_offsets({pair, ("orders", 1)}), dict[TopicPartition, int])
    consumer.offsets_for_times({("orders", 0): 1_700_000_000_000})
    consumer.offsets_for_times({whole: 1_700_000_000_000})
    consumer.seek_to_time(1_700_000_000_000, *consumer.assignment())
    consumer.update_options(max_poll_records=10, buffer_memory=1 << 20)
    assert_type(consumer.metrics()["records-lag-max"], float)
    consumer.commit({("orders", 0): 7, ("orders", 1): OffsetAndMetadata(8)})
    consumer.commit_async({pair: 7})
    assert_type(records.records(("orders", 0)), list[ConsumerRecord])
    client.commit("g", {("orders", 0): 7})
    client.committed("g", [("orders", 0)])
    assert_type(client.end_offsets([("orders", 0)]), dict[TopicPartition, int])
    consumer.assign(["orders"])  # type: ignore[list-item]  # names are for subscribe()
    consumer.seek(("orders",), 5)  # type: ignore[arg-type]  # half a pair
    consumer.seek(pair, 5.5)  # type: ignore[arg-type]  # no offset
    consumer.poll(timeout_ms=1000)  # type: ignore[arg-type]  # kafka-python's argument


def in_a_transaction(consumer: Consumer) -> None:
    """What confluent-kafka's producer takes is bytes; its fields have names."""
    metadata = consumer.group_metadata()
    as_bytes: bytes = metadata
    assert_type(metadata.group_id, str)
    assert_type(metadata.generation_id, int)
    assert_type(metadata.member_id, str)
    assert_type(metadata.group_instance_id, str | None)
    handle(f"{as_bytes!r} {kconsumer.__version__}")


def commit_in_every_way(consumer: Consumer, records: ConsumerRecords) -> None:
    """Offsets as ints, with metadata, or as a batch; callbacks get what was committed."""

    def committed(offsets: Mapping[TopicPartition, OffsetAndMetadata], error: KafkaError | None) -> None:
        handle(f"{offsets} {error}")

    partition = TopicPartition("orders", 0)
    try:
        consumer.commit()
        consumer.commit({partition: 7})
        consumer.commit({partition: OffsetAndMetadata(7, "by hand")})
        consumer.commit_async(records, committed)
    except CommitFailedError as error:
        handle(str(error))
    except WakeupError:
        return
    assert_type(consumer.committed([partition]), dict[TopicPartition, OffsetAndMetadata | None])
    assert_type(consumer.group_metadata(), GroupMetadata)
    assert_type(consumer.client_instance_id(timeout=1.0), str)


class Listener(RebalanceListener):
    """Overrides what it needs."""

    def on_partitions_revoked(self, consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        """Commit what is given up."""
        consumer.commit({partition: consumer.position(partition) for partition in partitions})


def subscribe_in_every_way(consumer: Consumer) -> None:
    """Names, a pattern, a listener, callables."""
    consumer.subscribe(["orders"], listener=Listener())
    consumer.subscribe(re.compile("orders-.*"))
    consumer.subscribe({"orders"}, on_assign=lambda c, partitions: c.seek_to_beginning(*partitions))
    assert_type(consumer.subscription(), frozenset[str])
    consumer.unsubscribe()


class ByName(Assignor):
    """An assignor plugin: everything to the first member."""

    name: ClassVar[str] = "by-name"
    protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (RebalanceProtocol.EAGER,)

    def assign(self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        """Plain data in, plain data out."""
        everything = tuple(
            TopicPartition(topic, info.partition) for topic in cluster.topics() for info in cluster.partitions(topic)
        )
        members = sorted(subscriptions)
        return {member: Assignment(everything if member == members[0] else ()) for member in members}


def plug_in() -> None:
    """An assignor by instance, class and name; a cluster made by hand."""
    view = ClusterView([PartitionInfo("orders", 0)])
    assert_type(view.partition_count("orders"), int | None)
    Consumer("orders", bootstrap_servers="a:9092", group_id="g", assignors=[ByName(), ByName, "range"]).close()
    kconsumer.assignors.register("by-name", ByName)
    assert_type(kconsumer.assignors.load("range"), Assignor)


def configure_wrongly() -> None:
    """Options are checked: their names, and the types of their values."""
    Consumer(bootstrap_servers="a:9092", auto_offset_rest="latest")  # type: ignore[call-overload]  # misspelt
    Consumer(bootstrap_servers="a:9092", max_poll_records="many")  # type: ignore[call-overload]  # not a number
    Consumer(bootstrap_servers="a:9092", enable_auto_commit=1)  # type: ignore[call-overload]  # not a bool
    Consumer(bootstrap_servers=9092)  # type: ignore[call-overload]  # not an address
    Consumer(group_id="g")  # type: ignore[call-overload]  # no brokers
    Consumer(bootstrap_servers="a:9092", group_protocol="consmer")  # type: ignore[call-overload]  # misspelt
    Consumer(bootstrap_servers="a:9092", share_acquire_mode="record_limit")  # type: ignore[call-overload]
    ShareConsumer(bootstrap_servers="a:9092", group_id="g", assignors=[])  # type: ignore[call-overload]
    collected: dict[str, Any] = {"max_poll_records": 10}
    Consumer(bootstrap_servers="a:9092", **collected)  # right: what is not known before running is checked then


def options_in_a_dict() -> None:
    """Options may be collected in a plain dict, or in a TypedDict that is checked."""
    options = {"bootstrap_servers": "localhost:9092", "group_id": "g", "auto_offset_reset": "earliest"}
    Consumer("orders", **options)
    aio.AsyncConsumer("orders", **options)
    mixed = {"bootstrap_servers": "localhost:9092", "enable_auto_commit": False}
    Consumer("orders", **mixed, value_deserializer=Order)
    checked: ConsumerOptions = {"bootstrap_servers": "a:9092", "group_id": "g", "engine": "threaded"}
    Consumer("orders", **checked)
    kconsumer.AsyncConsumer("orders", **checked)
    ConsumerOptions(engine="thread")  # type: ignore[typeddict-item]
    ShareConsumerOptions(assignors=[])  # type: ignore[typeddict-unknown-key]


class Order:
    """A class that is its own deserializer."""

    def __init__(self, data: bytes) -> None:
        self.data = data


def types_of_keys_and_values() -> None:
    """Deserializers decide the types of keys and values; without one they are bytes or None."""
    plain = Consumer("orders", bootstrap_servers="a:9092")
    assert_type(plain, Consumer[bytes | None, bytes | None])
    typed = Consumer("orders", bootstrap_servers="a:9092", key_deserializer=bytes.decode, value_deserializer=Order)
    assert_type(typed, Consumer[str, Order])
    assert_type(Consumer(bootstrap_servers="a:9092", value_deserializer=Order), Consumer[bytes | None, Order])
    assert_type(Consumer(bootstrap_servers="a:9092", key_deserializer=bytes.decode), Consumer[str, bytes | None])
    assert_type(typed.poll(), ConsumerRecords[str, Order])
    for record in typed:
        assert_type(record, ConsumerRecord[str, Order])
        assert_type(record.key, str)
        assert_type(record.value.data, bytes)
    for records in typed.poll().by_partition().values():
        assert_type(records[0].value, Order)
    wider: Consumer[object, Order | None] = typed  # the type of a consumer that also reads null
    by_hand: Consumer[str, dict[str, int]] = Consumer(
        bootstrap_servers="a:9092", key_deserializer=bytes.decode, value_deserializer=json.loads
    )
    read_one_by_one(wider)
    read_one_by_one(by_hand)
    assert_type(ConsumerRecord("orders", 0, 7, key="k", value=1), ConsumerRecord[str, int])


def drop_records(record: RawRecord) -> bool:
    """Filters by a header, and by a callable."""
    assert_type(record.key, bytes | None)
    Consumer(bootstrap_servers="a:9092", record_filter=HeaderFilter("type", b"order"))
    Consumer(bootstrap_servers="a:9092", record_filter=drop_records)
    return record.value is not None


def skip_what_does_not_parse(consumer: Consumer) -> None:
    """A deserializer's failure says which record it was."""
    try:
        consumer.poll()
    except RecordDeserializationError as error:
        assert_type(error.offset, int)
        consumer.seek(error.topic_partition, error.offset + 1)


def without_a_broker(data: bytes) -> None:
    """Bytes to records, and a checked configuration."""
    for record in decode_batches(data, topic="orders", partition=3):
        handle(repr(record))
    config = ConsumerConfig(bootstrap_servers=["a:9092", ("b", 9092)], auto_offset_reset="latest")
    ConsumerConfig(bootstrap_servers="a:9092", auto_offset_rest="latest")  # type: ignore[call-arg]  # misspelt
    ConsumerConfig(bootstrap_servers="a:9092", max_poll_records="many")  # type: ignore[arg-type]  # not a number
    assert_type(config.session_timeout_ms, int)
    assert_type(config.group_id, str | None)


def without_brokers() -> None:
    """A MockConsumer is passed to code that takes a Consumer; a batch is created from records."""

    def count(consumer: Consumer) -> int:
        return len(consumer.poll(timeout=0.5))

    with MockConsumer("orders", group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.rebalance([("orders", 0)])
        consumer.add_records(TopicPartition("orders", 0), [b"value", ConsumerRecord("orders", 0, 7, key="k")])
        consumer.update_beginning_offsets({TopicPartition("orders", 1): 3})
        consumer.update_end_offsets({("orders", 1): 9})
        consumer.schedule(consumer.wakeup)
        consumer.raise_next(WakeupError("wakeup() was called"))
        assert_type(count(consumer), int)
        assert_type(consumer.committed_offsets(), dict[TopicPartition, OffsetAndMetadata])
        MockConsumer(auto_offset_rest="earliest")  # type: ignore[call-overload]  # misspelt
    assert_type(ConsumerRecords([ConsumerRecord("orders", 0, 7)]).count, int)
    ConsumerRecords([b"value"])  # type: ignore[type-var]  # not a record


def without_a_group() -> None:
    """Ranges and whole topics; points are offsets, words or moments."""
    with RangeClient(bootstrap_servers="a:9092", isolation_level="read_committed") as client:
        reader = client.read_range(("orders", 0), "earliest", 10, columns=["value"], schema="spark")
        for batch in reader:
            assert_type(batch.num_rows, int)
        assert_type(reader.skipped, dict[str, int])
        client.commit("g", {TopicPartition("orders", 0): 10})
        client.read_range(("orders", 0), 0, 1, schema="flink")  # type: ignore[arg-type]  # no such schema
        assert_type(client.topics()["orders"].internal, bool)
    read_range(("orders", 0), 0, "latest", bootstrap_servers="a:9092", on_data_loss="skip").close()
    assert_type(read_topic("orders", bootstrap_servers="a:9092").num_rows, int)


async def read_without_a_group_in_tasks() -> None:
    """Ranges, topics and groups of kconsumer.aio."""
    async with aio.read_range(("orders", 0), "earliest", 10, bootstrap_servers="a:9092", columns=["value"]) as reader:
        async for batch in reader:
            assert_type(batch, RecordBatch)
        assert_type(reader.gaps, tuple[kconsumer.ranges.Gap, ...])
    opened = await aio.read_range(("orders", 0), 0, "latest", bootstrap_servers="a:9092")
    assert_type(opened, aio.ranges.RangeReader)
    assert_type((await aio.read_topic("orders", bootstrap_servers="a:9092")).num_rows, int)
    async with await aio.scan_topic("orders", bootstrap_servers="a:9092") as topic:
        assert_type([batch.num_rows async for batch in topic], list[int])
    async with aio.RangeClient(bootstrap_servers="a:9092") as client:
        assert_type(await client.end_offsets([("orders", 0)]), dict[TopicPartition, int])
        client.read_range(("orders", 0), 0, 1, schema="flink")  # type: ignore[arg-type]  # no such schema
    async with aio.groups.GroupClient("localhost:9092") as groups:
        description = await groups.describe("billing")
        offsets = await groups.offsets(description, seconds=True)
        assert_type(offsets, dict[TopicPartition, kconsumer.groups.GroupOffset])
        assert_type(offsets[TopicPartition("orders", 0)].lag_seconds, float | None)
        await groups.alter_offsets("billing", {TopicPartition("orders", 0): 5})
        await groups.delete("billing")
        await groups.alter_share_offsets("workers", {TopicPartition("jobs", 0): 5})
        await groups.delete_share_offsets("workers", ["jobs"])
        await groups.delete_offsets("billing", ["orders", TopicPartition("users", 0), ("users", 1)])
        await groups.remove_members("billing", ["instance-1", *description.members], "scaled down")
        await groups.alter_configs("workers", {"share.session.timeout.ms": 50_000, "share.auto.offset.reset": None})
        assert_type(await groups.configs("workers"), dict[str, str | None])


def read_groups() -> None:
    """Group health, once and over connections that stay."""
    for listing in kconsumer.groups.list("localhost:9092", states=["Stable"], types=["classic"]):
        assert_type(listing.state, str | None)
    description = kconsumer.groups.describe("billing", bootstrap_servers=["a:9092"], client_id="monitor")
    handle(f"{description.type} {description.state} {[member.client_id for member in description.members]}")
    newest = kconsumer.cluster.offsets(["orders"], "localhost:9092", "max-timestamp")
    assert_type(newest, dict[TopicPartition, OffsetAndTimestamp | None])
    assert_type(kconsumer.groups.client_metrics("localhost:9092"), dict[str, dict[str, str | None]])
    kconsumer.groups.alter_client_metrics("all", {"metrics": "*", "match": None}, "localhost:9092")
    transactions = kconsumer.cluster.stuck_transactions(["orders", ("users", 0)], "localhost:9092")
    assert_type([found.coordinator for found in transactions], list[kconsumer.Node | None])
    offsets = kconsumer.groups.offsets("billing", "localhost:9092")
    assert_type(offsets, dict[TopicPartition, kconsumer.groups.GroupOffset])
    with kconsumer.groups.GroupClient("localhost:9092") as client:
        groups = client.describe_all(types=["consumer"])
        client.alter_offsets("billing", {TopicPartition("orders", 0): OffsetAndMetadata(5)})
        client.delete("billing")
        client.alter_share_offsets("workers", {TopicPartition("jobs", 0): 5})
        client.delete_share_offsets("workers", ["jobs"])
        lags = [at.lag for table in client.all_offsets(groups) for at in table.values()]
        assert_type(lags, list[int | None])


def work_on_shares() -> None:
    """Receive records of a share group, and acknowledge them."""
    with ShareConsumer(
        "jobs", bootstrap_servers="a:9092", group_id="g", share_acknowledgement_mode="explicit"
    ) as queue:
        for record in queue.poll(1.0):
            assert_type(record, ShareRecord[bytes | None, bytes | None])
            queue.acknowledge(record, AcknowledgeType.REJECT)
        assert_type(queue.commit(timeout=5.0), dict[TopicPartition, KafkaError | None])
        queue.commit_async()
        assert_type(queue.acquisition_lock_timeout_ms(), int | None)
        for received in queue:
            assert_type(received, ShareRecord[bytes | None, bytes | None])
            assert_type(received.delivery_count, int)
            received.ack()
        queue.unsubscribe()
    typed = ShareConsumer("jobs", bootstrap_servers="a:9092", group_id="g", value_deserializer=Order)
    assert_type([record.value for record in typed.poll()], list[Order])
    assert_type(next(iter(typed)), ShareRecord[bytes | None, Order])
    options = {"bootstrap_servers": "a:9092", "group_id": "g", "share_acknowledgement_mode": "explicit"}
    ShareConsumer("jobs", **options)
    with ShareConsumer.from_config({"bootstrap.servers": "a:9092", "group.id": "g"}, "jobs") as other:
        assert_type(other.poll_arrow(columns=["value"]), RecordBatch)
        assert_type(other.subscription(), frozenset[str])


def process_in_parallel(consumer: Consumer) -> None:
    """Handlers in threads, processes and event loops."""

    def work(record: ConsumerRecord) -> None:
        handle(record.topic)

    async def work_async(record: ConsumerRecord) -> int:
        return record.offset

    def dead_letter(record: ConsumerRecord, error: BaseException) -> None:
        handle(f"{record.offset}: {error}")

    summary = parallel.process(consumer, work, workers=4, order="key", on_failure=dead_letter)
    assert_type(summary, parallel.Summary)
    assert_type(summary.committed, Mapping[TopicPartition, int])
    parallel.process(consumer, work_async, executor="asyncio", order="none", retry=parallel.Retry(attempts=5))
    parallel.process(
        consumer,
        lambda record, attempt: attempt.remaining,
        order=lambda record: record.key,
        retry=parallel.Retry(backoff_s=lambda failures: 2.0**failures, on=(OSError,), never=(ValueError,)),
        handler_timeout_s=10,
        rate_limit=100,
        circuit_breaker=parallel.CircuitBreaker(failures=5, pause_s=30.0),
    )
    parallel.process(consumer, lambda records: handle(str(len(records))), batch=parallel.Batch(500, max_wait_s=0.5))
    parallel.process(consumer, work, order="keys")  # type: ignore[call-overload]  # no such order
    shared = ShareConsumer("jobs", bootstrap_servers="a:9092", group_id="g", share_acknowledgement_mode="explicit")
    assert_type(shared.status(), ConsumerStatus)
    assert_type(parallel.process(shared, work, order="none"), parallel.Summary)
    parallel.ShareProcessor(shared, work, order="none").stop()
    processor = parallel.Processor(consumer, work, executor="processes", on_failure="skip", retry=None)
    kconsumer.health.serve(processor, 0).close()
    assert_type(processor.health().live, bool)
    assert_type(processor.metrics(), dict[kconsumer.types.MetricName, float])
    processor.stop()
    handle(f"{processor.summary().processed} {processor.run().reason}")
    parallel.stop()


async def process_in_an_event_loop(consumer: aio.AsyncConsumer) -> None:
    """Handlers in the event loop of the caller."""

    async def work(record: ConsumerRecord) -> int:
        return record.offset

    assert_type(await parallel.process(consumer, work, executor="asyncio", order="key"), parallel.Summary)
    parallel.process(consumer, work)  # type: ignore[call-overload]  # handlers run in the event loop
    assert_type(await parallel.AsyncProcessor(consumer, work, workers=100).run(), parallel.Summary)
