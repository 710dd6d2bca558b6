"""No automatic commit is ahead of the records that the caller has processed, whatever a rebalance does in the middle of
a batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kconsumer import Consumer, ConsumerRecords, TopicPartition
from support.brokers.kafka import Kafka
from support.harnesses.polling import numbered, polled, tps

New = Callable[..., Consumer]
COUNT = 2000
# Set when the response with the new assignment was received and the caller has not polled since.
ASSIGNED = ("COMPLETING", "RECONCILING")


class ProcessingError(Exception):
    """Processing a record failed."""


def process(consumer: Consumer, records: ConsumerRecords, partitions: tuple[TopicPartition, ...]) -> None:
    """Process a batch with calls that use the network. Raises when a new assignment arrives in the middle of
    the batch.
    """
    group = consumer._engine.components.group
    assert group is not None
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        committed = consumer.committed(partitions)
        for tp, batch in records.by_partition().items():
            found = committed[tp]
            assert found is None or found.offset <= batch[0].offset, "committed before it was processed"
        if group.member.state.name in ASSIGNED:
            raise ProcessingError
        time.sleep(0.02)


def read_until_it_fails(
    consumer: Consumer, other: Consumer, partitions: tuple[TopicPartition, ...], batches: list[ConsumerRecords]
) -> None:
    """Process batches in a `with` block; the other member joins during the first one."""
    with consumer:
        while not batches[-1]:
            batches.append(consumer.poll(1.0))
        with polled(other):
            while True:
                if batches[-1]:
                    process(consumer, batches[-1], partitions)
                batches.append(consumer.poll(1.0))


def fail_while_a_partition_moves_away(kafka: Kafka, topic_name: str, new_consumer: New, engine: dict[str, Any]) -> None:
    """A member fails in the batch during which another member's join moves a partition. Check the committed offsets."""
    kafka.create_topic(topic_name, partitions=2)
    both = tps(topic_name, 0, 1)
    for tp in both:
        kafka.produce(topic_name, numbered(COUNT), partition=tp.partition)
    cooperative = {} if "group_protocol" in engine else {"assignors": ["cooperative-sticky"]}
    make = partial(new_consumer, topic_name, group_id=topic_name, max_poll_records=10, **cooperative)
    other = make(enable_auto_commit=False)
    batches = [ConsumerRecords.EMPTY]
    with pytest.raises(ProcessingError):
        read_until_it_fails(make(auto_commit_interval_ms=50), other, both, batches)
    committed = other.committed(both)
    for tp, batch in batches[-1].by_partition().items():
        found = committed[tp]
        assert found is None or found.offset <= batch[0].offset


def test_body_that_raises(kafka: Kafka, topic_name: str, new_consumer: New, engine: dict[str, Any]) -> None:
    """A member with auto-commit fails in the batch during which another member's join moves a partition. No offset of
    that batch is committed, so the next owner reads it again.
    """
    fail_while_a_partition_moves_away(kafka, topic_name, new_consumer, engine)


@pytest.mark.classic_protocol
def test_body_that_raises_with_a_network_thread(
    kafka: Kafka, topic_name: str, new_consumer: New, engine: dict[str, Any]
) -> None:
    """The same holds for a classic member with a network thread, whichever thread receives the response with the
    assignment.
    """
    fail_while_a_partition_moves_away(kafka, topic_name, new_consumer, engine)
