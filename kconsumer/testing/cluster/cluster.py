"""The model of a cluster: its brokers and topics, and the table of request handlers.

A driver calls `connect`, passes received bytes to the connections, calls `run_timers` when the next deadline has
passed, and sends the output of the connections in `writable`. Calls that process bytes or timers take the current time
in ms. The state changes only during calls.

The handlers of related APIs are in one module. `replication.py` decides which brokers lead partitions.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from kconsumer.schema import all_apis
from kconsumer.schema.dsl import Api, Versions
from kconsumer.testing.cluster import releases
from kconsumer.testing.cluster.acl_requests import AclRequests
from kconsumer.testing.cluster.acls import Acls
from kconsumer.testing.cluster.authorizer import Authorizer
from kconsumer.testing.cluster.broker import Broker
from kconsumer.testing.cluster.cleaner import Cleaner, Retention
from kconsumer.testing.cluster.configs import Configs
from kconsumer.testing.cluster.connection import Connection
from kconsumer.testing.cluster.faults import Faults
from kconsumer.testing.cluster.fetch import FetchHandlers
from kconsumer.testing.cluster.fetch_sessions import FetchSessionCache
from kconsumer.testing.cluster.groups.coordinator import GroupCoordinator
from kconsumer.testing.cluster.list_offsets import ListOffsetsHandlers
from kconsumer.testing.cluster.metadata import MetadataHandlers
from kconsumer.testing.cluster.produce import ProduceHandler
from kconsumer.testing.cluster.quotas import Quotas
from kconsumer.testing.cluster.replication import Replication
from kconsumer.testing.cluster.requests import Handler, Request, Response, handlers_of
from kconsumer.testing.cluster.sasl import Sasl, SaslSettings
from kconsumer.testing.cluster.settings import Settings
from kconsumer.testing.cluster.share.fetch import ShareFetchHandler
from kconsumer.testing.cluster.share.partitions import SharePartitions
from kconsumer.testing.cluster.share.requests import ShareRequests
from kconsumer.testing.cluster.share.sessions import ShareSessionCache
from kconsumer.testing.cluster.telemetry import TELEMETRY_APIS, Telemetry
from kconsumer.testing.cluster.timers import Timers
from kconsumer.testing.cluster.topic import NO_LEADER, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Partition, Topic
from kconsumer.testing.cluster.topic_admin import TopicAdmin
from kconsumer.testing.cluster.transaction_requests import TransactionQueries, TransactionRequests
from kconsumer.testing.cluster.transactions import Transactions

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
WALL_MS = 1_700_000_000_000
ROUNDING_MS = 0.001  # more than the error of a sum of floats, which could be just below the true millisecond


class Cluster:
    """A Kafka cluster. Its behavior depends only on its state, the received bytes and the time that the driver passes.

    `brokers`: the number of brokers; their ids begin with 1. `racks`: the rack of each broker. `release`: the version
    of Kafka that all brokers have. `sasl`: how clients authenticate; None: clients do not authenticate.
    `wall_offset_ms`: the wall-clock time in ms since the Unix epoch when the driver's time is 0.
    `seed`: the seed of the random generators, which draw ids and select the bytes that faults corrupt.

    Raises ValueError if there is not one rack for each broker.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        racks: Sequence[str | None] | None = None,
        release: str = releases.NEWEST,
        settings: Settings | None = None,
        sasl: SaslSettings | None = None,
        wall_offset_ms: float = WALL_MS,
        seed: int = 0,
    ) -> None:
        if racks is not None and len(racks) != brokers:
            raise ValueError(f"{brokers} brokers need as many racks; there are {len(racks)}")
        self.settings = settings or Settings()
        self.random = random.Random(seed)
        self.id = f"cluster-{self.random.getrandbits(64):016x}"
        self.timers = Timers()
        self.apis = all_apis()
        self.brokers = {
            node: Broker(
                node,
                host="localhost",
                port=9091 + node,
                rack=rack,
                release=release,
                sessions=self._session_cache(),
                share_sessions=ShareSessionCache(self.settings.group_share_max_share_sessions),
            )
            for node, rack in enumerate(racks or [None] * brokers, start=1)
        }
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        #: Connections with output, or that were closed. The driver removes them.
        self.writable: dict[Connection, None] = {}
        self._wall_offset_ms = wall_offset_ms
        self.replication = Replication(self)
        self.retention = Retention(self)
        self.acls = Acls(self.settings)
        self.authorizer = Authorizer(self)
        self.cleaner = Cleaner(self)
        self.configs = Configs(self)
        self.faults = Faults(self, seed)
        self.fetch = FetchHandlers(self)
        self.groups = GroupCoordinator(self)
        self.list_offsets = ListOffsetsHandlers(self)
        self.metadata = MetadataHandlers(self)
        self.produce = ProduceHandler(self)
        self.quotas = Quotas()
        self.sasl = Sasl(self, sasl)
        self.shares = SharePartitions(self)
        self.share_requests = ShareRequests(self, self.shares)
        self.telemetry = Telemetry(self)
        self.topic_admin = TopicAdmin(self)
        self.transaction_requests = TransactionRequests(self)
        self.transactions = Transactions(self)
        self._handlers: dict[Api, Handler] = handlers_of(
            AclRequests(self),
            ShareFetchHandler(self, self.share_requests, self.shares),
            TransactionQueries(self),
            self.configs,
            self.fetch,
            *self.groups.components,
            self.list_offsets,
            self.metadata,
            self.produce,
            self.sasl,
            self.share_requests,
            self.telemetry,
            self.topic_admin,
            self.transaction_requests,
        )

    def _session_cache(self) -> FetchSessionCache:
        slots = self.settings.max_incremental_fetch_session_cache_slots
        return FetchSessionCache(slots, lambda: self.random.randrange(1, 1 << 31))

    # --- the driver's side ---

    def connect(self, broker_id: int) -> Connection | None:
        """Returns a new connection to a broker, or None if the broker is stopped."""
        broker = self.brokers[broker_id]
        if not broker.alive:
            return None
        connection = Connection(self, broker)
        broker.connections[connection] = None
        return connection

    def next_deadline(self) -> float | None:
        """Returns the time in ms at which `run_timers` must be called next, or None if there is no timer."""
        return self.timers.next_deadline()

    def run_timers(self, now: float) -> None:
        """Run all timers whose deadline has passed."""
        self.timers.run(now)

    def set_wall_clock(self, wall_ms: float, now: float) -> None:
        """Set the wall clock of all brokers: it is `wall_ms` (since the Unix epoch) at the driver's time `now` (ms)."""
        self._wall_offset_ms = wall_ms - now

    def wall_ms(self, now: float, broker: Broker | None = None) -> int:
        """Returns the wall-clock time in ms since the Unix epoch.

        With `broker`, this is the time of the broker's clock, which a fault may have skewed.
        """
        skew_ms = broker.clock_skew_ms if broker is not None else 0.0
        return int(self._wall_offset_ms + now + skew_ms + ROUNDING_MS)

    # --- the handlers' side ---

    def handle(self, request: Request, now: float) -> Response:
        """Returns the response to a request.

        Checks that the connection is authenticated, and checks the ACLs, before it calls the handler of the request.
        """
        authenticator = request.connection.authenticator
        if authenticator is not None and (response := authenticator.intercept(request, now)) is not None:
            return response
        return self.authorizer.handle(request, now, self._handlers[request.api])

    def versions_of(self, broker: Broker) -> Mapping[int, Versions]:
        """Returns the versions of each API that a broker supports, by API key."""
        versions = releases.versions_of(broker.release)
        hidden = () if self.telemetry.enabled else TELEMETRY_APIS
        return {api.key: versions[api.key] for api in self._handlers if api.key in versions and api not in hidden}

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
        self.groups.on_topic_created()
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
            self.replication.created(partition)
            self.cleaner.watch(partition)
            self.retention.watch(partition)
            topic.partitions.append(partition)
        self.groups.on_partitions_added()

    def delete_topic(self, name: str) -> None:
        """Delete a topic. A topic that is created later with the same name has another id.

        Raises KeyError if the topic does not exist.
        """
        topic = self.topics.pop(name)
        del self.topics_by_id[topic.id]
        for partition in topic.partitions:
            partition.log.notify()
        self.groups.on_topic_deleted(name)
        self.shares.store.on_topic_deleted(topic.id)

    # --- brokers ---

    def kill(self, broker_id: int) -> None:
        """Stop a broker. Closes its connections, and elects other leaders for its partitions."""
        broker = self.brokers[broker_id]
        broker.alive = False
        broker.fetch_sessions.clear()
        broker.share_sessions.clear()
        for connection in list(broker.connections):
            connection.close()
        self.replication.broker_stopped(broker_id)

    def start(self, broker_id: int) -> None:
        """Start a stopped broker. Its replicas catch up with their leaders.

        Partitions of the broker without a leader elect one, if the rules of `Replication.elect` allow it.
        """
        self.brokers[broker_id].alive = True
        self.replication.broker_started(broker_id)

    def move_leader(self, topic: str, index: int, broker_id: int) -> None:
        """Make a broker the leader of a partition.

        Raises ValueError if the broker has no replica of the partition, or if the broker is stopped.
        """
        self.replication.move_leader(self.topics[topic].partitions[index], broker_id)
