"""Writes records that a share group has given up to its dead-letter topic (KIP-1191).

Follows Kafka's `ShareGroupDLQStateManager`. If the topic is missing, or not meant for this, nothing is written. Brokers
say so only in their logs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kconsumer._core.decode import ConsumerRecord
from kconsumer.testing.batches import Rec, build_batch
from kconsumer.testing.cluster.state import ClusterState
from kconsumer.testing.cluster.topic import Partition, Topic

TOPIC_NAME = "errors.deadletterqueue.topic.name"
COPY_RECORD = "errors.deadletterqueue.copy.record.enable"
TOPIC_ENABLE = "errors.deadletterqueue.group.enable"
HEADER = "__dlq.errors."


class DeadLetter(NamedTuple):
    """Consecutive records that the group has given up, and why."""

    first: int
    last: int
    deliveries: int
    message: str


class DeadLetterTopics:
    """The dead-letter topics of all share groups."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster

    def write(self, group_id: str, partition: Partition, letters: Iterable[DeadLetter], now: float) -> None:
        """Write the records of a partition that a group has given up."""
        topic = self._topic(group_id)
        if topic is None:
            return
        target = topic.partitions[partition.index % len(topic.partitions)]
        wall_ms = self._cluster.wall_ms(now)
        copies = self._cluster.group_configs.text(group_id, COPY_RECORD).lower() == "true"
        for letter in letters:
            originals = _records(partition, letter) if copies else {}
            rows = [
                _row(group_id, partition, letter, offset, originals.get(offset))
                for offset in range(letter.first, letter.last + 1)
            ]
            target.append(build_batch(rows, timestamp=wall_ms), wall_ms)

    def _topic(self, group_id: str) -> Topic | None:
        """Returns the dead-letter topic of a group, or None if there is none that may be written to."""
        cluster, settings = self._cluster, self._cluster.settings
        name = cluster.group_configs.text(group_id, TOPIC_NAME)
        prefix = settings.errors_deadletterqueue_topic_name_prefix
        if not name or name.startswith("__") or not name.startswith(prefix):
            return None
        topic = cluster.topics.get(name)
        if topic is None and settings.errors_deadletterqueue_auto_create_topics_enable:
            topic = cluster.create_topic(name, configs={TOPIC_ENABLE: "true"})
        return topic if topic is not None and topic.configs[TOPIC_ENABLE] == "true" else None


def _records(partition: Partition, letter: DeadLetter) -> dict[int, ConsumerRecord]:
    """Returns the records of the log by offset. Some may be missing after compaction."""
    found: dict[int, ConsumerRecord] = {}
    for batch in partition.log.batches(letter.first):
        if batch.base_offset > letter.last:
            break
        if not batch.control:
            found.update((record.offset, record) for record in batch.records())
    return found


def _row(group_id: str, partition: Partition, letter: DeadLetter, offset: int, original: ConsumerRecord | None) -> Rec:
    about = {
        "topic": partition.topic.name,
        "partition": partition.index,
        "offset": offset,
        "group": group_id,
        "delivery.count": letter.deliveries,
        "message": letter.message,
    }
    headers = tuple((HEADER + name, str(value).encode()) for name, value in about.items())
    if original is None:
        return Rec(key=None, value=None, headers=headers)
    return Rec(key=original.key, value=original.value, headers=headers)  # brokers leave out its own headers
