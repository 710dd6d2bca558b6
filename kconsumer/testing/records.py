"""The input of the batch builders: records as tests specify them, and the compression codecs.

`batches` and `message_sets` encode the records.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

GZIP_WINDOW_BITS = 31  # zlib's largest window, with a header and trailer of gzip

_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024


class Rec(NamedTuple):
    """One record to encode."""

    value: bytes | None = None
    key: bytes | None = None
    headers: Sequence[tuple[str | bytes, bytes | None]] = ()
    timestamp: int | None = None  # ms since the Unix epoch; None: the timestamp of the batch
    offset: int | None = None  # absolute; None: the offset after the previous record
    attributes: int = 0


RecordLike = Rec | bytes | None | tuple[bytes | None, bytes | None]


def as_record(like: RecordLike) -> Rec:
    """Returns a `Rec` for a `Rec`, a value, or a pair (key, value)."""
    if isinstance(like, Rec):
        return like
    if like is None or isinstance(like, bytes):
        return Rec(like)
    key, value = like
    return Rec(value, key)


def compress(codec: str, data: bytes, *, snappy_framing: str = "xerial") -> bytes:
    """Returns `data`, compressed like a producer's batch. Raises ValueError for an unknown codec or framing."""
    match codec:
        case "none":
            return data
        case "gzip":
            compressor = zlib.compressobj(9, wbits=GZIP_WINDOW_BITS)  # gzip.compress depends on the version of Python
            return compressor.compress(data) + compressor.flush()
        case "snappy":
            return _snappy(data, snappy_framing)
        case "lz4":
            import lz4.frame

            compressed: bytes = lz4.frame.compress(data, block_linked=False, store_size=False)
            return compressed
        case "zstd":
            import zstandard

            return zstandard.ZstdCompressor(write_content_size=False).compress(data)
    raise ValueError(f"no codec is called {codec!r}; there are {', '.join(CODECS)}")


def _snappy(data: bytes, framing: str) -> bytes:
    import snappy

    if framing == "raw":
        raw: bytes = snappy.compress(data)
        return raw
    if framing != "xerial":
        raise ValueError(f'snappy framing is "xerial" or "raw", not {framing!r}')
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = snappy.compress(data[start : start + _XERIAL_BLOCK])
        out += struct.pack(">i", len(block)) + block
    return bytes(out)
