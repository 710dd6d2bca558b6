"""Undoes the compression of a record batch: five codecs, each with a limit on what may come out.

Decides which library reads which codec and how much output is allowed. Knows nothing of records: the caller
names the topic, partition and offset when it turns a DecompressionError into a CorruptRecordError. The
libraries are imported on first use, and all of them release the GIL while they work.

Ordinary batches are one block, or one zstd frame: these go through a library's function for the whole at once, with
memory for what `_core.frames` says they can come to. All others, and all that fail, are read as streams, step by step.

Limits: without the option `decompressed_batch_max_bytes` a batch may always grow to `MIN_OUTPUT_LIMIT`, and beyond that
to `MAX_RATIO` times its compressed size. Real data stays far below; a gigabyte of zeros in a few kilobytes does not get
through. What the option allows is allowed whatever the ratio, and no more.
"""

from __future__ import annotations

import functools
import importlib
import os
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from kconsumer._core.compression_frames import lz4_block, snappy_size, xerial_block, zstd_most
from kconsumer._core.decompressor import use_library
from kconsumer._core.fetch import DecompressionError as DecompressionError
from kconsumer._core.fetch import OutputLimitError as OutputLimitError
from kconsumer._core.fetch import use_codecs
from kconsumer._core.wire import Slice

Packed = Slice | memoryview | bytes
Plain = Slice | bytes | bytearray


@functools.cache  # an import statement in each call would take as long as finding the records of a small batch
def _library(name: str) -> Any:
    """A codec's library. Of lz4 and zstd the compiled core is told, too, where their functions are that need no Python:
    in the packages' own modules, or else in the system's. With neither, or with one core, all goes through Python."""
    found = importlib.import_module(name)
    codec, module, system = _WITHOUT_PYTHON.get(name, ("", "", ""))
    if codec and (os.cpu_count() or 1) > 1:
        folder = os.path.dirname(str(found.__file__))
        modules = [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.startswith(module)]
        any(use_library(codec, path) for path in [*modules, system])
    return found


_WITHOUT_PYTHON = {
    "lz4.block": ("lz4", "_block.", "liblz4.so.1"),
    "zstandard": ("zstd", "_cffi.", "libzstd.so.1"),
}

MIN_OUTPUT_LIMIT = 128 << 20
MAX_RATIO = 64

# How much one step may add to the output: enough for an ordinary batch in one step.
_STEP_RATIO = 8
_STEP_BYTES = 64 << 10

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_SNAPPY_MAX_RATIO = 22  # the densest element is a 64-byte copy written in 3 bytes
_LZ4_MAX_RATIO = 255  # a length byte of 255 stands for 255 bytes
_LZ4_FLAGS_AT = 4
_ZSTD_BLOCK_BYTES = 128 << 10
_ZSTD_STEP_BYTES = 2048  # of input; the densest block is 4 bytes for 128 KiB, so at most 64 MiB come of it
_XXH_PRIMES = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)


def output_limit(compressed_bytes: int) -> int:
    """How many bytes a batch of this compressed size may decompress to."""
    return max(MIN_OUTPUT_LIMIT, MAX_RATIO * compressed_bytes)


def decompress(codec: int, data: Packed, limit: int, magic: int = 2) -> Plain:
    """What `data` holds, at most `limit` bytes of it; a Slice of `data` if that is not compressed after all.

    `codec`: the number in a batch's attributes (1 gzip, 2 snappy, 3 lz4, 4 zstd); `magic`: the batch's format. Raises
    DecompressionError for an unknown codec and for malformed data, OutputLimitError for output above the limit.
    """
    reader = _READERS.get(codec)
    if reader is None:
        raise DecompressionError(f"compression codec {codec} does not exist")
    if magic < 2 and reader is _unzstd:
        raise DecompressionError(f"zstd: message format {magic} is older than this codec and cannot hold it")
    if magic == 0 and reader is _unlz4:
        data = lz4_with_right_checksum(data)
    return reader(data, limit)


def _gunzip(data: Packed, limit: int) -> Plain:
    return _collect("gzip", _gzip_pieces(data, limit), limit)


def _gzip_pieces(data: Packed, limit: int) -> Iterator[bytes]:
    """All members of a gzip stream, one after the other, as Java reads them."""
    step = _step(len(data), limit)
    left: Packed = data
    while True:
        inflater = zlib.decompressobj(wbits=31)
        while not inflater.eof:
            try:
                piece = inflater.decompress(left, step)
            except zlib.error as error:
                raise DecompressionError(f"gzip: {error}") from error
            left = inflater.unconsumed_tail
            if not piece and not left and not inflater.eof:
                raise DecompressionError("gzip: the stream is cut short")
            yield piece
        left = inflater.unused_data
        if not left:
            return


def _unsnappy(data: Packed, limit: int) -> Plain:
    """Blocks in xerial framing, as Java writes, or one raw block, as some other clients do."""
    block = xerial_block(data)
    if block is not None:
        return _snappy_block(block, limit)
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _snappy_block(view, limit)
    if len(view) < _XERIAL_HEADER_BYTES:
        raise DecompressionError("snappy: the xerial header is cut short")
    return _collect("snappy", _xerial_pieces(view, limit), limit)


def _xerial_pieces(view: memoryview, limit: int) -> Iterator[bytes]:
    at = _XERIAL_HEADER_BYTES
    while at < len(view):
        if len(view) - at < 4:
            raise DecompressionError("snappy: a block size is cut short")
        (size,) = struct.unpack_from(">i", view, at)
        at += 4
        if not 0 <= size <= len(view) - at:
            raise DecompressionError(f"snappy: a block of {size} bytes, but {len(view) - at} are left")
        yield _snappy_block(view[at : at + size], limit)
        at += size


def _snappy_block(block: Slice | memoryview, limit: int) -> bytes:
    """One raw block. Its first bytes announce the output size, which the library allocates without asking."""
    announced = snappy_size(block)
    if announced < 0:
        raise DecompressionError("snappy: the block has no size")
    if announced > _SNAPPY_MAX_RATIO * len(block):
        raise DecompressionError(f"snappy: {len(block)} bytes cannot hold the {announced} that the block announces")
    if announced > limit:
        raise _too_large("snappy", limit)
    snappy = _library("snappy")
    try:
        whole: bytes = snappy.uncompress(block)
    except snappy.UncompressError as error:
        raise DecompressionError(f"snappy: {error.__cause__ or 'malformed block'}") from error
    return whole


def _unlz4(data: Packed, limit: int) -> Plain:
    ordinary = lz4_block(data)
    if ordinary is None:
        return _unlz4_frame(data, limit)
    block, most = ordinary
    if not most:
        return _within("lz4", block, limit)
    lz4 = _library("lz4.block")
    try:
        whole: bytes = lz4.decompress(block, uncompressed_size=min(most, limit + 1))
    except (lz4.LZ4BlockError, MemoryError):
        return _unlz4_frame(data, limit)  # which says what is wrong, or that it is too much
    return _within("lz4", whole, limit)


def _unlz4_frame(data: Packed, limit: int) -> Plain:
    """A frame of any kind; the first one only, as Java reads it."""
    lz4 = _library("lz4.frame")
    try:
        if _LZ4_MAX_RATIO * len(data) <= limit and lz4.get_frame_info(data)["content_size"] <= limit:
            whole: bytes = lz4.decompress(data)
            return whole
        return _collect("lz4", _lz4_pieces(data, limit), limit)
    except (RuntimeError, MemoryError) as error:
        raise DecompressionError(f"lz4: {error}") from error


def _lz4_pieces(data: Packed, limit: int) -> Iterator[bytes]:
    step = _step(len(data), limit)
    reader = _library("lz4.frame").LZ4FrameDecompressor()
    piece = reader.decompress(data, step)
    while True:
        yield piece
        if reader.eof:
            return
        if not piece and reader.needs_input:
            raise DecompressionError("lz4: the frame is cut short")
        piece = reader.decompress(b"", step)


def lz4_with_right_checksum(data: Packed) -> bytes:
    """A frame whose header checksum fits, whatever it was.

    Kafka's first lz4 writer, and every one for message format 0 since, computed it over the frame's magic number, too.
    So in that format it proves nothing, and it is not looked at.
    """
    frame = bytearray(data)
    if len(frame) > _LZ4_FLAGS_AT:
        flags = frame[_LZ4_FLAGS_AT]
        at = _LZ4_FLAGS_AT + 2 + 8 * (flags >> 3 & 1) + 4 * (flags & 1)  # after content size and dictionary id
        if at < len(frame):
            frame[at] = xxh32(frame[_LZ4_FLAGS_AT:at]) >> 8 & 0xFF
    return bytes(frame)


def xxh32(data: bytes | bytearray) -> int:
    """XXH32 with seed 0 of less than 16 bytes, as many as an lz4 frame header has."""
    value = (_XXH_PRIMES[4] + len(data)) & 0xFFFF_FFFF
    whole = len(data) & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        value = _rotated(value + word * _XXH_PRIMES[2], 17) * _XXH_PRIMES[3]
    for byte in data[whole:]:
        value = _rotated(value + byte * _XXH_PRIMES[4], 11) * _XXH_PRIMES[0]
    value &= 0xFFFF_FFFF
    for shift, prime in ((15, _XXH_PRIMES[1]), (13, _XXH_PRIMES[2]), (16, 1)):
        value = (value ^ value >> shift) * prime & 0xFFFF_FFFF
    return value


def _rotated(value: int, bits: int) -> int:
    value &= 0xFFFF_FFFF
    return value << bits & 0xFFFF_FFFF | value >> 32 - bits


class _Kept(threading.local):
    """What a thread keeps for zstd. A context takes as long to make as a small batch to decompress (20 µs), and serves
    one thread at a time. `room`: memory to begin with for a frame of one block. Half of what a block can hold is enough
    for what producers write by default, and giving back the rest of more costs page faults; until it was too little.
    """

    context: Any = None
    room = _ZSTD_BLOCK_BYTES // 2


_kept = _Kept()


def _unzstd(data: Packed, limit: int) -> Plain:
    zstandard = _library("zstandard")
    context = _kept.context
    if context is None:
        context = _kept.context = zstandard.ZstdDecompressor()
    most = zstd_most(data)
    room = _step(len(data), limit) if most > _ZSTD_BLOCK_BYTES else min(_kept.room, limit + 1)
    if 0 < most <= room + _ZSTD_BLOCK_BYTES:  # else it is too much for sure, or not one frame
        try:
            whole: bytes = context.decompress(data, max_output_size=min(most, room))
        except (zstandard.ZstdError, MemoryError):
            pass  # too much after all, or malformed: the stream will tell
        else:
            return _within("zstd", whole, limit)
    try:
        streamed = _collect("zstd", _zstd_pieces(context, data, limit), limit)
    except zstandard.ZstdError as error:
        raise DecompressionError(f"zstd: {error}") from error
    if 0 < most <= _ZSTD_BLOCK_BYTES:
        _kept.room = _ZSTD_BLOCK_BYTES
    return streamed


def _zstd_pieces(context: Any, data: Packed, limit: int) -> Iterator[bytes]:
    """All frames, read as a stream: Java writes frames that do not say how large their content is."""
    left = memoryview(data)
    while left:
        reader = context.decompressobj()
        for start in range(0, len(left), _ZSTD_STEP_BYTES):
            step = left[start : start + _ZSTD_STEP_BYTES]
            yield reader.decompress(step)
            if reader.eof:
                left = left[start + len(step) - len(reader.unused_data) :]
                break
        else:
            raise DecompressionError("zstd: the frame is cut short")


def _collect(name: str, pieces: Iterator[bytes], limit: int) -> Plain:
    """The pieces as one; stops as soon as they are more than `limit` bytes. One piece is not copied."""
    first = next(pieces, b"")
    if len(first) > limit:
        raise _too_large(name, limit)
    out: bytes | bytearray = first
    for piece in pieces:
        if not piece:
            continue
        if len(out) + len(piece) > limit:
            raise _too_large(name, limit)
        if not isinstance(out, bytearray):
            out = bytearray(out)
        out += piece
    return out


def _step(compressed_bytes: int, limit: int) -> int:
    return min(_STEP_BYTES + _STEP_RATIO * compressed_bytes, limit + 1)


def _within(name: str, whole: Plain, limit: int) -> Plain:
    if len(whole) > limit:
        raise _too_large(name, limit)
    return whole


def _too_large(name: str, limit: int) -> OutputLimitError:
    return OutputLimitError(f"{name}: the batch decompresses to more than the {limit} bytes allowed")


_READERS: dict[int, Callable[[Packed, int], Plain]] = {
    1: _gunzip,
    2: _unsnappy,
    3: _unlz4,
    4: _unzstd,
}


use_codecs(decompress, output_limit)
