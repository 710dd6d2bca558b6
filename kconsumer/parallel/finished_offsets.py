"""Finished records beyond the committed offset, as text for the metadata of a commit.

The text is `kp1`, a letter for the encoding, and base64 without padding. The bytes begin with the committed offset as a
varint. So metadata that was copied to another offset is noticed. Then follows, by the letter:

- `r`: lengths of runs as varints. The first run is unfinished, the next one finished, and so on.
- `b`: a bit for each offset, the lowest bit first. A finished offset has a 1.

`encode` uses the shorter encoding. Brokers limit the length of metadata (`offset.metadata.max.bytes`, 4096 by default).
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Sequence

PREFIX = "kp1"
RUNS, BITS = "r", "b"
MAX_METADATA_BYTES = 4096  # the default of brokers
MAX_OFFSET = 2**63 - 1
MAX_VARINT_BYTES = 9  # of an offset

Ranges = Sequence[tuple[int, int]]  # (first offset, last offset + 1), sorted and disjoint


def encode(offset: int, finished: Ranges, limit: int = MAX_METADATA_BYTES) -> tuple[str, bool]:
    """Returns metadata for a commit of `offset`, and whether it contains all `finished` ranges, which begin beyond it.

    If all ranges do not fit into `limit` characters, the first ranges are contained.
    """
    if not finished:
        return "", True
    room = _room(limit)
    runs, fitting = _runs(offset, finished, room)
    complete = fitting == len(finished)
    span = finished[-1][1] - offset
    if not complete or span // 8 < len(runs):
        bits = _varint(offset) + _bits(offset, finished) if span // 8 < room else b""
        if bits and len(bits) <= room and (not complete or len(bits) < len(runs)):
            return _text(BITS, bits), True
    return (_text(RUNS, runs) if fitting else ""), complete


def max_span(limit: int = MAX_METADATA_BYTES) -> int:
    """Returns within how many offsets any ranges fit into `limit` characters, as bits."""
    return max(0, 8 * (_room(limit) - MAX_VARINT_BYTES))


def runs_fit(span: int, ranges: int, limit: int = MAX_METADATA_BYTES) -> bool:
    """Returns True if any ranges up to this number, within this many offsets, fit into `limit` characters as runs.

    Each range has two numbers, and the sum of all numbers is the span at most. A number x needs up to 1 + x/128 bytes,
    and up to 1 + log128(x). The sum of the logarithms is largest if all numbers are equal.
    """
    numbers = 2 * ranges
    further = min(span / 128, numbers * math.log(1 + span / max(1, numbers), 128))
    return numbers + further + MAX_VARINT_BYTES <= _room(limit)


def decode(metadata: str, offset: int) -> list[tuple[int, int]]:
    """Returns the finished ranges in the metadata of a commit of `offset`. Other metadata have none.

    The producer of confluent-kafka appends a NUL character. Raises ValueError if the metadata are damaged, or belong to
    another offset.
    """
    if not metadata.startswith(PREFIX):
        return []
    kind, text = metadata[len(PREFIX) : len(PREFIX) + 1], metadata[len(PREFIX) + 1 :].removesuffix("\0")
    if kind not in (RUNS, BITS):
        raise ValueError(f"unknown encoding {kind!r}")
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"not base64: {error}") from error
    at, base = _read_varint(data, 0)
    if base != offset:
        raise ValueError(f"it belongs to offset {base}")
    return _read_runs(data, at, offset) if kind == RUNS else _read_bits(data[at:], offset)


def _room(limit: int) -> int:
    """Returns how many bytes fit into this many characters."""
    return max(0, limit - len(PREFIX) - 1) * 3 // 4


def _text(kind: str, data: bytes) -> str:
    return PREFIX + kind + base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _runs(offset: int, finished: Ranges, room: int) -> tuple[bytes, int]:
    """Returns the offset and the runs of the first ranges, in at most `room` bytes, and the number of these ranges."""
    data, at = bytearray(_varint(offset)), offset
    for count, (start, end) in enumerate(finished):
        run = _varint(start - at) + _varint(end - start)
        if len(data) + len(run) > room:
            return bytes(data), count
        data += run
        at = end
    return bytes(data), len(finished)


def _read_runs(data: bytes, at: int, offset: int) -> list[tuple[int, int]]:
    ranges = []
    while at < len(data):
        at, unfinished = _read_varint(data, at)
        at, finished = _read_varint(data, at)
        start = offset + unfinished
        offset = start + finished
        if offset > MAX_OFFSET:
            raise ValueError(f"offset {offset} does not exist")
        if finished:
            ranges.append((start, offset))
    return ranges


def _bits(offset: int, finished: Ranges) -> bytes:
    bits = 0
    for start, end in finished:
        bits |= ((1 << (end - start)) - 1) << (start - offset)
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def _read_bits(data: bytes, offset: int) -> list[tuple[int, int]]:
    ranges, start = [], -1
    bits = "".join(f"{byte:08b}"[::-1] for byte in data) + "0"
    for index, bit in enumerate(bits):
        if bit == "1" and start < 0:
            start = index
        elif bit == "0" and start >= 0:
            ranges.append((offset + start, offset + index))
            start = -1
    return ranges


def _varint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns the index after the varint at `at`, and its value."""
    value = 0
    for shift in range(0, 63, 7):
        if at >= len(data):
            raise ValueError("it ends in the middle of a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return at, value
    raise ValueError("a number has more than 63 bits")
