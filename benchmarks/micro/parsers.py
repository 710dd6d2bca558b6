"""Our decoder and those of aiokafka and kafka-python on the same bytes: `python benchmarks/micro/parsers.py [records]`.

ns per record, from bytes in memory to what a loop sees, checksums on; the best of several rounds in one process.
"scan" finds and checks every record, "loop" makes record objects, "value" also reads every value. The others know no
stage before the object, which has its value. A dash: the parser is not installed, or cannot read that format or codec.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from corpora import HEADERS, batches, transactions

from kconsumer._core.fetch import PartitionFetch
from kconsumer.types import TopicPartition

TP = TopicPartition("bench", 0)
POLL, ROUNDS = 500, 5
CODECS = ("gzip", "snappy", "lz4", "zstd")

Reader = Callable[[bytes], int]


def corpora(count: int) -> Iterator[tuple[str, bytes]]:
    """Names and bytes."""
    yield "100 B", batches(count)
    yield "1 KB", batches(count // 4, size=1000)
    yield "100 B, two headers", batches(count, headers=HEADERS)
    yield "100 B, transactional", transactions(count)[0]
    for codec in CODECS:
        yield f"100 B, {codec}", batches(count, codec)
    yield "1 KB, lz4", batches(count // 4, "lz4", size=1000)
    for magic in (1, 0):
        yield f"100 B, format {magic}", batches(count // 4, magic=magic)
        yield f"100 B, format {magic}, gzip", batches(count // 4, "gzip", magic=magic)


def scan(data: bytes) -> int:
    """No record objects."""
    fetch, count = PartitionFetch(TP, data, 0), 0
    while not fetch.exhausted:
        count += len(fetch.take(POLL))
    return count


def loop(data: bytes) -> int:
    """Record objects of which nothing is read."""
    fetch, count = PartitionFetch(TP, data, 0), 0
    while not fetch.exhausted:
        for _ in fetch.take(POLL):
            count += 1
    return count


def value(data: bytes) -> int:
    """Record objects whose values are read."""
    fetch, count = PartitionFetch(TP, data, 0), 0
    while not fetch.exhausted:
        for record in fetch.take(POLL):
            record.value  # noqa: B018  (reading it is what is measured)
            count += 1
    return count


def peer(memory_records: Any) -> Reader:
    """The loop over the batches that aiokafka and kafka-python have in common."""

    def read(data: bytes) -> int:
        records, count = memory_records(data), 0
        while records.has_next():
            batch = records.next_batch()
            if not batch.validate_crc():
                raise ValueError("checksum")
            if getattr(batch, "is_control_batch", False):
                continue
            for record in batch:
                record.value  # noqa: B018  (reading it is what is measured)
                count += 1
        return count

    return read


def readers() -> dict[str, Reader | None]:
    """Ours by stage, then the others."""
    found: dict[str, Reader | None] = {
        "scan": scan,
        "loop": loop,
        "value": value,
        "aiokafka": None,
        "kafka-python": None,
    }
    with contextlib.suppress(ImportError):
        from aiokafka.record.memory_records import MemoryRecords

        found["aiokafka"] = peer(MemoryRecords)
    with contextlib.suppress(ImportError):
        from kafka.record import MemoryRecords as KafkaPythonRecords

        found["kafka-python"] = peer(KafkaPythonRecords)
    return found


def nanoseconds(read: Reader | None, data: bytes) -> str:
    """Per record, as text."""
    if read is None:
        return "-"
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        try:
            count = read(data)
        except Exception as error:  # whatever a parser does with what it does not know
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            return "-"
        best = min(best, (time.perf_counter() - started) / count)
    return f"{best * 1e9:.0f}" if best > 1e-7 else f"{best * 1e9:.1f}"


def main() -> None:
    """Print the table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40_000
    found = readers()
    print(f"Python {sys.version.split()[0]}; ns per record")
    print(f"  {'':26}" + "".join(f"{name:>14}" for name in found))
    for name, data in corpora(count):
        print(f"  {name:26}" + "".join(f"{nanoseconds(read, data):>14}" for read in found.values()), flush=True)


if __name__ == "__main__":
    main()
