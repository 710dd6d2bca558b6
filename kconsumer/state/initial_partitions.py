"""InitialPartitions: which partitions of subscribed topics have appeared since the subscription (KIP-1327).

Decides what is new for `auto_offset_reset_new_partitions`. Partitions of a topic are numbered from 0, and none of them
is removed alone. So a topic's new partitions are those whose number is not below the number of partitions in the first
metadata after the subscription. It does not matter when this consumer learns of them, whether an assignment or metadata
has them first, or which member reads them before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

from kconsumer.state.cluster import Cluster
from kconsumer.types import TopicPartition


class InitialPartitions:
    """How many partitions each subscribed topic had when this consumer first received its metadata."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self.listed = False  # for a pattern: metadata of all topics were received, so others are created later

    def is_new(self, tp: TopicPartition) -> bool:
        """Returns True if the partition has appeared since its topic was subscribed."""
        return tp.partition >= self._counts.get(tp.topic, sys.maxsize)

    def keep(self, subscribed: Callable[[str], bool]) -> None:
        """Forget topics that are no longer subscribed, after the subscription has changed."""
        self._counts = {topic: count for topic, count in self._counts.items() if subscribed(topic)}
        self.listed = False

    def record(self, cluster: Cluster, topics: Iterable[str], *, all_topics: bool) -> None:
        """Record how many partitions these subscribed topics have, unless their numbers are known.

        With `all_topics`, these are all topics that a pattern matches: those that match from now on are new.
        """
        for topic in topics:
            if topic not in self._counts:
                self._counts[topic] = 0 if self.listed else cluster.listed_count(topic)
        self.listed |= all_topics

    def record_absent(self, absent: Iterable[str], recreated: Iterable[str]) -> None:
        """Record topics of which all partitions are new: the `recreated` ones, and those `absent` at first.

        A topic that was there before is probably not deleted: a broker may lag behind.
        """
        self._counts = dict.fromkeys(absent, 0) | self._counts | dict.fromkeys(recreated, 0)

    def __repr__(self) -> str:
        return f"<InitialPartitions {self._counts}>"
