"""Decompresses record batches of four codecs, and limits the size of the output.

Decides which library decompresses which codec, and how much output is allowed. It does not read records: the caller
adds topic, partition and offset when it turns a DecompressionError into a CorruptRecordError. The libraries are
imported on first use, and all of them release the GIL while they work.

Most batches are one block, or one zstd frame. They are decompressed by one call of a library. Before the call, memory
is allocated for the largest possible output, whose size `_core.decode` computes. All other batches, and
those for which this call fails, are decompressed as streams, in steps.

Without the option `decompressed_batch_max_bytes`, the limit is `MAX_RATIO` times the compressed size, but at least
`MIN_OUTPUT_LIMIT` bytes. Real data stay far below this limit; a gigabyte of zeros in a few kilobytes is rejected. If
the option is set, its value is the limit, whatever the compressed size.
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

from kconsumer._core.decode import DecompressionError as DecompressionError
from kconsumer._core.decode import OutputLimitError as OutputLimitError
from kconsumer._core.decode import lz4_block, max_zstd_size, snappy_size, use_codecs, use_library, xerial_block
from kconsumer._core.wire import Slice

Packed = Slice | memoryview | bytes
Plain = Slice | bytes | bytearray


@functools.cache  # an import statement in each call would take as long as finding the records of a small batch
def _library(name: str) -> Any:
    """Import the library of a codec. Returns the module.

    The compiled core can call the C functions of lz4 and zstd without Python. For these codecs, this function passes
    the path of a shared library to the core: a module of the package itself, or else the library of the system. If
    there is none, or the machine has one processor, all batches are decompressed through Python.
    """
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

# One step of decompression may add _STEP_BYTES plus _STEP_RATIO times the compressed size to the output. One step is
# enough for most batches.
_STEP_RATIO = 8
_STEP_BYTES = 64 << 10

_GZIP_MAGIC = b"\x1f\x8b\x08"  # with the number of the only compression method
_GZIP_HEADER_BYTES = 10  # before optional fields, whose flags are these
_GZIP_CHECKSUM, _GZIP_EXTRA, _GZIP_NAME, _GZIP_COMMENT = 2, 4, 8, 16
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_SNAPPY_MAX_RATIO = 22  # the densest element is a 64-byte copy written in 3 bytes
_LZ4_MAX_RATIO = 255  # a length byte of 255 adds 255 bytes to the output
_LZ4_FLAGS_AT = 4
_ZSTD_BLOCK_BYTES = 128 << 10
_ZSTD_STEP_BYTES = 512  # of input; the densest block is 4 bytes for 128 KiB, so the output is at most 16 MiB
_XXH_PRIMES = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)


def output_limit(compressed_bytes: int) -> int:
    """Returns the maximum size of the decompressed output, in bytes, for a batch of `compressed_bytes` bytes."""
    return max(MIN_OUTPUT_LIMIT, MAX_RATIO * compressed_bytes)


def decompress(codec: int, data: Packed, limit: int, magic: int = 2) -> Plain:
    """Returns the decompressed `data`: at most `limit` bytes, or a Slice of `data` if its block is not compressed.

    `codec` is the number in the batch's attributes (1 gzip, 2 snappy, 3 lz4, 4 zstd), and `magic` the message format.
    Raises DecompressionError for an unknown codec and for malformed data, OutputLimitError if the output is larger than
    the limit.
    """
    reader = _READERS.get(codec)
    if reader is None:
        raise DecompressionError(f"compression codec {codec} does not exist")
    if magic < 2 and reader is _unzstd:
        raise DecompressionError(f"zstd: message format {magic} is older than this codec and cannot hold it")
    if magic == 0 and reader is _unlz4:
        data = with_correct_lz4_checksum(data)
    return reader(data, limit)


def _gunzip(data: Packed, limit: int) -> Plain:
    return _collect("gzip", _gzip_parts(data, limit), limit)


def _gzip_parts(data: Packed, limit: int) -> Iterator[bytes]:
    """Yields the output of all members of a gzip stream, one after the other.

    Bytes after a member that are not the header of another one, such as padding, are ignored, as Java does.
    """
    step = _step(len(data), limit)
    left: Packed = data
    while True:
        inflater = zlib.decompressobj(wbits=31)
        while not inflater.eof:
            try:
                part = inflater.decompress(left, step)
            except zlib.error as error:
                raise DecompressionError(f"gzip: {error}") from error
            left = inflater.unconsumed_tail
            if not part and not left and not inflater.eof:
                raise DecompressionError("gzip: the stream is truncated")
            yield part
        left = inflater.unused_data
        if not _has_gzip_header(left):
            return


def _has_gzip_header(data: bytes) -> bool:
    """Returns True if the data begin with a complete header of a gzip member (RFC 1952)."""
    if len(data) < _GZIP_HEADER_BYTES or data[:3] != _GZIP_MAGIC:
        return False
    flags, end = data[3], _GZIP_HEADER_BYTES
    if flags & _GZIP_EXTRA:
        end += 2 + int.from_bytes(data[end : end + 2], "little")
    for text in (_GZIP_NAME, _GZIP_COMMENT):
        if flags & text:
            end = data.find(b"\0", end) + 1
            if end <= 0:
                return False
    if not flags & _GZIP_CHECKSUM:
        return end <= len(data)
    return data[end : end + 2] == (zlib.crc32(data[:end]) & 0xFFFF).to_bytes(2, "little")


def _unsnappy(data: Packed, limit: int) -> Plain:
    """Decompress snappy data. Returns the output.

    The data are blocks in xerial framing, which Java writes, or a single raw block, which some other clients write.
    """
    block = xerial_block(data)
    if block is not None:
        return _snappy_block(block, limit)
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _snappy_block(view, limit)
    if len(view) < _XERIAL_HEADER_BYTES:
        raise DecompressionError("snappy: the xerial header is truncated")
    return _collect("snappy", _xerial_parts(view, limit), limit)


def _xerial_parts(view: memoryview, limit: int) -> Iterator[bytes]:
    at = _XERIAL_HEADER_BYTES
    while at < len(view):
        if len(view) - at < 4:
            raise DecompressionError("snappy: a block size is truncated")
        (size,) = struct.unpack_from(">i", view, at)
        at += 4
        if not 0 <= size <= len(view) - at:
            raise DecompressionError(f"snappy: a block of {size} bytes, but {len(view) - at} are left")
        yield _snappy_block(view[at : at + size], limit)
        at += size


def _snappy_block(block: Slice | memoryview, limit: int) -> bytes:
    """Decompress one raw block. Returns the output.

    First checks the size that the block declares, because the library allocates memory of this size without a check.
    """
    size = snappy_size(block)
    if size < 0:
        raise DecompressionError("snappy: the block has no size")
    if size > _SNAPPY_MAX_RATIO * len(block):
        raise DecompressionError(f"snappy: {len(block)} bytes cannot contain the {size} that the block declares")
    if size > limit:
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
    block, max_size = ordinary
    if not max_size:
        return _within("lz4", block, limit)
    lz4 = _library("lz4.block")
    try:
        whole: bytes = lz4.decompress(block, uncompressed_size=min(max_size, limit + 1))
    except (lz4.LZ4BlockError, MemoryError):
        return _unlz4_frame(data, limit)  # the stream reader finds the cause, or that the output is too large
    return _within("lz4", whole, limit)


def _unlz4_frame(data: Packed, limit: int) -> Plain:
    """Decompress a frame of any kind. Only the first frame is read, as in Java."""
    lz4 = _library("lz4.frame")
    try:
        if _LZ4_MAX_RATIO * len(data) <= limit and lz4.get_frame_info(data)["content_size"] <= limit:
            whole: bytes = lz4.decompress(data)
            return whole
        return _collect("lz4", _lz4_parts(data, limit), limit)
    except (RuntimeError, MemoryError) as error:
        raise DecompressionError(f"lz4: {error}") from error


def _lz4_parts(data: Packed, limit: int) -> Iterator[bytes]:
    step = _step(len(data), limit)
    reader = _library("lz4.frame").LZ4FrameDecompressor()
    part = reader.decompress(data, step)
    while True:
        yield part
        if reader.eof:
            return
        if not part and reader.needs_input:
            raise DecompressionError("lz4: the frame is truncated")
        part = reader.decompress(b"", step)


def with_correct_lz4_checksum(data: Packed) -> bytes:
    """Returns a copy of a frame with the correct header checksum.

    For message format 0 producers compute the checksum over the magic number of the frame, too, as Kafka's first lz4
    writer did by mistake. The library would reject such a frame, so the checksum is replaced.
    """
    frame = bytearray(data)
    if len(frame) > _LZ4_FLAGS_AT:
        flags = frame[_LZ4_FLAGS_AT]
        at = _LZ4_FLAGS_AT + 2 + 8 * (flags >> 3 & 1) + 4 * (flags & 1)  # after content size and dictionary id
        if at < len(frame):
            frame[at] = xxh32(frame[_LZ4_FLAGS_AT:at]) >> 8 & 0xFF
    return bytes(frame)


def xxh32(data: bytes | bytearray) -> int:
    """Returns the XXH32 hash of `data` with seed 0. Works only for less than 16 bytes, as in an lz4 frame header."""
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


class _ThreadCache(threading.local):
    """The values that each thread keeps between its calls of zstd."""

    #: Only one thread at a time may use a context. Creating one takes as long as decompressing a small batch (20 µs).
    context: Any = None
    #: The number of bytes that are allocated for a frame of one block. Half a block is enough for the batches that
    #: producers write by default, and avoids the page faults of releasing the unused half of a block. The value becomes
    #: a whole block after it was too small once.
    output_size = _ZSTD_BLOCK_BYTES // 2


_cache = _ThreadCache()


def _unzstd(data: Packed, limit: int) -> Plain:
    zstandard = _library("zstandard")
    context = _cache.context
    if context is None:
        context = _cache.context = zstandard.ZstdDecompressor()
    max_size = max_zstd_size(data)
    output_size = _step(len(data), limit) if max_size > _ZSTD_BLOCK_BYTES else min(_cache.output_size, limit + 1)
    if 0 < max_size <= output_size + _ZSTD_BLOCK_BYTES:  # otherwise the output is too large, or it is not one frame
        try:
            whole: bytes = context.decompress(data, max_output_size=min(max_size, output_size))
        except (zstandard.ZstdError, MemoryError):
            pass  # too large, or malformed: the stream reader below determines which
        else:
            return _within("zstd", whole, limit)
    try:
        streamed = _collect("zstd", _zstd_parts(context, data, limit), limit)
    except zstandard.ZstdError as error:
        raise DecompressionError(f"zstd: {error}") from error
    if 0 < max_size <= _ZSTD_BLOCK_BYTES:
        _cache.output_size = _ZSTD_BLOCK_BYTES
    return streamed


def _zstd_parts(context: Any, data: Packed, limit: int) -> Iterator[bytes]:
    """Yields the output of all frames, in steps.

    The caller can check the limit after each step. It cannot do so before, because the frames that Java writes do not
    contain the size of their content.
    """
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
            raise DecompressionError("zstd: the frame is truncated")


def _collect(name: str, parts: Iterator[bytes], limit: int) -> Plain:
    """Returns the joined parts. Raises OutputLimitError as soon as they exceed `limit`.

    If there is only one part, returns it without a copy.
    """
    first = next(parts, b"")
    if len(first) > limit:
        raise _too_large(name, limit)
    out: bytes | bytearray = first
    for part in parts:
        if not part:
            continue
        if len(out) + len(part) > limit:
            raise _too_large(name, limit)
        if not isinstance(out, bytearray):
            out = bytearray(out)
        out += part
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
