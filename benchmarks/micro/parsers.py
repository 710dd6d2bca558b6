"""Compares the decoders of kconsumer, aiokafka and kafka-python: `python benchmarks/micro/parsers.py [records]`.

ns per record, from bytes in memory to records in a loop, with checksums; the best of several rounds in one process.
"scan" finds and checks every record, "loop" creates record objects, "value" also reads every value. The others have no
stage before the object with its value. A dash: the parser is not installed, or cannot read that format or codec.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from corpora import HEADERS, batches, transactions
from decode import CODECS, loop, scan, value
from figures import arguments, write

Reader = Callable[[bytes], int]


def corpora(count: int) -> Iterator[tuple[str, bytes]]:
    """Yield names and bytes."""
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


def peer(memory_records: Any) -> Reader:
    """Return the loop over batches, which is the same for aiokafka and kafka-python."""

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
    """Return kconsumer's stages, then the other parsers."""
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


def nanoseconds(read: Reader | None, data: bytes, rounds: int) -> float | None:
    """Return ns per record, or None if the parser cannot read these bytes."""
    if read is None:
        return None
    best = float("inf")
    for _ in range(rounds):
        started = time.thread_time_ns()
        try:
            count = read(data)
        except Exception as error:  # parsers raise various exceptions for unsupported formats
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            return None
        best = min(best, (time.thread_time_ns() - started) / count)
    return best


def shown(ns: float | None) -> str:
    """Format a figure."""
    if ns is None:
        return "-"
    return f"{ns:.0f}" if ns > 100 else f"{ns:.1f}"


def main() -> None:
    """Print the table."""
    options = arguments(__doc__, 16_000, 5)
    found = readers()
    print(f"Python {sys.version.split()[0]}; ns per record")
    print(f"  {'':26}" + "".join(f"{name:>14}" for name in found))
    rows = {}
    for name, data in corpora(options.records):
        row = rows[name] = {client: nanoseconds(read, data, options.rounds) for client, read in found.items()}
        print(f"  {name:26}" + "".join(f"{shown(ns):>14}" for ns in row.values()), flush=True)
    write(options.json, options, rows)


if __name__ == "__main__":
    main()
