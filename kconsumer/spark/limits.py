"""How much one micro-batch takes: caps by offsets and bytes, and waiting until there is enough.

Pure: time comes in as `now` in ms. What latest offsets are is asked elsewhere; tasks are cut in `planning.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from kconsumer.types import TopicPartition

__all__ = ["MinOffsets", "cap_bytes", "cap_offsets"]

INT64_MAX = 2**63 - 1
Offsets = Mapping[TopicPartition, int]


def cap_offsets(start: Offsets, latest: Offsets, most: int) -> dict[TopicPartition, int]:
    """The ends of a micro-batch of about `most` offsets, shared out in proportion to what each partition has.

    As Spark's source does: a share below one offset is one, so that none starves, and more partitions than `most`
    are one offset each. `start` names every partition of `latest`.
    """
    sizes = {tp: end - start[tp] for tp, end in latest.items() if end > start[tp]}
    total = float(sum(sizes.values()))
    if total < 1:
        return dict(latest)
    ends = dict(latest)
    for tp, size in sizes.items():
        share = most * (size / total)
        taken = math.ceil(share) if share < 1 else math.floor(share)
        ends[tp] = min(latest[tp], start[tp] + taken, INT64_MAX)
    return ends


def cap_bytes(
    start: Offsets, latest: Offsets, most: int, bytes_per_offset: Mapping[TopicPartition, float]
) -> dict[TopicPartition, int]:
    """The ends of a micro-batch of about `most` bytes, each partition at least one offset if it has any."""
    usual = sum(bytes_per_offset.values()) / len(bytes_per_offset) if bytes_per_offset else 0.0
    each = {tp: bytes_per_offset.get(tp, usual) for tp in latest}
    total = sum(max(end - start[tp], 0) * each[tp] for tp, end in latest.items())
    if total <= most:
        return dict(latest)
    part = most / total
    return {
        tp: start[tp] + max(math.floor((end - start[tp]) * part), 1) if end > start[tp] else end
        for tp, end in latest.items()
    }


class MinOffsets:
    """Holds micro-batches back until enough offsets are there, or `longest_ms` have gone by since the last one.

    The first is never held back.
    """

    def __init__(self, least: int, longest_ms: float) -> None:
        self.least, self.longest_ms = least, longest_ms
        self._last_ms: float | None = None

    def holds(self, start: Offsets, latest: Offsets, now: float) -> bool:
        """Whether to wait. If not, this micro-batch is taken to happen now."""
        waited = self._last_ms is None or now - self._last_ms >= self.longest_ms
        new = sum(end - start.get(tp, 0) for tp, end in latest.items())
        if not waited and new < self.least:
            return True
        self._last_ms = now
        return False
