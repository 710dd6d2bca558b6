"""Which compressed batches take the direct decompression path, and that all others are read as streams as before."""

from __future__ import annotations

import gc
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import lz4.block
import lz4.frame
import pytest
import snappy
import zstandard

from kconsumer._core.decode import PartitionFetch, lz4_block, max_zstd_size, snappy_size, xerial_block
from kconsumer._core.wire import Slice
from kconsumer._internal import compression
from kconsumer._internal.compression import DecompressionError, decompress
from kconsumer.testing.batches import CODECS, build_batch, build_message, compress, frame_batch
from kconsumer.types import TopicPartition
from support.harnesses.packed import lz4_frame, zstd_frame

LIMIT = 1 << 24
TEXT = b"a record of text, and another record of text; " * 50
NOISE = Random(5).randbytes(2000)
ZSTD_UNSIZED = zstandard.ZstdCompressor(write_content_size=False)
ZSTD_SIZED = zstandard.ZstdCompressor(write_content_size=True)
STREAMS = ("_lz4_parts", "_zstd_parts", "_xerial_parts", "_unlz4_frame")


@pytest.fixture
def no_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the stream readers by functions that fail."""

    def refuse(*_: object) -> Any:
        raise AssertionError("read as a stream")

    for name in STREAMS:
        monkeypatch.setattr(compression, name, refuse)


@pytest.mark.usefixtures("no_streams")
@pytest.mark.parametrize("codec", ["snappy", "lz4", "zstd"])
def test_ordinary_batches_are_not_read_as_streams(codec: str) -> None:
    """Batches as producers write them by default are decompressed by one library call, from any kind of buffer."""
    for plain in (b"a", TEXT, NOISE):
        packed = compress(codec, plain)
        for data in (packed, memoryview(packed), Slice(packed)):
            assert plain == decompress(CODECS[codec], data, LIMIT)
            assert plain == decompress(CODECS[codec], data, len(plain))
        with pytest.raises(DecompressionError, match=rf"{codec}: .* more than the {len(plain) - 1} bytes"):
            decompress(CODECS[codec], packed, len(plain) - 1)


def test_lz4_block_that_is_not_compressed_is_not_copied() -> None:
    """The output is a view of the input, and the limit applies to it as to other output."""
    frame = lz4.frame.compress(NOISE, block_linked=False, store_size=False)
    plain = decompress(3, frame, len(NOISE))
    assert isinstance(plain, Slice)
    assert NOISE == plain
    with pytest.raises(DecompressionError, match="more than the 1999 bytes"):
        decompress(3, frame, 1999)


def test_records_of_an_lz4_block_that_is_not_compressed() -> None:
    """Such records are returned as usual; they take no memory besides the fetched bytes and keep these alive."""
    held: list[object] = []
    values = [NOISE[:900], NOISE[900:]]
    batches = build_batch(values, codec="lz4") + build_batch([TEXT], base_offset=2, codec="lz4")
    fetch = PartitionFetch(TopicPartition("t", 0), bytes(bytearray(batches)), 0, on_decompressed=held.append)
    runs = [fetch.take(1), fetch.take(1)]
    assert [] == held
    assert len(NOISE) < fetch.output_bytes < len(NOISE) + 50
    runs.append(fetch.take(1))
    assert 1 == len(held)
    fetch.drain()
    del fetch, batches
    gc.collect()
    assert [*values, TEXT] == [record.value for run in runs for record in run]


def test_records_of_message_format_0_in_an_lz4_block_that_is_not_compressed() -> None:
    """The wrong header checksum of format 0 is corrected in a copy, which takes memory of its own."""
    held: list[object] = []
    inner = build_message(NOISE, magic=0)
    frame = bytearray(lz4.frame.compress(inner, block_linked=False, store_size=False))
    frame[6] ^= 1
    fetch = PartitionFetch(
        TopicPartition("t", 0), build_message(bytes(frame), magic=0, attributes=3), 0, on_decompressed=held.append
    )
    assert [NOISE] == [record.value for record in fetch.take(1)]
    assert 1 == len(held)


@pytest.mark.parametrize(
    ("frame", "most"),
    [
        (ZSTD_UNSIZED.compress(TEXT), 1 << 17),
        (ZSTD_UNSIZED.compress(NOISE), len(NOISE)),
        (ZSTD_UNSIZED.compress(TEXT * 100), 2 << 17),
        (ZSTD_SIZED.compress(TEXT), len(TEXT)),
        (ZSTD_SIZED.compress(TEXT[:10]), 10),
        (ZSTD_SIZED.compress(TEXT * 100), len(TEXT) * 100),
        (zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(TEXT), 1 << 17),
        (zstandard.ZstdCompressor(write_checksum=True).compress(TEXT), len(TEXT)),
        (zstd_frame([(1, 1000, b"x")]), 1000),
        (zstd_frame([(0, 3, b"abc"), (1, 1000, b"x")]), 1003),
        (zstd_frame([(0, 0, b"")]), 0),
        (ZSTD_SIZED.compress(b""), 0),
    ],
)
def test_zstd_frames_say_how_much_they_can_hold(frame: bytes, most: int) -> None:
    """The bound is found with and without a content size or checksum, for all kinds of blocks; a truncated frame has
    none.
    """
    assert most == max_zstd_size(frame)
    assert {-1} == {max_zstd_size(frame[:size]) for size in range(len(frame))}
    assert -1 == max_zstd_size(frame + b"\0")
    assert zstandard.ZstdDecompressor().decompressobj().decompress(frame) == decompress(4, frame, LIMIT)


def test_zstd_that_comes_to_more_than_was_thought_is_read_as_a_stream() -> None:
    """A frame that decompresses to more than 64 KB and eight times its input is read as a stream, with one block or
    with several.
    """
    for size in (120_000, 1 << 20):
        packed = ZSTD_UNSIZED.compress(bytes(size))
        assert bytes(size) == decompress(4, packed, size)
        with pytest.raises(DecompressionError, match=f"more than the {size - 1} bytes"):
            decompress(4, packed, size - 1)


def test_zstd_room_is_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a block of more than 64 KB a thread has a larger buffer, so the next such block is not read as a stream."""
    streams: list[bytes] = []
    parts = compression._zstd_parts

    def counted(context: Any, data: bytes, limit: int) -> Iterator[bytes]:
        streams.append(data)
        return parts(context, data, limit)

    monkeypatch.setattr(compression, "_zstd_parts", counted)
    large, small = ZSTD_UNSIZED.compress(bytes(100_000)), ZSTD_UNSIZED.compress(bytes(1000))
    with ThreadPoolExecutor(1) as new_thread:
        for packed, size in ((small, 1000), (large, 100_000), (large, 100_000), (small, 1000)):
            assert bytes(size) == new_thread.submit(decompress, 4, packed, LIMIT).result()
    assert [large] == streams


def bombs() -> Iterator[tuple[str, bytes]]:
    """Return short inputs that decompress, or claim to decompress, to a large size."""
    yield "lz4", lz4_frame([lz4.block.compress(bytes(65536), store_size=False)])
    yield "lz4", lz4_frame([lz4.block.compress(bytes(4 << 20), store_size=False)], sizes=b"\x60\x70")
    yield "lz4", lz4.frame.compress(bytes(4 << 20), block_linked=False, store_size=False)
    yield "zstd", zstd_frame([(1, 1 << 17, b"x")])
    yield "zstd", ZSTD_UNSIZED.compress(bytes(1 << 17))
    yield "zstd", ZSTD_SIZED.compress(bytes(1 << 17))
    yield "zstd", ZSTD_UNSIZED.compress(bytes(1 << 17)) * 100
    block = snappy.compress(bytes(1 << 20))
    yield "snappy", block
    yield "snappy", compress("snappy", bytes(32768))
    yield "snappy", compress("snappy", b"")[:16] + struct.pack(">i", len(block)) + block


@pytest.mark.parametrize(("codec", "packed"), [*bombs()])
def test_bombs_get_little_memory(codec: str, packed: bytes) -> None:
    """Output above the limit raises an error, and at most one or two blocks of memory are allocated before."""
    decompress(CODECS[codec], compress(codec, TEXT), LIMIT)  # imports the library
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionError, match="more than the 20000 bytes"):
            decompress(CODECS[codec], packed, 20_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 300_000 + 10 * len(packed)


@pytest.mark.parametrize("read", [lz4_block, max_zstd_size, xerial_block])
def test_buffers_that_are_too_short_for_anything(read: Callable[[bytes], object]) -> None:
    """Nothing is read beyond the end of a buffer; sanitizers would report such a read."""
    for start in (b"", b"\x04\x22\x4d\x18\x60\x40\x82", b"\x28\xb5\x2f\xfd", b"\x82SNAPPY\0" + bytes(8)):
        for size in range(len(start) + 1):
            assert read(bytes(bytearray(start[:size]))) in (None, -1)


def test_snappy_sizes() -> None:
    """The size in front of a raw block has up to five bytes."""
    assert [0, 127, 128, 300, (1 << 35) - 1] == [
        snappy_size(size) for size in (b"\0", b"\x7f", b"\x80\x01", b"\xac\x02rest", b"\xff\xff\xff\xff\x7f")
    ]
    assert [-1] * 3 == [snappy_size(size) for size in (b"", bytes(bytearray(b"\xff")), b"\xff" * 5 + b"\0")]


def test_xerial_frames_of_one_block() -> None:
    """A xerial frame has a single block only if that block reaches to the end of the frame."""
    framed = compress("snappy", TEXT)
    block = xerial_block(framed)
    assert block is not None
    assert snappy.compress(TEXT) == bytes(block)
    assert [None] * 3 == [xerial_block(data) for data in (framed + b"\0", framed[:-1], framed + framed[16:])]
    assert TEXT * 2 == decompress(2, framed + framed[16:], LIMIT)


def test_a_batch_says_what_is_wrong_with_its_compression() -> None:
    """The error that poll raises contains the library's text."""
    fetch = PartitionFetch(TopicPartition("t", 0), frame_batch(lz4_frame([b"\xff" * 40]), attributes=3), 0)
    with pytest.raises(Exception, match="corrupt record data in t-0 at offset 0: lz4: LZ4F_decompress failed"):
        fetch.take(1)
