"""The programs of the members: what the application does with its consumer, one step after the other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kconsumer import Consumer, TopicPartition
from support.simulation.scenario import Program
from support.simulation.scheduler import FOREVER
from support.simulation.settings import CALL_TIMEOUT_S, MAX_POLL_INTERVAL_MS, TOPIC

if TYPE_CHECKING:
    from support.simulation.members import MemberProcess


def poll(member: MemberProcess, consumer: Consumer) -> None:
    """Poll once."""
    member.poll_once(consumer)


def poll_slowly(member: MemberProcess, consumer: Consumer) -> None:
    """Poll once, and sometimes take long afterwards."""
    if member.poll_once(consumer) and member.chance(0.02) and not member.catching_up:
        member.be_busy(member.draw(0, 1.5 * MAX_POLL_INTERVAL_MS))


def poll_and_commit(member: MemberProcess, consumer: Consumer) -> None:
    """Poll once, process, and commit."""
    if member.poll_once(consumer):
        batch = member.unprocessed
        member.finish_batch()
        if member.call("commit", CALL_TIMEOUT_S, lambda: consumer.commit(timeout=CALL_TIMEOUT_S) or True):
            for partition, offset in batch:
                member.journal.acknowledge(member.name, partition, offset + 1)


def poll_and_commit_async(member: MemberProcess, consumer: Consumer) -> None:
    """Poll once, process, and commit without waiting."""
    if member.poll_once(consumer):
        member.finish_batch()
        member.call("commit_async", 0.0, lambda: consumer.commit_async() or True)


def poll_and_seek(member: MemberProcess, consumer: Consumer) -> None:
    """Poll once, and sometimes seek back to the first record of the batch, as after a failed batch."""
    records = member.poll_once(consumer)
    if records and member.chance(0.2) and not member.catching_up:
        first = {tp: min(r.offset for r in records.records(tp)) for tp in records.partitions()}
        member.unprocessed = []
        for tp, offset in first.items():
            if tp in consumer.assignment():
                member.journal.sought(member.name, tp, offset)
                member.call("seek", 0.0, partial(seek, consumer, tp, offset))


def poll_and_pause(member: MemberProcess, consumer: Consumer) -> None:
    """Poll once; sometimes pause partitions before and resume them later."""
    if member.chance(0.2) and not member.catching_up:
        paused = [tp for tp in sorted(consumer.assignment()) if member.chance(0.5)]
        consumer.pause(*paused)
    elif member.chance(0.5) or member.catching_up:
        consumer.resume(*consumer.paused())
    member.poll_once(consumer)


def poll_and_resubscribe(member: MemberProcess, consumer: Consumer) -> None:
    """Poll once; now and then unsubscribe, and subscribe again."""
    member.poll_once(consumer)
    if member.chance(0.01):
        member.finish_batch()
        member.call("unsubscribe", CALL_TIMEOUT_S, lambda: consumer.unsubscribe() or True)
        member.journal.end(member.name)
        member.simulation.sleep(member.draw(0, 60_000))
        consumer.subscribe([TOPIC], listener=member.listener)


def iterate(member: MemberProcess, consumer: Consumer) -> None:
    """Iterate over some records, one at a time."""
    member.call("iterate", FOREVER, lambda: _iterate(member, consumer))


def _iterate(member: MemberProcess, consumer: Consumer) -> bool:
    for record in consumer:
        member.take([record])
        member.finish_batch()  # before the loop asks for the next record
        if member.chance(0.1):
            break
    return True


def seek(consumer: Consumer, tp: TopicPartition, offset: int) -> bool:
    """Seek, and return True."""
    consumer.seek(tp, offset)
    return True


STEPS: dict[Program, Callable[[MemberProcess, Consumer], None]] = {
    Program.AUTO_COMMIT: poll,
    Program.SLOW: poll_slowly,
    Program.COMMIT: poll_and_commit,
    Program.COMMIT_ASYNC: poll_and_commit_async,
    Program.COMMIT_IN_CALLBACK: poll,
    Program.SEEK_BACK: poll_and_seek,
    Program.PAUSE: poll_and_pause,
    Program.RAISE_IN_CALLBACK: poll,
    Program.REOPEN: poll,
    Program.CHANGE_PROTOCOL: poll,
    Program.RESUBSCRIBE: poll_and_resubscribe,
    Program.ITERATE: iterate,
    Program.CLOSE_IN_CALLBACK: poll,
    Program.SLOW_DESERIALIZER: poll,
}
