"""Nanoseconds per record, bytes in memory to what a loop sees: `python benchmarks/micro/decode.py [records]`.

Corpus: batches of 160 records with an 8-byte key and a 100-byte value of words, taken 500 at a time as a poll does.
Each figure is the best of several rounds in one process; the garbage collector stays on.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterable

from kconsumer._core.building import build
from kconsumer._core.fetch import PartitionFetch
from kconsumer.arrow import COLUMNS
from kconsumer.deserializers import adapt
from kconsumer.records import ConsumerRecords
from kconsumer.testing.batches import CODECS, Rec, build_batch
from kconsumer.types import TopicPartition

TP = TopicPartition("bench", 0)
BATCH, POLL, ROUNDS = 160, 500, 7
COLUMNS_POLL = 20_000  # rows that poll_arrow returns at most, unless told otherwise

Loop = Callable[[ConsumerRecords], object]


def corpus(records: int, codec: str = "none", headers: Iterable[tuple[str, bytes]] = ()) -> bytes:
    """Batches of `BATCH` records, the same in every run."""
    rng = random.Random(1)
    words = [rng.randbytes(3).hex() for _ in range(2000)]
    batches = []
    for base in range(0, records, BATCH):
        values = [" ".join(rng.choices(words, k=15))[:100].encode() for _ in range(BATCH)]
        recs = [Rec(v, b"%08d" % (base + i), tuple(headers), 1_700_000_000_000 + i) for i, v in enumerate(values)]
        batches.append(build_batch(recs, base_offset=base, timestamp=1_700_000_000_000, codec=codec))
    return b"".join(batches)


def best(measure: Callable[[], tuple[float, int]]) -> float:
    """The least ns per record of several rounds; `measure` returns seconds and records."""
    return min(seconds / count * 1e9 for seconds, count in (measure() for _ in range(ROUNDS)))


def scan(data: bytes, **options: bool) -> float:
    """Checksums, decompression, walking and checking every record; no record objects."""

    def measure() -> tuple[float, int]:
        fetch, count = PartitionFetch(TP, data, 0, **options), 0
        started = time.perf_counter()
        while not fetch.exhausted:
            count += len(fetch.take(POLL))
        return time.perf_counter() - started, count

    return best(measure)


def columns(data: bytes, names: tuple[str, ...]) -> float:
    """Checksums, walking and checking every record, and Arrow columns of them."""

    def measure() -> tuple[float, int]:
        fetch, count = PartitionFetch(TP, data, 0), 0
        started = time.perf_counter()
        while not fetch.exhausted:
            count += sum(map(len, build((fetch.take(COLUMNS_POLL),), names)))
        return time.perf_counter() - started, count

    return best(measure)


def loop(data: bytes, body: Loop, *, value: object = None) -> float:
    """What `body` costs over results of `POLL` records that are there already."""
    deserializer = None if value is None else adapt(value, "value")

    def measure() -> tuple[float, int]:
        fetch, seconds, count = PartitionFetch(TP, data, 0), 0.0, 0
        while not fetch.exhausted:
            run = fetch.take(POLL)
            started = time.perf_counter()
            if deserializer is not None:
                run.deserialize(None, deserializer)
            body(ConsumerRecords([run]))
            seconds += time.perf_counter() - started
            count += len(run)
        return seconds, count

    return best(measure)


def nothing(records: ConsumerRecords) -> None:
    for _ in records:
        pass


def values(records: ConsumerRecords) -> int:
    total = 0
    for record in records:
        total += len(record.value)
    return total


def three(records: ConsumerRecords) -> None:
    for record in records:
        record.key, record.value, record.offset  # noqa: B018  (reading them is what is measured)


def headers(records: ConsumerRecords) -> None:
    for record in records:
        record.headers  # noqa: B018  (reading them is what is measured)


def main() -> None:
    """Print the table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 160_000
    data = corpus(count)
    with_headers = corpus(count, headers=[("trace", b"0123456789abcdef"), ("source", b"bench")])
    print(f"{count} records, {len(data) / count:.0f} bytes each; Python {sys.version.split()[0]}; ns per record")
    rows: list[tuple[str, float]] = [
        ("scan, checksums on", scan(data)),
        ("scan, checksums off", scan(data, check_crcs=False)),
        ("Arrow columns: key, value, offset, timestamp", columns(data, ("key", "value", "offset", "timestamp"))),
        ("Arrow columns: all nine", columns(data, COLUMNS)),
        ("Arrow columns: all nine, two headers a record", columns(with_headers, COLUMNS)),
        ("loop, nothing read", loop(data, nothing)),
        ("loop, len(record.value)", loop(data, values)),
        ("loop, key, value and offset", loop(data, three)),
        ("list(records)", loop(data, list)),
        ("loop, two headers read", loop(with_headers, headers)),
        ("value_deserializer=bytes.decode, loop, len(record.value)", loop(data, values, value=bytes.decode)),
    ]
    for codec in CODECS:
        if codec != "none":
            rows.append((f"scan, {codec}", scan(corpus(count, codec))))
    for name, ns in rows:
        print(f"  {name:58} {ns:8.1f}")


if __name__ == "__main__":
    main()
