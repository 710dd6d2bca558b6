"""Helpers of black-box tests of `Consumer`: poll until a condition is true; a listener that records callbacks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import Any

from kconsumer import Consumer, ConsumerRecord, RebalanceListener, TopicPartition
from kconsumer.errors import KafkaError
from support.harnesses.threads import meanwhile

Hook = Callable[[Consumer, tuple[TopicPartition, ...]], object]


def tps(topic: str, *partitions: int) -> tuple[TopicPartition, ...]:
    """Returns partitions of one topic."""
    return tuple(TopicPartition(topic, partition) for partition in partitions)


def poll_until(
    consumers: Consumer | Sequence[Consumer], condition: Callable[[], Any], timeout_s: float = 20
) -> list[ConsumerRecord]:
    """Poll the consumers in turn until the condition is true. Returns all records."""
    members = consumers if isinstance(consumers, Sequence) else [consumers]
    pause_s = 0.1 if len(members) == 1 else 0.02
    records: list[ConsumerRecord] = []
    deadline = time.monotonic() + timeout_s
    for consumer in cycle(members):
        if condition():
            return records
        assert time.monotonic() < deadline, f"did not come true in {timeout_s} s; {members}, {len(records)} records"
        records.extend(consumer.poll(pause_s))
    raise AssertionError("no consumers")


@contextmanager
def polled(*consumers: Consumer) -> Iterator[list[KafkaError]]:
    """Poll the consumers from another thread while the block runs. Returns the list of their errors."""
    errors: list[KafkaError] = []

    def poll_on(ended: threading.Event) -> None:
        while not ended.is_set():
            for consumer in consumers:
                try:
                    consumer.poll(0.02)
                except KafkaError as error:
                    errors.append(error)

    with meanwhile(poll_on):
        yield errors


def read(consumer: Consumer, count: int, timeout_s: float = 20, **poll: Any) -> list[ConsumerRecord]:
    """Poll until `count` records were returned. Returns them. Fails if there are more."""
    records: list[ConsumerRecord] = []
    deadline = time.monotonic() + timeout_s
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records; {consumer.partition_states()}"
        records.extend(consumer.poll(0.5, **poll))
    assert count == len(records), "more records than expected"
    return records


def await_assignment(consumer: Consumer, *partitions: TopicPartition) -> list[ConsumerRecord]:
    """Poll until exactly these partitions are assigned. Returns the records."""
    wanted = frozenset(partitions)
    return poll_until(consumer, lambda: consumer.assignment() == wanted)


def values(records: Iterable[ConsumerRecord]) -> list[bytes | None]:
    """Returns the records' values."""
    return [record.value for record in records]


def numbered(count: int, start: int = 0) -> list[bytes]:
    """Returns the values b"0", b"1", …"""
    return [b"%d" % number for number in range(start, start + count)]


def later(delay_s: float, action: Callable[[], object]) -> threading.Timer:
    """Call a function from another thread after a short delay."""
    timer = threading.Timer(delay_s, action)
    timer.start()
    return timer


class Recorder(RebalanceListener):
    """Records each callback as (kind, partitions); `during` runs more code inside one kind of callback."""

    def __init__(self, **during: Hook) -> None:
        self.calls: list[tuple[str, tuple[TopicPartition, ...]]] = []
        self.threads: set[int] = set()
        self.during = during

    def on_partitions_assigned(self, consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        """Record the callback as "assigned"."""
        self._note("assigned", consumer, partitions)

    def on_partitions_revoked(self, consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        """Record the callback as "revoked"."""
        self._note("revoked", consumer, partitions)

    def on_partitions_lost(self, consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        """Record the callback as "lost"."""
        self._note("lost", consumer, partitions)

    def _note(self, kind: str, consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        self.calls.append((kind, partitions))
        self.threads.add(threading.get_ident())
        if kind in self.during:
            self.during[kind](consumer, partitions)

    @property
    def kinds(self) -> list[str]:
        """Returns the callbacks' kinds in order."""
        return [kind for kind, _ in self.calls]

    def count(self, kind: str) -> int:
        """Returns how often callbacks of one kind ran."""
        return self.kinds.count(kind)


def read_committed(servers: str, topic: str) -> list[ConsumerRecord]:
    """Returns the records of a topic that are not of aborted transactions."""
    found: list[ConsumerRecord] = []
    with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
        partitions = [TopicPartition(topic, info.partition) for info in consumer.partitions_for(topic)]
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            found += consumer.poll(0.5)
    return found
