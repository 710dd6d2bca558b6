"""Limits of a micro-batch: maximum offsets, maximum bytes, and the minimum of new offsets to wait for.

These functions are pure: time is injected as `now` in ms, and the caller provides the latest offsets. `planning.py`
splits a micro-batch into tasks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from kconsumer.types import TopicPartition

__all__ = ["MinOffsets", "cap_bytes", "cap_offsets"]

INT64_MAX = 2**63 - 1
Offsets = Mapping[TopicPartition, int]


def cap_offsets(start: Offsets, latest: Offsets, limit: int) -> dict[TopicPartition, int]:
    """Return the ends of a micro-batch of about `limit` offsets, in proportion to the offsets of each partition.

    As in Spark's source, a share below one offset becomes one, so that no partition starves; with more partitions than
    `limit` each one gets an offset. `start` contains every partition of `latest`.
    """
    sizes = {tp: end - start[tp] for tp, end in latest.items() if end > start[tp]}
    total = float(sum(sizes.values()))
    if total < 1:
        return dict(latest)
    ends = dict(latest)
    for tp, size in sizes.items():
        share = limit * (size / total)
        taken = math.ceil(share) if share < 1 else math.floor(share)
        ends[tp] = min(latest[tp], start[tp] + taken, INT64_MAX)
    return ends


def cap_bytes(
    start: Offsets, latest: Offsets, limit: int, bytes_per_offset: Mapping[TopicPartition, float]
) -> dict[TopicPartition, int]:
    """Return the ends of a micro-batch of about `limit` bytes. Each partition with new offsets gets at least one."""
    average = sum(bytes_per_offset.values()) / len(bytes_per_offset) if bytes_per_offset else 0.0
    each = {tp: bytes_per_offset.get(tp, average) for tp in latest}
    total = sum(max(end - start[tp], 0) * each[tp] for tp, end in latest.items())
    if total <= limit:
        return dict(latest)
    share = limit / total
    return {
        tp: start[tp] + max(math.floor((end - start[tp]) * share), 1) if end > start[tp] else end
        for tp, end in latest.items()
    }


class MinOffsets:
    """Delays micro-batches until `minimum` new offsets exist, or until `max_delay_ms` after the previous one.

    The first micro-batch is never delayed.
    """

    def __init__(self, minimum: int, max_delay_ms: float) -> None:
        self.minimum, self.max_delay_ms = minimum, max_delay_ms
        self._last_ms: float | None = None

    def delays(self, start: Offsets, latest: Offsets, now: float) -> bool:
        """Whether the micro-batch must wait. If not, `now` is recorded as its time."""
        waited = self._last_ms is None or now - self._last_ms >= self.max_delay_ms
        new = sum(end - start.get(tp, 0) for tp, end in latest.items())
        if not waited and new < self.minimum:
            return True
        self._last_ms = now
        return False
