"""Finished records in the metadata of commits: encoding, the limit of brokers, and damaged metadata."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kconsumer.parallel.finished_offsets import MAX_METADATA_BYTES, decode, encode


@st.composite
def finished_ranges(draw: st.DrawFn, longest: int = 10_000) -> tuple[int, list[tuple[int, int]]]:
    """Draw a committed offset, and sorted disjoint ranges beyond it."""
    offset = at = draw(st.integers(0, 2**40))
    ranges = []
    for gap, length in draw(st.lists(st.tuples(st.integers(1, longest), st.integers(1, longest)), max_size=40)):
        ranges.append((at + gap, at + gap + length))
        at += gap + length
    return offset, ranges


@given(finished_ranges())
def test_what_is_encoded_is_decoded(case: tuple[int, list[tuple[int, int]]]) -> None:
    """Ranges that fit are decoded as they were, and the text is within the limit of brokers."""
    offset, ranges = case
    text, complete = encode(offset, ranges)
    assert complete
    assert ranges == decode(text, offset) == decode(text and text + "\0", offset)  # as confluent-kafka commits it
    assert len(text) <= MAX_METADATA_BYTES


@given(finished_ranges(longest=300), st.integers(0, 80))
def test_what_does_not_fit_is_left_out_at_the_end(case: tuple[int, list[tuple[int, int]]], limit: int) -> None:
    """With a low limit, the first ranges are encoded, and the result says whether these are all."""
    offset, ranges = case
    text, complete = encode(offset, ranges, limit)
    decoded = decode(text, offset)
    assert len(text) <= limit
    assert ranges[: len(decoded)] == decoded
    assert (decoded == ranges) == complete


def test_the_shorter_encoding_is_chosen() -> None:
    """Alternating offsets become bits, long runs become numbers."""
    alternating = [(n, n + 1) for n in range(101, 2101, 2)]
    text, _ = encode(100, alternating)
    assert ("kp1b", alternating) == (text[:4], decode(text, 100))
    assert ("kp1rZAqQoQ8", True) == encode(100, [(110, 250_110)])
    assert len(text) < 350


def test_nothing_finished_is_no_metadata() -> None:
    """Without finished ranges, the metadata are empty, and those of an application contain none."""
    assert ("", True) == encode(5, [])
    assert [[], []] == [decode(text, 5) for text in ("", "my own metadata")]


@pytest.mark.parametrize(
    ("metadata", "what"),
    [
        ("kp1", "unknown encoding"),
        ("kp1x", "unknown encoding"),
        ("kp1r!", "not base64"),
        ("kp1rA", "not base64"),
        ("kp1r", "ends in the middle"),
        ("kp1rBQH_", "ends in the middle"),  # the length of a finished run is missing
        ("kp1r____________", "more than 63 bits"),
        ("kp1rBv8B", "belongs to offset 6"),
        ("kp1rBf__________fwE", "does not exist"),
    ],
)
def test_damaged_metadata_are_refused(metadata: str, what: str) -> None:
    """Metadata that are damaged, or were copied from another offset, raise ValueError."""
    with pytest.raises(ValueError, match=what):
        decode(metadata, 5)


@given(st.text(alphabet="kp1rbAZaz09-_", max_size=60), st.integers(0, 100))
def test_any_text_is_decoded_or_refused(text: str, offset: int) -> None:
    """Any metadata are decoded to sorted ranges at or beyond the offset, or raise ValueError."""
    try:
        ranges = decode("kp1" + text, offset)
    except ValueError:
        return
    ends = [offset, *(end for _, end in ranges)]
    assert all(before <= start < end for before, (start, end) in zip(ends, ranges, strict=False))
