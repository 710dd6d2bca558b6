"""Offsets of the Spark source: their JSON form, and the difference between two states."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kconsumer.errors import ConfigError
from kconsumer.spark.offsets import as_document, changes, from_json, must_cover, to_json
from kconsumer.types import TopicPartition


def tp(name: str) -> TopicPartition:
    """Returns the partition given as topic-number."""
    topic, _, partition = name.rpartition("-")
    return TopicPartition(topic, int(partition))


def test_canonical_order() -> None:
    """Topics are sorted by name and partitions by number, because Spark compares offsets as text."""
    offsets = {tp("b-10"): 1, tp("b-9"): 2, tp("a-0"): 3}
    assert '{"a":{"0":3},"b":{"9":2,"10":1}}' == to_json(offsets)
    assert '{"a":{"0":3},"b":{"9":2,"10":1}}' == json.dumps(as_document(offsets), separators=(",", ":"))


@given(
    st.dictionaries(
        st.builds(TopicPartition, st.text(max_size=5), st.integers(0, 2**31 - 1)), st.integers(-2, 2**63 - 1)
    )
)
def test_round_trip(offsets: dict[TopicPartition, int]) -> None:
    """Offsets are restored from their text, which does not depend on their order."""
    assert offsets == from_json(to_json(offsets))
    assert to_json(offsets) == to_json(dict(reversed(offsets.items())))


def test_changes() -> None:
    """New partitions, deleted ones, and those whose end is below their last offset are found."""
    before, after = {tp("a-0"): 5, tp("a-1"): 5}, {tp("a-1"): 3, tp("a-2"): 9}
    assert (frozenset({tp("a-2")}), frozenset({tp("a-0")}), {tp("a-1"): (5, 3)}) == changes(before, after)


def test_must_cover_names_both_sides() -> None:
    """Offsets that lack a partition are refused with Spark's error class and both lists of partitions."""
    must_cover([tp("t-0")], [tp("t-0")], "ANY", "startingOffsets")
    with pytest.raises(ConfigError, match=r"\[KAFKA_START.*specify all TopicPartitions.*-1 for latest.*\[t-0\].*t-1"):
        must_cover([tp("t-0")], [tp("t-0"), tp("t-1")], "KAFKA_START", "startingOffsets")
