"""Builders of lz4 and zstd frames from their parts, any of which may be invalid."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from kconsumer._internal.compression import xxh32


def lz4_frame(blocks: Iterable[bytes], *, sizes: bytes = b"\x60\x40") -> bytes:
    """Returns a frame of compressed blocks; `sizes` are its two bytes of flags and block size."""
    body = b"".join(struct.pack("<I", len(block)) + block for block in blocks)
    return b"\x04\x22\x4d\x18" + sizes + bytes([xxh32(sizes) >> 8 & 0xFF]) + body + bytes(4)


def zstd_frame(
    blocks: list[tuple[int, int, bytes]], *, flags: int = 0, window: int = 0x58, after: bytes = b""
) -> bytes:
    """Returns a frame of blocks: type (0 raw, 1 run, 2 compressed), size, bytes. `after`: header after the window."""
    out = b"\x28\xb5\x2f\xfd" + bytes([flags, window]) + after
    for i, (kind, size, data) in enumerate(blocks, 1):
        out += struct.pack("<I", size << 3 | kind << 1 | (i == len(blocks)))[:3] + data
    return out
