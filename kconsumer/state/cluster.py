"""What we believe of the cluster: brokers, topics, partitions and who leads them.

Decides which of two contradicting answers about a partition is newer (leader epochs, topic ids). It does not
decide when to ask; `metadata/manager.py` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kconsumer.errors import StaleMetadataError, error_class
from kconsumer.schema.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from kconsumer.types import Node, PartitionInfo, TopicPartition

# Leader epochs below this Metadata version may go backwards when a broker restarts (Kafka before 2.4).
RELIABLE_EPOCHS_FROM = 9
_NO_ID = bytes(16)


class LeaderAndEpoch(NamedTuple):
    """Who leads a partition and since which leader epoch; either may be unknown."""

    leader: Node | None = None
    epoch: int | None = None


NO_LEADER = LeaderAndEpoch()


class PartitionMetadata(NamedTuple):
    """One partition as metadata tells it, brokers by id."""

    leader_id: int
    epoch: int | None
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


@dataclass(slots=True)
class TopicMetadata:
    """One topic as metadata tells it; `infos` is the public form, built when first asked for."""

    topic_id: bytes | None
    internal: bool
    partitions: dict[int, PartitionMetadata]
    listed: int = 0  # partitions in the response; `partitions` lacks those whose leader epoch was older than one seen
    infos: tuple[PartitionInfo, ...] | None = None


@dataclass(slots=True)
class MetadataUpdate:
    """What a metadata answer changed.

    `progressed`: it told something new of a leader, a partition or a topic id, so asking again soon may help.
    `stale`: it reports a leader that is missing or moving, so it must be asked again.
    `topic_errors`: error code of each topic that has one. `recreated`: topics whose id is another one than before.
    """

    full: bool
    progressed: bool = False
    stale: bool = False
    topics: frozenset[str] = frozenset()
    topic_errors: dict[str, int] = field(default_factory=dict)
    recreated: set[str] = field(default_factory=set)


class Cluster:
    """The metadata cache. `update_version` grows whenever anything in it may have changed."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.cluster_id: str | None = None
        self.controller_id: int | None = None
        self.update_version = 0
        self._topics: dict[str, TopicMetadata] = {}
        self._names: dict[bytes, str] = {}
        self._leaders: dict[TopicPartition, LeaderAndEpoch] = {}
        # Outlives the topics' entries: a broker that lags behind must not bring back a leader known to be
        # old.
        self._epochs: dict[TopicPartition, int] = {}
        self._last_ids: dict[str, bytes] = {}  # outlives them, too: a topic made anew is missing in between

    # --- questions ---------------------------------------------------------------------------------------

    def leader(self, tp: TopicPartition) -> LeaderAndEpoch:
        """The partition's leader. No leader while a newer epoch has been heard of than the cached one."""
        return self._leaders.get(tp, NO_LEADER)

    def topics(self) -> frozenset[str]:
        """The topics known."""
        return frozenset(self._topics)

    @property
    def internal_topics(self) -> frozenset[str]:
        """Those of `topics()` that are Kafka's own (`__consumer_offsets`…)."""
        return frozenset(name for name, topic in self._topics.items() if topic.internal)

    def knows(self, topics: Iterable[str]) -> bool:
        """Whether every one of these topics is known."""
        return all(topic in self._topics for topic in topics)

    def partition_count(self, topic: str) -> int | None:
        """How many partitions the topic has; None if it is not known."""
        known = self._topics.get(topic)
        return None if known is None else len(known.partitions)

    def listed_count(self, topic: str) -> int:
        """Returns how many partitions the last metadata response listed for the topic; 0 if it is not known."""
        known = self._topics.get(topic)
        return 0 if known is None else known.listed

    def lacks(self, tp: TopicPartition) -> bool:
        """Returns True if the topic is known and has no such partition."""
        count = self.listed_count(tp.topic)
        return count > 0 and not 0 <= tp.partition < count

    def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...] | None:
        """The topic's partitions in order; None if it is not known."""
        known = self._topics.get(topic)
        if known is None:
            return None
        if known.infos is None:
            in_order = sorted(known.partitions.items())
            known.infos = tuple(self._info(topic, index, partition) for index, partition in in_order)
        return known.infos

    def partition_info(self, tp: TopicPartition) -> PartitionInfo | None:
        """One partition; None if it is not known."""
        infos = self.partitions_for(tp.topic) or ()
        return next((info for info in infos if info.partition == tp.partition), None)

    def partition_infos(self, topics: Iterable[str] | None = None) -> list[PartitionInfo]:
        """All partitions of these topics (None: of all topics), sorted; unknown topics are left out."""
        wanted = sorted(self._topics if topics is None else set(topics))
        return [info for topic in wanted for info in self.partitions_for(topic) or ()]

    def topic_id(self, topic: str) -> bytes | None:
        """The topic's 16-byte id; None when not known or the broker has none (before 2.8)."""
        known = self._topics.get(topic)
        return None if known is None else known.topic_id

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id."""
        return self._names.get(topic_id)

    def last_seen_epoch(self, tp: TopicPartition) -> int | None:
        """The newest leader epoch heard of."""
        return self._epochs.get(tp)

    def node_if_online(self, tp: TopicPartition, node_id: int) -> Node | None:
        """The broker, if it is known and not an offline replica of the partition."""
        topic = self._topics.get(tp.topic)
        partition = None if topic is None else topic.partitions.get(tp.partition)
        if partition is None or node_id in partition.offline:
            return None
        return self.nodes.get(node_id)

    # --- answers -----------------------------------------------------------------------------------------

    def update(
        self,
        response: MetadataResponse,
        version: int,
        *,
        full: bool,
        keep: Callable[[str, bool], bool] = lambda *_: True,
    ) -> MetadataUpdate:
        """Take in a MetadataResponse of this version.

        A full answer replaces what was known; a partial one replaces the topics it names. Topics for which
        `keep(name, internal)` is false are forgotten. Brokers are always replaced.
        """
        result = MetadataUpdate(full=full, topics=frozenset(t.name for t in response.topics if t.name))
        self.nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id if response.controller_id >= 0 else None
        fresh: dict[str, TopicMetadata] = {}
        for topic in response.topics:
            if topic.name is None:
                result.stale = True  # asked by an id that the broker does not know (any more)
            elif not keep(topic.name, topic.is_internal):
                continue
            elif topic.error_code:
                result.topic_errors[topic.name] = topic.error_code
                result.stale |= _is_stale(topic.error_code)
            else:
                fresh[topic.name] = self._read_topic(topic.name, topic, version >= RELIABLE_EPOCHS_FROM, result)
        if not full:
            others = self._topics.items()
            fresh |= {n: t for n, t in others if n not in result.topics and keep(n, t.internal)}
        self._topics = fresh
        epochs = self._epochs.items()
        self._epochs = {tp: epoch for tp, epoch in epochs if tp.topic in fresh or keep(tp.topic, False)}
        self._last_ids = {n: i for n, i in self._last_ids.items() if n in fresh or keep(n, False)}
        self._rebuild()
        return result

    def update_leader(self, tp: TopicPartition, leader_id: int, epoch: int, node: Node | None = None) -> bool:
        """Take in a leader that a Fetch answer named, with its address (KIP-951). True if it was news.

        Ignored unless the epoch is newer than any heard of, the broker's address is known and so is the
        partition.
        """
        topic = self._topics.get(tp.topic)
        old = None if topic is None else topic.partitions.get(tp.partition)
        if topic is None or old is None or leader_id < 0 or epoch < 0:
            return False
        known_epoch = self._epochs.get(tp, old.epoch)
        if known_epoch is not None and epoch <= known_epoch:
            return False
        known_node = self.nodes.get(leader_id)
        if node is None and known_node is None:
            return False
        topic.partitions[tp.partition] = old._replace(leader_id=leader_id, epoch=epoch)
        self._epochs[tp] = epoch
        if node is not None and node != known_node:
            self.nodes[leader_id] = node
            self._rebuild()
        else:
            topic.infos = None
            self._leaders[tp] = LeaderAndEpoch(known_node, epoch)
            self.update_version += 1
        return True

    def update_last_seen_epoch(self, tp: TopicPartition, epoch: int) -> bool:
        """A leader epoch was met elsewhere (a commit, a ListOffsets answer). True if newer than the one
        known: the cached leader is then no longer believed, and metadata should be asked for."""
        known = self._epochs.get(tp)
        if known is None or epoch <= known:
            return False
        self._epochs[tp] = epoch
        self._leaders[tp] = LeaderAndEpoch(None, epoch)
        self.update_version += 1
        return True

    def forget(self) -> None:
        """Drop brokers and topics, to bootstrap again (KIP-899). Epochs are kept: a topic that is really
        another one is told by its id."""
        self.nodes, self._topics = {}, {}
        self._rebuild()

    # --- helpers -----------------------------------------------------------------------------------------

    def _read_topic(
        self, name: str, topic: MetadataResponseTopic, reliable: bool, result: MetadataUpdate
    ) -> TopicMetadata:
        new_id = topic.topic_id if topic.topic_id != _NO_ID else None
        before = self._topics.get(name)
        # Also true when the topic had gone meanwhile: then its old epochs say nothing of this one.
        recreated = new_id is not None and (before is None or new_id != before.topic_id)
        if new_id is not None:
            if self._last_ids.get(name, new_id) != new_id:
                result.recreated.add(name)
            self._last_ids[name] = new_id
        read = TopicMetadata(new_id, topic.is_internal, {}, len(topic.partitions))
        for partition in topic.partitions:
            result.stale |= _is_stale(partition.error_code)
            tp = TopicPartition(name, partition.partition_index)
            kept = before.partitions.get(tp.partition) if before is not None else None
            newest = self._newest(tp, partition, kept, reliable, recreated, result)
            if newest is not None:
                read.partitions[tp.partition] = newest
        return read

    def _newest(
        self,
        tp: TopicPartition,
        partition: MetadataResponsePartition,
        kept: PartitionMetadata | None,
        reliable: bool,
        recreated: bool,
        result: MetadataUpdate,
    ) -> PartitionMetadata | None:
        """Choose between an answer and the entry kept, by leader epoch."""
        epoch = partition.leader_epoch if reliable and partition.leader_epoch >= 0 else None
        seen = self._epochs.get(tp)
        if epoch is None:
            self._epochs.pop(tp, None)
            result.progressed = True
        elif seen is not None and epoch < seen and not recreated:
            return kept
        else:
            self._epochs[tp] = epoch
            result.progressed |= seen is None or recreated or epoch > seen
        return PartitionMetadata(
            partition.leader_id,
            epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            tuple(partition.offline_replicas),
        )

    def _rebuild(self) -> None:
        """Make the look-up tables agree with the topics again."""
        old, self._leaders = self._leaders, {}
        for name, topic in self._topics.items():
            topic.infos = None
            for index, partition in topic.partitions.items():
                tp = TopicPartition(name, index)
                epoch = self._epochs.get(tp)
                leader = LeaderAndEpoch(self.nodes.get(partition.leader_id), partition.epoch)
                if epoch is not None and epoch != partition.epoch:
                    leader = LeaderAndEpoch(None, epoch)
                # Keeping the equal object lets positions be compared with it by identity.
                before = old.get(tp)
                self._leaders[tp] = before if before is not None and before == leader else leader
        self._names = {topic.topic_id: name for name, topic in self._topics.items() if topic.topic_id}
        self.update_version += 1

    def _info(self, topic: str, index: int, partition: PartitionMetadata) -> PartitionInfo:
        def nodes(ids: tuple[int, ...]) -> tuple[Node, ...]:
            return tuple(self.nodes.get(i) or Node(i, "", -1) for i in ids)

        return PartitionInfo(
            topic,
            index,
            self.nodes.get(partition.leader_id),
            nodes(partition.replicas),
            nodes(partition.in_sync),
            nodes(partition.offline),
        )

    def __repr__(self) -> str:
        return (
            f"<Cluster {self.cluster_id} v{self.update_version}: {len(self.nodes)} nodes, "
            f"{len(self._topics)} topics, {len(self._leaders)} partitions>"
        )


def _is_stale(code: int) -> bool:
    return issubclass(error_class(code), StaleMetadataError)
