"""Offsets without a record, and why: what a range reader tells of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

MOST_GAPS = 10_000  # kept one by one; in a compacted partition there can be as many as records


class Gap(NamedTuple):
    """Offsets from `start` up to, not including, `end` that gave no record.

    `reason`: `control` (transaction markers), `aborted` (records of aborted transactions), `retention` (deleted
    before they could be read), `missing` (beyond the end of the log), `truncated` (the log lost its end while it was
    being read), or `compaction`: none of these, so they were compacted away.
    """

    start: int
    end: int
    reason: str


class Gaps:
    """Adds up gaps, in order: all in `counts`, the first MOST_GAPS one by one."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.first: list[Gap] = []
        self.complete = True
        """Whether `first` has all of them."""

    def copy(self) -> Gaps:
        """Returns the same gaps in lists of their own."""
        copied = Gaps()
        copied.counts.update(self.counts)
        copied.first.extend(self.first)
        copied.complete = self.complete
        return copied

    def add(self, start: int, end: int, reason: str) -> None:
        """Note a gap; it grows the last one if it goes on from there for the same reason."""
        if start >= end:
            return
        self.counts[reason] += end - start
        last = self.first[-1] if self.first else None
        if last is not None and (last.end, last.reason) == (start, reason):
            self.first[-1] = Gap(last.start, end, reason)
        elif len(self.first) < MOST_GAPS:
            self.first.append(Gap(start, end, reason))
        else:
            self.complete = False

    def explain(self, gaps: Iterable[tuple[int, int]], skipped: Iterable[tuple[int, int, str]]) -> None:
        """Note gaps between records: of what was skipped the reason is known, the rest was compacted away."""
        known = iter(sorted(set(skipped)))
        reason = next(known, None)
        for start, end in gaps:
            at = start
            while reason is not None and reason[0] < end:
                self.add(at, min(reason[0], end), "compaction")
                self.add(max(at, reason[0]), min(reason[1], end), reason[2])
                at = max(at, min(reason[1], end))
                if reason[1] > end:  # goes on in the next gap
                    break
                reason = next(known, None)
            self.add(at, end, "compaction")
