"""How many offsets a micro-batch of the Spark source reads."""

from __future__ import annotations

import pytest

from kconsumer.spark.limits import cap_offsets
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
