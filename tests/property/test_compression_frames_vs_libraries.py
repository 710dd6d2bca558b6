"""Batches that are decompressed in one call give the same bytes as the libraries' stream readers, damaged or not."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

import lz4.block
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kconsumer._core.decode import lz4_block, max_zstd_size
from kconsumer._internal.compression import DecompressionError, decompress
from kconsumer.testing.batches import CODECS
from support.harnesses.packed import lz4_frame, zstd_frame

LIMIT = 1 << 26


@st.composite
def contents(draw: st.DrawFn) -> bytes:
    """Generates compressible text, random bytes, and both; small, or in several blocks."""
    noise = Random(draw(st.integers(0, 99))).randbytes(draw(st.integers(0, 3000)))
    text = draw(st.binary(max_size=30)) * draw(st.integers(0, 100) | st.integers(5000, 9000))
    return noise + text + draw(st.binary(max_size=10))


@st.composite
def lz4_frames(draw: st.DrawFn) -> bytes:
    """Generates lz4 frames: by the library with any options, and built from blocks by hand."""
    plain = draw(contents())
    if draw(st.booleans()):
        blocks = [lz4.block.compress(plain[:65536], store_size=False)] * draw(st.sampled_from((0, 1, 1, 1, 2)))
        return lz4_frame(blocks, sizes=bytes([0x60, draw(st.sampled_from((0x40, 0x50, 0x60, 0x70)))]))
    frame: bytes = lz4.frame.compress(
        plain,
        block_linked=draw(st.booleans()),
        store_size=draw(st.integers(0, 3)) == 0,
        block_checksum=draw(st.integers(0, 3)) == 0,
        content_checksum=draw(st.integers(0, 3)) == 0,
        block_size=draw(st.sampled_from((0, 4, 5, 6, 7))),
    )
    return frame


@st.composite
def zstd_frames(draw: st.DrawFn) -> bytes:
    """Generates one or two zstd frames: by the library with any options, and built from blocks by hand."""
    if draw(st.integers(0, 2)) == 0:
        raw = draw(st.lists(st.binary(max_size=9).map(lambda data: (0, len(data), data)), min_size=1, max_size=3))
        runs = draw(st.lists(st.tuples(st.just(1), st.integers(0, 1 << 17), st.just(b"x")), max_size=2))
        if draw(st.booleans()):
            size = sum(size for _, size, _ in raw + runs) + draw(st.sampled_from((0, 0, 0, -1, 1)))
            return zstd_frame(raw + runs, flags=0xC0, after=struct.pack("<q", size))
        return zstd_frame(raw + runs)
    compressor = zstandard.ZstdCompressor(
        level=draw(st.sampled_from((1, 3, 9))),
        write_content_size=draw(st.booleans()),
        write_checksum=draw(st.integers(0, 3)) == 0,
    )
    return compressor.compress(draw(contents())) * draw(st.sampled_from((1, 1, 1, 2)))


@st.composite
def damaged(draw: st.DrawFn, frame: bytes) -> bytes:
    """Generates the frame with a few bytes changed, most of them near its ends, or cut, or followed by other bytes."""
    out = bytearray(frame)
    for _ in range(draw(st.sampled_from((0, 1, 1, 2)))):
        at = draw(st.integers(0, 20) | st.integers(-20, -1) | st.integers(0, len(out) - 1))
        out[at % len(out)] = draw(st.sampled_from((0, 1, 0x7F, 0x80, 0xFF)) | st.integers(0, 255))
    end = draw(st.sampled_from((0, 0, 0, 1, 2)))
    if end == 1:
        del out[draw(st.integers(0, len(out))) :]
    return bytes(out) + (draw(st.binary(max_size=5)) if end == 2 else b"")


def all_of_lz4(data: bytes) -> bytes | None:
    """Returns the contents of the first frame, or None if it is incomplete or invalid."""
    reader = lz4.frame.LZ4FrameDecompressor()
    try:
        plain: bytes = reader.decompress(data)
    except RuntimeError:
        return None
    return plain if reader.eof else None


def all_of_zstd(data: bytes) -> bytes | None:
    """Returns the contents of all frames, or None if one of them is incomplete or invalid."""
    out = b""
    while data:
        reader = zstandard.ZstdDecompressor().decompressobj()
        try:
            out += reader.decompress(data)
        except zstandard.ZstdError:
            return None
        if not reader.eof:
            return None
        data = reader.unused_data
    return out


def result(codec: str, data: bytes, limit: int) -> bytes | None:
    try:
        return bytes(decompress(CODECS[codec], data, limit))
    except DecompressionError as error:
        return None if str(error).startswith(codec) else str(error).encode()


CASES: tuple[tuple[str, st.SearchStrategy[bytes], Callable[[bytes], bytes | None]], ...] = (
    ("lz4", lz4_frames(), all_of_lz4),
    ("zstd", zstd_frames(), all_of_zstd),
)


@pytest.mark.parametrize(("codec", "frames", "library"), CASES, ids=["lz4", "zstd"])
@settings(deadline=None, max_examples=400)
@given(st.data())
def test_as_the_library(
    codec: str, frames: st.SearchStrategy[bytes], library: Callable[[bytes], bytes | None], data: st.DataObject
) -> None:
    """For any frame, complete or damaged, both give the same bytes or both fail. Above the size limit we always
    raise.
    """
    packed = data.draw(damaged(data.draw(frames)))
    expected = library(packed)
    if expected is not None and len(expected) > LIMIT:
        expected = None
    assert expected == result(codec, packed, LIMIT)
    if expected:
        assert expected == result(codec, packed, len(expected))
        assert result(codec, packed, len(expected) - 1) is None


@settings(deadline=None, max_examples=100)
@given(contents())
def test_what_is_said_of_a_frame_is_true(plain: bytes) -> None:
    """For frames that the libraries write, `lz4_block` returns the only block, and the contents are never larger than
    `max_zstd_size` returns.
    """
    found = lz4_block(lz4.frame.compress(plain, block_linked=False, store_size=False))
    assert (found is not None) == (0 < len(plain) <= 65536)
    if found is not None:
        block, most = found
        assert plain == (lz4.block.decompress(block, uncompressed_size=most) if most else block)
    for announced in (True, False):
        frame = zstandard.ZstdCompressor(write_content_size=announced).compress(plain)
        assert len(plain) <= max_zstd_size(frame) <= (len(plain) if announced else len(plain) + (1 << 17))
