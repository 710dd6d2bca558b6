"""The order in which hash maps of Java and Scala list strings.

If several protocols of a classic group have equally many votes, the coordinator chooses the first one in this order.
"""

from __future__ import annotations

from collections.abc import Iterable

from kconsumer.testing.cluster.groups.map_order import hash_map_order
from kconsumer.testing.cluster.hashes import java_hash_code

MASK = 0xFFFF_FFFF


def java_order(names: Iterable[str]) -> list[str]:
    """Returns strings in the order of a Java HashMap, which the coordinator uses since Kafka 4.0."""
    return hash_map_order(names, java_hash_code)


def scala_order(names: Iterable[str]) -> list[str]:
    """Returns strings in the order of a Scala immutable HashMap, which the coordinator uses until Kafka 3.9."""
    return [name for _, name in _scala_node([(_scala_hash(name), name) for name in names], 0)]


def _scala_node(rows: list[tuple[int, str]], shift: int) -> list[tuple[int, str]]:
    """Returns (hash, name) pairs in the order of a trie node: first those that are alone in their slot.

    After them come the pairs of the child nodes. `shift`: the position of the hash bits that choose the slot.
    """
    slots: dict[int, list[tuple[int, str]]] = {}
    for row in rows:
        slots.setdefault(row[0] >> shift & 31, []).append(row)
    ordered = [slot for _, slot in sorted(slots.items())]
    alone = [slot[0] for slot in ordered if len(slot) == 1]
    if shift > 30:
        return rows
    return alone + [row for slot in ordered if len(slot) > 1 for row in _scala_node(slot, shift + 5)]


def _scala_hash(name: str) -> int:
    """Returns the hash code of a string, with the bits mixed as in Scala's collections."""
    code = java_hash_code(name)
    code = (code + (~(code << 9) & MASK)) & MASK
    code ^= code >> 14
    code = (code + (code << 4)) & MASK
    return code ^ (code >> 10)
