"""The compiled decoder and the slow one agree on any batches, whole, cut, and with bytes changed."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kconsumer._core.fetch import PartitionFetch
from kconsumer.errors import CorruptRecordError
from kconsumer.testing.batches import CODECS, Rec, build_batch
from kconsumer.types import TopicPartition
from support import reference

TP = TopicPartition("t", 0)

optional_bytes = st.none() | st.binary(max_size=40) | st.binary(min_size=100, max_size=300)
header = st.tuples(st.text(max_size=5) | st.binary(max_size=5), optional_bytes)
times = st.integers(-1, 2**41) | st.integers(-(2**63), 2**63 - 1)


@st.composite
def batches(draw: st.DrawFn, codecs: tuple[str, ...] = tuple(CODECS)) -> bytes:
    """One batch with rising offsets and anything in its records."""
    base = draw(st.integers(0, 50) | st.integers(0, 2**62))
    offset, records = base, []
    for _ in range(draw(st.integers(0, 6))):
        offset += draw(st.integers(0, 3) | st.integers(0, 2**20))
        records.append(
            Rec(
                value=draw(optional_bytes),
                key=draw(optional_bytes),
                headers=draw(st.lists(header, max_size=3)),
                timestamp=draw(times),
                offset=offset,
            )
        )
    tail = draw(st.none() | st.integers(0, 5))
    return build_batch(
        records,
        base_offset=base,
        codec=draw(st.sampled_from(codecs)),
        timestamp=draw(times),
        max_timestamp=draw(st.none() | times),
        log_append_time=draw(st.booleans()),
        leader_epoch=draw(st.integers(-1, 9)),
        control=draw(st.integers(0, 9)) == 0,
        last_offset_delta=max(0, offset - base + (tail or 0)),
        snappy_framing=draw(st.sampled_from(("xerial", "raw"))),
    )


def compiled(data: bytes, start: int | None, step: int, *, check_crcs: bool = True) -> reference.Decoded:
    """What a PartitionFetch gives out in pieces of `step`, in the form the reference returns."""
    fetch = PartitionFetch(TP, data, -1 if start is None else start, check_crcs=check_crcs, log_bytes=True)
    out = reference.Decoded()
    try:
        while not fetch.exhausted:
            out.records += [as_tuple(record) for record in fetch.take(step)]
    except CorruptRecordError as error:
        out.malformed = str(error)
    out.next_offset = None if fetch.next_offset < 0 else fetch.next_offset
    out.leader_epoch = fetch.next_leader_epoch
    return out


def as_tuple(record: Any) -> tuple[object, ...]:
    return (
        record.offset,
        record.timestamp,
        int(record.timestamp_type),
        record.key,
        record.value,
        record.headers,
        record.leader_epoch,
    )


def assert_same(expected: reference.Decoded, actual: reference.Decoded) -> None:
    assert expected.records == actual.records
    assert (expected.next_offset, expected.leader_epoch) == (actual.next_offset, actual.leader_epoch)
    assert (expected.malformed is None) == (actual.malformed is None), (expected.malformed, actual.malformed)


@settings(max_examples=300, deadline=None)
@given(st.lists(batches(), max_size=4), st.none() | st.integers(0, 60), st.integers(1, 20), st.data())
def test_whole_and_cut_batches(parts: list[bytes], start: int | None, step: int, data: st.DataObject) -> None:
    """Any batches, from any offset, in steps of any size, cut at any byte, give the same records and positions."""
    joined = b"".join(parts)
    cut = data.draw(st.integers(0, len(joined)) | st.just(len(joined)))
    assert_same(reference.decode(joined[:cut], start_offset=start), compiled(joined[:cut], start, step))


@settings(max_examples=500, deadline=None)
@given(
    st.lists(batches(codecs=("none",)), min_size=1, max_size=3),
    st.integers(1, 20),
    st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=3),
)
def test_changed_bytes(parts: list[bytes], step: int, changes: list[tuple[int, int]]) -> None:
    """With any bytes changed and no checksum to catch it, both read the same records up to the same error."""
    joined = bytearray(b"".join(parts))
    for at, byte in changes:
        joined[at % len(joined)] = byte
    damaged = _without_codecs(bytes(joined))
    expected = reference.decode(damaged, check_crcs=False)
    assert_same(expected, compiled(damaged, None, step, check_crcs=False))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=120), st.integers(0, 4), st.integers(0, 2**16))
def test_arbitrary_record_bytes(body: bytes, count: int, attributes: int) -> None:
    """Any bytes at all behind a good header are read the same way."""
    from kconsumer.testing.batches import frame_batch

    data = frame_batch(body, record_count=count, attributes=attributes & 0xFFF8, last_offset_delta=count)
    assert_same(reference.decode(data), compiled(data, None, 10))


def _without_codecs(data: bytes) -> bytes:
    """Codec bits cleared: how libraries see damaged streams is not what is compared here."""
    out, at = bytearray(data), 0
    while len(out) - at >= 61:
        (size,) = struct.unpack_from(">i", out, at + 8)
        if size < 49:
            break
        out[at + 22] &= 0xF8
        at += 12 + size
    return bytes(out)
