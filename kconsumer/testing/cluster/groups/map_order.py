"""The order in which Java's hash maps list their keys.

Kafka's server-side assignors iterate over hash maps of member ids, topic ids and partitions, so the assignment depends
on the order of these maps. The model uses the same order: for the same ids, it assigns the same partitions as Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from kconsumer.testing.cluster.hashes import java_hash_code

Key = TypeVar("Key")

DEFAULT_CAPACITY = 16  # of a HashMap
LOAD_FACTOR = 0.75
FIBONACCI_FACTOR = -7046029254386353131  # of a TimelineHashMap


def uuid_hash(uuid: bytes) -> int:
    """Returns the hash code of Kafka's `Uuid` as an unsigned number."""
    mixed = int.from_bytes(uuid[:8]) ^ int.from_bytes(uuid[8:])
    return (mixed ^ mixed >> 32) & 0xFFFF_FFFF


def hash_map_order(keys: Iterable[Key], hash_of: Callable[[Key], int], capacity: int = DEFAULT_CAPACITY) -> list[Key]:
    """Returns keys in the order in which a Java `HashMap` lists them.

    `keys`: in the order in which they are added to the map. `hash_of`: returns the hash code of a key. `capacity`: the
    initial capacity of the map.
    """
    keys = list(keys)
    while len(keys) > capacity * LOAD_FACTOR:
        capacity *= 2

    def bucket(key: Key) -> int:
        code = hash_of(key)
        return (code ^ code >> 16) & capacity - 1

    return sorted(keys, key=bucket)


def topic_order(topic_ids: Iterable[bytes]) -> list[bytes]:
    """Returns topic ids in the order of a Java hash map to which they were added in the order of `topic_ids`."""
    return hash_map_order(topic_ids, uuid_hash)


def partition_order(partitions: Collection[int]) -> list[int]:
    """Returns partitions in the order of a Java hash set."""
    return hash_map_order(sorted(partitions), int)


class TimelineOrder:
    """The order in which Kafka's `TimelineHashMap` lists its keys. It depends on the largest size of the map so far."""

    def __init__(self) -> None:
        self._capacity = 2

    def on_put(self, size: int) -> None:
        """Increase the capacity if necessary. Call this before each put, with the number of keys in the map."""
        if (size + 1) * LOAD_FACTOR > self._capacity:
            self._capacity *= 2

    def order(self, keys: Iterable[str]) -> list[str]:
        """Returns keys in the order in which the map lists them. `keys`: in the order in which they were added.

        Of the keys in one slot, the one that was added last comes first.
        """
        shift = 65 - self._capacity.bit_length()

        def slot(key: str) -> int:
            return (_signed(java_hash_code(key)) * FIBONACCI_FACTOR & 0xFFFF_FFFF_FFFF_FFFF) >> shift

        newest_first = list(keys)[::-1]
        return sorted(newest_first, key=slot)


def _signed(code: int) -> int:
    """Returns an unsigned 32-bit number as a signed one, as in Java."""
    return code - (1 << 32) if code >= 1 << 31 else code
