"""The program CALLS: a random method of the consumer between two polls, and polls of all kinds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kconsumer import Consumer, TopicPartition
from kconsumer.arrow import RecordBatch
from kconsumer.errors import StateError
from support.simulation.settings import CALL_TIMEOUT_S, POLL_TIMEOUT_S

if TYPE_CHECKING:
    from support.simulation.members import MemberProcess

LOOKUP_TIMEOUTS_S = (0.3, 2.0, CALL_TIMEOUT_S)


def poll_and_call(member: MemberProcess, consumer: Consumer) -> None:
    """Poll records or columns, few or many of them; sometimes make another call before they are processed."""
    draw = member.simulation.random
    if member.catching_up or draw.random() < 0.7:
        timeout_s = POLL_TIMEOUT_S if member.catching_up else draw.choice([0.0, 0.1, 3.0, POLL_TIMEOUT_S])
        member.poll_once(consumer, timeout_s, draw.choice([None, None, 1, 3]))
    else:
        _poll_arrow(member, consumer)
    partitions = sorted(consumer.assignment())
    if partitions and not member.catching_up and draw.random() < 0.5:
        draw.choice(CALLS)(member, consumer, draw.sample(partitions, draw.randint(1, len(partitions))))


def _poll_arrow(member: MemberProcess, consumer: Consumer) -> None:
    timeout_s, rows = member.draw(0, 5.0), member.simulation.random.choice([None, 1, 5])
    member.finish_batch()
    batch = member.call("poll_arrow", timeout_s, lambda: consumer.poll_arrow(timeout_s, rows))
    if batch is not None:
        member.take_offsets(_offsets(batch))


def _offsets(batch: RecordBatch) -> list[tuple[TopicPartition, int]]:
    table = batch.to_pyarrow()
    names = zip(*(table[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True)
    return [(TopicPartition(topic, partition), offset) for topic, partition, offset in names]


def _position(member: MemberProcess, consumer: Consumer, partitions: list[TopicPartition]) -> None:
    """Look up a position, which must be that of the next record."""
    tp, timeout_s = partitions[0], member.simulation.random.choice(LOOKUP_TIMEOUTS_S)
    offset = member.call("position", timeout_s, lambda: _assigned_position(consumer, tp, timeout_s))
    if offset is not None:
        member.journal.check_position(member.name, tp, offset)


def _assigned_position(consumer: Consumer, tp: TopicPartition, timeout_s: float) -> int | None:
    """Returns the position, or None if the partition was revoked meanwhile."""
    try:
        return consumer.position(tp, timeout_s)
    except StateError:
        if tp in consumer.assignment():
            raise
        return None


def _committed(member: MemberProcess, consumer: Consumer, partitions: list[TopicPartition]) -> None:
    """Look up committed offsets, which must contain all commits that were stored before the call."""
    timeout_s = member.simulation.random.choice(LOOKUP_TIMEOUTS_S)
    member.journal.note_committed(member.name, partitions)
    found = member.call("committed", timeout_s, lambda: consumer.committed(partitions, timeout_s))
    for tp, committed in (found or {}).items():
        member.journal.check_committed(member.name, tp, 0 if committed is None else committed.offset)


def _lookup(member: MemberProcess, consumer: Consumer, partitions: list[TopicPartition]) -> None:
    """Look up the beginnings or the ends of partitions, or offsets by time."""
    timeout_s = member.simulation.random.choice(LOOKUP_TIMEOUTS_S)
    calls = {
        "end_offsets": lambda: consumer.end_offsets(partitions, timeout_s),
        "beginning_offsets": lambda: consumer.beginning_offsets(partitions, timeout_s),
        "offsets_for_times": lambda: consumer.offsets_for_times(dict.fromkeys(partitions, 0), timeout_s),
    }
    name = member.simulation.random.choice(list(calls))
    member.call(name, timeout_s, calls[name])


def _look_around(member: MemberProcess, consumer: Consumer, partitions: list[TopicPartition]) -> None:
    """Call what does not wait."""
    for name in ("metrics", "partition_states", "group_metadata", "subscription", "paused"):
        member.call(name, 0.0, getattr(consumer, name))
    member.call("current_lag", 0.0, lambda: (consumer.current_lag(partitions[0]),))


def _commit_processed(member: MemberProcess, consumer: Consumer, partitions: list[TopicPartition]) -> None:
    """Process the batch, and commit the offsets of some partitions."""
    following = {tp: offset + 1 for tp, offset in member.unprocessed if tp in partitions}
    member.finish_batch()
    committed = member.call("commit", CALL_TIMEOUT_S, partial(_commit, consumer, following)) if following else None
    for tp, offset in following.items() if committed else ():
        member.journal.acknowledge(member.name, tp, offset)


def _commit(consumer: Consumer, offsets: dict[TopicPartition, int]) -> bool:
    consumer.commit(offsets, timeout=CALL_TIMEOUT_S)
    return True


def _seek_to_end_and_back(member: MemberProcess, consumer: Consumer, _: list[TopicPartition]) -> None:
    """Seek to the end to look it up, and return to the first record of the batch before the next poll."""
    first: dict[TopicPartition, int] = {}
    for tp, offset in member.unprocessed:
        first.setdefault(tp, offset)
    member.unprocessed = []
    for tp, offset in first.items():
        if tp in consumer.assignment():
            member.journal.sought(member.name, tp, offset)
            consumer.seek_to_end(tp)
            if member.chance(0.3):
                member.call("position", 2.0, partial(_assigned_position, consumer, tp, 2.0))
            if tp in consumer.assignment():  # the position was looked up meanwhile
                consumer.seek(tp, offset)


def _enforce_rebalance(member: MemberProcess, consumer: Consumer, _: list[TopicPartition]) -> None:
    if member.chance(0.1):
        member.call("enforce_rebalance", 0.0, lambda: consumer.enforce_rebalance() or True)


CALLS: tuple[Callable[[MemberProcess, Consumer, list[TopicPartition]], None], ...] = (
    _position,
    _committed,
    _lookup,
    _look_around,
    _commit_processed,
    _seek_to_end_and_back,
    _enforce_rebalance,
)
