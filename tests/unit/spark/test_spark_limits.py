"""How many offsets a micro-batch of the Spark source reads."""

from __future__ import annotations

import pytest

from kconsumer.spark.limits import MinOffsets, cap_bytes, cap_offsets
from kconsumer.types import TopicPartition


def at(*offsets: int) -> dict[TopicPartition, int]:
    """Returns offsets of partitions 0, 1, …"""
    return {TopicPartition("t", partition): offset for partition, offset in enumerate(offsets)}


CAPS = [
    # start, latest, cap, ends
    ((0, 0, 0), (9000, 900, 10), 1000, (908, 90, 1)),
    ((0,) * 20, (3,) * 20, 5, (1,) * 20),
    ((0, 0), (10, 10), 100, (10, 10)),
    ((5, 5), (5, 5), 10, (5, 5)),
    ((10, 0), (4, 10), 5, (4, 5)),
    ((2**63 - 3,), (2**63 - 1,), 2**63 - 1, (2**63 - 1,)),
    ((0, 0), (1, 999), 10, (1, 9)),
]


@pytest.mark.parametrize(("start", "latest", "cap", "ends"), CAPS)
def test_cap_shares_in_proportion(
    start: tuple[int, ...], latest: tuple[int, ...], cap: int, ends: tuple[int, ...]
) -> None:
    """The limit is divided in proportion, rounded down to at least one offset per partition, and never
    beyond its end.
    """
    assert at(*ends) == cap_offsets(at(*start), at(*latest), cap)


def test_cap_by_bytes() -> None:
    """All offsets are read if they fit; otherwise the same fraction of each partition, at least one offset."""
    sizes = dict(zip(at(0, 0), (10.0, 90.0), strict=True))
    assert at(100, 100) == cap_bytes(at(0, 0), at(100, 100), 10_000, sizes)
    assert at(50, 50) == cap_bytes(at(0, 0), at(100, 100), 5_000, sizes)
    assert at(1, 1) == cap_bytes(at(0, 0), at(100, 100), 1, sizes)
    assert at(7, 1) == cap_bytes(at(7, 0), at(7, 100), 1, sizes)


def test_unsampled_partitions_count_as_the_others() -> None:
    """A partition without a sample has the mean of the others; without any sample there is no limit."""
    sizes = {TopicPartition("t", 0): 10.0}
    assert at(50, 50) == cap_bytes(at(0, 0), at(100, 100), 1000, sizes)
    assert at(100, 100) == cap_bytes(at(0, 0), at(100, 100), 1, {})


def test_min_offsets_waits_for_offsets_or_time() -> None:
    """The first micro-batch never waits; later ones wait for enough offsets, but not longer than the delay."""
    minimum = MinOffsets(10, 1000)
    assert not minimum.delays(at(0), at(1), now=50)
    assert minimum.delays(at(1), at(5), now=100)
    assert minimum.delays(at(1), at(10), now=1049)
    assert not minimum.delays(at(1), at(11), now=1049)
    assert minimum.delays(at(11), at(12), now=2048)
    assert not minimum.delays(at(11), at(12), now=2049)
