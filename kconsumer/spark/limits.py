"""Limits of a micro-batch: maximum offsets, maximum bytes, and minimum new offsets.

Nothing in here sends a request or reads a clock: the caller passes the latest offsets, and the time as `now` (ms).
`planning.py` splits a micro-batch into tasks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from kconsumer.types import TopicPartition

__all__ = ["MinOffsets", "cap_bytes", "cap_offsets"]

INT64_MAX = 2**63 - 1
Offsets = Mapping[TopicPartition, int]


def cap_offsets(start: Offsets, latest: Offsets, limit: int) -> dict[TopicPartition, int]:
    """Returns the end offset of each partition in a micro-batch of about `limit` offsets.

    The limit is divided in proportion to the new offsets of each partition. As in Spark's source, each partition with
    new offsets gets at least one, so that none starves, even if the total then exceeds `limit`. `start` must contain
    every partition of `latest`.
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
    """Returns the end offset of each partition in a micro-batch of about `limit` bytes.

    Each partition with new offsets gets at least one offset. For a partition that `bytes_per_offset` does not contain,
    the average of the other partitions is used. `start` must contain every partition of `latest`.
    """
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
    """Delays a micro-batch until there are `minimum` new offsets, or until `max_delay_ms` after the previous one.

    The first micro-batch is never delayed.
    """

    def __init__(self, minimum: int, max_delay_ms: float) -> None:
        self.minimum, self.max_delay_ms = minimum, max_delay_ms
        self._last_ms: float | None = None

    def delays(self, start: Offsets, latest: Offsets, now: float) -> bool:
        """Returns True if the micro-batch must wait.

        Otherwise returns False, and stores `now` (ms) as the time at which the micro-batch begins.
        """
        waited = self._last_ms is None or now - self._last_ms >= self.max_delay_ms
        new = sum(end - start.get(tp, 0) for tp, end in latest.items())
        if not waited and new < self.minimum:
            return True
        self._last_ms = now
        return False
