"""Topics and partitions: which brokers replicate a partition, and which one leads it.

A partition has one log for all in-sync replicas. A replica that fell out of sync has the same log up to an end offset
of its own; an unclean election of such a replica truncates the log there.
"""

from __future__ import annotations

from collections.abc import Mapping

from kconsumer.testing.cluster.log import Log
from kconsumer.testing.cluster.settings import TOPIC_DEFAULTS

NO_LEADER = -1


class Partition:
    """One partition of a topic."""

    def __init__(self, topic: Topic, index: int, replicas: list[int]) -> None:
        self.topic = topic
        self.index = index
        self.replicas = replicas  # ids of brokers; the first one is the preferred leader
        self.isr = list(replicas)
        self.leader = replicas[0]  # or NO_LEADER
        self.leader_epoch = 0
        self.log = Log(topic.configs)
        self.log.epochs.assign(0, 0)
        self.lagging: dict[int, int] = {}  # the log end offset of each replica that is not in sync

    def elect(self, leader: int) -> None:
        """Make a replica the leader, or none with NO_LEADER. The leader epoch grows by one.

        If the replica was not in sync, the records that it lacks are lost.
        """
        self.leader = leader
        self.leader_epoch += 1
        if leader in self.lagging:
            self.log.truncate(self.lagging.pop(leader))
            self.isr = [leader]
            self.lagging = {node: min(end, self.log.end) for node, end in self.lagging.items()}

    def __repr__(self) -> str:
        return f"<Partition {self.topic.name}-{self.index}, leader {self.leader}, epoch {self.leader_epoch}>"


class Topic:
    """A topic: its id, its settings, and its partitions."""

    def __init__(self, name: str, topic_id: bytes, configs: Mapping[str, str], *, internal: bool = False) -> None:
        self.name = name
        self.id = topic_id
        self.configs = {**TOPIC_DEFAULTS, **configs}
        self.explicit_configs = set(configs)
        self.internal = internal
        self.partitions: list[Partition] = []

    def __repr__(self) -> str:
        return f"<Topic {self.name}, {len(self.partitions)} partitions>"
