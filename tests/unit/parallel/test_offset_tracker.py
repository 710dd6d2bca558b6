"""OffsetTracker: what is committed while records finish in any order, and what a restart repeats."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from hypothesis import given
from hypothesis import strategies as st

from kconsumer import ConsumerRecord, OffsetAndMetadata, TopicPartition
from kconsumer.parallel.finished_offsets import decode, encode, max_span
from kconsumer.parallel.offset_tracker import OffsetTracker

TP = TopicPartition("orders", 0)


def records(offsets: Sequence[int]) -> list[ConsumerRecord]:
    """Returns a record for each offset."""
    return [ConsumerRecord("orders", 0, offset) for offset in offsets]


def take(tracker: OffsetTracker, offsets: Sequence[int], next_offset: int | None = None, epoch: int = 0) -> list[int]:
    """Take records. Returns the offsets of those to process."""
    position = offsets[-1] + 1 if next_offset is None else next_offset
    return [record.offset for record in tracker.take(records(offsets), position, epoch)]


@contextmanager
def garbage_collections(callback: Callable[[str, object], None]) -> Iterator[None]:
    """Run the garbage collector after every few allocations, and call a function at its begin and end."""
    thresholds = gc.get_threshold()
    gc.collect()  # without the GIL, objects that were freed make the count of allocations negative
    gc.callbacks.append(callback)
    gc.set_threshold(5, 0)  # without the GIL, a threshold other than 0 grows with the number of objects
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(callback)


def test_the_position_moves_over_control_records() -> None:
    """When all records are finished, the position is committed, also after a poll without records."""
    tracker = OffsetTracker(TP)
    take(tracker, [3, 5], next_offset=8)
    tracker.finish(3)
    tracker.finish(5)
    assert OffsetAndMetadata(8, "", 0) == tracker.to_commit()
    take(tracker, [], next_offset=11, epoch=2)
    assert OffsetAndMetadata(11, "", 2) == tracker.to_commit()


def test_the_position_moves_over_restored_records() -> None:
    """What an earlier run has finished is no longer in the metadata when the position has passed it without records."""
    tracker = OffsetTracker(TP, restored=[(12, 14)])
    assert [10] == take(tracker, [10])
    assert OffsetAndMetadata(10, encode(10, [(12, 14)])[0], 0) == tracker.to_commit()
    assert [] == take(tracker, [], next_offset=20)
    tracker.finish(10)
    assert OffsetAndMetadata(20, "", 0) == tracker.to_commit()


def test_the_leader_epoch_is_that_of_the_records() -> None:
    """The committed leader epoch is that of the poll that returned the record before the committed offset."""
    tracker = OffsetTracker(TP)
    take(tracker, [0, 1], epoch=1)
    take(tracker, [2, 3], epoch=1)
    take(tracker, [4, 5], epoch=7)
    for offset in (0, 1, 2, 3):
        tracker.finish(offset)
    assert OffsetAndMetadata(4, "", 1) == tracker.to_commit()
    tracker.finish(4)
    assert OffsetAndMetadata(5, "", 7) == tracker.to_commit()


def test_gaps_need_no_metadata() -> None:
    """Offsets without a record between unfinished records are not finished ranges."""
    tracker = OffsetTracker(TP)
    take(tracker, [10, 20, 30, 40])
    tracker.finish(30)
    assert OffsetAndMetadata(10, encode(10, [(21, 40)])[0], 0) == tracker.to_commit()


def test_more_records_fit_into_the_metadata() -> None:
    """A window of more offsets than the metadata have bits has room again when it is shorter, or has few gaps."""
    tracker, limit = OffsetTracker(TP), 400  # 297 bytes, so 2300 bits
    assert tracker.fits(1_000_000, limit)
    take(tracker, range(2000))
    assert (True, False) == (tracker.fits(200, limit), tracker.fits(400, limit))
    for offset in range(1, 2000, 2):
        tracker.finish(offset)
    assert not tracker.fits(400, limit)
    for offset in range(20, 2000, 2):
        tracker.finish(offset)
    assert tracker.fits(100, limit)
    take(tracker, range(2000, 3500))
    assert not tracker.fits(0, limit)
    for offset in range(2050, 3500):
        tracker.finish(offset)
    assert tracker.fits(100, limit)


@given(st.integers(0, 2**32), st.integers(40, 800))
def test_what_fits_is_in_the_metadata(seed: int, limit: int) -> None:
    """If records are taken only while they fit, the metadata contain all that finish, in whatever order."""
    rng = random.Random(seed)
    tracker, end, kept = OffsetTracker(TP), rng.choice([0, 2**40]), rng.random()
    for _ in range(60):
        more = rng.randint(1, min(400, max_span(limit)))
        if tracker.fits(more, limit):
            take(tracker, range(end, end + more))
            end += more
        for offset in list(tracker.unfinished)[:: rng.randrange(1, 4)]:
            if rng.random() > kept:
                tracker.finish(offset)
        unfinished = [(offset, offset + 1) for offset in tracker.unfinished]
        following = [*unfinished[1:], (end, end)]
        finished = [(last, first) for (_, last), (first, _) in zip(unfinished, following, strict=False) if first > last]
        assert encode(next(iter(tracker.unfinished), end), finished, limit)[1]


def test_records_that_are_finished_during_a_garbage_collection() -> None:
    """Other threads run while the garbage collector calls Python code. What they finish does not disturb a commit."""
    tracker, count = OffsetTracker(TP), 5000  # more than the tuples that the interpreter keeps for reuse
    take(tracker, range(count))
    unfinished = iter(range(count - 1, 0, -1))

    def finish_one(phase: str, _info: object) -> None:
        if phase == "start" and (offset := next(unfinished, None)) is not None:
            tracker.finish(offset)

    with garbage_collections(finish_one):
        commit = tracker.to_commit()
    assert len(tracker.unfinished) < count
    assert commit is not None
    finished = {offset for start, end in decode(commit.metadata, commit.offset) for offset in range(start, end)}
    assert (0, set()) == (commit.offset, finished & set(tracker.unfinished))


def test_records_that_go_back_do_not_follow() -> None:
    """After a seek back, another tracker is needed; gaps and seeks forward follow."""
    tracker = OffsetTracker(TP)
    take(tracker, [5, 6])
    follow = [tracker.follows(records([first]), first + 1) for first in (5, 6, 7, 100)]
    assert [False, False, True, True] == follow
    assert not tracker.follows([], 6)


@given(st.data())
def test_a_restart_repeats_exactly_what_was_unfinished(data: st.DataObject) -> None:
    """Over several runs of a compacted partition, each takes exactly the records that no earlier one has finished."""
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    log = sorted(rng.sample(range(600), data.draw(st.integers(1, 200))))
    end = log[-1] + 1 + rng.randrange(3)
    finished: set[int] = set()
    position, metadata = rng.randrange(log[0] + 1), ""
    for _ in range(data.draw(st.integers(1, 6))):
        tracker = OffsetTracker(TP, decode(metadata, position))
        at = position
        while at < end and rng.random() < 0.9:
            batch = [offset for offset in log if offset >= at][: rng.randrange(1, 40)]
            following = [offset for offset in log if batch and offset > batch[-1]]
            at = rng.randint(batch[-1] + 1, following[0]) if following else end
            assert [offset for offset in batch if offset not in finished] == take(tracker, batch, at)
            for offset in [offset for offset in tracker.unfinished if rng.random() < 0.6]:
                tracker.finish(offset)
                finished.add(offset)
        committed = tracker.to_commit()
        if committed is not None:
            position, metadata = committed.offset, committed.metadata
            unfinished = [offset for offset in log if offset not in finished]
            assert position == min([*tracker.unfinished, at])
            assert all(offset >= position for offset in unfinished)
