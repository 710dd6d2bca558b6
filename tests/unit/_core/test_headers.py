"""The end of a fetch, derived from batch headers alone: where the next fetch starts."""

from __future__ import annotations

import struct

import pytest

from kconsumer._core.decode import next_fetch_offset
from kconsumer._core.wire import Slice
from kconsumer.testing.batches import build_batch, control_batch, empty_batch


def test_one_batch() -> None:
    """The next offset follows the batch's last offset; the epoch is the batch's."""
    assert (12, 5) == next_fetch_offset(build_batch([b"a", b"b"], base_offset=10, leader_epoch=5))


def test_last_of_several_batches() -> None:
    """Offsets and epoch come from the last batch; an epoch of -1 is None."""
    data = build_batch([b"a"] * 3, leader_epoch=5) + build_batch([b"b"], base_offset=3, leader_epoch=-1)
    assert (4, None) == next_fetch_offset(data)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs(codec: str) -> None:
    """The end is found without decompression."""
    assert (9, 0) == next_fetch_offset(build_batch([b"x"] * 9, codec=codec, leader_epoch=0))


def test_compaction_control_and_empty_batches() -> None:
    """The last offset of a batch counts, also if compaction removed records or the batch has only control records."""
    data = build_batch([b"a"], last_offset_delta=99, leader_epoch=1)
    assert (100, 1) == next_fetch_offset(data)
    assert (101, 1) == next_fetch_offset(data + control_batch("commit", 100, producer_id=4, leader_epoch=1))
    assert (126, 2) == next_fetch_offset(data + empty_batch(120, 125, leader_epoch=2))


def test_partial_batch_at_the_end_is_left_out() -> None:
    """A last batch that the broker cut at the fetch size is ignored, at whatever byte it was cut."""
    whole, cut = build_batch([b"a"] * 7, leader_epoch=0), build_batch([b"b"] * 7, base_offset=7)
    for size in range(len(cut)):
        assert (7, 0) == next_fetch_offset(whole + cut[:size])


def test_data_without_a_complete_batch() -> None:
    """Without a complete batch the result is None."""
    whole = build_batch([b"a"])
    assert [None] * 4 == [next_fetch_offset(data) for data in (None, b"", whole[:11], whole[:-1])]


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_other_message_formats(magic: int) -> None:
    """A batch of another format than v2, at any position, makes the end unknown."""
    batch = build_batch([b"a"])
    other = batch[:16] + bytes([magic]) + batch[17:]
    assert next_fetch_offset(batch + other + batch) is None


@pytest.mark.parametrize("size", [-1, 0, 48, -(2**31)])
def test_sizes_that_make_no_sense(size: int) -> None:
    """A size that is smaller than a header makes the end unknown."""
    batch = build_batch([b"a"])
    assert next_fetch_offset(batch + batch[:8] + struct.pack(">i", size) + batch[12:]) is None


@pytest.mark.parametrize(("base", "delta"), [(-1, 0), (0, -1), (2**63 - 1, 0), (2**63 - 10, 9)])
def test_offsets_that_make_no_sense(base: int, delta: int) -> None:
    """Negative offsets, and those beyond 63 bits, make the end unknown."""
    batch = build_batch([b"a"])
    assert next_fetch_offset(struct.pack(">q", base) + batch[8:23] + struct.pack(">i", delta) + batch[27:]) is None


def test_largest_offset() -> None:
    """The largest next offset is the largest int64."""
    batch = build_batch([b"a"])
    assert (2**63 - 1, None) == next_fetch_offset(struct.pack(">q", 2**63 - 2) + batch[8:])


def test_any_buffer() -> None:
    """Slices, bytearrays and memoryviews give the same result."""
    data = build_batch([b"a"])
    assert {(1, None)} == {next_fetch_offset(b) for b in (data, bytearray(data), memoryview(data), Slice(data))}
