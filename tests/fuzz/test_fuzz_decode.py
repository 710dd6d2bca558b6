"""Some hostile bytes for every decoder: each input ends in records or in an allowed error.

The targets are in `support.oracles.hostile_targets`, their inputs in `support.oracles.hostile_inputs`. Inputs are the
same in every run; `tests/fuzz/run.py` continues where these end.
"""

from __future__ import annotations

import gc
import random
import sys
from collections import Counter

import pytest

from kconsumer.testing.batches import Rec, build_batch
from support.oracles.hostile_inputs import NASTY
from support.oracles.hostile_targets import CORRUPT, LATE, NOTHING, RECORDS, TARGETS, read_records, run_chunk

COUNT = 3000
# The number of objects that caches may add while a chunk runs; one leaked object per input would add 300.
BLOCKS = 60


@pytest.mark.parametrize("target", TARGETS)
def test_hostile_bytes(target: str) -> None:
    """The inputs of each target's first chunks end in allowed ways; some are rejected and some are not."""
    ends = sum((run_chunk(target, chunk).ends for chunk in range(COUNT // 1000)), Counter[str]())
    assert COUNT == ends.total()
    assert len(ends) > 1
    assert ends.most_common(1)[0][1] < 0.95 * COUNT


@pytest.mark.skipif("sys.getallocatedblocks() == 0", reason="this interpreter does not count (PYTHONMALLOC)")
@pytest.mark.parametrize("target", TARGETS)
def test_hostile_bytes_leave_nothing_behind(target: str) -> None:
    """After the same inputs run a second time, the number of objects is the same, whatever errors occurred."""
    grown = []
    for _ in range(4):
        gc.collect()
        before = sys.getallocatedblocks()
        run_chunk(target, 0, 300)
        gc.collect()
        grown.append(sys.getallocatedblocks() - before)
    assert min(grown[1:]) < BLOCKS, grown


def test_the_fuzzer_reaches_both_ends() -> None:
    """Many damaged inputs give records, and many are rejected, some of them after records. Otherwise the fuzzer would
    test nothing.
    """
    for target in ("v2 batches", "message sets", "inside compression", "transactions"):
        ends = run_chunk(target, 0).ends
        assert min(ends[RECORDS], ends[CORRUPT], ends[LATE], ends[NOTHING]) > 30, (target, ends)


def test_every_byte_of_a_batch_set_to_every_nasty_value() -> None:
    """Each byte of a batch is set to each of the special values."""
    batch = build_batch([Rec(b"value", b"key", [("h", b"x"), ("n", None)]), Rec(None, b"k")])
    rng = random.Random(0)
    for at in range(len(batch)):
        for value in NASTY:
            read_records(batch[:at] + bytes([value]) + batch[at + 1 :], rng)
