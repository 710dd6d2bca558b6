"""Hash codes of strings, as Java computes them."""

from __future__ import annotations

import struct

SIGN = 0x8000_0000


def java_hash_code(text: str) -> int:
    """Returns Java's `String.hashCode`, as an unsigned number of 32 bits."""
    found = 0
    for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be")):
        found = (31 * found + unit) & 0xFFFF_FFFF
    return found


def java_hash(text: str) -> int:
    """Returns the hash by which Kafka distributes keys: the absolute value of Java's hash code.

    The smallest number has no absolute value in Java; Kafka replaces it with 0.
    """
    code = java_hash_code(text)
    return code if code < SIGN else (SIGN * 2 - code) % SIGN
