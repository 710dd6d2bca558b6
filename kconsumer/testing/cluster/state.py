"""The state of a cluster that its components share: brokers, topics, what groups have stored, time, and randomness."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from kconsumer.testing.cluster.acls import Acls
from kconsumer.testing.cluster.broker import Broker
from kconsumer.testing.cluster.connection import Connection
from kconsumer.testing.cluster.fetch_sessions import FetchSessionCache
from kconsumer.testing.cluster.group_configs import GroupConfigs
from kconsumer.testing.cluster.offset_store import OffsetStore
from kconsumer.testing.cluster.settings import Settings
from kconsumer.testing.cluster.share_states import StateStore
from kconsumer.testing.cluster.timers import Timers
from kconsumer.testing.cluster.topic import NO_LEADER, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Partition, Topic

SIGN = 0x8000_0000


def java_hash(text: str) -> int:
    """Returns the absolute value of Java's `String.hashCode`, as Kafka's `Utils.abs` computes it.

    The smallest 32-bit number has no absolute value in Java; Kafka replaces it with 0. The hash of a group or
    transactional id selects its partition in an internal topic.
    """
    code = 0
    for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be")):
        code = (31 * code + unit) & 0xFFFF_FFFF
    return code if code < SIGN else (SIGN * 2 - code) % SIGN


CoordinatorType = Literal["group", "transaction"]
ROUNDING_MS = 0.001  # more than the error of a sum of floats, which could be just below the true millisecond


class ClusterState:
    """What the components of a cluster share. It knows none of them. The parameters are those of `Cluster`."""

    def __init__(
        self, racks: Sequence[str | None], release: str, settings: Settings, wall_offset_ms: float, seed: int
    ) -> None:
        self.settings = settings
        self.random = random.Random(seed)
        self.id = f"cluster-{self.random.getrandbits(64):016x}"
        self.timers = Timers()
        slots = settings.max_incremental_fetch_session_cache_slots
        self.brokers = {
            node: Broker(
                node,
                host="localhost",
                port=9091 + node,
                rack=rack,
                release=release,
                sessions=FetchSessionCache(slots, lambda: self.random.randrange(1, 1 << 31)),
            )
            for node, rack in enumerate(racks, start=1)
        }
        self.connections: dict[Connection, None] = {}  # the open ones, in the order in which they were opened
        #: Connections with output, or that were closed. The driver removes them.
        self.writable: dict[Connection, None] = {}
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self.topics_version = 0  # grows with each change of the topics, which groups detect at the next heartbeat
        self.new_topics_version = 0  # that of the last new topic
        #: What is called for each new partition, before its topic has it.
        self.on_partition_created: list[Callable[[Partition], None]] = []
        self.acls = Acls(settings)
        self.group_configs = GroupConfigs(settings)
        self.offsets = OffsetStore()
        self.share_states = StateStore()
        self._wall_offset_ms = wall_offset_ms

    # --- time ---

    def set_wall_clock(self, wall_ms: float, now: float) -> None:
        """Set the wall clock of all brokers: it is `wall_ms` (since the Unix epoch) at the driver's time `now` (ms)."""
        self._wall_offset_ms = wall_ms - now

    def wall_ms(self, now: float, broker: Broker | None = None) -> int:
        """Returns the wall-clock time in ms since the Unix epoch.

        With `broker`, this is the time of the broker's clock, which a fault may have skewed.
        """
        skew_ms = broker.clock_skew_ms if broker is not None else 0.0
        return int(self._wall_offset_ms + now + skew_ms + ROUNDING_MS)

    # --- brokers ---

    def connections_to(self, broker_id: int) -> list[Connection]:
        """Returns the open connections to a broker."""
        return [connection for connection in self.connections if connection.broker.id == broker_id]

    def alive_brokers(self) -> list[Broker]:
        """Returns the running brokers in the order of their ids."""
        return [broker for broker in self.brokers.values() if broker.alive]

    @property
    def controller_id(self) -> int:
        """The id of the broker that Metadata names as controller: the first running one, or -1 if no broker runs."""
        return next((broker.id for broker in self.alive_brokers()), -1)

    def coordinator(self, key: str, kind: CoordinatorType) -> Broker | None:
        """Returns the coordinator of a group or a transactional id, or None if there is none at present.

        As in Kafka, the hash of `key` selects a partition of an internal topic. The leader of this partition is the
        coordinator. If the partition has no leader, there is no coordinator.
        """
        partition = self.coordinator_partition(key, kind)
        return None if partition.leader == NO_LEADER else self.brokers[partition.leader]

    def coordinator_partition(self, key: str, kind: CoordinatorType) -> Partition:
        """Returns the partition of the internal topic that belongs to a group or transactional id."""
        if kind == "group":
            topic = self._internal_topic(OFFSETS_TOPIC, self.settings.offsets_topic_num_partitions)
        else:
            topic = self._internal_topic(TRANSACTIONS_TOPIC, self.settings.transaction_state_log_num_partitions)
        return topic.partitions[java_hash(key) % len(topic.partitions)]

    def _internal_topic(self, name: str, partitions: int) -> Topic:
        """Returns an internal topic. Creates it with `partitions` partitions if it does not exist."""
        topic = self.topics.get(name)
        if topic is None:
            replicas = min(3, len(self.brokers))
            topic = self.create_topic(name, partitions, replicas, {"cleanup.policy": "compact"}, internal=True)
        return topic

    # --- topics ---

    def partition(self, topic: str, index: int) -> Partition | None:
        """Returns a partition, or None if the topic or the partition does not exist."""
        found = self.topics.get(topic)
        return found.partitions[index] if found is not None and 0 <= index < len(found.partitions) else None

    def partitions(self) -> Iterator[Partition]:
        """Yields all partitions of all topics."""
        for topic in self.topics.values():
            yield from topic.partitions

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
        *,
        internal: bool = False,
        assignments: Mapping[int, Sequence[int]] | None = None,
    ) -> Topic:
        """Create a topic, and spread its partitions over the brokers. Returns the topic.

        `assignments`: partition index -> the ids of the brokers with its replicas. Partitions that are not in
        `assignments` are spread over the brokers.

        Raises ValueError if the topic exists, or if `replication_factor` is larger than the number of brokers.
        """
        if name in self.topics:
            raise ValueError(f"topic {name!r} exists already")
        if replication_factor > len(self.brokers):
            raise ValueError(
                f"{replication_factor} replicas of topic {name!r} need as many brokers; there are {len(self.brokers)}"
            )
        topic = Topic(name, self.random.randbytes(16), configs or {}, internal=internal)
        self.topics[name] = self.topics_by_id[topic.id] = topic
        self.add_partitions(topic, partitions, replication_factor, assignments)
        self.new_topics_version = self.topics_version
        return topic

    def add_partitions(
        self,
        topic: Topic,
        count: int,
        replication_factor: int = 1,
        assignments: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        """Add `count` partitions to a topic. `assignments`: as in `create_topic`."""
        nodes = list(self.brokers)
        for _ in range(count):
            index = len(topic.partitions)
            replicas = [nodes[(index + i) % len(nodes)] for i in range(replication_factor)]
            partition = Partition(topic, index, list((assignments or {}).get(index, replicas)))
            for created in self.on_partition_created:
                created(partition)
            topic.partitions.append(partition)
        self.topics_version += 1

    def delete_topic(self, name: str) -> None:
        """Delete a topic. A topic that is created later with the same name has another id.

        Raises KeyError if the topic does not exist.
        """
        topic = self.topics.pop(name)
        del self.topics_by_id[topic.id]
        for partition in topic.partitions:
            partition.log.notify()
        self.topics_version += 1
        self.offsets.remove_topic(name)
        self.share_states.on_topic_deleted(topic.id)


class ClusterHandlers:
    """Handles requests with the state of the cluster."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
