"""Measures the cost of read_committed: `python benchmarks/micro/committed.py [records]`, ns per record.

The same bytes are read at both isolation levels. Nothing in them was aborted, so both return the same records. Rounds
of the two alternate, and the best of each counts. Records are in batches of 160 (a busy producer), of 10, and of one,
which is the worst case, because the check is made once per batch.
"""

from __future__ import annotations

import sys
import time

from corpora import transactions

from kconsumer._core.decode import PartitionFetch
from kconsumer.types import TopicPartition

TP = TopicPartition("bench", 0)
POLL, ROUNDS = 500, 25


def measure(data: bytes, aborted: list[tuple[int, int]], *, read_committed: bool, loop: bool) -> tuple[float, int]:
    """Return the seconds to read everything, and the number of records."""
    fetch = PartitionFetch(TP, data, 0, read_committed=read_committed, aborted_transactions=aborted)
    count = 0
    started = time.perf_counter()
    while not fetch.exhausted:
        run = fetch.take(POLL)
        count += len(run)
        if loop:
            for _ in run:
                pass
    return time.perf_counter() - started, count


def compare(data: bytes, aborted: list[tuple[int, int]], *, loop: bool) -> tuple[float, float, int, int]:
    """Return the minimum seconds at each level, and the number of records of each."""
    found = {False: [], True: []}  # type: dict[bool, list[tuple[float, int]]]
    for _ in range(ROUNDS):
        for level in (False, True):
            found[level].append(measure(data, aborted, read_committed=level, loop=loop))
    plain, committed = min(found[False]), min(found[True])
    return plain[0], committed[0], plain[1], committed[1]


def main() -> None:
    """Print the table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40_000
    print(f"{count} records; Python {sys.version.split()[0]}; ns per record")
    print(f"  {'':44} {'uncommitted':>12} {'committed':>10} {'more':>7}")
    for batch in (160, 10, 1):
        data, aborted = transactions(count, batch=batch)
        for loop in (False, True):
            plain, committed, records, _ = compare(data, aborted, loop=loop)
            name = f"batches of {batch}, {'loop, nothing read' if loop else 'scan, checksums on'}"
            more = f"{committed / plain - 1:+.1%}"
            print(f"  {name:44} {plain / records * 1e9:12.1f} {committed / records * 1e9:10.1f} {more:>7}")
    for codec in ("none", "lz4"):
        data, aborted = transactions(count, aborted_share=0.3, codec=codec)
        plain, committed, records, fewer = compare(data, aborted, loop=False)
        name = f"batches of 160, {codec}, {1 - fewer / records:.0%} aborted: whole log, scan"
        print(
            f"  {name:44} {plain / records * 1e9:12.1f} {committed / records * 1e9:10.1f} {committed / plain - 1:+7.1%}"
        )


if __name__ == "__main__":
    main()
