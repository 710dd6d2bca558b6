"""What `FakeCluster.produce` accepts, and how it spreads records over partitions as a Java producer does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kconsumer.testing.records import CODECS, Rec

Headers = Sequence[tuple[str | bytes, bytes | None]]
Value = bytes | bytearray | memoryview | str | None
ProduceLike = Rec | Value | tuple[Value, Value]

BATCH_BYTES = 512 << 10
RECORD_OVERHEAD = 64  # an upper bound of what a record needs besides key and value, roughly


class Producer(NamedTuple):
    """The producer of a transactional batch."""

    id: int
    epoch: int
    base_sequence: int


class RecordMetadata(NamedTuple):
    """Where a produced record is."""

    topic: str
    partition: int
    offset: int


def as_records(values: ProduceLike | Iterable[ProduceLike], key: Value, headers: Headers) -> list[Rec]:
    """Returns the records to produce. `key` and `headers` are used for records that have none of their own.

    Raises TypeError if a value has a type that `FakeCluster.produce` does not accept.
    """
    rows: Iterable[object]
    if values is None or isinstance(values, Rec | bytes | bytearray | memoryview | str):
        rows = [values]
    else:
        rows = values
    encoded_key = _encoded(key, "key")
    return [_as_record(row, encoded_key, headers) for row in rows]


def _as_record(row: object, key: bytes | None, headers: Headers) -> Rec:
    if isinstance(row, Rec):
        own_key = key if row.key is None else _encoded(row.key, "key")
        return row._replace(value=_encoded(row.value, "value"), key=own_key, headers=row.headers or headers)
    if isinstance(row, tuple):
        if len(row) != 2:
            raise TypeError(f"a tuple is a pair (key, value); this one has {len(row)} elements: {row!r}")
        return Rec(_encoded(row[1], "value"), _encoded(row[0], "key"), headers)
    return Rec(_encoded(row, "value"), key, headers)


def _encoded(data: object, name: str) -> bytes | None:
    """Returns a key or value as bytes. Text is encoded as UTF-8."""
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"a {name} is bytes, str or None; not {type(data).__name__}; for JSON write json.dumps({name})")


def split(records: Iterable[Rec]) -> Iterator[list[Rec]]:
    """Yields the records in batches: each list contains the records of one batch, without their offsets.

    A batch ends with the record with which its size reaches BATCH_BYTES.
    """
    rows: list[Rec] = []
    size = 0
    for record in records:
        rows.append(record._replace(offset=None))
        size += len(record.key or b"") + len(record.value or b"") + RECORD_OVERHEAD
        if size >= BATCH_BYTES:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def check_compression(compression: str | None) -> str:
    """Returns the codec: `compression`, or "none" if it is None. Raises ValueError if no codec has this name."""
    codec = compression or "none"
    if codec not in CODECS:
        raise ValueError(f"there is no compression {compression!r}; there are {', '.join(CODECS)}")
    return codec


class Partitioner:
    """Chooses the partitions of records: by the hash of the key, or in turn for records without a key."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def partition(self, topic: str, key: bytes | None, count: int) -> int:
        """Returns the partition for a record with this key, in a topic with `count` partitions."""
        if key is not None:
            return (murmur2(key) & 0x7FFF_FFFF) % count
        index = self._next.get(topic, 0)
        self._next[topic] = index + 1
        return index % count


def murmur2(data: bytes) -> int:
    """Returns the 32-bit hash by which Java's producer chooses the partition of a key."""
    m, mask = 0x5BD1_E995, 0xFFFF_FFFF
    h = (0x9747_B28C ^ len(data)) & mask
    whole = len(data) & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k = (k ^ (k >> 24)) * m & mask
        h = (h * m & mask) ^ k
    if len(data) > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return h ^ (h >> 15)
