"""The calls that members of a random model run draw from: one function each, with the weight of its turn.

A batch may fail half way and be read again, by a seek or by a `with` body that raises. No call skips a record that
no member has processed, so that every record is processed in the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kconsumer import ConsumerRecords, TopicPartition
from support.model.group_model_events import Run, runs_of
from support.model.group_model_member import BodyFailed, Member, runs_in

# --- processing ----------------------------------------------------------------------------------------------------

Call = Callable[[Member, Sequence[str]], object]  # returns true when the `with` body is to raise


def take(member: Member, records: Any) -> list[Run]:
    """Record what was returned, and that it was processed at once."""
    runs = [] if records is None else runs_in(records)
    member.returned(runs)
    member.finished(runs)
    return runs


def poll(member: Member, _topics: Sequence[str]) -> bool:
    """Poll and process: at once, or slowly with other calls meanwhile; some batches fail half way."""
    drawn = member.random
    timeout = drawn.choice([0.0, 0.01, 0.1, 0.3])
    limit = drawn.choice([None, None, 1, 20])
    records = member.poll("poll", lambda: member.consumer.poll(timeout, limit), timeout)
    chance = drawn.random()
    if not records or chance < 0.6:
        take(member, records)
        return False
    return process(member, records, fails=chance > 0.85, raises=chance > 0.95)


def process(member: Member, records: ConsumerRecords, *, fails: bool, raises: bool) -> bool:
    """Process a batch slowly. One that fails is read again from the record that failed: by seeking back, or by a body
    that raises. Returns whether the body must raise."""
    drawn = member.random
    offsets = [(record.topic_partition, record.offset) for record in records]
    member.returned(runs_of(offsets))
    count = drawn.randrange(len(offsets)) if fails else len(offsets)
    done = drawn.randint(0, count)
    member.in_progress = done < len(offsets)
    member.finished(runs_of(offsets[:done]))
    for _ in range(drawn.randint(1, 3)):
        drawn.choice(BLOCKING)(member, ())
    if drawn.random() < 0.3:
        time.sleep(member.too_slow_s)
    member.finished(runs_of(offsets[done:count]))
    member.in_progress = raises
    if fails and not raises:
        failed: dict[TopicPartition, int] = {}
        for tp, offset in offsets[count:]:
            failed.setdefault(tp, offset)
        for tp, offset in failed.items():
            member.seek(tp, offset)
    return raises


def poll_arrow(member: Member, _topics: Sequence[str]) -> None:
    """Poll columns."""
    timeout = member.random.choice([0.0, 0.1, 0.3])
    rows = member.random.choice([None, 5, 100])
    take(member, member.poll("poll_arrow", lambda: member.consumer.poll_arrow(timeout, rows), timeout))


def iterate(member: Member, _topics: Sequence[str]) -> None:
    """Go through some records in a `for` loop, and stop."""
    records = iter(member.consumer)
    for _ in range(member.random.choice([1, 5, 30])):
        record = member.poll("iterate", lambda: next(records, None), 0.2)
        if record is None:
            return
        take(member, [record])
        if member.random.random() < 0.1:
            member.random.choice(BLOCKING)(member, ())


# --- offsets -------------------------------------------------------------------------------------------------------


def some(member: Member, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Returns a random choice of these partitions, at least one."""
    return member.random.sample(partitions, member.random.randint(1, len(partitions))) if partitions else []


def chosen_offsets(member: Member, back: int) -> dict[TopicPartition, int]:
    """Returns offsets of some partitions: the next unprocessed record, or up to `back` records before it."""
    known = [tp for tp in member.assignment() if tp in member.done]
    return {tp: max(0, member.done[tp] - member.random.randint(0, back)) for tp in some(member, known)}


def commit(member: Member, _topics: Sequence[str]) -> None:
    """Commit all positions and wait."""
    member.commit(member.random.choice([0.5, 2.0]))


def commit_async(member: Member, _topics: Sequence[str]) -> None:
    """Commit all positions without waiting."""
    member.commit_async()


def commit_processed(member: Member, _topics: Sequence[str]) -> None:
    """Commit what was processed of some partitions."""
    offsets = chosen_offsets(member, 0)
    if member.random.random() < 0.5:
        member.commit(1.0, offsets)
    else:
        member.commit_async(offsets)


def commit_back(member: Member, _topics: Sequence[str]) -> None:
    """Commit less than was processed."""
    member.commit(1.0, chosen_offsets(member, 20))


def committed(member: Member, _topics: Sequence[str]) -> None:
    """Look up committed offsets."""
    if partitions := some(member, member.assignment()):
        member.committed(partitions, member.random.choice([0.3, 2.0]))


def position(member: Member, _topics: Sequence[str]) -> None:
    """Look up positions."""
    for tp in some(member, member.assignment())[:2]:
        member.position(tp, member.random.choice([0.3, 2.0]))


def seek_back(member: Member, _topics: Sequence[str]) -> None:
    """Read some records again."""
    for tp, offset in chosen_offsets(member, 50).items():
        member.seek(tp, offset)


def seek_anywhere(member: Member, _topics: Sequence[str]) -> None:
    """Seek back or forward, but not beyond what a member has processed."""
    for tp in some(member, member.assignment())[:2]:
        member.seek(tp, member.random.randint(0, member.processed.end(tp)))


def seek_to_beginning(member: Member, _topics: Sequence[str]) -> None:
    """Read a partition again."""
    for tp in some(member, member.assignment())[:1]:
        member.forget([tp])
        member.log.add(member.name, "sought", partition=tp, offset=0)
        member.call("seek_to_beginning", partial(member.consumer.seek_to_beginning, tp))


def seek_to_end_and_back(member: Member, _topics: Sequence[str]) -> None:
    """Seek to the end to look it up, and return before the next poll."""
    for tp in some(member, [tp for tp in member.assignment() if tp in member.done])[:1]:
        offset = member.done[tp]
        member.log.add(member.name, "unknown", partitions=[tp])
        member.call("seek_to_end", partial(member.consumer.seek_to_end, tp))
        member.position(tp, 1.0)
        committed(member, ())
        member.seek(tp, offset)


# --- the rest ------------------------------------------------------------------------------------------------------


def end_offsets(member: Member, _topics: Sequence[str]) -> None:
    """Look up end offsets."""
    if partitions := some(member, member.assignment()):
        member.call("end_offsets", lambda: member.consumer.end_offsets(partitions, 1.0), 1.0)


def offsets_for_times(member: Member, _topics: Sequence[str]) -> None:
    """Look up offsets by time."""
    if wanted := dict.fromkeys(some(member, member.assignment()), round(time.time() * 1000) - 2000):
        member.call("offsets_for_times", lambda: member.consumer.offsets_for_times(wanted, 1.0), 1.0)


def look_around(member: Member, _topics: Sequence[str]) -> None:
    """Call what does not block."""
    consumer = member.consumer
    for name in ("metrics", "partition_states", "group_metadata", "subscription", "paused"):
        member.call(name, getattr(consumer, name))
    for tp in member.assignment()[:1]:
        member.call("current_lag", partial(consumer.current_lag, tp))


def pause(member: Member, _topics: Sequence[str]) -> None:
    """Pause some partitions."""
    partitions = some(member, member.assignment())
    if partitions and member.succeeds("pause", lambda: member.consumer.pause(*partitions)):
        member.log.add(member.name, "paused", partitions=partitions)


def resume(member: Member, _topics: Sequence[str]) -> None:
    """Resume all partitions."""
    if partitions := member.assignment():
        member.log.add(member.name, "resumed", partitions=partitions)
        member.call("resume", lambda: member.consumer.resume(*partitions))


def subscribe(member: Member, topics: Sequence[str]) -> None:
    """Subscribe to some topics."""
    if topics:
        member.subscribe(member.random.sample(topics, member.random.randint(1, len(topics))))


def unsubscribe(member: Member, topics: Sequence[str]) -> None:
    """Leave the group and join again."""
    member.leave("unsubscribe", member.consumer.unsubscribe, UNSUBSCRIBE_S)
    subscribe(member, topics)


def subscribe_twice(member: Member, topics: Sequence[str]) -> None:
    """Change the subscription for the time of one short poll."""
    subscribe(member, topics)
    take(member, member.poll("poll", lambda: member.consumer.poll(0.0), 0.0))
    subscribe(member, topics)


def enforce_rebalance(member: Member, _topics: Sequence[str]) -> None:
    """Ask for a rebalance."""
    member.call("enforce_rebalance", member.consumer.enforce_rebalance)


def rest(member: Member, _topics: Sequence[str]) -> None:
    """Sleep."""
    time.sleep(member.random.choice([0.01, 0.1, 0.4]))


def fail_in_body(member: Member) -> None:
    """Raise in the body of a `with` statement."""
    with member.consumer:
        raise BodyFailed


UNSUBSCRIBE_S = 1.0  # waits for the coordinator to take note, in the engine with a network thread
BLOCKING: Sequence[Call] = (rest, committed, position, end_offsets, commit_processed, look_around)
CALLS: Sequence[tuple[float, Call]] = (
    (40, poll),
    (8, poll_arrow),
    (8, iterate),
    (5, commit),
    (5, commit_async),
    (6, commit_processed),
    (1, commit_back),
    (5, committed),
    (5, position),
    (2, seek_back),
    (2, seek_anywhere),
    (1, seek_to_beginning),
    (2, seek_to_end_and_back),
    (2, end_offsets),
    (2, offsets_for_times),
    (3, look_around),
    (3, pause),
    (4, resume),
    (2, subscribe),
    (1, unsubscribe),
    (1, subscribe_twice),
    (1, enforce_rebalance),
    (4, rest),
)
