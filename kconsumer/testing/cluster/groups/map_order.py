"""The order in which Java's hash maps list their keys.

The server-side assignors of Kafka go through hash maps of member ids, topic ids and partitions. So who gets which
partition depends on that order, and the model follows it: given the same ids, it assigns the same partitions.
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
    """Returns keys in the order of a `HashMap` to which they were added in the given order."""
    keys = list(keys)
    while len(keys) > capacity * LOAD_FACTOR:
        capacity *= 2

    def bucket(key: Key) -> int:
        code = hash_of(key)
        return (code ^ code >> 16) & capacity - 1

    return sorted(keys, key=bucket)


def topic_order(topic_ids: Iterable[bytes]) -> list[bytes]:
    """Returns topic ids, given in the order in which they were added, in the order of a hash map."""
    return hash_map_order(topic_ids, uuid_hash)


def partition_order(partitions: Collection[int]) -> list[int]:
    """Returns partitions in the order of a hash set."""
    return hash_map_order(sorted(partitions), int)


class TimelineOrder:
    """The order of the keys of a `TimelineHashMap`, which depends on how large the map has been."""

    def __init__(self) -> None:
        self._capacity = 2

    def on_put(self, size: int) -> None:
        """A key will be added to a map of `size` keys, or its value will be replaced."""
        if (size + 1) * LOAD_FACTOR > self._capacity:
            self._capacity *= 2

    def order(self, keys: Iterable[str]) -> list[str]:
        """Returns keys, given in the order in which they were added, in the order of the map.

        Of the keys in one slot, the one that was added last comes first.
        """
        shift = 65 - self._capacity.bit_length()

        def slot(key: str) -> int:
            return (_signed(java_hash_code(key)) * FIBONACCI_FACTOR & 0xFFFF_FFFF_FFFF_FFFF) >> shift

        newest_first = list(keys)[::-1]
        return sorted(newest_first, key=slot)


def _signed(code: int) -> int:
    """Returns a 32-bit number with its sign."""
    return code - (1 << 32) if code >= 1 << 31 else code
