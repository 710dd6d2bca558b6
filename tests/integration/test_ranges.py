"""read_range and read_topic against a broker: exact ends, gaps with reasons, deleted records."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kconsumer import read_range, read_topic
from kconsumer.errors import OffsetOutOfRangeError, TimeoutError
from kconsumer.ranges import Gap, RangeReader
from support.brokers.kafka import Kafka
from support.harnesses.polling import numbered

pytestmark = pytest.mark.usefixtures("form")


def offsets(reader: RangeReader) -> list[int]:
    """Returns the offsets of all remaining rows."""
    return [offset for batch in reader for offset in batch.to_pyarrow()["offset"].to_pylist()]


def test_exact_at_both_ends(kafka: Kafka, topic_name: str) -> None:
    """A range may start and end anywhere in batches of any size; consecutive ranges give all records of the
    partition.
    """
    kafka.create_topic(topic_name)
    for compression in ("none", "gzip"):
        kafka.produce(topic_name, numbered(500), compression=compression, config={"batch.num.messages": 37})
    servers = {"bootstrap_servers": kafka.bootstrap_servers}
    for start, end in ((0, 1), (17, 17), (36, 38), (3, 700), (998, 1000)):
        with read_range((topic_name, 0), start, end, max_rows=50, **servers) as reader:
            assert (start, 0, 1000) == (reader.next_offset, reader.log_start_offset, reader.high_watermark)
            assert list(range(start, end)) == offsets(reader)
            assert (end, ()) == (reader.next_offset, reader.gaps)
    reader = read_range((topic_name, 0), 0, 100, columns=["value"], max_bytes=300, **servers)
    first = next(reader)
    assert ("value",) == first.columns
    assert len(first) < 40
    assert numbered(100)[len(first) :] == [v for batch in reader for v in batch.to_pyarrow()["value"].to_pylist()]


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_transactions_leave_explained_gaps(kafka: Kafka, topic_name: str, level: str) -> None:
    """Markers are gaps of the kind "control"; aborted records are gaps with read_committed only."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(2))
    kafka.produce_transaction(topic_name, numbered(3), commit=False)
    kafka.produce_transaction(topic_name, numbered(2))
    with read_range((topic_name, 0), 0, 9, bootstrap_servers=kafka.bootstrap_servers, isolation_level=level) as reader:
        found = offsets(reader)
    if level == "read_committed":
        assert [0, 1, 6, 7] == found
        assert (Gap(2, 5, "aborted"), Gap(5, 6, "control"), Gap(8, 9, "control")) == reader.gaps
    else:
        assert [0, 1, 2, 3, 4, 6, 7] == found
        assert (Gap(5, 6, "control"), Gap(8, 9, "control")) == reader.gaps
    assert 9 == reader.next_offset


def test_deleted_records(kafka: Kafka, topic_name: str) -> None:
    """Records deleted by retention raise an error at once, or become a gap; the remaining records are read."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(20))
    kafka.delete_records(topic_name, {0: 12})
    servers = {"bootstrap_servers": kafka.bootstrap_servers}
    with pytest.raises(OffsetOutOfRangeError, match=r"begins at offset 12.*on_data_loss"):
        read_range((topic_name, 0), 5, 20, **servers)
    reader = read_range((topic_name, 0), 5, 20, on_data_loss="skip", **servers)
    assert 12 == reader.log_start_offset
    assert list(range(12, 20)) == offsets(reader)
    assert (Gap(5, 12, "retention"),) == reader.gaps
    gone = read_range((topic_name, 0), 2, 7, on_data_loss="skip", **servers)
    assert ([], (Gap(2, 7, "retention"),), 7) == (offsets(gone), gone.gaps, gone.next_offset)


def test_records_deleted_on_the_way(kafka: Kafka, topic_name: str) -> None:
    """Records that are deleted between two batches raise an error, or become a gap after which reading continues."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [b"x" * 1000] * 400, config={"batch.num.messages": 10})
    options: dict[str, Any] = {
        "bootstrap_servers": kafka.bootstrap_servers,
        "max_partition_fetch_bytes": 10_000,
        "max_rows": 5,
    }
    strict = read_range((topic_name, 0), 0, 400, **options)
    lenient = read_range((topic_name, 0), 0, 400, on_data_loss="skip", **options)
    with strict, lenient:
        next(strict)
        next(lenient)
        kafka.delete_records(topic_name, {0: 390})
        with pytest.raises(OffsetOutOfRangeError):
            offsets(strict)
        found = offsets(lenient)
    assert list(range(390, 400)) == found[-10:]
    (gap,) = lenient.gaps
    assert (390, "retention") == (gap.end, gap.reason)


def test_beyond_the_end(kafka: Kafka, topic_name: str) -> None:
    """A range beyond the end of the log raises an error or is cut. With read_committed, the reader waits for its
    records.
    """
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(5))
    servers = {"bootstrap_servers": kafka.bootstrap_servers}
    with pytest.raises(OffsetOutOfRangeError, match="ends at offset 5"):
        read_range((topic_name, 0), 0, 6, **servers)
    reader = read_range((topic_name, 0), 3, 9, on_data_loss="skip", **servers)
    assert [3, 4] == offsets(reader)
    assert (5, (Gap(5, 9, "missing"),)) == (reader.high_watermark, reader.gaps)
    waiting = read_range(
        (topic_name, 0), 0, 9, isolation_level="read_committed", default_api_timeout_ms=1500, **servers
    )
    with waiting, pytest.raises(TimeoutError, match="at offset 5 of 9"):
        offsets(waiting)


def test_whole_topic(kafka: Kafka, topic_name: str) -> None:
    """read_topic() reads all partitions, each in order, and its progress ends at the total."""
    kafka.create_topic(topic_name, 4)
    for partition in range(3):
        kafka.produce(topic_name, numbered(300), partition=partition, timestamps=[1_000 * n for n in range(1, 301)])
    servers = {"bootstrap_servers": kafka.bootstrap_servers}
    seen: list[tuple[int, int]] = []
    table = read_topic(
        topic_name,
        columns=["partition", "offset", "value"],
        progress=lambda *at: seen.append(at),
        max_rows=100,
        **servers,
    )
    assert 900 == len(table) == table.num_rows
    rows = table.to_pyarrow()
    by_partition: dict[int, list[bytes]] = {}
    for row in rows.to_pylist():
        by_partition.setdefault(row["partition"], []).append(row["value"])
    assert dict.fromkeys(range(3), numbered(300)) == by_partition
    assert (900, 900) == seen[-1]
    assert sorted(seen) == seen
    assert (900, 3) == table.to_polars().shape == table.to_pandas().shape
    late = read_topic(topic_name, start=datetime.fromtimestamp(291, UTC), end=295, **servers)
    assert [*range(290, 295)] * 3 == sorted_by_partition(late.to_pyarrow())
    assert 0 == read_topic(topic_name, start="latest", **servers).num_rows
    with pytest.raises(ValueError, match="does not exist"):
        read_topic(topic_name + "-not", **servers)


def sorted_by_partition(table: Any) -> list[int]:
    """Returns the offsets, partition by partition."""
    return list(table.sort_by([("partition", "ascending"), ("offset", "ascending")])["offset"].to_pylist())
