"""A Kafka cluster in the process of a test: `FakeCluster` serves the model of a cluster on loopback sockets."""

from __future__ import annotations

import dataclasses
import os
import re
import ssl
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kconsumer._core.lock import Clock
from kconsumer._internal.managers import Reply
from kconsumer.groups.responses import parse_classic, parse_consumer, parse_share
from kconsumer.groups.types import GroupDescription
from kconsumer.schema.admin import (
    CONSUMER_GROUP_DESCRIBE,
    DESCRIBE_GROUPS,
    ConsumerGroupDescribeRequest,
    DescribeGroupsRequest,
)
from kconsumer.schema.dsl import Api, Message
from kconsumer.schema.share_group import SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest
from kconsumer.testing.arguments import check_number, find_broker, find_partition, find_topic, sasl_settings
from kconsumer.testing.cluster import releases
from kconsumer.testing.cluster.cluster import ClientConnection, Cluster
from kconsumer.testing.cluster.requests import GroupError, Request
from kconsumer.testing.cluster.settings import Settings
from kconsumer.testing.cluster.telemetry import ALL_METRICS, DEFAULT_INTERVAL_MS, ClientMetrics, PushedMetrics
from kconsumer.testing.cluster.topic_admin import AdminError, check_name
from kconsumer.testing.cluster.topic_configs import config_error
from kconsumer.testing.fake_cluster_faults import FaultMethods, SecurityMethods
from kconsumer.testing.produce import Headers, ProduceLike, RecordMetadata, Value, as_records, check_compression
from kconsumer.testing.record_producer import FakeTransaction, RecordProducer
from kconsumer.testing.server import NOT_RUNNING, Server
from kconsumer.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kconsumer.testing.cluster.broker import Broker

SETTINGS = {field.name for field in dataclasses.fields(Settings)}


class FakeCluster(FaultMethods, SecurityMethods):
    """A Kafka cluster for tests. Real clients can connect to it, and no dependency is needed.

    >>> with FakeCluster(brokers=3) as cluster:
    ...     cluster.create_topic("orders", partitions=3, replication_factor=3)
    ...     cluster.bootstrap_servers.count(",")
    2

    `brokers`: how many; their ids begin with 1. `version`: the version of Kafka. `racks`: the rack of each broker.
    `sasl`: how clients authenticate: a dict with `mechanism` ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", or a list of
    them), `users` (the password of each user name) and, if sessions end, `session_lifetime_ms`.
    `tls`: an `ssl.SSLContext` for servers, or the path of a PEM file with a certificate and its key. All connections
    use TLS then. `port`: the port of the first broker; the other brokers have the ports that follow. 0: free ports.
    `settings`: broker settings by Kafka's names, with underscores in place of dots.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        version: str = "4.4",
        racks: Sequence[str | None] | None = None,
        sasl: Mapping[str, object] | None = None,
        tls: ssl.SSLContext | str | os.PathLike[str] | None = None,
        port: int = 0,
        **settings: Any,
    ) -> None:
        if isinstance(brokers, bool) or not isinstance(brokers, int) or brokers < 1:
            raise ValueError(f"brokers is how many brokers there are, at least 1; not {brokers!r}")
        if not isinstance(port, int) or not 0 <= port <= 65_536 - brokers:
            raise ValueError(f"port is 0, or the first of {brokers} ports up to 65535; not {port!r}")
        unknown = sorted(set(settings) - SETTINGS)
        if unknown:
            raise TypeError(f"FakeCluster has no setting {unknown[0]!r}; there are {', '.join(sorted(SETTINGS))}")
        releases.versions_of(version)  # raises ValueError for an unknown version
        clock = Clock()
        self._cluster = Cluster(
            brokers,
            racks=racks,
            release=version,
            settings=Settings(**settings),
            sasl=sasl_settings(sasl),
            wall_offset_ms=clock.wall_ms() - clock.now(),
        )
        self._server = Server(self._cluster, clock, _tls_context(tls), port)
        self._producer = RecordProducer(self._cluster, self._server)
        self._transactions = 0

    def __repr__(self) -> str:
        state = self.bootstrap_servers if self._server.started else "not running"
        return f"<FakeCluster of {len(self._cluster.brokers)} brokers: {state}>"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._server.stop()
        except (RuntimeError, RuntimeWarning) as failure:  # the latter, if warnings are errors
            if error is None:
                raise
            error.add_note(str(failure))

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, in the form of the option `bootstrap_servers`."""
        if not self._server.started:
            raise RuntimeError(NOT_RUNNING)
        return ",".join(f"{broker.host}:{broker.port}" for broker in self._cluster.brokers.values())

    # --- topics ---

    def create_topic(self, name: str, partitions: int = 1, replication_factor: int = 1, **configs: object) -> None:
        """Create a topic. `configs`: settings of the topic by Kafka's names, with underscores in place of dots.

        Raises ValueError if the topic exists, if there are fewer brokers than replicas, or if a broker would not accept
        the name, the numbers or the settings. `internal_segment_bytes` makes segments that are smaller than Kafka's
        minimum of 1 MiB.
        """
        settings = {key.replace("_", "."): _setting(value) for key, value in configs.items()}
        problem = config_error(settings, self._cluster.brokers[1].release)
        if problem is not None:
            raise ValueError(problem)
        check_number("partitions", partitions, positive=True)
        check_number("replication_factor", replication_factor, positive=True)
        with self._server.change():
            try:
                check_name(self._cluster, name)
            except AdminError as error:
                raise ValueError(str(error)) from None
            self._cluster.create_topic(name, partitions, replication_factor, settings)

    def delete_topic(self, name: str) -> None:
        """Delete a topic. If a topic is later created with the same name, it has another id."""
        with self._server.change():
            find_topic(self._cluster, name)
            self._cluster.delete_topic(name)

    def add_partitions(self, topic: str, count: int) -> None:
        """Add `count` partitions to a topic. Clients notice them when they update their metadata."""
        check_number("count", count, positive=True)
        with self._server.change():
            found = find_topic(self._cluster, topic)
            self._cluster.add_partitions(found, int(count), len(found.partitions[0].replicas))

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Delete the records of a partition before an offset, as DeleteRecords does: the log begins there afterwards.

        Raises ValueError if the offset is above the high watermark.
        """
        check_number("before_offset", before_offset)
        with self._server.change():
            log = find_partition(self._cluster, topic, partition).log
            if before_offset > log.high_watermark:
                raise ValueError(f"the log of {topic}-{partition} ends at {log.high_watermark}, before {before_offset}")
            log.delete_before(int(before_offset))

    def move_leader(self, topic: str, partition: int, broker: int) -> None:
        """Make a broker the leader of a partition.

        Raises ValueError if the broker has no replica of the partition, or if the broker is stopped.
        """
        with self._server.change():
            find_partition(self._cluster, topic, partition)
            self._cluster.move_leader(topic, partition, find_broker(self._cluster, broker))

    # --- records ---

    def produce(
        self,
        topic: str,
        values: ProduceLike | Iterable[ProduceLike],
        partition: int | None = None,
        key: Value = None,
        headers: Headers = (),
        timestamp: int | None = None,
        compression: str | None = None,
    ) -> list[RecordMetadata]:
        """Append records to a topic. Returns topic, partition and offset of each one.

        `values`: one value or several: bytes, text (encoded as UTF-8), None, pairs (key, value), or `Rec` of
        `kconsumer.testing.batches`.
        `partition`: None spreads the records as a Java producer does: by the hash of the key, or in turn without a key.
        `key`, `headers`, `timestamp` (ms since the Unix epoch, default: now): used for records that have none of their
        own.
        `compression`: "gzip", "snappy", "lz4" or "zstd".
        """
        rows = as_records(values, key, headers)
        return self._producer.produce(topic, rows, partition, timestamp, check_compression(compression))

    def transaction(self) -> FakeTransaction:
        """Returns a transaction, for a `with` block. `produce` of the transaction appends records to it.

        It is committed at the end of the block. An exception in the block, or `abort`, aborts it.
        """
        self._transactions += 1
        return FakeTransaction(self._cluster, self._server, self._producer, f"fake-cluster-{self._transactions}")

    # --- groups ---

    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the committed offsets of a group, or an empty dict if there is no such group."""
        with self._server.change():
            return committed(self._cluster, group)

    def group(self, group: str) -> GroupDescription:
        """Returns a group and its members, as `kconsumer.groups` does. Raises ValueError if there is no such group."""
        with self._server.change() as now:
            return describe(self._cluster, group, now)

    def configure_group(self, group: str, **configs: object) -> None:
        """Set settings of a group, such as `share_auto_offset_reset="earliest"` of a share group.

        `configs`: by Kafka's names, with underscores in place of dots. Raises ValueError for an unknown setting or an
        invalid value.
        """
        settings = {key.replace("_", "."): _setting(value) for key, value in configs.items()}
        with self._server.change():
            for name, value in settings.items():
                try:
                    self._cluster.group_configs.validate(group, name, value)
                except GroupError as error:
                    raise ValueError(error.message) from None
            for name, value in settings.items():
                self._cluster.group_configs.set(group, name, value)

    # --- telemetry of clients ---

    def request_metrics(
        self,
        name: str,
        metrics: Iterable[str] = (ALL_METRICS,),
        interval_ms: int = DEFAULT_INTERVAL_MS,
        client_id: str | None = None,
    ) -> None:
        """Request metrics of clients (KIP-714), as `kafka-configs.sh --entity-type client-metrics` does.

        The cluster needs the setting `metric_reporters`, because Kafka's brokers need a plugin for this.
        `name`: of the subscription; a second call replaces it. `metrics`: prefixes of names, or "*" for all. If it is
        empty, the subscription is removed. `interval_ms`: between the pushes of a client. `client_id`: a regular
        expression; None: all clients.
        """
        if not self._cluster.telemetry.enabled:
            raise ValueError('the brokers cannot receive metrics: use FakeCluster(metric_reporters=("recorder",))')
        pattern = None if client_id is None else re.compile(client_id)
        chosen = tuple(metrics)
        with self._server.change():
            self._cluster.telemetry.subscribe(name, ClientMetrics(chosen, interval_ms, pattern) if chosen else None)

    def pushed_metrics(self) -> list[PushedMetrics]:
        """Returns what clients have pushed to all brokers, in order."""
        with self._server.change():
            return list(self._cluster.telemetry.pushed)

    # --- brokers ---

    def kill(self, broker: int) -> None:
        """Stop a broker: its connections are closed, new ones are refused, and other replicas become leaders."""
        with self._server.change():
            self._cluster.kill(find_broker(self._cluster, broker))

    def start(self, broker: int) -> None:
        """Start a stopped broker. It listens at the same port as before."""
        with self._server.change():
            self._cluster.start(find_broker(self._cluster, broker))


def _setting(value: object) -> str:
    """Returns the value of a setting as text. True is "true", as in Kafka."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _tls_context(tls: ssl.SSLContext | str | os.PathLike[str] | None) -> ssl.SSLContext | None:
    """Returns the brokers' TLS context: `tls` itself, or one with the certificate in the file `tls`, or None."""
    if tls is None or isinstance(tls, ssl.SSLContext):
        return tls
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls)
    return context


def committed(cluster: Cluster, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """Returns the committed offsets of a group, or an empty dict if there is no such group."""
    return {
        TopicPartition(topic, index): OffsetAndMetadata(
            row.offset, row.metadata, row.leader_epoch if row.leader_epoch >= 0 else None
        )
        for topic, rows in sorted(cluster.offsets.of_group(group_id).items())
        for index, row in sorted(rows.items())
    }


def describe(cluster: Cluster, group_id: str, now: float) -> GroupDescription:
    """Returns a group and its members. Raises ValueError if there is no such group."""
    broker = cluster.coordinator(group_id, "group")
    group = cluster.groups.get(group_id)
    if broker is None or group is None:
        raise ValueError(f"there is no group {group_id!r}")
    if group.type == "consumer":
        message: Message = ConsumerGroupDescribeRequest(group_ids=[group_id])
        return parse_consumer(_reply(cluster, broker, CONSUMER_GROUP_DESCRIBE, message, now))
    if group.type == "share":
        message = ShareGroupDescribeRequest(group_ids=[group_id])
        return parse_share(_reply(cluster, broker, SHARE_GROUP_DESCRIBE, message, now))
    return parse_classic(_reply(cluster, broker, DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[group_id]), now))


def _reply(cluster: Cluster, broker: Broker, api: Api, message: Message, now: float) -> Reply:
    """Pass `message` to the model as if a client had sent it to `broker`. Returns the response."""
    version = cluster.versions_of(broker)[api.key].last
    connection = ClientConnection(cluster, broker)
    request = Request(api, version, 0, None, message, connection, 0)
    return Reply(cluster.handle(request, now), None, now, version)
