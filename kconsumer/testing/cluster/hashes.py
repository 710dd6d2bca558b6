"""The hash code of strings, as Kafka computes it."""

from __future__ import annotations

import struct

SIGN = 0x8000_0000


def java_hash(text: str) -> int:
    """Returns the absolute value of Java's `String.hashCode`, as Kafka's `Utils.abs` computes it.

    The smallest 32-bit number has no absolute value in Java; Kafka replaces it with 0. The hash of a group or
    transactional id selects its partition in an internal topic.
    """
    code = 0
    for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be")):
        code = (31 * code + unit) & 0xFFFF_FFFF
    return code if code < SIGN else (SIGN * 2 - code) % SIGN
