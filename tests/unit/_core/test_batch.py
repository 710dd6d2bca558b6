"""The batch builder of kconsumer.testing writes what the protocol guide says; the slow decoder reads it."""

from __future__ import annotations

import struct

import pytest

from kconsumer.testing.batches import (
    build_batch,
    compress,
    frame_batch,
)


def header(batch: bytes) -> tuple[int, ...]:
    """All header fields but the checksum: base offset, length, epoch, magic, attributes, last delta, times, …"""
    return struct.unpack(">qiib", batch[:17]) + struct.unpack(">hiqqqhii", batch[21:61])


def test_broken_on_purpose() -> None:
    """Checksum, count, length and magic can be set to anything."""
    assert 7 == struct.unpack(">I", build_batch([b"a"], crc=7)[17:21])[0]
    assert 9 == header(build_batch([b"a"], record_count=9))[11]
    assert (-5, 1) == header(frame_batch(b"", length=-5, magic=1))[1:4:2]


def test_unknown_codecs_and_framings() -> None:
    """The error for a misspelt name lists the valid names."""
    with pytest.raises(ValueError, match="zstd"):
        compress("zip", b"")
    with pytest.raises(ValueError, match="xerial"):
        compress("snappy", b"", snappy_framing="hadoop")
