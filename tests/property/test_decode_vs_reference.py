"""The compiled decoder and the slow one give equal results for any batches: complete, cut, and with bytes changed."""

from __future__ import annotations

import gzip

from hypothesis import given, settings
from hypothesis import strategies as st

from kconsumer.testing.batches import CODECS, Rec, build_batch, build_message, build_message_set
from support.harnesses.decoding import assert_same, compiled
from support.oracles import reference
from support.oracles.hostile_inputs import without_codecs

optional_bytes = st.none() | st.binary(max_size=40) | st.binary(min_size=100, max_size=300)
header = st.tuples(st.text(max_size=5) | st.binary(max_size=5), optional_bytes)
times = st.integers(-1, 2**41) | st.integers(-(2**63), 2**63 - 1)


@st.composite
def batches(draw: st.DrawFn, codecs: tuple[str, ...] = tuple(CODECS)) -> bytes:
    """Generates a batch with ascending offsets and any values in its records."""
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


@st.composite
def message_sets(draw: st.DrawFn, codecs: tuple[str, ...] = ("none", "gzip", "snappy", "lz4")) -> bytes:
    """Generates messages of format 0 or 1 with ascending offsets, in a wrapper or not; the last one may be
    incomplete.
    """
    base = draw(st.integers(0, 50) | st.integers(0, 2**62))
    offset, records = base, []
    magic = draw(st.integers(0, 1))
    for _ in range(draw(st.integers(1, 6))):
        records.append(Rec(draw(optional_bytes), draw(optional_bytes), timestamp=draw(times), offset=offset))
        offset += draw(st.integers(1, 3) | st.integers(1, 2**20) | st.integers(-3, 0))
    return build_message_set(
        [record for record in records if (record.offset or 0) >= 0],
        magic=magic,
        base_offset=draw(st.sampled_from((base, max(0, base - 2)))),
        codec=draw(st.sampled_from(codecs)),
        log_append_time=draw(st.booleans()),
        wrapper_offset=draw(st.none() | st.none() | st.sampled_from((0, base, 2**62 + 2**50))),
        wrapper_timestamp=draw(st.none() | times),
        snappy_framing=draw(st.sampled_from(("xerial", "raw"))),
        lz4_header=draw(st.sampled_from(("right", "historical"))) if magic == 0 else "right",
    )


@settings(max_examples=300, deadline=None)
@given(st.lists(batches() | message_sets(), max_size=4), st.none() | st.integers(0, 60), st.integers(1, 20), st.data())
def test_whole_and_cut_batches(parts: list[bytes], start: int | None, step: int, data: st.DataObject) -> None:
    """Any batches, from any offset, in runs of any length, cut at any byte, give the same records and positions."""
    joined = b"".join(parts)
    cut = data.draw(st.integers(0, len(joined)) | st.just(len(joined)))
    assert_same(reference.decode(joined[:cut], start_offset=start), compiled(joined[:cut], start, step))


@settings(max_examples=500, deadline=None)
@given(
    st.lists(batches(codecs=("none",)) | message_sets(codecs=("none",)), min_size=1, max_size=3),
    st.integers(1, 20),
    st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=3),
)
def test_changed_bytes(parts: list[bytes], step: int, changes: list[tuple[int, int]]) -> None:
    """With any bytes changed and no checksum to detect it, both decoders return the same records up to the same
    error.
    """
    joined = bytearray(b"".join(parts))
    for at, byte in changes:
        joined[at % len(joined)] = byte
    damaged = without_codecs(bytes(joined))
    expected = reference.decode(damaged, check_crcs=False)
    assert_same(expected, compiled(damaged, None, step, check_crcs=False))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=120), st.integers(0, 4), st.integers(0, 2**16))
def test_arbitrary_record_bytes(body: bytes, count: int, attributes: int) -> None:
    """Any bytes after a valid header give the same records."""
    from kconsumer.testing.batches import frame_batch

    data = frame_batch(body, record_count=count, attributes=attributes & 0xFFF8, last_offset_delta=count)
    assert_same(reference.decode(data), compiled(data, None, 10))


@settings(max_examples=300, deadline=None)
@given(message_sets(codecs=("none",)), st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=3), st.data())
def test_changed_bytes_in_a_wrapper(messages: bytes, changes: list[tuple[int, int]], data: st.DataObject) -> None:
    """Messages inside a wrapper give the same records when they are damaged, cut or missing."""
    inner = bytearray(messages)
    for at, byte in changes:
        inner[at % len(inner)] = byte
    inner = inner[: data.draw(st.integers(0, len(inner)) | st.just(len(inner)))]
    wrapper = build_message(
        gzip.compress(bytes(inner), compresslevel=0),
        magic=data.draw(st.integers(0, 1)),
        offset=data.draw(st.integers(0, 60)),
        attributes=1,
    )
    check_crcs = data.draw(st.booleans())
    assert_same(reference.decode(wrapper, check_crcs=check_crcs), compiled(wrapper, None, 10, check_crcs=check_crcs))
