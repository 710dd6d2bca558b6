"""read_committed: which batches are omitted, and that the position moves over them."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer._core.decode import AbortedIndex, PartitionFetch
from kconsumer._internal.compression import decompress, output_limit
from kconsumer.decode import decode_batches
from kconsumer.errors import CorruptRecordError
from kconsumer.testing.batches import (
    Rec,
    abort_marker,
    build_batch,
    commit_marker,
    control_batch,
    empty_batch,
)
from kconsumer.types import IsolationLevel, TopicPartition

TP = TopicPartition("tx", 0)
COMMITTED: dict[str, Any] = {"isolation_level": "read_committed"}


def batch(offset: int, producer_id: int, count: int = 1, **fields: Any) -> bytes:
    """Return a batch of a producer's open transaction; values are the offsets."""
    values = [b"%d" % i for i in range(offset, offset + count)]
    return build_batch(values, base_offset=offset, producer_id=producer_id, transactional=True, **fields)


def committed(*parts: bytes, aborted: list[tuple[int, int]], **options: Any) -> list[int]:
    """Return the offsets that `decode_batches` returns."""
    found = decode_batches(b"".join(parts), aborted_transactions=aborted, **COMMITTED, **options)
    return [record.offset for record in found]


def test_only_an_abort_marker_ends_a_producer() -> None:
    """A commit marker, another control record, and a marker that compaction emptied do not end an aborted
    transaction.
    """
    emptied = empty_batch(1, 1, producer_id=1)
    for between in (commit_marker(1, 1), control_batch(9, 1, producer_id=1), emptied):
        assert [] == committed(batch(0, 1), between, batch(2, 1), aborted=[(1, 0)])
    assert [2] == committed(batch(0, 1), abort_marker(1, 1), batch(2, 1), aborted=[(1, 0)])


def test_the_type_of_a_marker_is_read_in_any_version() -> None:
    """The type of a marker is read from a key of a later version, which may have additional fields."""
    key = b"\x00\x07" + b"\x00\x00" + b"more"
    marker = build_batch([Rec(b"", key)], base_offset=1, producer_id=1, transactional=True, control=True)
    assert [2] == committed(batch(0, 1), marker, batch(2, 1), aborted=[(1, 0)])


def test_a_compressed_marker() -> None:
    """A compressed marker is read; no broker writes one, but the attributes allow it."""
    key = b"\x00\x00\x00\x00"
    fields = {"base_offset": 1, "producer_id": 1, "transactional": True, "control": True, "codec": "zstd"}
    marker = build_batch([Rec(b"", key)], **fields)  # type: ignore[arg-type]  # a mapping of keywords
    assert [2] == committed(batch(0, 1), marker, batch(2, 1), aborted=[(1, 0)])


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x00"])
def test_a_marker_that_does_not_say_what_it_is(key: bytes | None) -> None:
    """A marker without a type raises an error with read_committed, and is ignored with read_uncommitted."""
    data = build_batch([Rec(b"", key)], producer_id=1, transactional=True, control=True)
    assert 0 == len(decode_batches(data))
    with pytest.raises(CorruptRecordError, match="ends a transaction"):
        decode_batches(data, **COMMITTED)


def test_aborted_batches_are_not_decompressed() -> None:
    """An aborted batch is not decompressed, so damaged contents with a right checksum raise no error."""
    damaged = build_batch([b"a"], producer_id=1, transactional=True, attributes=1)
    assert [] == committed(damaged, aborted=[(1, 0)])
    with pytest.raises(CorruptRecordError, match="gzip"):
        decode_batches(damaged, **COMMITTED)
    with pytest.raises(CorruptRecordError, match="checksum"):
        decode_batches(batch(0, 1, crc=1), aborted_transactions=[(1, 0)], **COMMITTED)


def test_read_uncommitted_needs_no_list() -> None:
    """With read_uncommitted the list is ignored. The level may be a member of the enum."""
    data = batch(0, 1)
    assert 1 == len(decode_batches(data, aborted_transactions=[(1, 0)]))
    level = IsolationLevel.READ_COMMITTED
    assert 0 == len(decode_batches(data, isolation_level=level, aborted_transactions=iter([(1, 0)])))


@pytest.mark.parametrize("wrong", [[1], [(1,)], [(1, 2, 3)], [("a", 1)], [(1, None)], [(2**63, 0)], 5])
def test_a_list_that_is_none(wrong: Any) -> None:
    """An invalid list of aborted transactions is not reported as corruption of the data."""
    with pytest.raises((TypeError, ValueError, OverflowError)):
        decode_batches(batch(0, 1), aborted_transactions=wrong, **COMMITTED)


def test_an_interrupted_take_takes_the_transactions_back() -> None:
    """After Ctrl-C during decompression the next take starts where the interrupted one did, with the same open
    transactions.
    """
    from kconsumer._core.decode import use_codecs

    parts = [batch(0, 1), batch(1, 1), abort_marker(2, 1), batch(3, 1), batch(4, 2, codec="gzip")]
    fetch = PartitionFetch(TP, b"".join(parts), 0, read_committed=True, aborted_transactions=[(1, 0)])

    def interrupted(*_: object) -> bytes:
        raise KeyboardInterrupt

    use_codecs(interrupted, output_limit)
    try:
        with pytest.raises(KeyboardInterrupt):
            fetch.take(10)
    finally:
        use_codecs(decompress, output_limit)
    assert [3, 4] == [record.offset for record in fetch.take(10)]


def test_the_index_alone() -> None:
    """The index advances to offsets, reports covered batches and ends transactions; a rewind undoes all changes since a
    mark.
    """
    index = AbortedIndex([(7, 10), (8, 5), (7, 30)])
    index.advance(4, 0)
    assert (False, False) == (index.covers(7), index.covers(8))
    index.advance(12, 100)
    assert (True, True) == (index.covers(7), index.covers(8))
    assert "2 of 3 begun, 2 producers" in repr(index)
    index.end(8, 200)
    index.end(8, 250)
    index.advance(30, 300)  # the same producer again, before its marker
    index.end(7, 400)
    assert (False, False) == (index.covers(7), index.covers(8))
    index.rewind(300)
    assert (True, False) == (index.covers(7), index.covers(8))
    index.rewind(200)
    assert (True, True) == (index.covers(7), index.covers(8))
    index.rewind(0)
    assert (False, False) == (index.covers(7), index.covers(8))
    index.advance(2**63 - 1, 0)
    assert (True, True) == (index.covers(7), index.covers(8))
