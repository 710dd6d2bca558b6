"""Compresses data as Kafka's Java clients do, with the four codecs of record batches.

The library of a codec is imported at the first use. `kconsumer/_internal/compression.py` decompresses.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

NONE = 0

GZIP_WINDOW_BITS = 31  # zlib's largest window, with a header and trailer of gzip

_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024


def gzip(data: bytes) -> bytes:
    """Returns a gzip stream."""
    compressor = zlib.compressobj(9, wbits=GZIP_WINDOW_BITS)  # gzip.compress depends on the version of Python
    return compressor.compress(data) + compressor.flush()


def snappy(data: bytes) -> bytes:
    """Returns snappy blocks in xerial framing, which Java reads and writes."""
    from snappy import compress

    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = compress(data[start : start + _XERIAL_BLOCK])
        out += struct.pack(">i", len(block)) + block
    return bytes(out)


def lz4(data: bytes) -> bytes:
    """Returns an lz4 frame with independent blocks, the only kind that Java reads."""
    from lz4.frame import compress

    compressed: bytes = compress(data, block_linked=False, store_size=False)
    return compressed


def zstd(data: bytes) -> bytes:
    """Returns a zstd frame."""
    from zstandard import ZstdCompressor

    return ZstdCompressor(write_content_size=False).compress(data)


#: By the number of the codec in record batches and in PushTelemetry. 0 stands for no compression.
COMPRESSORS: Mapping[int, Callable[[bytes], bytes]] = {NONE: bytes, 1: gzip, 2: snappy, 3: lz4, 4: zstd}


def compress_with_first(codecs: Iterable[int], data: bytes) -> tuple[int, bytes]:
    """Compress with the first of `codecs` that is known and whose library can be imported.

    Returns the number of the codec and the result. If there is none, returns NONE and `data`.
    """
    for codec in codecs:
        if codec in COMPRESSORS:
            with suppress(ImportError):
                return codec, COMPRESSORS[codec](data)
    return NONE, data
