"""The input of the batch builders: records as tests specify them, and the compression codecs.

`batches` encodes the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kconsumer.telemetry.compressors import COMPRESSORS

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


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
    if codec not in CODECS:
        raise ValueError(f"no codec is called {codec!r}; there are {', '.join(CODECS)}")
    if codec == "snappy" and snappy_framing == "raw":
        import snappy

        raw: bytes = snappy.compress(data)
        return raw
    if snappy_framing not in ("xerial", "raw"):
        raise ValueError(f'snappy framing is "xerial" or "raw", not {snappy_framing!r}')
    return COMPRESSORS[CODECS[codec]](data)
