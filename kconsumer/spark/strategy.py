"""Which topics or partitions a query reads, as the user said it.

Plain values that are pickled to executors; finding out what exists is `admin.py`'s task.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kconsumer.types import TopicPartition

__all__ = ["INTERNAL_TOPICS", "Assign", "Strategy", "Subscribe", "SubscribePattern"]

# The topics that brokers flag as internal; a name that merely begins with two underscores is an ordinary one.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


@dataclass(frozen=True)
class Subscribe:
    """These topics, each of which must exist."""

    topics: tuple[str, ...]

    def choose(self, counts: Mapping[str, Iterable[int]]) -> set[TopicPartition]:
        """Of the partitions there are, those to read."""
        return {TopicPartition(topic, partition) for topic in self.topics for partition in counts.get(topic, ())}


@dataclass(frozen=True)
class SubscribePattern:
    """All topics that contain a match of `pattern`, those that appear later included."""

    pattern: str

    def choose(self, counts: Mapping[str, Iterable[int]]) -> set[TopicPartition]:
        """Of the partitions there are, those to read."""
        search = re.compile(self.pattern).search
        topics = [topic for topic in counts if topic not in INTERNAL_TOPICS and search(topic)]
        return {TopicPartition(topic, partition) for topic in topics for partition in counts[topic]}


@dataclass(frozen=True)
class Assign:
    """These partitions and no others."""

    partitions: frozenset[TopicPartition]

    def choose(self, counts: Mapping[str, Iterable[int]]) -> set[TopicPartition]:
        """Of the partitions there are, those to read; as in Spark's source, others are passed over."""
        return {tp for tp in self.partitions if tp.partition in counts.get(tp.topic, ())}


Strategy = Subscribe | SubscribePattern | Assign
