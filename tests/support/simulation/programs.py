"""The programs of the members: what the application does with its consumer, one step after the other."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from kconsumer import Consumer, ConsumerRecord, OffsetAndMetadata, SubscriptionPattern, TopicPartition
from support.harnesses.cancellation import Moment
from support.simulation.parallel_program import process_in_parallel
from support.simulation.random_calls import poll_and_call
from support.simulation.scenario import Program
from support.simulation.scheduler import FOREVER
from support.simulation.settings import CALL_TIMEOUT_S, MAX_POLL_INTERVAL_MS, POLL_TIMEOUT_S

if TYPE_CHECKING:
    from support.aio.blocking import BlockingConsumer
    from support.simulation.members import MemberProcess

UNLIMITED_S = 1e12  # more than a lock or a selector can wait
Pattern = re.Pattern[str] | SubscriptionPattern


def poll(member: MemberProcess, consumer: Consumer) -> None:
    """Poll once."""
    member.poll_once(consumer)


def poll_slowly(member: MemberProcess, consumer: Consumer) -> None:
    """Poll once, and sometimes take long afterwards."""
    if member.poll_once(consumer) and member.chance(0.05) and not member.catching_up:
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
        member.call("commit_async", 0.0, partial(commit_async, consumer))


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
    paused: list[TopicPartition] = []
    if member.chance(0.2) and not member.catching_up:
        paused = [tp for tp in sorted(consumer.assignment()) if member.chance(0.5)]
        consumer.pause(*paused)
    elif member.chance(0.5) or member.catching_up:
        consumer.resume(*consumer.paused())
    member.journal.pause(member.name, paused)
    member.poll_once(consumer)
    member.journal.pause(member.name, ())


def poll_and_resubscribe(member: MemberProcess, consumer: Consumer) -> None:
    """Poll once; now and then unsubscribe, and subscribe again."""
    member.poll_once(consumer)
    if member.chance(0.03) and not member.catching_up:
        member.finish_batch()
        member.call("unsubscribe", CALL_TIMEOUT_S, lambda: consumer.unsubscribe() or True)
        member.journal.end(member.name)
        member.simulation.sleep(member.draw(0, 60_000))
        member.subscribe(consumer, member.scenario.topic_names)


def poll_and_change_topics(member: MemberProcess, consumer: Consumer) -> None:
    """Poll once; now and then subscribe to other topics or to a pattern, and sometimes soon back again."""
    member.poll_once(consumer)
    topics = member.scenario.topic_names
    if member.catching_up:
        if member.subscribed != frozenset(topics):
            member.subscribe(consumer, topics)
        return
    if not member.chance(0.05):
        return
    chosen = [topic for topic in topics if member.chance(0.5)] or list(topics)
    member.finish_batch()
    member.subscribe(consumer, chosen, _pattern(member, chosen))
    if member.chance(0.5):
        records = member.call("poll", 0.0, lambda: consumer.poll(0))
        member.take(records or ())
        member.finish_batch()
        member.subscribe(consumer, topics)


def poll_and_leave(member: MemberProcess, consumer: Consumer) -> None:
    """Poll once; now and then unsubscribe, and subscribe again at once."""
    member.poll_once(consumer)
    if member.chance(0.02) and not member.catching_up:
        member.finish_batch()
        member.call("unsubscribe", CALL_TIMEOUT_S, lambda: consumer.unsubscribe() or True)
        member.journal.end(member.name)
        member.subscribe(consumer, member.scenario.topic_names)


def poll_and_commit_some(member: MemberProcess, consumer: Consumer) -> None:
    """Poll once, process, and sometimes commit."""
    (poll_and_commit if member.chance(0.5) else poll)(member, consumer)


def assign_all(member: MemberProcess, consumer: Consumer) -> None:
    """Assign all partitions."""
    topics = member.simulation.cluster.topics
    names = [name for name in member.scenario.topic_names if name in topics]
    partitions = [TopicPartition(name, partition.index) for name in names for partition in topics[name].partitions]
    member.simulation.record(member.name, "assigns all partitions")
    member.call("assign", 0.0, lambda: consumer.assign(partitions) or True)


def poll_alone(member: MemberProcess, consumer: Consumer) -> None:
    """Poll once; sometimes process for longer than the request timeout. Nothing is processed for the group."""
    if member.poll_once(consumer) and member.chance(0.1):
        member.simulation.sleep(member.draw(0, 60_000))


def poll_and_fetch_offsets(member: MemberProcess, consumer: Consumer) -> None:
    """Poll for a short or a very long time; often fetch the committed offsets afterwards."""
    short = member.chance(0.5) or member.plan.stop_ms is not None
    member.poll_once(consumer, member.draw(0, 1.0) if short else UNLIMITED_S)
    partitions = consumer.assignment()
    if partitions and member.chance(0.5):
        member.call("committed", 5.0, lambda: consumer.committed(partitions, timeout=5.0) or True)


def poll_and_cancel(member: MemberProcess, consumer: Consumer) -> None:
    """Poll once, and sometimes commit; now and then unsubscribe, and subscribe again. Cancel many of these calls."""
    blocking = cast("BlockingConsumer", consumer)
    if not member.catching_up and member.chance(0.5):
        if member.chance(0.5):
            blocking.cancel_at = member.simulation.random.randint(1, 15), member.simulation.random.choice(list(Moment))
        else:
            blocking.cancel_after_s = member.draw(0, 0.01 if member.chance(0.7) else 3.0)
    batch: list[tuple[TopicPartition, int]] = []
    if member.poll_once(consumer) and member.chance(0.5):
        batch = member.unprocessed
        member.finish_batch()
        committed = member.call("commit", CALL_TIMEOUT_S, lambda: consumer.commit(timeout=CALL_TIMEOUT_S) or True)
        for partition, offset in batch if committed else ():
            member.journal.acknowledge(member.name, partition, offset + 1)
    leaves = member.chance(0.02) and not member.catching_up
    if leaves:
        member.finish_batch()
        member.call("unsubscribe", CALL_TIMEOUT_S, lambda: consumer.unsubscribe() or True)
    blocking.cancel_after_s = blocking.cancel_at = None
    if leaves:
        member.call("unsubscribe", CALL_TIMEOUT_S, lambda: consumer.unsubscribe() or True)
        member.journal.end(member.name)
        member.subscribe(consumer, member.scenario.topic_names)


def _pattern(member: MemberProcess, topics: list[str]) -> Pattern | None:
    """Returns a pattern that matches topics, or None."""
    text = "|".join(topics)
    if member.chance(0.5):
        return None
    server = member.plan.protocol == "consumer" and member.chance(0.5)
    return SubscriptionPattern(text) if server else re.compile(text)


def poll_and_seek_to_ends(member: MemberProcess, consumer: Consumer) -> None:
    """Poll once; in the first half of the run, read from the beginning now and then, after seeks without effect."""
    member.poll_once(consumer)
    if member.simulation.now > member.scenario.duration_ms / 2 or not member.chance(0.01):
        return
    member.finish_batch()
    for tp in sorted(consumer.assignment()):
        if member.chance(0.5):
            member.simulation.record(member.name, f"seeks to the beginning of {tp}")
            consumer.seek(tp, OffsetAndMetadata(1, leader_epoch=0))
            consumer.seek_to_end(tp)
            consumer.seek_to_beginning(tp)
            member.journal.rewind(member.name, tp)


def poll_and_store(member: MemberProcess, consumer: Consumer) -> None:
    """Poll once; process and store some of the records that were returned until now, in any order."""
    member.take(member.call("poll", POLL_TIMEOUT_S, lambda: consumer.poll(POLL_TIMEOUT_S)) or ())
    waiting, draw = member.unprocessed, member.simulation.random
    draw.shuffle(waiting)
    count = len(waiting) if member.catching_up else draw.randint(0, len(waiting))
    member.unprocessed = waiting[:count]
    member.finish_batch()
    member.unprocessed = waiting[count:]
    records = [ConsumerRecord(tp.topic, tp.partition, offset) for tp, offset in waiting[:count]]
    member.call("store_offsets", 0.0, partial(store, consumer, records))


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


def commit_async(consumer: Consumer) -> bool:
    """Commit without waiting, and return True."""
    consumer.commit_async()
    return True


def store(consumer: Consumer, records: list[ConsumerRecord]) -> bool:
    """Store records, and return True."""
    consumer.store_offsets(records)
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
    Program.RAISE_IN_PLUGIN: poll,
    Program.INTERRUPT: poll_and_leave,
    Program.CHANGE_TOPICS: poll_and_change_topics,
    Program.SEEK_TO_ENDS: poll_and_seek_to_ends,
    Program.UPGRADE: poll,
    Program.WAKE_UP: poll_and_fetch_offsets,
    Program.CLOSE_IN_HANDLER: poll_and_commit_some,
    Program.READ_ALONE: poll_alone,
    Program.CANCEL: poll_and_cancel,
    Program.PARALLEL: process_in_parallel,
    Program.CALLS: poll_and_call,
    Program.STORE: poll_and_store,
}
