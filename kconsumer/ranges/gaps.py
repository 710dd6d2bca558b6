"""Collects the offsets of a range that have no record, with the reasons. Range readers report them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

MAX_GAPS = 10_000  # the maximum number of listed gaps; a compacted partition can have as many as records


class Gap(NamedTuple):
    """A range of offsets that have no record. It begins at `start` and ends before `end`.

    `reason` is one of:

        control      transaction markers
        aborted      records of aborted transactions
        retention    records that were deleted before they were read
        missing      offsets beyond the end of the log
        truncated    offsets that the log lost at its end while it was being read
        compaction   all other offsets: compaction removed their records
    """

    start: int
    end: int
    reason: str


class Gaps:
    """Collects gaps, that is, ranges of offsets without a record. They must be added in the order of their offsets."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()  # the number of offsets without a record, by reason
        self.first: list[Gap] = []  # the first MAX_GAPS gaps
        self.complete = True  # whether `first` contains all gaps

    def copy(self) -> Gaps:
        """Returns an independent copy."""
        copied = Gaps()
        copied.counts.update(self.counts)
        copied.first.extend(self.first)
        copied.complete = self.complete
        return copied

    def add(self, start: int, end: int, reason: str) -> None:
        """Add a gap: the offsets from `start` up to, not including, `end` have no record for this reason.

        If the previous gap ends at `start` and has the same reason, extends it.
        """
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
        """Add the offset ranges `gaps`, in which no records were found, with their reasons.

        `gaps` contains pairs (start, end), and `skipped` contains entries (start, end, reason). Offsets of a gap that
        are within an entry get the reason of the entry. All other offsets of the gaps get the reason `compaction`.
        """
        reasons = iter(sorted(set(skipped)))
        reason = next(reasons, None)
        for start, end in gaps:
            at = start
            while reason is not None and reason[0] < end:
                self.add(at, min(reason[0], end), "compaction")
                self.add(max(at, reason[0]), min(reason[1], end), reason[2])
                at = max(at, min(reason[1], end))
                if reason[1] > end:  # these offsets continue in the next gap
                    break
                reason = next(reasons, None)
            self.add(at, end, "compaction")
