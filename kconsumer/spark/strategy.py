"""The subscription strategy of a query: topics by name, topics by pattern, or partitions.

Strategies are plain values, which Spark pickles to executors. `admin.py` requests which topics and partitions exist.
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
    """Selects all partitions of `topics`. Each of these topics must exist."""

    topics: tuple[str, ...]

    def choose(self, counts: Mapping[str, Iterable[int]]) -> set[TopicPartition]:
        """Returns the partitions to read. `counts` contains the partition numbers of each topic."""
        return {TopicPartition(topic, partition) for topic in self.topics for partition in counts.get(topic, ())}


@dataclass(frozen=True)
class SubscribePattern:
    """Selects all topics whose name contains a match of `pattern`, including topics that are created later."""

    pattern: str

    def choose(self, counts: Mapping[str, Iterable[int]]) -> set[TopicPartition]:
        """Returns the partitions to read. `counts` contains the partition numbers of each topic."""
        search = re.compile(self.pattern).search
        topics = [topic for topic in counts if topic not in INTERNAL_TOPICS and search(topic)]
        return {TopicPartition(topic, partition) for topic in topics for partition in counts[topic]}


@dataclass(frozen=True)
class Assign:
    """Selects the given partitions."""

    partitions: frozenset[TopicPartition]

    def choose(self, counts: Mapping[str, Iterable[int]]) -> set[TopicPartition]:
        """Returns the partitions that exist according to `counts`. As in Spark's source, the others are ignored."""
        return {tp for tp in self.partitions if tp.partition in counts.get(tp.topic, ())}


Strategy = Subscribe | SubscribePattern | Assign
