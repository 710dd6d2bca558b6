"""The subscription strategy of a query: topics by name, topics by pattern, or partitions.

These are plain values that are pickled to executors. `admin.py` requests which topics and partitions exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kconsumer.types import TopicPartition

__all__ = ["INTERNAL_TOPICS", "Assign", "Strategy", "Subscribe", "SubscribePattern"]

# The topics that brokers mark as internal. Two leading underscores alone do not make a topic internal.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


@dataclass(frozen=True)
class Subscribe:
    """All partitions of these topics, each of which must exist."""

    topics: tuple[str, ...]

    def choose(self, counts: Mapping[str, Iterable[int]]) -> set[TopicPartition]:
        """Return the partitions to read, out of the partition numbers of each topic."""
        return {TopicPartition(topic, partition) for topic in self.topics for partition in counts.get(topic, ())}


@dataclass(frozen=True)
class SubscribePattern:
    """All topics whose name contains a match of `pattern`, including topics that are created later."""

    pattern: str

    def choose(self, counts: Mapping[str, Iterable[int]]) -> set[TopicPartition]:
        """Return the partitions to read, out of the partition numbers of each topic."""
        search = re.compile(self.pattern).search
        topics = [topic for topic in counts if topic not in INTERNAL_TOPICS and search(topic)]
        return {TopicPartition(topic, partition) for topic in topics for partition in counts[topic]}


@dataclass(frozen=True)
class Assign:
    """These partitions and no others."""

    partitions: frozenset[TopicPartition]

    def choose(self, counts: Mapping[str, Iterable[int]]) -> set[TopicPartition]:
        """Return the partitions to read. As in Spark's source, partitions that do not exist are ignored."""
        return {tp for tp in self.partitions if tp.partition in counts.get(tp.topic, ())}


Strategy = Subscribe | SubscribePattern | Assign
