"""TableContents: the entries of a table, as the records of a topic change them. Does no I/O.

Decides which record sets or deletes which entry, how the size of a table is counted, and which entries disappear when a
partition is read again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from kconsumer._core.decode import ConsumerRecord
from kconsumer.errors import ConfigError, TableTooLargeError
from kconsumer.types import V

K = TypeVar("K")  # not covariant, because a read takes a key
Change = tuple[K, V | None]  # a key, and its new value; None if the entry was deleted


class TableContents(Generic[K, V]):
    """The newest value of each key. One thread changes the entries; any thread may read `values`.

    Each change is one step of the dict `values`, and so is a copy of it. So a copy has the entries of one moment.
    """

    def __init__(self, topic: str, max_entries: int | None, max_bytes: int | None) -> None:
        self.values: dict[K, V] = {}
        self.bytes = 0  # the serialized keys and values
        self.skipped = 0  # records without a key
        self._topic = topic
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._origins: dict[K, tuple[int, int]] = {}  # of each entry: its partition and its size in bytes
        # Partitions that are read again -> their keys of before that have not been found again yet.
        self._unseen: dict[int, set[K]] = {}

    def apply(self, records: Iterable[ConsumerRecord[Any, Any]]) -> list[Change[K, V]]:
        """Apply records in their order. Returns the changes.

        Raises TableTooLargeError before the table exceeds a limit, and ConfigError for a key that is not hashable.
        """
        changes: list[Change[K, V]] = []
        for record in records:
            if record.serialized_key_size < 0:
                self.skipped += 1
                continue
            key = record.key
            _check_hashable(record)
            unseen = self._unseen.get(record.partition)
            if unseen:
                unseen.discard(key)
            if record.serialized_value_size >= 0:
                self._set(record)
                changes.append((key, record.value))
            elif key in self.values:
                self._delete(key)
                changes.append((key, None))
        return changes

    def _set(self, record: ConsumerRecord[Any, Any]) -> None:
        key, size = record.key, record.serialized_key_size + record.serialized_value_size
        before = self._origins.get(key)
        total = self.bytes + size - (0 if before is None else before[1])
        if before is None and len(self.values) == self._max_entries:
            self._refuse(f"{self._max_entries} entries", "max_entries")
        if self._max_bytes is not None and total > self._max_bytes:
            self._refuse(f"{self._max_bytes} bytes of keys and values", "max_bytes")
        self.values[key] = record.value
        self._origins[key] = record.partition, size
        self.bytes = total

    def _refuse(self, limit: str, option: str) -> None:
        raise TableTooLargeError(
            f"the table of {self._topic} needs more than {limit}: increase {option}, or read fewer keys"
        )

    def _delete(self, key: K) -> None:
        del self.values[key]
        self.bytes -= self._origins.pop(key)[1]

    # --- partitions that are read again ------------------------------------------------------------------------------

    def restart(self, partition: int) -> None:
        """Note that the records of a partition come again from its beginning. Its entries stay until `finish`."""
        self._unseen[partition] = {key for key, origin in self._origins.items() if origin[0] == partition}

    def finish(self, partition: int) -> list[Change[K, V]]:
        """Delete the entries that a partition did not have any more when it was read again. Returns the changes."""
        origins = self._origins
        lost = [key for key in self._unseen.pop(partition, ()) if key in origins and origins[key][0] == partition]
        for key in lost:
            self._delete(key)
        return [(key, None) for key in lost]


def _check_hashable(record: ConsumerRecord[Any, Any]) -> None:
    try:
        hash(record.key)
    except TypeError as error:
        raise ConfigError(
            f"a key of {record.topic_partition}, at offset {record.offset}, is a {type(record.key).__name__}, which"
            f" cannot be a key of a table ({error}): choose a key_deserializer that returns hashable objects, such as"
            " str, or leave it out for bytes"
        ) from error
