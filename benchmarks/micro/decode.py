"""Measures the stages of decoding: `python benchmarks/micro/decode.py [records]`, ns per record.

The first table has passes over the same bytes, each doing more than the one before. The second one has the time that
each stage adds, and its share of a loop that reads every value. Polls take 500 records at a time, columns 20,000.

    walk      batch headers, decompression, walking and checking every record
    scan      and checksums
    loop      and record objects, whose fields are not read
    value     and the bytes of each value
    decoded   and a value deserializer, bytes.decode
    columns   scan, and Arrow columns of key, value, offset and timestamp
    v column  scan, and the column of values alone
    h column  scan, and the column of headers alone
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from corpora import HEADERS, batches, transactions
from figures import Pass, arguments, fastest, write

from kconsumer._core.arrow import build
from kconsumer._core.decode import PartitionFetch
from kconsumer.deserializers import adapt
from kconsumer.types import TopicPartition

TP = TopicPartition("bench", 0)
POLL, COLUMNS_POLL = 500, 20_000
CODECS = ("gzip", "snappy", "lz4", "zstd")
DECODE = adapt(bytes.decode, "value")
COLUMNS = {"columns": ("key", "value", "offset", "timestamp"), "v column": ("value",), "h column": ("headers",)}


def corpora(count: int) -> Iterator[tuple[str, bytes]]:
    """Yield names and bytes."""
    yield "100 B", batches(count)
    yield "1 KB", batches(count // 4, size=1000)
    yield "100 B, two headers", batches(count, headers=HEADERS)
    yield "100 B, transactional", transactions(count)[0]
    for codec in CODECS:
        yield f"100 B, {codec}", batches(count, codec)


def scan(data: bytes, *, check_crcs: bool = True) -> int:
    """Read without record objects."""
    fetch, count = PartitionFetch(TP, data, 0, check_crcs=check_crcs), 0
    while not fetch.exhausted:
        count += len(fetch.take(POLL))
    return count


def loop(data: bytes) -> int:
    """Create record objects without reading their fields."""
    fetch, count = PartitionFetch(TP, data, 0), 0
    while not fetch.exhausted:
        run = fetch.take(POLL)
        count += len(run)
        for _ in run:
            pass
    return count


def value(data: bytes, *, decode: bool = False) -> int:
    """Create record objects and read their values."""
    fetch, count = PartitionFetch(TP, data, 0), 0
    while not fetch.exhausted:
        run = fetch.take(POLL)
        count += len(run)
        if decode:
            run.deserialize(None, DECODE)
        for record in run:
            record.value  # noqa: B018  (reading it is what is measured)
    return count


def columns(data: bytes, names: tuple[str, ...]) -> int:
    """Build columns in place of record objects."""
    fetch, count = PartitionFetch(TP, data, 0), 0
    while not fetch.exhausted:
        count += sum(map(len, build((fetch.take(COLUMNS_POLL),), names)))
    return count


def passes(data: bytes) -> dict[str, Pass]:
    """Return the passes by name."""
    found: dict[str, Pass] = {
        "walk": lambda: scan(data, check_crcs=False),
        "scan": lambda: scan(data),
        "loop": lambda: loop(data),
        "value": lambda: value(data),
        "decoded": lambda: value(data, decode=True),
    }
    for name, chosen in COLUMNS.items():
        found[name] = lambda chosen=chosen: columns(data, chosen)  # type: ignore[misc]  # the default binds it
    return found


def stages(row: dict[str, float], plain: dict[str, float]) -> dict[str, float]:
    """Return the time that each stage adds. `plain` is the row of the same records without compression."""
    return {
        "walk": min(row["walk"], plain["walk"]),
        "decompress": max(0.0, row["walk"] - plain["walk"]),
        "checksum": row["scan"] - row["walk"],
        "objects": row["loop"] - row["scan"],
        "value bytes": row["value"] - row["loop"],
        "deserializer": row["decoded"] - row["value"],
        "columns": row["columns"] - row["scan"],
    }


def main() -> None:
    """Print the tables."""
    options = arguments(__doc__, 16_000, 15)
    print(f"{options.records} records; Python {sys.version.split()[0]}; ns per record\n")
    rows: dict[str, dict[str, float]] = {}
    for name, data in corpora(options.records):
        rows[name] = fastest(passes(data), options.rounds)
        if len(rows) == 1:
            print(f"{'':22}" + "".join(f"{column:>10}" for column in rows[name]))
        print(f"{name:22}" + "".join(f"{ns:10.1f}" for ns in rows[name].values()), flush=True)
    print("\nwhat each stage adds, and its share of the pass `value`\n")
    split = {
        name: stages(row, rows["100 B"] if name.rpartition(", ")[2] in CODECS else row) for name, row in rows.items()
    }
    print(f"{'':22}" + "".join(f"{stage:>16}" for stage in split["100 B"]))
    for name, row in split.items():
        cells = (
            f"{ns:8.1f} {ns / rows[name]['value']:6.0%}" if stage not in ("deserializer", "columns") else f"{ns:8.1f}"
            for stage, ns in row.items()
        )
        print(f"{name:22}" + "".join(f"{cell:>16}" for cell in cells))
    write(options.json, options, {name: rows[name] | {f"+{s}": ns for s, ns in split[name].items()} for name in rows})


if __name__ == "__main__":
    main()
