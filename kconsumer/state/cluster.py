"""The metadata cache: brokers, topics, partitions and their leaders.

Decides which of two contradicting responses about a partition is newer (by leader epochs and topic ids).
`metadata/manager.py` decides when metadata is requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kconsumer._common.error_codes import Errors
from kconsumer.errors import StaleMetadataError, error_class
from kconsumer.schema.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from kconsumer.types import Node, PartitionInfo, TopicPartition

# The first version of Metadata with reliable leader epochs. In lower versions, they may go backwards when a broker
# restarts (Kafka before 2.4).
RELIABLE_EPOCHS_FROM = 9
_NO_ID = bytes(16)
# After this many responses in a row without a topic, it was probably deleted. One response may come from a broker that
# lags behind.
MISSING_RESPONSES = 3
UNKNOWN_TOPIC = Errors.UNKNOWN_TOPIC_OR_PARTITION


class LeaderAndEpoch(NamedTuple):
    """The leader of a partition and the leader epoch. A field is None if it is unknown."""

    leader: Node | None = None
    epoch: int | None = None


NO_LEADER = LeaderAndEpoch()


class PartitionMetadata(NamedTuple):
    """One partition of a metadata response. Brokers are given as node ids."""

    leader_id: int
    epoch: int | None
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


class TopicMetadata:
    """One topic of a metadata response."""

    __slots__ = ("infos", "internal", "listed", "partitions", "topic_id")

    def __init__(self, topic_id: bytes | None, internal: bool, listed: int) -> None:
        self.topic_id = topic_id
        self.internal = internal
        self.listed = listed  # the number of partitions in the response
        self.partitions: dict[int, PartitionMetadata] = {}  # may lack those with outdated leader epochs
        self.infos: tuple[PartitionInfo, ...] | None = None  # the public form, built when it is first needed


class MetadataUpdate:
    """The changes that a metadata response made."""

    __slots__ = ("full", "outdated", "partition_errors", "progressed", "recreated", "stale", "topic_errors", "topics")

    def __init__(self, topics: frozenset[str], *, full: bool) -> None:
        self.topics = topics  # those that the response names
        self.full = full  # the response replaced all topics
        self.progressed = False  # something in it was newer than the cache, so another request soon may help
        self.stale = False  # a leader in it is missing or moving, so metadata must be requested again
        self.topic_errors: dict[str, int] = {}  # the error code of each topic that has one
        self.partition_errors: dict[TopicPartition, int] = {}  # the error code of each partition that has one
        self.recreated: set[str] = set()  # topics whose topic id changed
        #: The leader epochs of partitions for which a newer one was seen before: (in the response, seen before).
        self.outdated: dict[TopicPartition, tuple[int, int]] = {}


class Cluster:
    """The metadata cache."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.cluster_id: str | None = None
        self.controller_id: int | None = None
        self.update_version = 0  # grows whenever anything in the cache may have changed
        self._topics: dict[str, TopicMetadata] = {}
        self._names: dict[bytes, str] = {}
        self._leaders: dict[TopicPartition, LeaderAndEpoch] = {}
        # These two are kept when a topic disappears from metadata. The epochs prevent that a broker with outdated
        # metadata brings back an old leader. The ids show that a topic was created again, after it was missing.
        self._epochs: dict[TopicPartition, int] = {}
        self._last_ids: dict[str, bytes] = {}
        self._missing: dict[str, int] = {}  # how many responses in a row lacked a topic
        self._forgotten: set[str] = set()  # topics that no response has contained since the last `forget`

    # --- queries -----------------------------------------------------------------------------------------

    def leader(self, tp: TopicPartition) -> LeaderAndEpoch:
        """Returns the partition's leader and leader epoch.

        The leader is None if it is unknown. It is also None if the cached leader is outdated, because a newer leader
        epoch was seen.
        """
        return self._leaders.get(tp, NO_LEADER)

    def topics(self) -> frozenset[str]:
        """Returns the names of the known topics."""
        return frozenset(self._topics)

    @property
    def internal_topics(self) -> frozenset[str]:
        """The known topics that Kafka itself uses, such as `__consumer_offsets`."""
        return frozenset(name for name, topic in self._topics.items() if topic.internal)

    def contains_topics(self, topics: Iterable[str]) -> bool:
        """Returns True if all of these topics are known."""
        return all(topic in self._topics for topic in topics)

    def partition_count(self, topic: str) -> int | None:
        """Returns the number of cached partitions of the topic, or None if the topic is unknown."""
        known = self._topics.get(topic)
        return None if known is None else len(known.partitions)

    def listed_count(self, topic: str) -> int:
        """Returns the number of partitions that the last response listed for the topic; 0 if the topic is unknown."""
        known = self._topics.get(topic)
        return 0 if known is None else known.listed

    def lacks(self, tp: TopicPartition) -> bool:
        """Returns True if the topic is known but does not have this partition."""
        count = self.listed_count(tp.topic)
        return count > 0 and not 0 <= tp.partition < count

    def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...] | None:
        """Returns the topic's partitions in order, or None if the topic is unknown."""
        known = self._topics.get(topic)
        if known is None:
            return None
        if known.infos is None:
            in_order = sorted(known.partitions.items())
            known.infos = tuple(self._info(topic, index, partition) for index, partition in in_order)
        return known.infos

    def partition_info(self, tp: TopicPartition) -> PartitionInfo | None:
        """Returns the metadata of one partition, or None if it is unknown."""
        infos = self.partitions_for(tp.topic) or ()
        return next((info for info in infos if info.partition == tp.partition), None)

    def partition_infos(self, topics: Iterable[str] | None = None) -> list[PartitionInfo]:
        """Returns the metadata of all partitions of these topics (None: all topics), sorted. Skips unknown topics."""
        wanted = sorted(self._topics if topics is None else set(topics))
        return [info for topic in wanted for info in self.partitions_for(topic) or ()]

    def topic_id(self, topic: str) -> bytes | None:
        """Returns the topic's 16-byte id, or None if the topic is unknown or brokers have no ids (before Kafka 2.8)."""
        known = self._topics.get(topic)
        return None if known is None else known.topic_id

    def topic_name(self, topic_id: bytes) -> str | None:
        """Returns the name of the topic with this id, or None if the id is unknown."""
        return self._names.get(topic_id)

    def last_seen_epoch(self, tp: TopicPartition) -> int | None:
        """Returns the newest known leader epoch of the partition, or None."""
        return self._epochs.get(tp)

    def node_if_online(self, tp: TopicPartition, node_id: int) -> Node | None:
        """Returns the broker with this id, or None if it is an offline replica of the partition.

        Also returns None if the broker or the partition is unknown.
        """
        topic = self._topics.get(tp.topic)
        partition = None if topic is None else topic.partitions.get(tp.partition)
        if partition is None or node_id in partition.offline:
            return None
        return self.nodes.get(node_id)

    # --- updates -----------------------------------------------------------------------------------------

    def update(
        self,
        response: MetadataResponse,
        version: int,
        *,
        full: bool,
        keep: Callable[[str, bool], bool] = lambda *_: True,
    ) -> MetadataUpdate:
        """Apply a MetadataResponse of this version. Returns the changes.

        If `full` is True, the response replaces all topics. If not, it replaces only the topics that it names. Topics
        for which `keep(name, internal)` is False are dropped. Brokers are always replaced.
        """
        result = MetadataUpdate(frozenset(t.name for t in response.topics if t.name), full=full)
        self.nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id if response.controller_id >= 0 else None
        fresh: dict[str, TopicMetadata] = {}
        for topic in response.topics:
            if topic.name is None:
                result.stale = True  # the topic was requested by an id that is unknown to the broker
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
        self._count_missing(result)
        epochs = self._epochs.items()
        self._epochs = {tp: epoch for tp, epoch in epochs if tp.topic in fresh or keep(tp.topic, False)}
        self._last_ids = {n: i for n, i in self._last_ids.items() if n in fresh or keep(n, False)}
        self._rebuild()
        return result

    def update_leader(self, tp: TopicPartition, leader_id: int, epoch: int, node: Node | None = None) -> bool:
        """Set the leader that a Fetch response contains (KIP-951). `node` is the leader with its address, or None.

        `node` is None if the response does not contain the address. Returns True if the leader was set. Returns False
        and changes nothing if the leader epoch is not newer than the newest known one, or if the partition or the
        broker's address is unknown.
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
        """Record the leader epoch `epoch`, which comes from a committed offset or a ListOffsets response.

        Returns True if it is newer than the newest known epoch. The cached leader is then outdated, and metadata should
        be requested. Returns False and changes nothing if it is not newer, or if no epoch of the partition is known.
        """
        known = self._epochs.get(tp)
        if known is None or epoch <= known:
            return False
        self._epochs[tp] = epoch
        self._leaders[tp] = LeaderAndEpoch(None, epoch)
        self.update_version += 1
        return True

    def forget(self) -> None:
        """Drop brokers and topics, so that the client can bootstrap again (KIP-899).

        Leader epochs and topic ids are kept. But, as in Java, the next response with the id of a topic is accepted even
        if its leader epochs are older. If it were not, a cluster that was restored from a backup would stay without
        leaders for this client.
        """
        self.nodes, self._topics = {}, {}
        self._forgotten = set(self._last_ids)
        self._rebuild()

    # --- helpers -----------------------------------------------------------------------------------------

    def _count_missing(self, result: MetadataUpdate) -> None:
        """Drop the leader epochs of topics without ids that several responses in a row lacked (Kafka before 2.8).

        Such a topic was deleted. If it is created again, its leader epochs start again, and nothing but the missing
        topic distinguishes it from the old one. (Java keeps the epochs, and so never reads the new topic.)
        """
        asked = {tp.topic for tp in self._epochs} if result.full else result.topics
        codes = result.topic_errors
        lacking = (topic for topic in asked if topic not in self._topics and topic not in self._last_ids)
        unknown = {topic for topic in lacking if codes.get(topic, UNKNOWN_TOPIC) == UNKNOWN_TOPIC}
        kept = {} if result.full else {t: count for t, count in self._missing.items() if t not in result.topics}
        self._missing = kept | {topic: self._missing.get(topic, 0) + 1 for topic in unknown}
        gone = {topic for topic in unknown if self._missing[topic] >= MISSING_RESPONSES}
        if gone:
            self._epochs = {tp: epoch for tp, epoch in self._epochs.items() if tp.topic not in gone}

    def _read_topic(
        self, name: str, topic: MetadataResponseTopic, reliable: bool, result: MetadataUpdate
    ) -> TopicMetadata:
        new_id = topic.topic_id if topic.topic_id != _NO_ID else None
        before = self._topics.get(name)
        # The leader epochs of a topic that was deleted and created again mean nothing for the new one. The id is
        # compared with the last id that was seen. Java compares it with the cache, which lacks a topic that one broker
        # omitted: then the next response is accepted, even if it names an old leader with an older leader epoch.
        last_id = self._last_ids.get(name)
        ignore_epochs = new_id is not None and (new_id != last_id or name in self._forgotten)
        self._forgotten.discard(name)
        if new_id is not None:
            if last_id not in (None, new_id):
                result.recreated.add(name)
            self._last_ids[name] = new_id
        read = TopicMetadata(new_id, topic.is_internal, len(topic.partitions))
        for partition in topic.partitions:
            result.stale |= _is_stale(partition.error_code)
            tp = TopicPartition(name, partition.partition_index)
            if partition.error_code:
                result.partition_errors[tp] = partition.error_code
            kept = before.partitions.get(tp.partition) if before is not None else None
            newest = self._newest(tp, partition, kept, reliable, ignore_epochs, result)
            if newest is not None:
                read.partitions[tp.partition] = newest
        return read

    def _newest(
        self,
        tp: TopicPartition,
        partition: MetadataResponsePartition,
        kept: PartitionMetadata | None,
        reliable: bool,
        ignore_epochs: bool,
        result: MetadataUpdate,
    ) -> PartitionMetadata | None:
        """Returns the entry from the response, or the cached one (`kept`) if the response has an older leader epoch."""
        epoch = partition.leader_epoch if reliable and partition.leader_epoch >= 0 else None
        seen = self._epochs.get(tp)
        if epoch is None:
            self._epochs.pop(tp, None)
            result.progressed = True
        elif seen is not None and epoch < seen and not ignore_epochs:
            result.outdated[tp] = epoch, seen
            result.stale |= kept is None  # a response of another broker may have the present leader
            return kept
        else:
            self._epochs[tp] = epoch
            result.progressed |= seen is None or kept is None or ignore_epochs or epoch > seen
        # Nearly always, all replicas are in sync. Then both fields share one tuple, which saves memory.
        replicas, in_sync = tuple(partition.replica_nodes), tuple(partition.isr_nodes)
        if in_sync == replicas:
            in_sync = replicas
        return PartitionMetadata(partition.leader_id, epoch, replicas, in_sync, tuple(partition.offline_replicas))

    def _rebuild(self) -> None:
        """Compute the lookup tables from the topics."""
        old, self._leaders = self._leaders, {}
        shared: dict[LeaderAndEpoch, LeaderAndEpoch] = {}  # equal objects, which need memory only once
        for name, topic in self._topics.items():
            topic.infos = None
            for index, partition in topic.partitions.items():
                tp = TopicPartition(name, index)
                epoch = self._epochs.get(tp)
                leader = LeaderAndEpoch(self.nodes.get(partition.leader_id), partition.epoch)
                if epoch is not None and epoch != partition.epoch:
                    leader = LeaderAndEpoch(None, epoch)
                # An equal object is reused, so that positions can be compared with it by identity.
                before = old.get(tp)
                self._leaders[tp] = (
                    before if before is not None and before == leader else shared.setdefault(leader, leader)
                )
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
    return code != 0 and issubclass(error_class(code), StaleMetadataError)
