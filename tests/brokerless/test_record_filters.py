"""`record_filter` on FakeCluster: which records are returned, and what dropped ones leave behind."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from kconsumer import Consumer, ConsumerRecord, HeaderFilter, KeyFilter, RawRecord, ShareConsumer, TopicPartition
from kconsumer.aio import AsyncConsumer
from kconsumer.errors import ConfigError, RecordDeserializationError, RecordFilterError
from kconsumer.parallel import process
from kconsumer.ranges import read_range
from kconsumer.testing import FakeCluster, MockConsumer

TP = TopicPartition("t", 0)
OPTIONS: dict[str, Any] = {"auto_offset_reset": "earliest", "check_crcs": True}
ENGINES = pytest.mark.parametrize("engine", ["classic", "threaded"])
Filter = Callable[[RawRecord], bool]


def wanted(record: RawRecord) -> bool:
    """Returns True for records that the filters of these tests select."""
    return record.header("kind") == b"wanted"


FILTERS = pytest.mark.parametrize(
    "record_filter", [HeaderFilter("kind", "wanted"), wanted], ids=["compiled", "callable"]
)


def made(cluster: FakeCluster, **options: Any) -> Consumer:
    """Returns a consumer that reads the partition."""
    return Consumer(bootstrap_servers=cluster.bootstrap_servers, **{**OPTIONS, **options})


def produce(cluster: FakeCluster, kinds: str, **options: Any) -> None:
    """Write one record for each letter: those of a `w` are wanted."""
    for index, letter in enumerate(kinds):
        headers = [("kind", b"wanted" if letter == "w" else b"other")]
        cluster.produce("t", [f"{letter}{index}".encode()], partition=0, headers=headers, **options)


def offsets(records: Any) -> list[int]:
    """Returns the offsets of records."""
    return [record.offset for record in records]


def read(consumer: Consumer, number: int) -> list[ConsumerRecord]:
    """Poll until there are `number` records. Returns them."""
    records: list[ConsumerRecord] = []
    while len(records) < number:
        records += consumer.poll(10.0)
    return records


# --- which records ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_all_forms_select_the_same_records(seed: int) -> None:
    """Compiled filters, the same filters as callables, and columns give the rows that are selected afterwards."""
    rng = random.Random(seed)
    names, values = ["a", "b", "ä", ""], [b"", b"x", b"xy", None]
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        for _ in range(rng.randrange(1, 12)):
            headers = [(rng.choice(names), rng.choice(values)) for _ in range(rng.randrange(4))]
            for key in (None, b"", b"k1", b"k2"):
                data = [rng.randbytes(rng.randrange(20)) for _ in range(rng.randrange(1, 40))]
                cluster.produce(
                    "t", data, partition=0, key=key, headers=headers, compression=("gzip" if seed % 2 else None)
                )
        with made(cluster) as consumer:
            consumer.assign([TP])
            end = consumer.end_offsets([TP])[TP]
            everything = read(consumer, end)
        filters = [HeaderFilter(name, value) for name in names for value in values]
        for chosen in (*rng.sample(filters, 4), KeyFilter(b"k"), KeyFilter(prefix="k2"), KeyFilter(b"")):
            expected = [record for record in everything if chosen(record)]
            for form in (chosen, lambda record, chosen=chosen: chosen(record)):
                limit = rng.choice([1, 3, 500])
                with made(cluster, record_filter=form, max_poll_records=limit) as consumer:
                    consumer.assign([TP])
                    found: list[ConsumerRecord] = []
                    while consumer.position(TP) < end:
                        batch = consumer.poll(0.02)
                        assert len(batch) <= limit
                        found += batch
                    assert expected == found
                    consumer.seek(TP, 0)
                    rows: list[int] = []
                    while consumer.position(TP) < end:
                        rows += _offsets_of_columns(consumer.poll_arrow(0.02, max_bytes=rng.choice([1, 100, 10_000])))
                    assert offsets(expected) == rows


def _offsets_of_columns(batch: Any) -> list[int]:
    pyarrow = pytest.importorskip("pyarrow")
    found: list[int] = pyarrow.record_batch(batch).column("offset").to_pylist()
    return found


@ENGINES
@FILTERS
def test_polls_return_as_many_records_as_they_may(engine: str, record_filter: Filter) -> None:
    """`max_poll_records` limits what is returned, not what is dropped."""
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        produce(cluster, "-w" * 20)
        with made(cluster, engine=engine, record_filter=record_filter, max_poll_records=7) as consumer:
            consumer.assign([TP])
            read(consumer, 1)
            consumer.seek(TP, 0)
            assert [7, 7] == [len(consumer.poll(10.0)) for _ in range(2)]


# --- what dropped records leave behind -------------------------------------------------------------------------------


@ENGINES
@FILTERS
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_dropped_records_are_consumed(engine: str, protocol: str, record_filter: Filter) -> None:
    """A poll that finds only such records waits until its timeout. Then the position, lag, commits and metrics pass
    them."""
    options = {"group_id": "g", "group_protocol": protocol, "record_filter": record_filter}
    if protocol == "classic":
        options["engine"] = engine
    with FakeCluster(group_initial_rebalance_delay_ms=0) as cluster:
        cluster.create_topic("t")
        produce(cluster, "-" * 30)
        with made(cluster, **options) as consumer:
            consumer.subscribe(["t"])
            while True:
                began = consumer._clock.now()
                batch = consumer.poll(0.3)
                assert not batch
                assert consumer._clock.now() - began >= 299
                if batch.next_offsets():
                    break
            assert {TP: 30} == {tp: at.offset for tp, at in batch.next_offsets().items()}
            assert (30, 0) == (consumer.position(TP), consumer.current_lag(TP))
            metrics = consumer.metrics()
            assert (30.0, 0.0) == (metrics["records-filtered-total"], metrics["records-consumed-total"])
        assert 30 == cluster.committed("g")[TP].offset


@ENGINES
def test_a_batch_has_the_positions_of_partitions_without_records(engine: str) -> None:
    """The positions that a poll has moved before its last fetch are in `next_offsets`."""
    with FakeCluster() as cluster:
        cluster.create_topic("t", partitions=3)
        for partition in (0, 1):
            cluster.produce("t", [b"-"] * 5, partition=partition)
        calls = count(1)

        def selects(record: RawRecord) -> bool:
            if next(calls) == 10:
                cluster.produce("t", [b"w"], partition=2)
            return record.value == b"w"

        with made(cluster, engine=engine, record_filter=selects) as consumer:
            consumer.assign([("t", 0), ("t", 1), ("t", 2)])
            batch = consumer.poll(30.0)
            assert [2] == [record.partition for record in batch]
            assert [5, 5, 1] == [at.offset for _, at in sorted(batch.next_offsets().items())]


@FILTERS
def test_transactions_and_pauses(record_filter: Filter) -> None:
    """With read_committed, aborted records are not returned; a paused partition is neither returned nor passed."""
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        for letters, abort in (("-w", False), ("ww", True), ("w-", False)):
            with cluster.transaction() as transaction:
                for letter in letters:
                    headers = [("kind", b"wanted")] if letter == "w" else []
                    transaction.produce("t", [letter.encode()], headers=headers)
                if abort:
                    transaction.abort()
        with made(cluster, record_filter=record_filter, isolation_level="read_committed") as consumer:
            consumer.assign([TP])
            assert [1, 6] == offsets(read(consumer, 2))
            consumer.pause(TP)
            produce(cluster, "-w")
            assert not consumer.poll(0.05)
            assert consumer.position(TP) <= 9
            consumer.resume(TP)
            assert [10] == offsets(read(consumer, 1))


@FILTERS
def test_stored_offsets_pass_dropped_records(record_filter: Filter) -> None:
    """With enable_auto_offset_store=False, dropped records are done; returned ones are done when they are stored."""
    options: dict[str, Any] = {"group_id": "g", "enable_auto_offset_store": False, "record_filter": record_filter}
    with FakeCluster(group_initial_rebalance_delay_ms=0) as cluster:
        cluster.create_topic("t")
        produce(cluster, "-w-w--")
        with made(cluster, **options) as consumer:
            consumer.subscribe(["t"])
            first, second = read(consumer, 2)
            while consumer.position(TP) < 6:
                consumer.poll(0.05)
            for record, expected in ((first, 3), (second, 6)):
                consumer.store_offsets(record)
                consumer.commit()
                assert expected == cluster.committed("g")[TP].offset


@FILTERS
def test_parallel_runs_commit_behind_dropped_records(record_filter: Filter) -> None:
    """A run handles what is selected, and commits the end of the partition."""
    with FakeCluster(group_initial_rebalance_delay_ms=0) as cluster:
        cluster.create_topic("t")
        produce(cluster, "--w--w---")
        handled: list[int] = []
        options = {"group_id": "g", "enable_auto_commit": False, "consumer_timeout_ms": 500}
        with made(cluster, record_filter=record_filter, **options) as consumer:
            consumer.subscribe(["t"])
            process(consumer, lambda record: handled.append(record.offset), workers=1)
        assert ([2, 5], 9) == (handled, cluster.committed("g")[TP].offset)


# --- filters that raise ----------------------------------------------------------------------------------------------


@ENGINES
@pytest.mark.parametrize("deserializer", [None, "str"])
def test_a_filter_that_raises(engine: str, deserializer: str | None) -> None:
    """The records before the failing one are returned; it is raised with its place until it is sought past."""

    def refuse(record: RawRecord) -> bool:
        if record.value == b"w3":
            raise RuntimeError("bad")
        return wanted(record)

    with FakeCluster() as cluster:
        cluster.create_topic("t")
        produce(cluster, "w--w-w")
        with made(cluster, engine=engine, record_filter=refuse, value_deserializer=deserializer) as consumer:
            consumer.assign([TP])
            assert [0] == offsets(read(consumer, 1))
            for _ in range(2):
                with pytest.raises(
                    RecordFilterError, match=r"record_filter failed .* t-0 at offset 3 .*seek"
                ) as raised:
                    consumer.poll(10.0)
                assert (TP, 3, b"w3", "filter") == (
                    raised.value.topic_partition,
                    raised.value.offset,
                    raised.value.value,
                    raised.value.origin,
                )
                assert 0 < consumer.position(TP) <= 3
            consumer.seek(TP, 4)
            assert [5] == offsets(read(consumer, 1))


class Silent(Exception):
    """An error whose message cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError


def test_an_error_without_a_message() -> None:
    """The place is named although the error's own text cannot be read."""

    def refuse(record: RawRecord) -> bool:
        raise Silent

    with FakeCluster() as cluster:
        cluster.create_topic("t")
        produce(cluster, "w")
        with made(cluster, record_filter=refuse) as consumer:
            consumer.assign([TP])
            with pytest.raises(RecordFilterError, match=r"at offset 0 \(Silent: its message cannot be read\)"):
                consumer.poll(10.0)


@pytest.mark.parametrize("base", [HeaderFilter, KeyFilter])
def test_compiled_filters_have_no_subclasses(base: type) -> None:
    """A method of a subclass would not be called, so there is none."""
    with pytest.raises(TypeError, match=r"pass a callable \(record\) -> bool"):
        type("Ours", (base,), {"__call__": wanted})


def test_a_filter_that_raises_in_a_mock_consumer() -> None:
    """A MockConsumer raises the same error, and returns the records before it."""

    raises: list[BaseException] = []

    def refuse(record: RawRecord) -> bool:
        if record.value == "bad":
            raise raises.pop() if raises else RuntimeError("no")
        return record.value != "other"

    with MockConsumer(auto_offset_reset="earliest", record_filter=refuse) as consumer:
        consumer.assign([TP, ("t", 1)])
        consumer.add_records(TP, ["other", "a", "bad", "b"])
        consumer.add_records(("t", 1), ["c"])
        assert ["a", "c"] == [record.value for record in consumer.poll()]
        for _ in range(2):
            with pytest.raises(RecordFilterError, match=r"record_filter failed .* t-0 at offset 2 .*no"):
                consumer.poll()
        raises.append(KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            consumer.poll()
        consumer.seek(TP, 3)
        assert ["b"] == [record.value for record in consumer.poll()]


def test_a_coroutine_function_is_no_filter() -> None:
    """An awaitable would select every record, so it is an error."""

    async def selects(record: RawRecord) -> bool:
        return False

    with FakeCluster() as cluster:
        cluster.create_topic("t")
        produce(cluster, "w")
        with made(cluster, record_filter=selects) as consumer:
            consumer.assign([TP])
            with pytest.raises(RecordFilterError, match="not a coroutine function"):
                consumer.poll(10.0)


def test_a_deserializer_that_raises_behind_dropped_records() -> None:
    """The error of an AsyncConsumer's deserializer is raised although dropped records are between it and the
    position."""

    def refuse(data: bytes) -> str:
        raise ValueError("bad")

    async def run(cluster: FakeCluster) -> None:
        options = {**OPTIONS, "record_filter": wanted, "value_deserializer": refuse}
        async with AsyncConsumer(bootstrap_servers=cluster.bootstrap_servers, **options) as consumer:
            consumer.assign([TP])
            for _ in range(2):
                with pytest.raises(RecordDeserializationError, match="at offset 2") as raised:
                    await anext(aiter(consumer))
                assert (2, "value") == (raised.value.offset, raised.value.origin)

    with FakeCluster() as cluster:
        cluster.create_topic("t")
        produce(cluster, "--w")
        asyncio.run(run(cluster))


def test_a_filter_that_seeks() -> None:
    """The records of a partition whose position the filter sets are not returned, and are read again."""
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        produce(cluster, "wwww")
        calls = count()

        def seek_once(record: RawRecord) -> bool:
            if next(calls) == 2:
                consumer.seek(TP, 1)
            return True

        with made(cluster, record_filter=seek_once) as consumer:
            consumer.assign([TP])
            assert [1, 2, 3] == offsets(read(consumer, 3))


# --- share groups ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
@FILTERS
def test_share_consumers_accept_dropped_records(mode: str, record_filter: Filter) -> None:
    """The group does not deliver dropped records again, also if all of them were dropped."""
    options: dict[str, Any] = {"group_id": "s", "share_acknowledgement_mode": mode}
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        with ShareConsumer(
            "t", bootstrap_servers=cluster.bootstrap_servers, record_filter=record_filter, **options
        ) as consumer:
            consumer.poll(0.5)
            produce(cluster, "--w-ww---")
            found: list[int] = []
            while len(found) < 3:
                for record in consumer.poll(5.0):
                    found.append(record.offset)
                    if mode == "explicit":
                        record.ack()
            consumer.commit()
            assert [2, 4, 5] == found
            produce(cluster, "---")
            assert not consumer.poll(0.5)
            consumer.commit()
            assert 9.0 == consumer.metrics()["records-filtered-total"]
        with ShareConsumer("t", bootstrap_servers=cluster.bootstrap_servers, **options) as other:
            assert not other.poll(0.5)


# --- options ---------------------------------------------------------------------------------------------------------


def test_ranges_refuse_filters() -> None:
    """A range has each offset, so a filter is an error."""
    with pytest.raises(ConfigError, match="record_filter"):
        read_range(TP, 0, 1, bootstrap_servers="localhost:1", record_filter=wanted)
    with pytest.raises(ConfigError, match="record_filter"):
        Consumer(bootstrap_servers="localhost:1", record_filter="kind")  # type: ignore[arg-type]
