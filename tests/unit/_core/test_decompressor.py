"""Batches that are decompressed in the background or ahead of their turn give the same records, errors and ends as
others.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import kconsumer._internal.compression  # noqa: F401  (hands the codecs to the compiled core)
from kconsumer._core.decode import PartitionFetch, prefetch_hits, use_library
from kconsumer.deserializers import adapt
from kconsumer.errors import CorruptRecordError
from kconsumer.testing.batches import Rec, build_batch
from kconsumer.types import TopicPartition

TP = TopicPartition("t", 0)
CODECS = ["lz4", "zstd"]


def values(batch: int, size: int = 3_000) -> list[bytes]:
    """Return values for the records of a batch, which compress in part."""
    rng = random.Random(batch)
    return [rng.randbytes(size // 60) * 30 for _ in range(2)]


def stretch(codecs: Sequence[str], sizes: Sequence[int] = ()) -> list[bytes]:
    """Return batches of two records each, with these codecs."""
    sizes = sizes or [3_000] * len(codecs)
    return [
        build_batch([Rec(value) for value in values(number, size)], base_offset=2 * number, codec=codec)
        for number, (codec, size) in enumerate(zip(codecs, sizes, strict=True))
    ]


def read(fetch: PartitionFetch, most: int = 1_000_000) -> list[tuple[int, bytes | None]]:
    """Return at most this many records."""
    return [(record.offset, record.value) for record in fetch.take(most)]


def expected(count: int, sizes: Sequence[int] = ()) -> list[tuple[int, bytes]]:
    """Return all records of `stretch`."""
    sizes = sizes or [3_000] * count
    flat = [value for number, size in enumerate(sizes) for value in values(number, size)]
    return list(enumerate(flat))


@pytest.fixture(autouse=True)
def _loaded() -> None:
    """Load the libraries by reading a first batch of each codec."""
    for codec in CODECS:
        PartitionFetch(TP, stretch([codec])[0], 0).take(10)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("step", [1, 3, 1_000])
def test_records_come_as_they_are(codec: str, step: int) -> None:
    """A hundred batches return each record once and in order, whatever the number of records per take."""
    fetch = PartitionFetch(TP, b"".join(stretch([codec] * 100)), 0)
    found = []
    while not fetch.exhausted:
        found += read(fetch, step)
    assert expected(100) == found


def test_zstd_batches_are_ready() -> None:
    """Most zstd batches of a fetch are decompressed before their turn. This is not so while the machine has no idle
    processor, which ends after some hundreds of batches.
    """
    data, most_ready = b"".join(stretch(["zstd"] * 100)), 0
    for _ in range(50):
        before = prefetch_hits()
        assert expected(100) == read(PartitionFetch(TP, data, 0))
        most_ready = max(most_ready, prefetch_hits() - before)
    assert most_ready >= 90


def test_codecs_side_by_side() -> None:
    """The background thread skips uncompressed batches and batches of other codecs."""
    codecs = ["lz4", "none", "zstd", "gzip", "snappy", "lz4", "zstd"] * 20
    assert expected(len(codecs)) == read(PartitionFetch(TP, b"".join(stretch(codecs)), 0))


@pytest.mark.parametrize("codec", CODECS)
def test_sizes_that_change(codec: str) -> None:
    """Batches that exceed the memory prepared for them are decompressed in their turn, and later small ones in the
    background.
    """
    sizes = [300, 300, 60_000, 300, 600_000, 6_000, 300, 300_000, 300_000, 60] * 5
    assert expected(50, sizes) == read(PartitionFetch(TP, b"".join(stretch([codec] * 50, sizes)), 0))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("bad", [1, 5, 39])
def test_a_corrupt_batch_has_the_same_words(codec: str, bad: int) -> None:
    """Bytes that do not decompress raise an error at their offset, with the text of the library's stream reader. The
    batches before them are returned first.
    """
    batches = stretch([codec] * 40)
    for at in range(70, len(batches[bad]) - 8, 5):
        batches[bad] = batches[bad][:at] + b"\xff" + batches[bad][at + 1 :]
    fetch = PartitionFetch(TP, b"".join(batches), 0, check_crcs=False)
    assert expected(40)[: 2 * bad] == read(fetch)
    with pytest.raises(CorruptRecordError, match=codec) as caught:
        fetch.take(10)
    alone = PartitionFetch(TP, batches[bad], 2 * bad, check_crcs=False)
    with pytest.raises(CorruptRecordError) as direct:
        alone.take(10)
    assert str(direct.value) == str(caught.value)
    assert (TP.topic, TP.partition, 2 * bad) == (caught.value.topic, caught.value.partition, caught.value.offset)


@pytest.mark.parametrize("codec", CODECS)
def test_fetches_that_are_given_up(codec: str) -> None:
    """Fetches that are drained or released while they are read leave nothing behind, and other fetches are read to
    their ends.
    """
    data = b"".join(stretch([codec] * 40))
    kept = []
    for number in range(300):
        fetch = PartitionFetch(TP, data, 0)
        assert expected(40)[:5] == read(fetch, 5)
        if number % 3 == 0:
            fetch.drain()
            assert [] == read(fetch)
        if number % 3 == 1:
            kept.append(fetch)
    for fetch in kept:
        assert expected(40)[5:] == read(fetch)


@pytest.mark.parametrize("codec", CODECS)
def test_records_given_out_again(codec: str) -> None:
    """After a deserializer failed, the records of batches that were decompressed ahead are returned again."""
    fetch = PartitionFetch(TP, b"".join(stretch([codec] * 30)), 0)
    run = fetch.take(40)

    def fails(value: bytes) -> bytes:
        if value == values(5)[0]:
            raise ValueError("no")
        return value

    run.deserialize(None, adapt(fails, "value"))
    assert 10 == len(run)
    assert expected(30)[10:] == read(fetch)


@pytest.mark.parametrize("codec", CODECS)
def test_aborted_batches_between_them(codec: str) -> None:
    """Batches of an aborted transaction are skipped although they were decompressed."""
    batches = [
        build_batch(
            [Rec(b"%d" % number)] * 2,
            base_offset=2 * number,
            codec=codec,
            producer_id=number % 2,
            transactional=True,
        )
        for number in range(60)
    ]
    fetch = PartitionFetch(TP, b"".join(batches), 0, read_committed=True, aborted_transactions=[(1, 0)])
    assert [number for number in range(120) if number // 2 % 2 == 0] == [offset for offset, _ in read(fetch)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking with threads is what is tested
def test_a_forked_child_continues() -> None:
    """A forked child continues to read a fetch that was started before, and reads new ones; so does the parent."""
    data = b"".join(stretch(["zstd"] * 60))
    fetch = PartitionFetch(TP, data, 0)
    read(fetch, 3)
    child = os.fork()
    if child == 0:
        good = expected(60)[3:] == read(fetch) and expected(60) == read(PartitionFetch(TP, data, 0))
        os._exit(0 if good else 1)
    assert 0 == os.waitpid(child, 0)[1]
    assert expected(60)[3:] == read(fetch)


BLOCKED_ZSTD = """
#include <unistd.h>
int may_end;
volatile int started;
void *ZSTD_createDCtx(void) { return (void *) 1; }
size_t ZSTD_freeDCtx(void *c) { return 0; }
unsigned ZSTD_isError(size_t code) { return code != 0; }
size_t ZSTD_decompressDCtx(void *c, void *to, size_t capacity, const void *from, size_t size)
{
    char byte;
    started = 1;
    return (size_t) read(may_end, &byte, 1);
}
"""

# With this switch interval a thread gets the GIL only when the other one releases it.
WAITING = """
import ctypes, os, sys, threading, time
import kconsumer._internal.compression
from kconsumer._core.decode import PartitionFetch
from kconsumer._core.decode import use_library
from kconsumer.types import TopicPartition
library, (reading, writing) = ctypes.CDLL(sys.argv[1]), os.pipe()
ctypes.c_int.in_dll(library, "may_end").value = reading
data = open(sys.argv[2], "rb").read()
PartitionFetch(TopicPartition("t", 0), data, 0).take(1)
assert use_library("zstd", sys.argv[1])
fetch = PartitionFetch(TopicPartition("t", 0), data, 0)
assert [0, 1] == [record.offset for record in fetch.take(2)]  # the next batch is now decompressed in the background
while not ctypes.c_int.in_dll(library, "started").value:
    time.sleep(0.01)
sys.setswitchinterval(3600)
taking = threading.Event()
thread = threading.Thread(target=lambda: taking.wait() and os.write(writing, b"x"))
thread.start()
taking.set()
assert [2, 3] == [record.offset for record in fetch.take(2)]
thread.join()
"""


def test_other_threads_run_while_a_batch_is_awaited(tmp_path: Path) -> None:
    """The caller releases the GIL while it waits for a batch whose decompression ends only when another Python thread
    has run.
    """
    source, library, data = tmp_path / "blocked.c", tmp_path / "blocked.so", tmp_path / "batches"
    source.write_text(f"#include <stddef.h>\n{BLOCKED_ZSTD}")
    compiler = {**os.environ, "LD_PRELOAD": ""}  # the sanitizers' libraries are for Python, not for the compiler
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True, env=compiler)
    data.write_bytes(b"".join(stretch(["zstd", "zstd"])))
    command = [sys.executable, "-c", WAITING, library, data]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (0, "") == (done.returncode, done.stderr)


def test_a_library_that_is_none() -> None:
    """A library file that is missing or lacks the functions is not used."""
    assert not use_library("lz4", "/nowhere/liblz4.so")
    assert not use_library("zstd", "libm.so.6")
    assert expected(9) == read(PartitionFetch(TP, b"".join(stretch(["zstd"] * 9)), 0))
