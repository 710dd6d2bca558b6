"""Eight threads read one batch at a time, and share records: with the GIL, each reads what a single thread reads.

Where threads switch is up to the interpreter: the switch interval is a microsecond, so that they do so often.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow
import pytest

from kconsumer import ConsumerRecords, decode_batches
from kconsumer.testing.batches import Rec, build_batch

THREADS, COUNT = 8, 400
ROWS = [
    Rec(value=b"value %04d" % n, key=b"key %d" % n if n % 3 else None, headers=[("h", b"%d" % n)] * (n % 4))
    for n in range(COUNT)
]
EXPECTED = [(n, row.key, row.value, tuple(row.headers)) for n, row in enumerate(ROWS)]
Row = tuple[object, ...]


@pytest.fixture(autouse=True)
def frequent_switches() -> Iterator[None]:
    """Lets threads switch every microsecond."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def batch(codec: str) -> ConsumerRecords:
    """Returns the records of one batch."""
    return decode_batches(build_batch(ROWS, codec=codec))


def in_threads(read: Callable[[], list[Row]]) -> list[list[Row]]:
    """Call a function in all threads at the same time. Returns the results."""
    barrier = threading.Barrier(THREADS)

    def run(_: int) -> list[Row]:
        barrier.wait(20)
        return read()

    with ThreadPoolExecutor(THREADS) as executor:
        return list(executor.map(run, range(THREADS)))


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_each_thread_iterates(codec: str) -> None:
    """Iterators of one batch are independent: each thread gets every record, and reuses only its own objects."""
    records = batch(codec)

    def read() -> list[Row]:
        return [(r.offset, r.key, r.value, tuple(r.headers)) for r in records]

    assert [EXPECTED] * THREADS == in_threads(read)


def test_threads_share_records() -> None:
    """Fields that records create when they are first read are equal in all threads, and so are the objects."""
    records = list(batch("none"))

    def read() -> list[Row]:
        return [(r.offset, r.key, r.value, tuple(r.headers)) for r in records]

    found = in_threads(read)
    assert [EXPECTED] * THREADS == found
    assert all(rows[n][2] is records[n].value for rows in found for n in range(COUNT))


def test_threads_drop_what_others_keep() -> None:
    """A value that one thread keeps does not change when other threads drop theirs and their records are reused."""
    records = batch("zstd")

    def read() -> list[Row]:
        return [(r.offset, r.value) for r in records if r.offset % 2]

    assert [[(n, ROWS[n].value) for n in range(1, COUNT, 2)]] * THREADS == in_threads(read)


def test_threads_use_arrow_columns_of_one_batch() -> None:
    """Columns that eight threads build from one batch have its values."""
    records = batch("lz4")

    def read() -> list[Row]:
        columns = pyarrow.record_batch(records.to_arrow()).to_pylist()
        return [(row["offset"], row["key"], row["value"]) for row in columns]

    assert [[row[:3] for row in EXPECTED]] * THREADS == in_threads(read)
