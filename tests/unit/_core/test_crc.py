"""Checksums equal published vectors and the slow reference implementation."""

from __future__ import annotations

import zlib

import pytest

from kconsumer._core.decode import crc32, crc32c, crc32c_kinds
from support.oracles.reference import crc32c as slow_crc32c


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_crc32c_vectors(data: bytes, expected: int) -> None:
    """The check value of the CRC catalogues and the vectors of RFC 3720 are computed."""
    assert expected == crc32c(data) == slow_crc32c(data)


@pytest.mark.parametrize("kind", crc32c_kinds())
def test_every_way_of_this_machine(kind: int) -> None:
    """Each implementation, including the crc32c package, gives the same checksum around every size at which another
    loop begins.
    """
    data = bytes(i * 31 & 0xFF for i in range(1200))
    sizes = [*range(90), *range(120, 140), *range(250, 330), *range(500, 590), 767, 768, 769, 1023, 1024, 1199]
    for size in sizes:
        view = memoryview(data)[size % 5 :][:size]
        assert slow_crc32c(bytes(view)) == crc32c(view, kind), size


def test_only_the_ways_of_this_machine() -> None:
    """An implementation whose instructions this machine lacks is refused before it runs."""
    with pytest.raises(ValueError, match="no method 9"):
        crc32c(b"123456789", 9)


def test_crc32_is_zlibs() -> None:
    """CRC-32, the checksum of the old message formats, equals that of zlib."""
    assert 0xCBF43926 == crc32(b"123456789")
    assert zlib.crc32(bytes(100_000)) == crc32(bytes(100_000))
    assert 0 == crc32(b"")


@pytest.mark.parametrize("size", [1, 31, 4095, 70_000])
@pytest.mark.parametrize("start", [0, 1, 7])
def test_any_size_and_alignment(size: int, start: int) -> None:
    """Checksums are right for views of any start and end, including short ones and ones read without the GIL."""
    data = bytes(i * 7 & 0xFF for i in range(size + start))
    assert slow_crc32c(data[start:]) == crc32c(memoryview(data)[start:])
