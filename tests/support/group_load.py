"""A topic with records flowing in while a group reads it, and what a group has read of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from support.kafka_admin import Kafka
from support.members import MemberProcess, Partition, assert_all_seen, wait_for

PARTITIONS = 6


@contextmanager
def load(kafka: Kafka, topic: str) -> Iterator[None]:
    """Records flow into the topic, about 3,000 per second, until the block ends."""
    done = threading.Event()

    def produce() -> None:
        number = 0
        while not done.wait(0.05):
            kafka.produce(topic, [b"%d" % n for n in range(number, number + 150)], config={"linger.ms": 0})
            number += 150

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def everything(topic: str) -> list[Partition]:
    """All partitions of the test's topic."""
    return [(topic, partition) for partition in range(PARTITIONS)]


def drained(kafka: Kafka, topic: str, members: list[MemberProcess]) -> dict[Partition, int]:
    """Wait until the group has read all there is; the end of each partition."""
    ends = {(topic, partition): end for partition, end in kafka.end_offsets(topic).items()}
    total = sum(ends.values())
    wait_for(lambda: sum(m.consumed() for m in members) >= total, f"all {total} records", members)
    return ends


def all_offsets(members: list[MemberProcess], ends: dict[Partition, int]) -> bool:
    """Whether every record was read by someone."""
    try:
        assert_all_seen(members, ends, once=False)
    except AssertionError:
        return False
    return True
