"""Decompression of every codec: complete, truncated and damaged data, and the output limit."""

from __future__ import annotations

import gzip
import struct
import threading
import zlib

import pytest

from kconsumer._internal.compression import MIN_OUTPUT_LIMIT, DecompressionError, decompress, output_limit
from kconsumer.testing.batches import CODECS, compress

COMPRESSING = {name: number for name, number in CODECS.items() if number}
PLAIN = b"".join(b"record %d of many; " % i for i in range(20_000))  # several blocks in every codec
LIMIT = 1 << 24


@pytest.mark.parametrize(("name", "codec"), COMPRESSING.items())
def test_the_limit_is_exact(name: str, codec: int) -> None:
    """Output of exactly the limit is allowed, one byte more is not."""
    packed = compress(name, PLAIN)
    assert PLAIN == decompress(codec, packed, len(PLAIN))
    with pytest.raises(DecompressionError, match=rf"{name}: .* more than the {len(PLAIN) - 1} bytes"):
        decompress(codec, packed, len(PLAIN) - 1)


@pytest.mark.parametrize(("name", "codec"), COMPRESSING.items())
def test_no_output_is_allowed_at_a_limit_of_zero(name: str, codec: int) -> None:
    """With a limit of 0 any output is an error, and an empty stream is not."""
    assert b"" == decompress(codec, compress(name, b""), 0)
    with pytest.raises(DecompressionError):
        decompress(codec, compress(name, b"a"), 0)


def test_unknown_codecs_are_refused() -> None:
    """Codecs 5 to 7, which the attribute bits could contain, are refused."""
    for codec in (0, 5, 6, 7):
        with pytest.raises(DecompressionError, match=f"codec {codec} does not exist"):
            decompress(codec, b"", LIMIT)


def test_gzip_members_are_read_one_after_the_other() -> None:
    """As in Java, concatenated members (RFC 1952) are read."""
    assert b"abc" == decompress(1, gzip.compress(b"a") + gzip.compress(b"") + gzip.compress(b"bc"), LIMIT)


@pytest.mark.parametrize(
    "padding",
    [
        b"junk",
        bytes(8),
        bytes(4096),
        b"\x1f\x8b",
        b"\x1f\x8b\x08" + bytes(6),
        b"\x1f\x8b\x07" + bytes(40),
        b"\x1f\x8b\x08\x08" + bytes(6) + b"a name without an end",
        b"\x1f\x8b\x08\x04" + bytes(6) + b"\xff\xffan extra field that is too short",
        b"\x1f\x8b\x08\x02" + bytes(6) + b"xx and a wrong checksum of the header",
    ],
)
def test_bytes_after_a_gzip_member_are_ignored(padding: bytes) -> None:
    """Bytes after a member that are no header of another one are ignored, as Java and brokers do."""
    assert b"abc" == decompress(1, gzip.compress(b"abc") + padding, LIMIT)


def test_a_damaged_second_gzip_member_is_an_error() -> None:
    """After a complete header, the member must be complete, too. All optional fields of a header are read."""
    with_fields = gzip_with_fields(b"bc")
    assert b"abc" == decompress(1, gzip.compress(b"a") + with_fields, LIMIT)
    for damaged in (with_fields[:-9], gzip.compress(b"bc")[:10] + b"\xff" * 20):
        with pytest.raises(DecompressionError, match="gzip"):
            decompress(1, gzip.compress(b"a") + damaged, LIMIT)


def gzip_with_fields(data: bytes) -> bytes:
    """Returns a gzip member whose header has all optional fields."""
    member = gzip.compress(data)
    header = member[:3] + b"\x1e" + member[4:10] + b"\x03\x00xyz" + b"name\0" + b"comment\0"
    return header + (zlib.crc32(header) & 0xFFFF).to_bytes(2, "little") + member[10:]


def test_snappy_blocks_raw_and_framed() -> None:
    """Java frames blocks in its own way, other clients send one raw block."""
    assert PLAIN == decompress(2, compress("snappy", PLAIN, snappy_framing="raw"), LIMIT)
    framed = compress("snappy", PLAIN, snappy_framing="xerial")
    assert b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01" == framed[:16]
    assert PLAIN == decompress(2, framed, LIMIT)


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\xff\xff\xff\xff\x0f",
        b"\x80\x80\x80\x80\x80\x01",
        b"\x82SNAPPY\x00\x00\x00",
        b"\x82SNAPPY\x00" + bytes(8) + b"\x00\x00",
        b"\x82SNAPPY\x00" + bytes(8) + b"\x00\x00\x00\x09a",
        b"\x82SNAPPY\x00" + bytes(8) + b"\xff\xff\xff\xffa",
    ],
)
def test_snappy_sizes_that_are_too_large_are_refused(block: bytes) -> None:
    """A block that announces 4 GB in five bytes is refused, and so is a frame that is longer than the
    remaining bytes.
    """
    with pytest.raises(DecompressionError, match="snappy"):
        decompress(2, block, 1 << 40)


def test_lz4_reads_the_first_frame_only() -> None:
    """As in Java, reading stops at the end mark of the first frame."""
    packed = compress("lz4", b"first")
    assert b"first" == decompress(3, packed + compress("lz4", b"second"), LIMIT)
    assert b"first" == decompress(3, packed + b"junk", LIMIT)


def test_lz4_content_size_is_not_believed() -> None:
    """A frame that announces exabytes raises an error without an allocation of that size."""
    import lz4.frame

    packed = bytearray(lz4.frame.compress(b"x" * 100, store_size=True))
    packed[6:14] = struct.pack("<Q", 1 << 60)
    with pytest.raises(DecompressionError):
        decompress(3, bytes(packed), LIMIT)


def test_lz4_that_may_exceed_the_limit_is_read_in_steps() -> None:
    """Large batches are decompressed in steps, with the same result as in one call."""
    packed = compress("lz4", bytes(1 << 20))
    assert bytes(1 << 20) == decompress(3, packed, (1 << 20) + 1)


def test_zstd_frames_without_and_with_a_size_and_several_of_them() -> None:
    """Frames with and without a content size are read, and batches with several frames."""
    import zstandard

    sized = zstandard.ZstdCompressor().compress(b"sized")
    assert b"sizedunsized" == decompress(4, sized + compress("zstd", b"unsized"), LIMIT)


def test_zstd_context_is_good_after_an_error() -> None:
    """After a broken stream the cached context decompresses the next stream."""
    packed = compress("zstd", PLAIN)
    with pytest.raises(DecompressionError):
        decompress(4, packed[:8] + b"\xff" * 200, LIMIT)
    assert PLAIN == decompress(4, packed, LIMIT)


def test_zstd_in_two_threads() -> None:
    """Each thread has its own context."""
    packed = compress("zstd", PLAIN)
    same: list[bool] = []

    def run() -> None:
        same.extend(PLAIN == decompress(4, packed, LIMIT) for _ in range(20))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [True] * 40 == same


def test_output_limit_grows_with_the_batch() -> None:
    """Small batches have a common limit; that of a large batch is proportional to its size."""
    assert MIN_OUTPUT_LIMIT == output_limit(100)
    assert 64 * (10 << 20) == output_limit(10 << 20)
