"""Offsets without a record are collected in order, with the reason from skipped offsets, in a list of
limited length.
"""

from __future__ import annotations

import random

from kconsumer.ranges import gaps as gaps_module
from kconsumer.ranges.gaps import Gap, Gaps


def explained(gaps: list[tuple[int, int]], skipped: list[tuple[int, int, str]]) -> list[Gap]:
    """Returns the gaps that one call adds."""
    found = Gaps()
    found.explain(gaps, skipped)
    return found.first


def test_neighbours_of_one_reason_are_one_gap() -> None:
    """A gap that continues the last one extends it; an empty gap is ignored."""
    found = Gaps()
    for start, end, reason in (
        (0, 2, "aborted"),
        (2, 5, "aborted"),
        (5, 6, "control"),
        (6, 6, "control"),
        (8, 9, "control"),
    ):
        found.add(start, end, reason)
    assert [Gap(0, 5, "aborted"), Gap(5, 6, "control"), Gap(8, 9, "control")] == found.first
    assert {"aborted": 5, "control": 2} == found.counts


def test_what_was_skipped_explains_part_of_a_gap() -> None:
    """The part of a gap that was not skipped is compacted; skipped offsets outside of gaps are ignored."""
    skipped = [(3, 5, "aborted"), (5, 6, "control"), (8, 12, "control"), (20, 21, "control")]
    expected = [Gap(2, 3, "compaction"), Gap(3, 5, "aborted"), Gap(5, 6, "control"), Gap(6, 7, "compaction")]
    assert expected == explained([(2, 7)], skipped)
    assert [Gap(9, 12, "control"), Gap(12, 13, "compaction")] == explained([(9, 13)], skipped)


def test_one_skipped_range_over_several_gaps() -> None:
    """A skipped range that ends beyond a gap also explains the next one."""
    assert [Gap(1, 2, "aborted"), Gap(3, 4, "aborted")] == explained([(1, 2), (3, 4)], [(0, 9, "aborted")])


def test_every_offset_has_its_reason() -> None:
    """The result equals that of a slow function that checks each offset."""
    rng = random.Random(7)
    for _ in range(300):
        reason_of = {n: rng.choice(["control", "aborted", ""]) for n in range(40)}
        missing = [n for n in range(40) if rng.random() < 0.6]
        skipped = [(n, n + 1, reason) for n, reason in reason_of.items() if reason]
        rng.shuffle(skipped)
        parts = [(n, n + 1) for n in missing]
        gaps = [part for part in parts if part[0] - 1 not in missing]
        gaps = [(start, next(n for n in range(start, 41) if n not in missing)) for start, _ in gaps]
        found = {n: gap.reason for gap in explained(gaps, skipped) for n in range(gap.start, gap.end)}
        assert {n: reason_of[n] or "compaction" for n in missing} == found


def test_a_bounded_list() -> None:
    """Gaps beyond MAX_GAPS are counted but not stored."""
    found = Gaps()
    for n in range(gaps_module.MAX_GAPS + 5):
        found.add(2 * n, 2 * n + 1, "compaction")
    assert (gaps_module.MAX_GAPS, False) == (len(found.first), found.complete)
    assert {"compaction": gaps_module.MAX_GAPS + 5} == found.counts
