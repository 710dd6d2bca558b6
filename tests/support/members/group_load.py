"""A topic to which records are written while a group reads it, and checks of what the group has read."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from support.brokers.kafka_admin import Kafka
from support.harnesses.threads import meanwhile
from support.members.members import (
    MemberProcess,
    Partition,
    assert_all_seen,
    assert_in_order,
    assert_one_owner_at_a_time,
    ownership,
    shared_out,
    wait_for,
)

PARTITIONS = 6


def load(kafka: Kafka, topic: str) -> AbstractContextManager[None]:
    """Write about 3,000 records per second to the topic until the block ends."""

    def produce(ended: threading.Event) -> None:
        number = 0
        while not ended.wait(0.05):
            kafka.produce(topic, [b"%d" % n for n in range(number, number + 150)], config={"linger.ms": 0})
            number += 150

    return meanwhile(produce)


def everything(topic: str) -> list[Partition]:
    """Returns all partitions of the test's topic."""
    return [(topic, partition) for partition in range(PARTITIONS)]


def drained(kafka: Kafka, topic: str, members: list[MemberProcess]) -> dict[Partition, int]:
    """Wait until the group has read all records. Returns the end of each partition."""
    ends = {(topic, partition): end for partition, end in kafka.end_offsets(topic).items()}
    total = sum(ends.values())
    wait_for(lambda: sum(m.consumed() for m in members) >= total, f"all {total} records", members)
    return ends


def all_offsets(members: list[MemberProcess], ends: dict[Partition, int]) -> bool:
    """Returns whether every record was read by some member."""
    try:
        assert_all_seen(members, ends, once=False)
    except AssertionError:
        return False
    return True


def one_three_two(kafka: Kafka, topic: str, chosen: dict[str, Any], *, keeps: bool) -> None:
    """Run the group with one, three and two members while records are written. Check that each record is read once and
    in order, that each partition has one owner at a time, and that all is committed; with `keeps`, that retained
    partitions are not interrupted.
    """
    with ExitStack() as stack:
        with load(kafka, topic):
            first = stack.enter_context(MemberProcess("first", chosen))
            wait_for(lambda: shared_out([first], everything(topic)), "the first member to own all", [first])
            wait_for(first.consumed, "the first record", [first])
            second = stack.enter_context(MemberProcess("second", chosen))
            third = stack.enter_context(MemberProcess("third", chosen))
            members = [first, second, third]
            wait_for(lambda: shared_out(members, everything(topic)), "three members to share", members)
            before = third.consumed()
            wait_for(lambda: third.consumed() > before + 100, "the third member to read", members)
            second.stop()
            left = [first, third]
            wait_for(lambda: shared_out(left, everything(topic)), "two members to share", members)
        ends = drained(kafka, topic, members)
        for member in left:
            member.stop()
        assert_all_seen(members, ends, once=True)
        assert_in_order(members)
        assert_one_owner_at_a_time(members)
        if keeps:
            kept = [spans for spans in ownership([first]).values() if len(spans) == 1]
            assert len(kept) >= 2, "the first member keeps two of its six partitions throughout"
        assert {p[1]: end for p, end in ends.items()} == kafka.committed(topic, topic)
