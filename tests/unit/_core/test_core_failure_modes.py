"""Failure modes of compiled code: bytes that change after they were checked, allocations that fail, records in an
invalid order, and fetches that are emptied while a run uses them.
"""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kconsumer import TopicPartition, decode_batches
from kconsumer._core.arrow import COLUMNS, Columns, array_capsule, build
from kconsumer._core.decode import PartitionFetch, RecordRun
from kconsumer._core.wire import FrameBuffer
from kconsumer.arrow import Table
from kconsumer.deserializers import adapt
from kconsumer.errors import CorruptRecordError, RecordDeserializationError
from kconsumer.testing.batches import (
    CONTROL,
    TRANSACTIONAL,
    Rec,
    abort_marker,
    build_batch,
    build_message_set,
    encode_record,
    frame_batch,
)

TP = TopicPartition("orders", 3)
MIB = 1 << 20


def taken(data: bytes | bytearray, start: int = 0) -> RecordRun:
    """Return all records in one run."""
    return PartitionFetch(TP, data, start).take(1 << 30)


# --- bytes that change


def overwritten(data: bytearray, what: bytes, by: bytes) -> None:
    at = data.index(what)
    data[at : at + len(by)] = by


@pytest.mark.parametrize(
    "by",
    [
        b"\x7f",  # as count: more headers than there are bytes
        b"\x02\x7e",  # as size of the first key: more than there are bytes
        b"\x02\x02h\x7e",  # as size of its value
    ],
)
def test_headers_that_change(by: bytes) -> None:
    """If header bytes change after the check and are now invalid, reading them raises an error, in both readers."""
    data = bytearray(build_batch([Rec(b"v", headers=[("h", b"x")])]))
    run = taken(data)
    [record] = run
    overwritten(data, b"\x02\x02h\x02x", by)
    with pytest.raises(CorruptRecordError, match="changed"):
        record.headers  # noqa: B018
    with pytest.raises(CorruptRecordError, match="changed"):
        build((run,), ("headers",))


@pytest.mark.parametrize("size", [b"\x7f\xff\xff\xff", b"\x00\x00\x00\x01"])
def test_messages_that_change(size: bytes) -> None:
    """If bytes of the old formats change after the check, sizes that are too large or too small raise an error."""
    data = bytearray(build_message_set([b"one", b"two"], magic=1))
    run = taken(data)
    data[8:12] = size
    with pytest.raises(CorruptRecordError, match="changed"):
        list(run)
    with pytest.raises(CorruptRecordError, match="changed"):
        build((run,), COLUMNS)


def test_change_before_a_deserializer_runs() -> None:
    """Bytes that changed before the deserializer ran are not reported as an error of the deserializer."""
    data = bytearray(build_batch([b"v"]))
    run = taken(data)
    data[61:] = b"\xff" * (len(data) - 61)
    with pytest.raises(CorruptRecordError, match="changed"):
        run.deserialize(None, adapt(bytes, "value"))


# --- memory that runs out


@contextmanager
def little_memory(mib: int) -> Iterator[None]:
    """Let allocations succeed up to a number of bytes, and fail beyond."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + mib * MIB, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="sanitizers need terabytes of addresses")
@pytest.mark.parametrize(
    "record",
    [Rec(bytes(128 * MIB)), Rec(b"v", key=bytes(128 * MIB)), Rec(b"v", headers=[("h", bytes(40 * MIB))])],
    ids=["value", "key", "header"],
)
def test_no_memory_for_columns(record: Rec) -> None:
    """A failed allocation for any column raises MemoryError; once memory is available the same records
    become columns.
    """
    run = taken(build_batch([record]))
    with little_memory(20), pytest.raises(MemoryError):
        build((run,), COLUMNS)
    [columns] = build((run,), COLUMNS)
    assert 1 == len(columns)
    array_capsule(columns)


# --- records where they cannot be


def test_offsets_out_of_order_in_a_batch() -> None:
    """Every reader skips a record below the position, even if it is between two records above it."""
    records = [Rec(b"%d" % offset, offset=offset) for offset in (5, 3, 6)]
    run = taken(build_batch(records, base_offset=3, last_offset_delta=3), start=4)
    assert 2 == len(run)
    assert [5, 6] == [record.offset for record in run]
    assert [5, 6] == Table(COLUMNS, build((run,), COLUMNS)).to_pyarrow()["offset"].to_pylist()


def test_marker_that_compaction_emptied() -> None:
    """A control batch without a record ends no transaction: it stays aborted until the next marker with a record."""
    batch = build_batch([b"x"], producer_id=1, transactional=True)
    emptied = frame_batch(
        b"", base_offset=1, record_count=0, producer_id=1, attributes=TRANSACTIONAL | CONTROL, last_offset_delta=0
    )
    later = build_batch([b"y"], base_offset=2, producer_id=1, transactional=True)
    after = build_batch([b"z"], base_offset=4, producer_id=1, transactional=True)
    data = batch + emptied + later + abort_marker(3, 1) + after
    found = decode_batches(data, isolation_level="read_committed", aborted_transactions=[(1, 0)])
    assert [b"z"] == [record.value for record in found]


def test_columns_full_of_headers() -> None:
    """Headers without bytes also count towards the limit of a column, because offsets have to reach their number."""
    records = [Rec(b"%d" % i, headers=[("", None)] * 10) for i in range(40)]
    parts = build((taken(build_batch(records)),), COLUMNS, max_bytes=100)
    rows = Table(COLUMNS, parts).to_pyarrow().to_pylist()
    assert len(parts) > 3
    assert [(b"%d" % i, 10) for i in range(40)] == [(row["value"], len(row["headers"])) for row in rows]


def test_one_record_of_many_minimal_headers() -> None:
    """A header takes at least two bytes: the maximum number that fits is returned, and a higher count is refused."""
    body = encode_record(Rec(None, headers=[("", None)] * 5000))
    assert 5000 == len(next(iter(decode_batches(frame_batch(body)))).headers)
    with pytest.raises(CorruptRecordError):
        decode_batches(frame_batch(body.replace(b"\x90\x4e", b"\x92\x4e", 1)))


# --- fetches and runs


def test_deserializer_fails_after_the_fetch_was_emptied() -> None:
    """The failure is raised although the fetch no longer has data to return to."""
    fetch = PartitionFetch(TP, build_batch([b"a", b"b"]), 0)
    run = fetch.take(10)
    fetch.drain()

    def fail(_topic: str, _headers: object, _data: bytes | None) -> object:
        raise ValueError("no")

    with pytest.raises(RecordDeserializationError):
        run.deserialize(None, fail)
    assert fetch.exhausted


def test_keys_and_values_stay_together() -> None:
    """If the third value fails after its key was deserialized, two records are returned, each with its own key and
    value.
    """
    fetch = PartitionFetch(TP, build_batch([(b"k%d" % i, b"v%d" % i) for i in range(4)]), 0)
    run = fetch.take(10)

    def value(_topic: str, _headers: object, data: bytes | None) -> object:
        if data == b"v2":
            raise ValueError("no")
        return data

    run.deserialize(lambda _topic, _headers, data: data, value)
    assert [(b"k0", b"v0"), (b"k1", b"v1")] == [(record.key, record.value) for record in run]
    assert [b"v2", b"v3"] == [record.value for record in fetch.take(10)]


def test_columns_come_out_of_build_only() -> None:
    """Columns can only be created by `build`."""
    with pytest.raises(TypeError, match="build"):
        Columns()


def test_received_frames_are_read_only() -> None:
    """A received frame can be read by several consumers of the buffer but not written to."""
    buffer = FrameBuffer(100)
    view = buffer.recv_view()
    view[:7] = b"\x00\x00\x00\x03abc"
    [frame] = buffer.received(7)
    left, right = socket.socketpair()
    with left, right:
        left.send(b"xyz")
        with pytest.raises((TypeError, BufferError)):
            right.recv_into(frame)  # type: ignore[arg-type]  # wrong on purpose
    assert b"abc" == bytes(frame)


def test_no_memory_for_the_key_of_a_header() -> None:
    """A header key that is not UTF-8 becomes text with replacement characters, or raises MemoryError for each
    allocation that fails. Uninitialized offsets are never exposed.
    """
    testcapi = pytest.importorskip("_testcapi", reason="this Python was built without its test modules")
    data = build_batch([Rec(b"v", headers=[("k", b"1"), ("?", b"2")])] * 3).replace(b"\x02?", b"\x02\xff")
    records = decode_batches(data, check_crcs=False)
    failed = 0
    for number in range(200):
        try:
            testcapi.set_nomemory(number, number + 1)
            try:
                batch = records.to_arrow(["headers"])
            finally:
                testcapi.remove_mem_hooks()
        except MemoryError:
            failed += 1
            continue
        keys = [[header["key"] for header in row] for row in batch.to_pyarrow().to_pydict()["headers"]]
        assert [["k", "\ufffd"]] * 3 == keys
    assert failed > 10
