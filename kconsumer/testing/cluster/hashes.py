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
    """Returns the absolute value of Java's hash code, as Kafka's `Utils.abs` computes it.

    The smallest 32-bit number has no absolute value in Java; Kafka replaces it with 0. The hash of a group or
    transactional id selects its partition in an internal topic.
    """
    code = java_hash_code(text)
    return code if code < SIGN else (SIGN * 2 - code) % SIGN
