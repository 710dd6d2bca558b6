"""Offsets of a range that gave no record, and the reasons, as range readers report them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

MAX_GAPS = 10_000  # kept one by one; a compacted partition can have as many as it has records


class Gap(NamedTuple):
    """Offsets from `start` up to, not including, `end` that gave no record.

    `reason` is one of `control` (transaction markers), `aborted` (records of aborted transactions), `retention`
    (deleted before they were read), `missing` (beyond the end of the log), `truncated` (the log lost its end while it
    was read), or `compaction`: none of these, so they were compacted.
    """

    start: int
    end: int
    reason: str


class Gaps:
    """Adds up gaps, in order: all in `counts`, the first MAX_GAPS one by one."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.first: list[Gap] = []
        self.complete = True  # `first` has all of them

    def copy(self) -> Gaps:
        """Returns an independent copy."""
        copied = Gaps()
        copied.counts.update(self.counts)
        copied.first.extend(self.first)
        copied.complete = self.complete
        return copied

    def add(self, start: int, end: int, reason: str) -> None:
        """Add a gap; it extends the last one if it follows directly and has the same reason."""
        if start >= end:
            return
        self.counts[reason] += end - start
        last = self.first[-1] if self.first else None
        if last is not None and (last.end, last.reason) == (start, reason):
            self.first[-1] = Gap(last.start, end, reason)
        elif len(self.first) < MAX_GAPS:
            self.first.append(Gap(start, end, reason))
        else:
            self.complete = False

    def explain(self, gaps: Iterable[tuple[int, int]], skipped: Iterable[tuple[int, int, str]]) -> None:
        """Add gaps between records. Offsets in `skipped`, (start, end, reason), get that reason, and all others
        `compaction`."""
        reasons = iter(sorted(set(skipped)))
        reason = next(reasons, None)
        for start, end in gaps:
            at = start
            while reason is not None and reason[0] < end:
                self.add(at, min(reason[0], end), "compaction")
                self.add(max(at, reason[0]), min(reason[1], end), reason[2])
                at = max(at, min(reason[1], end))
                if reason[1] > end:  # it continues in the next gap
                    break
                reason = next(reasons, None)
            self.add(at, end, "compaction")
