"""PartitionFetch: which records it returns, how it moves the position, and how it fails."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kconsumer._core.decode import PartitionFetch, RecordRun, use_codecs
from kconsumer._core.wire import Slice
from kconsumer._internal.compression import decompress, output_limit
from kconsumer.errors import CorruptRecordError, RecordTooLargeError
from kconsumer.testing.batches import (
    CODECS,
    Rec,
    build_batch,
    build_message_set,
    control_batch,
    empty_batch,
    frame_batch,
)
from kconsumer.types import TopicPartition

TP = TopicPartition("orders", 3)


def fetch_of(*batches: bytes, offset: int = 0, **options: bool) -> PartitionFetch:
    return PartitionFetch(TP, b"".join(batches), offset, **options)


def offsets(run: object) -> list[int]:
    return [record.offset for record in run]  # type: ignore[attr-defined]  # any iterable of records


def flipped(data: bytes, at: int) -> bytes:
    """Return the bytes with one bit changed, `at` bytes from the end."""
    return data[:at] + bytes([data[at] ^ 1]) + data[len(data) + at + 1 :]


def test_takes_records_in_order_across_batches() -> None:
    """One take returns records of several batches, and the run has their first offset and number."""
    fetch = fetch_of(build_batch([b"a", b"b"], leader_epoch=4), build_batch([b"c"], base_offset=2, leader_epoch=5))
    run = fetch.take(10)
    assert (3, TP, 3, 5) == (len(run), run.topic_partition, run.next_offset, run.leader_epoch)
    assert [b"a", b"b", b"c"] == [record.value for record in run]
    assert [4, 4, 5] == [record.leader_epoch for record in run]
    assert (3, 5, True) == (fetch.next_offset, fetch.next_leader_epoch, fetch.exhausted)


def test_only_control_records_move_the_position() -> None:
    """A run may be empty although next_offset moved, so the caller has to check both."""
    fetch = fetch_of(control_batch("commit", 5, leader_epoch=2), offset=5)
    run = fetch.take(10)
    assert (0, 6, 2, []) == (len(run), run.next_offset, run.leader_epoch, list(run))


def test_create_time_wraps_like_javas_addition() -> None:
    """The sum of base timestamp and delta wraps around beyond 63 bits, as in Java."""
    body = b"\x1e\x00" + b"\xfe" + b"\xff" * 8 + b"\x01" + b"\x00\x01\x01\x00"
    (record,) = fetch_of(frame_batch(body, base_timestamp=2**63 - 1)).take(1)
    assert -2 == record.timestamp


def test_less_than_one_batch_is_too_large_a_record() -> None:
    """Bytes without a complete batch cannot move the position, so every take raises an error."""
    fetch = fetch_of(build_batch([b"a" * 100])[:-1], offset=42)
    assert not fetch.exhausted
    for _ in range(2):
        with pytest.raises(RecordTooLargeError, match="orders-3 at offset 42"):
            fetch.take(10)


@pytest.mark.parametrize("nothing", [None, b"", memoryview(b"")])
def test_no_bytes_are_no_records(nothing: bytes | None) -> None:
    """A fetch without bytes, null or empty, has no records."""
    fetch = PartitionFetch(TP, nothing, 8)
    assert (True, 0) == (fetch.exhausted, fetch.held_bytes)
    assert (0, 8) == (len(fetch.take(10)), fetch.next_offset)


def test_good_records_come_before_the_error_and_the_error_stays() -> None:
    """Good records are returned first; then the bad checksum of the second batch is raised by every take."""
    bad = flipped(build_batch([b"b"], base_offset=1), -2)
    fetch = fetch_of(build_batch([b"a"]), bad, build_batch([b"c"], base_offset=2))
    assert [0] == offsets(fetch.take(10))
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match="seek to offset 2") as caught:
            fetch.take(10)
        assert ("orders", 3, 1) == (caught.value.topic, caught.value.partition, caught.value.offset)
        assert (1, False) == (fetch.next_offset, fetch.exhausted)


def test_without_crc_checks_a_flipped_payload_byte_is_read_as_it_is() -> None:
    """With `check_crcs=False` a batch with a wrong checksum is returned if it parses."""
    bad = flipped(build_batch([b"aaaa"]), -3)
    (record,) = fetch_of(bad, check_crcs=False).take(1)
    assert b"aaaa" != record.value


def test_a_malformed_record_ends_its_batch_after_the_good_ones() -> None:
    """Records before the malformed one are returned; the error names the offset where it is."""
    batch = build_batch([b"a", b"b", b"c"], base_offset=5)
    body = bytearray(batch[61:])
    body[2 * len(body) // 3] = 0x7F  # the third record's length
    fetch = fetch_of(frame_batch(bytes(body), base_offset=5, last_offset_delta=2, record_count=3))
    assert [5, 6] == offsets(fetch.take(10))
    with pytest.raises(CorruptRecordError) as caught:
        fetch.take(10)
    assert 7 == caught.value.offset


def test_moving_over_a_marker_counts_before_an_error() -> None:
    """Before an error is raised the position moves over good batches, even if they have no records."""
    fetch = fetch_of(control_batch("commit", 0), frame_batch(b"", record_count=-1, base_offset=1))
    assert (0, 1) == (len(fetch.take(10)), fetch.next_offset)
    with pytest.raises(CorruptRecordError, match="record count of -1"):
        fetch.take(10)


V0_MESSAGE = bytes.fromhex("0000000000000000 0000000f 00000000 00 00 ffffffff 00000001 61".replace(" ", ""))

CORRUPT = {
    "size below the least": build_batch([b"a"])[:8] + b"\x00\x00\x00\x0d" + b"\x00" * 20,
    "negative size": build_batch([b"a"])[:8] + b"\xff\xff\xff\xff" + b"\x00" * 20,
    "size below a v2 header": frame_batch(b"", length=48),
    "unknown magic": frame_batch(b"", record_count=0, magic=3),
    "negative magic": frame_batch(b"", record_count=0, magic=-1),
    "wrong checksum of an old message": V0_MESSAGE,
    "negative record count": frame_batch(b"", record_count=-5),
    "fewer records than counted": build_batch([b"a"], record_count=2),
    "more bytes than records": build_batch([b"a", b"b"], record_count=1),
    "bytes in an empty batch": build_batch([b"a"], record_count=0),
    "bytes in an empty compressed batch": build_batch([b"a"], record_count=0, codec="gzip"),
    "unknown codec": build_batch([b"a"], attributes=5),
    "not what the codec says": build_batch([b"a"], attributes=1),
    "negative base offset": build_batch([b"a"], base_offset=-1),
    "negative last delta": build_batch([b"a"], last_offset_delta=-1),
    "offsets beyond 63 bits": frame_batch(b"", base_offset=2**63 - 3, last_offset_delta=2, record_count=0),
    "record before the batch": frame_batch(bytes.fromhex("0c0000010101 00".replace(" ", ""))),
    "negative record length": frame_batch(b"\x01\x00\x00\x00\x01\x01\x00"),
    "varint too long": frame_batch(b"\x10\x00\x00" + b"\x80\x80\x80\x80\x80\x00" + b"\x01\x01\x00"),
    "value longer than the record": frame_batch(b"\x0e\x00\x00\x00\x01\x7f\x61\x00"),
    "bytes left in a record": frame_batch(b"\x0e\x00\x00\x00\x01\x01\x00\x00"),
    "negative header count": frame_batch(b"\x0c\x00\x00\x00\x01\x01\x01"),
    "header count without headers": frame_batch(b"\x0c\x00\x00\x00\x01\x01\x02"),
    "null header key": frame_batch(b"\x10\x00\x00\x00\x01\x01\x02\x01\x01"),
}


@pytest.mark.parametrize("data", CORRUPT.values(), ids=CORRUPT.keys())
def test_malformed_bytes_raise_corrupt_record_error(data: bytes) -> None:
    """Every kind of malformed bytes raises CorruptRecordError, which names topic, partition and offset."""
    fetch = PartitionFetch(TP, data, 0)
    if data is CORRUPT["fewer records than counted"]:
        assert 1 == len(fetch.take(10))
    with pytest.raises(CorruptRecordError, match="orders-3 at offset") as caught:
        fetch.take(10)
    assert ("orders", 3) == (caught.value.topic, caught.value.partition)
    assert not fetch.exhausted


def test_negative_lengths_are_null() -> None:
    """As in Java, any negative length of a key, value or header value is read as null."""
    body = b"\x14\x00\x00\x00\x03\x05\x02\x02h\x07"
    (record,) = fetch_of(frame_batch(bytes([2 * (len(body) - 1)]) + body[1:])).take(1)
    assert (None, None, (("h", None),)) == (record.key, record.value, record.headers)
    assert (-1, -1) == (record.serialized_key_size, record.serialized_value_size)


def test_overlong_varints_of_five_bytes_are_read() -> None:
    """As in Java, a zero that is written in five bytes is read."""
    body = b"\x00\x00" + b"\x80\x80\x80\x80\x00" + b"\x01\x01\x00"
    (record,) = fetch_of(frame_batch(bytes([2 * len(body)]) + body)).take(1)
    assert 0 == record.offset


def test_delete_horizon_does_not_change_the_timestamps() -> None:
    """Timestamps are relative to the base timestamp field, also if that has the delete horizon."""
    (record,) = fetch_of(build_batch([Rec(b"a", timestamp=150)], timestamp=100, delete_horizon=True)).take(1)
    assert 150 == record.timestamp


@pytest.mark.parametrize("codec", [c for c in CODECS if c != "none"])
def test_empty_compressed_batch_with_or_without_a_stream(codec: str) -> None:
    """A batch without records may hold an empty compressed stream, or nothing at all."""
    stream = build_batch([], codec=codec, last_offset_delta=3)
    bare = frame_batch(b"", attributes=CODECS[codec], record_count=0, last_offset_delta=3, base_offset=4)
    fetch = fetch_of(stream, bare)
    assert (0, 8) == (len(fetch.take(1)), fetch.next_offset)


def test_held_bytes_counts_compressed_and_decompressed() -> None:
    """`held_bytes` is the fetched bytes plus the output of the open batch, and 0 once all records are taken."""
    plain, packed = (
        build_batch([b"v" * 1000] * 2),
        build_batch([b"v" * 1000] * 2, base_offset=2, codec="zstd"),
    )
    fetch = fetch_of(plain, packed)
    size = len(plain) + len(packed)
    assert size == fetch.held_bytes
    fetch.take(1)
    assert size == fetch.held_bytes
    fetch.take(2)
    assert size + len(plain) - 61 == fetch.held_bytes
    fetch.take(1)
    assert (0, True) == (fetch.held_bytes, fetch.exhausted)


def test_drain_lets_go_of_everything() -> None:
    """A drained fetch is exhausted, even if its next take would have raised an error."""
    for data in (build_batch([b"a", b"b"]), frame_batch(b"", record_count=-1)):
        fetch = fetch_of(control_batch("commit", 0), data)
        fetch.take(1)
        fetch.drain()
        assert (True, 0, 0) == (fetch.exhausted, fetch.held_bytes, len(fetch.take(5)))


def test_takes_a_slice_as_it_comes_from_the_codec() -> None:
    """A Slice of a frame is read without a copy."""
    fetch = PartitionFetch(TP, Slice(build_batch([b"a"])), 0)
    assert [b"a"] == [record.value for record in fetch.take(5)]


def test_an_interrupt_in_a_take_loses_nothing() -> None:
    """If a signal handler raises during decompression, the take ends and the next take returns all its records."""
    fetch = fetch_of(build_batch([b"a", b"b"]), build_batch([b"c"], base_offset=2, codec="gzip"))
    assert [0] == offsets(fetch.take(1))

    def interrupted(*_: object) -> bytes:
        raise KeyboardInterrupt

    use_codecs(interrupted, output_limit)
    try:
        with pytest.raises(KeyboardInterrupt):
            fetch.take(10)
    finally:
        use_codecs(decompress, output_limit)
    assert 1 == fetch.next_offset
    assert [1, 2] == offsets(fetch.take(10))


def test_a_drain_in_a_take_is_no_crash() -> None:
    """A signal handler may close the consumer, and so drain the fetch, during decompression."""
    fetch = fetch_of(build_batch([b"a"]), build_batch([b"b"] * 3, base_offset=1, codec="gzip"))

    def drains(codec: int, data: Slice, limit: int, magic: int) -> Slice | bytes | bytearray:
        fetch.drain()
        return decompress(codec, data, limit, magic)

    use_codecs(drains, output_limit)
    try:
        run = fetch.take(10)
    finally:
        use_codecs(decompress, output_limit)
    assert [b"a"] == [record.value for record in run]
    assert (True, 0, 1) == (fetch.exhausted, fetch.held_bytes, fetch.next_offset)


def test_an_error_that_stays_keeps_no_frame_alive() -> None:
    """Each take raises a new error object, so that the stored error does not collect the tracebacks of all polls."""
    fetch = fetch_of(build_batch([b"a"], crc=0))
    caught = []
    for _ in range(3):
        with pytest.raises(CorruptRecordError) as info:
            fetch.take(1)
        caught.append(info.value)
    assert 3 == len({id(error) for error in caught})
    assert 1 == len({(str(error), error.topic, error.partition, error.offset) for error in caught})


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_the_size_of_records(magic: int, codec: str) -> None:
    """`size` is the uncompressed size of the records of a run, also after the run was cut off. `size_of` returns the
    size of some of them."""
    values = [b"v" * number for number in range(1, 8)]

    def run_of_values() -> RecordRun:
        if magic == 2:
            data = build_batch(values[:4], codec=codec) + build_batch(values[4:], base_offset=4, codec=codec)
        else:
            data = build_message_set(values, magic=magic, codec=codec)
        return fetch_of(data, offset=2).take(10)

    run = run_of_values()
    sizes = [run.size_of([offset]) for offset in range(7)]
    assert [0, 0] == sizes[:2]
    assert [1] * 4 == [after - size for size, after in pairwise(sizes[2:])]
    assert sum(sizes) == run.size
    assert sizes[3] + sizes[5] == run.size_of({3, 5, 9})
    for count in (4, 3, 1):
        run = run_of_values()
        run.set_objects(count, 1 + count, None, [None] * count)
        assert sum(sizes[2 : 2 + count]) == run.size


def test_the_position_never_goes_back() -> None:
    """A record beyond its batch's last offset, which no broker sends, is returned only once."""
    fetch = fetch_of(build_batch([b"a", b"b", b"c"], last_offset_delta=0), empty_batch(1, 1))
    assert [0, 1, 2] == offsets(fetch.take(10))
    assert 3 == fetch.next_offset


def test_repr_says_where_it_stands() -> None:
    """The repr has the partition and the position."""
    assert "next offset 7" in repr(fetch_of(build_batch([b"a"], base_offset=7), offset=7))
