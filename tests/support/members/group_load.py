"""A topic to which records are written while a group reads it, and checks of what the group has read."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager

from support.brokers.kafka_admin import Kafka
from support.harnesses.threads import meanwhile
from support.members.members import (
    MemberProcess,
    Partition,
    assert_all_seen,
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
