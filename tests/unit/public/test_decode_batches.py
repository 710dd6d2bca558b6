"""decode_batches, the public function that decodes record batches."""

from __future__ import annotations

import mmap
import subprocess
import sys
from pathlib import Path

import pytest

from kconsumer.decode import decode_batches
from kconsumer.errors import BatchTooLargeError, CorruptRecordError
from kconsumer.testing.batches import CODECS, Rec, build_batch, control_batch, empty_batch, frame_batch
from kconsumer.types import OffsetAndMetadata, TopicPartition

# One batch, byte by byte as the protocol guide lays it out.
LITERAL = bytes.fromhex(
    "0000000000000007"  # base offset 7
    "00000047"  # batch length: 71 bytes follow
    "00000005"  # leader epoch 5
    "02"  # magic
    "bf366b8d"  # crc32c of all that follows
    "0000"  # attributes: no codec, create time
    "00000001"  # last offset delta
    "0000018bcfe56800"  # base timestamp 1700000000000
    "0000018bcfe56805"  # max timestamp
    "ffffffffffffffff"  # no producer id
    "ffff"  # no producer epoch
    "ffffffff"  # no base sequence
    "00000002"  # two records
    "1c 00 00 00"  # a record of 14 bytes: attributes, timestamp delta 0, offset delta 0
    "02 6b 04 7631"  # key "k", value "v1"
    "02 04 6831 02 78"  # one header, "h1": "x"
    "0c 00 0a 02 01 01 00"  # a record of 6 bytes: timestamp delta 5, offset delta 1, null key, null value, no header
)  # fmt: skip


def test_literal_bytes() -> None:
    """The layout is the protocol guide's, and the builder writes the same."""
    first, second = decode_batches(LITERAL, topic="t")
    assert (7, 1_700_000_000_000, b"k", b"v1", (("h1", b"x"),), 5) == (
        first.offset,
        first.timestamp,
        first.key,
        first.value,
        first.headers,
        first.leader_epoch,
    )
    assert (8, 1_700_000_000_005, None, None, ()) == (
        second.offset,
        second.timestamp,
        second.key,
        second.value,
        second.headers,
    )
    records = [Rec(b"v1", b"k", [("h1", b"x")]), Rec(timestamp=1_700_000_000_005)]
    assert LITERAL == build_batch(records, base_offset=7, leader_epoch=5, timestamp=1_700_000_000_000)


def test_empty_input_gives_nothing() -> None:
    """Empty input has no records and no position."""
    for data in (b"", b"\x00" * 11):
        records = decode_batches(data)
        assert (0, {}) == (len(records), records.next_offsets())


def test_next_offsets_without_a_record() -> None:
    """Control batches and emptied batches give no record but move the next offset."""
    records = decode_batches(empty_batch(0, 4) + control_batch("abort", 5, leader_epoch=3), topic="t")
    assert not records
    assert {TopicPartition("t", 0): OffsetAndMetadata(6, leader_epoch=3)} == records.next_offsets()


def test_start_offset_drops_what_lies_below() -> None:
    """Records below the start offset are dropped in every batch, and the next offset is never below it."""
    data = build_batch([b"a", b"b"]) + build_batch([b"c", b"d"], base_offset=2)
    assert [b"d"] == [record.value for record in decode_batches(data, start_offset=3)]
    records = decode_batches(data, start_offset=10)
    assert [OffsetAndMetadata(10)] == list(records.next_offsets().values())
    assert not records


def test_start_offset_cannot_be_negative() -> None:
    """A negative start offset is refused, because -1 and -2 have special meanings elsewhere."""
    with pytest.raises(ValueError, match="start_offset"):
        decode_batches(b"", start_offset=-2)


def test_any_concatenation_is_decoded() -> None:
    """Batches of different logs may follow each other; the next offset is that of the last batch."""
    records = decode_batches(build_batch([b"a"], base_offset=50) + build_batch([b"b"], base_offset=3))
    assert [50, 3] == [record.offset for record in records]
    assert [4] == [position.offset for position in records.next_offsets().values()]


def test_malformed_bytes_raise_even_after_good_batches() -> None:
    """Malformed bytes after good batches raise an error and nothing is returned, because no later call
    could raise it.
    """
    with pytest.raises(CorruptRecordError, match=r"t-1 at offset 1: .*checksum") as caught:
        decode_batches(build_batch([b"a"]) + build_batch([b"b"], base_offset=1, crc=1), topic="t", partition=1)
    assert ("t", 1, 1) == (caught.value.topic, caught.value.partition, caught.value.offset)


def test_checksums_need_not_be_checked() -> None:
    """With `check_crcs=False` checksums are not checked."""
    assert [b"b"] == [r.value for r in decode_batches(build_batch([b"b"], crc=1), check_crcs=False)]


def test_unknown_isolation_level() -> None:
    """A misspelt isolation level is an error."""
    with pytest.raises(ValueError, match="read_uncomitted"):
        decode_batches(b"", isolation_level="read_uncomitted")


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_read(kind: type) -> None:
    """Bytes, bytearrays and memoryviews are read without a copy."""
    data = kind(build_batch([b"a"]))
    assert [b"a"] == [record.value for record in decode_batches(data)]


def test_a_mapped_file_is_read(tmp_path: Path) -> None:
    """A memory-mapped log segment is read."""
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(build_batch([b"a"]) + build_batch([b"b"], base_offset=1, codec="lz4"))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        records = decode_batches(mapped)
        assert [b"a", b"b"] == [record.value for record in records]
        del records


def test_bytes_that_change_under_the_reader_do_not_crash() -> None:
    """If a buffer is modified while its records are read, other records or one class of error result."""
    data = bytearray(build_batch([b"a" * 50] * 20))
    records = decode_batches(data)
    data[61:] = b"\xff" * (len(data) - 61)
    with pytest.raises(CorruptRecordError, match="changed"):
        list(records)


@pytest.mark.parametrize("what", ["text", 5, None, [b"a"]])
def test_what_is_no_buffer_is_a_type_error(what: object) -> None:
    """An argument that is not a buffer raises TypeError, not CorruptRecordError."""
    if what is None:
        assert not decode_batches(what)  # type: ignore[arg-type]  # None is an empty records field
    else:
        with pytest.raises(TypeError):
            decode_batches(what)  # type: ignore[arg-type]  # wrong on purpose


def test_a_record_count_of_two_billion_allocates_nothing() -> None:
    """A record count in a header causes no allocation before the records are found."""
    with pytest.raises(CorruptRecordError):
        decode_batches(frame_batch(b"\x0c\x00\x00\x00\x01\x01\x00", record_count=2**31 - 1))


# Run in a process of its own: the largest resident size a process ever had cannot be reset.
BOMBS = """
import gzip, resource, sys, zstandard
from kconsumer.decode import decode_batches
from kconsumer.errors import BatchTooLargeError
from kconsumer.testing.batches import CODECS, Rec, encode_record, frame_batch

def megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

def zeros(count, chunk=bytes(1 << 20)):
    packer = zstandard.ZstdCompressor().compressobj()
    return b"".join(packer.compress(chunk) for _ in range(count)) + packer.flush()

before = megabytes()
name = sys.argv[1]
if name == "zstd":
    bomb = frame_batch(zeros(1024), attributes=CODECS["zstd"])
elif name == "gzip":
    bomb = frame_batch(gzip.compress(bytes(1 << 20)) * 1024, attributes=CODECS["gzip"])
elif name == "lz4":
    import lz4.frame
    bomb = frame_batch(lz4.frame.compress(bytes(1 << 28)), attributes=CODECS["lz4"])
elif name == "many":
    body = zstandard.compress(encode_record(Rec(bytes(64 << 20))))
    bomb = b"".join(frame_batch(body, attributes=CODECS["zstd"], base_offset=i) for i in range(16))
print(f"{name}: a bomb of {len(bomb)} bytes")
before = max(before, megabytes()) if name == "lz4" else before
try:
    decode_batches(bomb)
    sys.exit("decoded")
except BatchTooLargeError as error:
    print(error)
    assert "more than" in str(error) and "decompressed_batch_max_bytes" in str(error) and "corrupt" not in str(error)
grown = megabytes() - before
print(f"grew by {grown} MB")
# Without the GIL, Python's allocator copies what grows, and frees the old memory later.
assert grown < (300 if getattr(sys, "_is_gil_enabled", lambda: True)() else 512)
"""


@pytest.mark.parametrize("name", ["zstd", "gzip", "lz4", "many"])
def test_bombs_raise_within_bounded_memory(name: str) -> None:
    """A gigabyte in a few kilobytes, in one batch or in many, raises an error before a third of it is in memory."""
    done = subprocess.run([sys.executable, "-c", BOMBS, name], capture_output=True, text=True, timeout=60)
    assert 0 == done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_batch_limit(codec: str) -> None:
    """A batch may decompress to at most `decompressed_batch_max_bytes`; the error has the option and the offset."""
    first = build_batch([b"x" * 100], codec=codec)
    second = build_batch([b"y" * 50_000] * 4, base_offset=1, codec=codec)
    with pytest.raises(BatchTooLargeError, match=r"a-1 at offset 1 .* 200000 bytes that decompressed_batch") as caught:
        decode_batches(first + second, topic="a", partition=1, decompressed_batch_max_bytes=200_000)
    error = caught.value
    assert (TopicPartition("a", 1), 1, 5, 200_000) == (
        error.topic_partition,
        error.offset,
        error.next_offset,
        error.limit,
    )
    assert 5 == len(decode_batches(first + second, decompressed_batch_max_bytes=210_000))
    with pytest.raises(ValueError, match="decompressed_batch_max_bytes"):
        decode_batches(first, decompressed_batch_max_bytes=0)


def test_a_batch_limit_above_the_default() -> None:
    """A batch that decompresses to more than 128 MiB and 64 times its size is read if the option allows it."""
    packed = build_batch([bytes(10 << 20)] * 14, codec="zstd")
    with pytest.raises(BatchTooLargeError):
        decode_batches(packed)
    assert 14 == len(decode_batches(packed, decompressed_batch_max_bytes=150 << 20))


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_eight_million_minimal_records_decode(codec: str) -> None:
    """A batch of eight million records is decoded, because nothing is stored per record."""
    from kconsumer.testing.batches import compress

    count = 8_000_000
    body = compress(codec, b"\x0c\x00\x00\x00\x01\x01\x00" * count)
    data = frame_batch(body, attributes=CODECS[codec], record_count=count, last_offset_delta=count - 1)
    records = decode_batches(data)
    assert count == len(records) == records.count
    assert None is next(iter(records)).value
