"""read_topic and scan_topic with threads: every record is read once, and no thread is left however the reader ends."""

from __future__ import annotations

import asyncio
import gc
import io
import threading
from collections import Counter, defaultdict

import pyarrow as pa
import pytest

from kconsumer import aio, read_topic
from kconsumer.errors import OffsetOutOfRangeError, StateError
from kconsumer.ranges import scan_topic
from support.brokers.kafka import Kafka
from support.harnesses.polling import numbered


def reading_threads() -> list[str]:
    """Returns the running threads of topic readers."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("kconsumer-topic")]


@pytest.fixture
def filled(kafka: Kafka, topic_name: str) -> str:
    """A topic of five partitions, the first with most records, the last with none."""
    kafka.create_topic(topic_name, 5)
    for partition, count in enumerate((500, 100, 50, 50)):
        kafka.produce(topic_name, numbered(count), partition=partition, compression="gzip")
    return topic_name


@pytest.mark.parametrize("threads", [1, 2, 9])
def test_every_record_once_and_in_order(kafka: Kafka, filled: str, threads: int) -> None:
    """With any number of threads, the records of each partition are returned in order, and progress reaches the end."""
    seen: list[tuple[int, int]] = []
    reader = scan_topic(
        filled,
        bootstrap_servers=kafka.bootstrap_servers,
        threads=threads,
        max_rows=30,
        progress=lambda *at: seen.append(at),
    )
    found: dict[int, list[bytes]] = defaultdict(list)
    for batch in reader:
        assert len(batch) <= 30
        for row in batch.to_pyarrow().select(["partition", "value"]).to_pylist():
            found[row["partition"]].append(row["value"])
    assert {n: numbered(count) for n, count in enumerate((500, 100, 50, 50))} == found
    assert (700, 700) == seen[-1] == (reader.done, reader.total)
    assert [] == reading_threads()


def test_several_topics(kafka: Kafka, filled: str, topic_name: str) -> None:
    """The records of several topics are in one table, those of a topic that is named twice once. A missing topic is an
    error that names it.
    """
    more = kafka.create_topic(f"{topic_name}-more", 2)
    kafka.produce(more, numbered(30), partition=1)
    options = {"bootstrap_servers": kafka.bootstrap_servers}
    tables = [read_topic([filled, more, more], **options), asyncio.run(aio.read_topic(iter([more, filled]), **options))]
    for table in tables:
        assert {filled: 700, more: 30} == Counter(table.to_pyarrow()["topic"].to_pylist())
    with pytest.raises(ValueError, match="topic 'absent' does not exist"):
        read_topic((more, "absent"), **options)
    with pytest.raises(ValueError, match="no topic to read"):
        read_topic([], **options)


def test_leaving_early_ends_the_threads(kafka: Kafka, filled: str) -> None:
    """The threads end when the block is left early and when the reader is garbage-collected."""
    options = {"bootstrap_servers": kafka.bootstrap_servers, "threads": 3, "max_rows": 5}
    with scan_topic(filled, **options) as reader:
        next(reader)
        assert 3 == len(reading_threads())
    assert [] == reading_threads()
    with pytest.raises(StateError, match="closed"):
        next(reader)
    reader = scan_topic(filled, **options)
    next(reader)
    del reader
    gc.collect()
    assert [] == reading_threads()


def test_batches_wait_to_be_taken(kafka: Kafka, filled: str) -> None:
    """A reader whose batches are not taken buffers a few of them, not the whole topic."""
    with scan_topic(filled, bootstrap_servers=kafka.bootstrap_servers, threads=2, max_rows=1) as reader:
        next(reader)
        for thread in threading.enumerate():
            if thread.name.startswith("kconsumer-topic"):
                thread.join(0.3)
        assert 4 == reader._queue.items.qsize()
        assert 2 == len(reading_threads())
        assert 699 == len(list(reader))


def test_an_error_in_a_thread(kafka: Kafka, topic_name: str) -> None:
    """An error in one thread is raised to the caller and ends the other threads."""
    kafka.create_topic(topic_name, 2)
    for partition in range(2):
        kafka.produce(topic_name, [b"x" * 1000] * 400, partition=partition, config={"batch.num.messages": 10})
    servers = {"bootstrap_servers": kafka.bootstrap_servers}
    with scan_topic(topic_name, threads=2, max_rows=5, max_partition_fetch_bytes=10_000, **servers) as reader:
        next(reader)
        kafka.delete_records(topic_name, {0: 400, 1: 400})
        with pytest.raises(OffsetOutOfRangeError):
            list(reader)
        assert [] == reading_threads()


@pytest.mark.usefixtures("form")
def test_progress_line(kafka: Kafka, filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal no progress line is printed unless requested; on a terminal the line ends at 100 %."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    options = {"bootstrap_servers": kafka.bootstrap_servers, "columns": ["offset"]}
    for stream, progress, drawn in (
        (io.StringIO(), None, False),
        (Terminal(), None, True),
        (io.StringIO(), True, True),
        (Terminal(), False, False),
    ):
        monkeypatch.setattr("sys.stderr", stream)
        assert 700 == read_topic(filled, progress=progress, **options).num_rows
        assert drawn == ("100%  700 of 700 offsets" in stream.getvalue())
        assert drawn == stream.getvalue().endswith("\n")


def test_spark_schema_and_wrong_arguments(kafka: Kafka, filled: str) -> None:
    """scan_topic supports Spark's schema and rejects invalid arguments."""
    options = {"bootstrap_servers": kafka.bootstrap_servers}
    with scan_topic(filled, schema="spark", columns=["timestampType", "offset"], **options) as reader:
        schema = pa.schema([("timestampType", pa.int32()), ("offset", pa.int64())])
        assert {schema} == {batch.to_pyarrow().schema for batch in reader}
    for wrong in ({"threads": 0}, {"max_rows": 0}, {"start": "yesterday"}):
        with pytest.raises(ValueError, match=r"at least 1|neither"):
            scan_topic(filled, **options, **wrong)
    with scan_topic(filled, start=600, **options) as reader:
        assert (0, []) == (reader.total, list(reader))
