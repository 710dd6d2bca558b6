"""Parts of a Spark task that need neither Spark nor a broker: prefetching, skipping corrupt batches, dead letters."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from kconsumer.errors import ConfigError, KafkaError
from kconsumer.formats.decoders import TextDecoder
from kconsumer.ranges.gaps import Gap
from kconsumer.spark.columns import Converter, as_map, decode
from kconsumer.spark.dead_letters import DeadLetter, folder, write
from kconsumer.spark.executor import Scan, first_readable, read
from kconsumer.spark.options import parse
from kconsumer.spark.planning import OffsetRange
from kconsumer.spark.prefetch import Prefetch
from kconsumer.spark.schema import default_projection
from kconsumer.testing import FakeCluster
from support.harnesses.interruptions import interrupted
from support.harnesses.threads import eventually


def numbers(count: int, seen: list[str], fail: bool = False) -> Generator[int, None, None]:
    """Yield items that contain the name of the thread that created them."""
    try:
        for number in range(count):
            seen.append(threading.current_thread().name)
            yield number
        if fail:
            raise ValueError("the end is bad")
    finally:
        seen.append("closed")


@pytest.mark.parametrize("reason", ["retention", "missing", "truncated"])
def test_lost_offsets_become_dead_letters(reason: str, tmp_path: Path) -> None:
    """Offsets that were deleted, that are beyond the end of the log, or that the log lost while it was read, are
    reported; offsets without records for other reasons are not.
    """
    options = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "deadLetterPath": str(tmp_path)}
    config = parse({**options, "onDataLoss": "deadletter"}, "batch")
    client: Any = None
    scan = Scan(config, default_projection(config), OffsetRange("t", 0, 0, 20), client)
    gaps = [Gap(3, 5, reason), Gap(7, 9, "compaction"), Gap(9, 10, "control"), Gap(11, 12, "aborted")]
    reader: Any = SimpleNamespace(gaps=gaps)
    scan._account(reader)
    assert 2 == scan.lost
    (letter,) = scan.dead_letters
    assert ("lost", 3, 5, reason) == (letter.kind, letter.start, letter.end, letter.reason)


def test_prefetch_keeps_order_in_another_thread() -> None:
    """All items are returned in order, and none is created by the thread that takes them."""
    seen: list[str] = []
    with closing(Prefetch(numbers(50, seen))) as ahead:
        assert list(range(50)) == list(ahead)
    assert {"kconsumer-prefetch", "closed"} == set(seen)


def test_prefetch_raises_where_the_error_is() -> None:
    """Items before an error are returned first; then every call raises the error."""
    with closing(Prefetch(numbers(3, [], fail=True))) as ahead:
        assert [0, 1, 2] == [next(ahead) for _ in range(3)]
        for _ in range(2):
            with pytest.raises(ValueError, match="the end is bad"):
                next(ahead)


def test_prefetch_is_bounded_and_ends_early() -> None:
    """No more than `depth` items wait; closing ends the thread and runs the generator's `finally`."""
    seen: list[str] = []
    ahead = Prefetch(numbers(10**9, seen), depth=3)
    assert 0 == next(ahead)
    ahead.close()
    ahead.close()
    assert len(seen) <= 1 + 3 + 1 + 1  # one taken, three waiting, one being created, "closed"
    assert "closed" == seen[-1]


@pytest.mark.skipif(sys.platform == "win32", reason="the signals are those of POSIX")
def test_prefetch_closes_after_an_interruption() -> None:
    """`close` ends the thread after a signal handler has raised at any point of taking an item."""
    points, again = 0, True
    while again:
        with closing(Prefetch(numbers(10**9, []), depth=1)) as ahead:
            eventually(lambda: ahead._ready, "an item is ready")
            points += 1
            again = interrupted(lambda: next(ahead), points)
    assert points > 2


@pytest.mark.parametrize("batches", [[(5, 6)], [(5, 37)], [(0, 100)], [(5, 12), (12, 13)], [(99, 100)]])
def test_first_offset_behind_corrupt_batches(batches: list[tuple[int, int]]) -> None:
    """The search finds the end of a corrupt batch exactly, with few attempts."""
    tries = []

    def readable(offset: int) -> bool:
        tries.append(offset)
        return not any(start <= offset < end for start, end in batches)

    start, end = batches[0][0], batches[-1][1]
    assert end == first_readable(readable, start + 1, 100)
    assert all(start < offset < 100 for offset in tries)
    assert len(tries) <= 14


def test_text_columns_and_invalid_rows() -> None:
    """Keys and values become strings; rows with invalid UTF-8 are removed and reported, and nulls are kept."""
    batch = pa.record_batch(
        {"key": [None, b"k", b"k"], "value": [b"ol\xc3\xa9", None, b"\xff"], "offset": pa.array([7, 8, 9], pa.int64())}
    )
    kept, bad = decode(batch, {"key": TextDecoder(), "value": TextDecoder()})
    assert [{"key": None, "value": "olé", "offset": 7}, {"key": "k", "value": None, "offset": 8}] == kept.to_pylist()
    assert [pa.string(), pa.string()] == [kept.schema.field(name).type for name in ("key", "value")]
    assert [{"key": b"k", "value": b"\xff", "offset": 9, "column": "value", "reason": "is not UTF-8"}] == bad


def converter(**options: str) -> Converter:
    """Returns the converter of a query with these options."""
    return Converter(
        default_projection(parse({"kafka.bootstrap.servers": "b:1", "subscribe": "t", **options}, "batch"))
    )


VALUES = pa.array([b'{"id":1}', None, b"{", b'{"id":"x"}'], pa.binary())


def test_errors_of_values_as_a_column() -> None:
    """With valueError in a query, no row is left out: its value is null, and the column has the reason."""
    batch = pa.record_batch({"value": VALUES, "offset": pa.array(range(4), pa.int64())})
    json = {"valueFormat": "json", "valueSchema": "id long"}
    made = converter(columns="offset,valueError,value,valueBytes", **json)
    rows, bad = made.convert(batch)
    assert ([], False) == (bad, made.can_fail)
    assert ["offset", "valueError", "value", "valueBytes"] == rows.schema.names
    found = rows.to_pydict()
    assert [{"id": 1}, None, None, None] == found["value"]
    assert [None, None] == found["valueError"][:2]
    assert 'has "x" at id, which is not bigint' == found["valueError"][3]
    assert VALUES.to_pylist() == found["valueBytes"]
    only, _ = converter(columns="valueError", **json).convert(batch)
    assert found["valueError"] == only.column(0).to_pylist()
    clean, _ = converter(columns="valueError", **json).convert(batch[:2])
    assert only.schema == clean.schema


def test_bytes_of_values_as_a_column() -> None:
    """valueBytes has the bytes of the values that can be decoded; without decoding, it equals the value."""
    batch = pa.record_batch({"value": VALUES, "offset": pa.array(range(4), pa.int64())})
    made = converter(columns="value,valueBytes", valueFormat="json", valueSchema="id long")
    rows, bad = made.convert(batch)
    assert [
        {"value": {"id": 1}, "valueBytes": VALUES[0].as_py()},
        {"value": None, "valueBytes": None},
    ] == rows.to_pylist()
    assert ([2, 3], True) == ([row["offset"] for row in bad], made.can_fail)
    raw, _ = converter(columns="valueBytes,valueError").convert(batch)
    assert [{"valueBytes": value, "valueError": None} for value in VALUES.to_pylist()] == raw.to_pylist()


def test_headers_as_map() -> None:
    """The last value of a key is used; records without headers have null."""
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = [None, [{"key": "a", "value": b"1"}, {"key": "b", "value": None}, {"key": "a", "value": b"2"}]]
    batch = pa.record_batch({"headers": pa.array(rows, kind)})
    schema = pa.schema([("headers", pa.map_(pa.string(), pa.binary()))])
    made = as_map(batch, schema)
    assert schema == made.schema
    assert [None, [("a", b"2"), ("b", None)]] == made.column(0).to_pylist()


def test_dead_letters_replace_those_of_an_earlier_try(tmp_path: Path) -> None:
    """A task that is repeated writes the same file again; a task without dead letters writes none."""
    task = OffsetRange("a/b", 3, 10, 20)
    letter = DeadLetter("corrupt", "a/b", 3, 12, 14, "bad CRC")
    for _ in range(2):
        target = write(tmp_path, ("query", "7"), task, [letter])
    assert target == tmp_path / "query" / "7" / "a%2Fb-3-10-20.jsonl"
    assert [target] == [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"kind": "corrupt", "start": 12, "end": 14} == {
        key: value for key, value in json.loads(target.read_text()).items() if key in ("kind", "start", "end")
    }
    assert write(tmp_path, ("query", "8"), task, []) is None


def test_dead_letters_of_an_earlier_try_are_replaced_by_none(tmp_path: Path) -> None:
    """A repeated micro-batch that has no dead letters, or other ranges, leaves none of the earlier try; files of other
    ranges, partitions, topics and micro-batches stay.
    """
    run, letter = ("query", "7"), DeadLetter("undecodable", "a", 1, 12, 13, "not UTF-8")
    others = [("a", 1, 20, 30), ("a", 1, 5, 10), ("a", 11, 10, 20), ("a-1", 1, 10, 20), ("a-1", 0, 10, 20)]
    kept = {write(tmp_path, run, OffsetRange(*other), [letter]) for other in others}
    kept.add(write(tmp_path, ("query", "6"), OffsetRange("a", 1, 10, 20), [letter]))
    for start, end in ((10, 20), (10, 15), (19, 20)):
        write(tmp_path, run, OffsetRange("a", 1, 10, 20), [letter])
        assert write(tmp_path, run, OffsetRange("a", 1, start, end), []) is None
        assert kept == {path for path in tmp_path.rglob("*") if path.is_file()}
    write(tmp_path, run, OffsetRange("a", 1, -2, 20), [letter])
    assert write(tmp_path, run, OffsetRange("a", 1, 5, -1), []) is None
    assert 4 == sum(path.is_file() for path in tmp_path.rglob("*"))


@pytest.mark.parametrize("action", ["fail", "clamp", "null"])
def test_timestamps_that_spark_does_not_have(action: str) -> None:
    """A timestamp beyond 64 bits in microseconds fails the task and the error says where, is the last one, or null."""
    given = {"subscribe": "t", "onBadTimestamp": action, "columns": "partition,timestamp"}
    far = 1_700_000_000_000_000_000  # nanoseconds, written as milliseconds
    with FakeCluster() as cluster:
        cluster.create_topic("t", 2)
        for partition in range(2):
            cluster.produce("t", [b"0", b"1"], partition=partition, timestamp=5)
        cluster.produce("t", [b"2"], partition=1, timestamp=far)
        config = parse({"kafka.bootstrap.servers": cluster.bootstrap_servers, **given}, "batch")
        ranges = [OffsetRange("t", 0, 0, 2), OffsetRange("t", 1, 0, 3)]
        task = read(config, default_projection(config), ranges, ())
        if action == "fail":
            with pytest.raises(KafkaError, match="the record at offset 2 of t partition 1 is beyond the range"):
                list(task)
        else:
            times = pa.Table.from_batches(task)["timestamp"].cast(pa.int64()).to_pylist()
            last = None if action == "null" else 2**63 - 1
            assert ({5000, last}, 5) == (set(times), len(times))


def test_dead_letters_go_to_file_systems_only() -> None:
    """A path or a file URL is accepted, and any other URL is refused."""
    assert Path("/data/x") == folder("file:///data/x") == folder("/data/x")
    with pytest.raises(ConfigError, match="s3://b/x is not in a file system"):
        folder("s3://b/x")
