"""A Kafka cluster in the process of a test: `FakeCluster` serves the model of a cluster on loopback sockets."""

from __future__ import annotations

import dataclasses
import os
import ssl
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from kconsumer.clock import Clock
from kconsumer.schema.dsl import Api
from kconsumer.testing.cluster import releases
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.faults import Fault, FaultKind, corrupt_batch
from kconsumer.testing.cluster.settings import Settings
from kconsumer.testing.cluster.topic import NO_LEADER, Partition, Topic
from kconsumer.testing.fault_arguments import ErrorLike, api_of, error_code_of
from kconsumer.testing.produce import (
    Headers,
    Partitioner,
    ProduceLike,
    RecordMetadata,
    Value,
    as_records,
    build_batches,
    check_compression,
)
from kconsumer.testing.records import Rec
from kconsumer.testing.server import NOT_RUNNING, Server

ApiLike = str | int | Api
SETTINGS = {field.name for field in dataclasses.fields(Settings)}


class FakeCluster:
    """A Kafka cluster for tests. Real clients can connect to it, and no dependency is needed.

    >>> with FakeCluster(brokers=3) as cluster:
    ...     cluster.create_topic("orders", partitions=3, replication_factor=3)
    ...     cluster.bootstrap_servers.count(",")
    2

    `brokers`: how many; their ids begin with 1. `version`: the version of Kafka. `racks`: the rack of each broker.
    `tls`: an `ssl.SSLContext` for servers, or the path of a PEM file with a certificate and its key. All connections
    use TLS then. `port`: the port of the first broker; the others have the ports behind it. 0: free ports.
    `settings`: broker settings by Kafka's names, with underscores in place of dots.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        version: str = "4.4",
        racks: Sequence[str | None] | None = None,
        sasl: None = None,
        tls: ssl.SSLContext | str | os.PathLike[str] | None = None,
        port: int = 0,
        **settings: Any,
    ) -> None:
        if isinstance(brokers, bool) or not isinstance(brokers, int) or brokers < 1:
            raise ValueError(f"brokers is how many brokers there are, at least 1; not {brokers!r}")
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
            wall_offset_ms=clock.wall_ms() - clock.now(),
        )
        self._partitioner = Partitioner()
        self._server = Server(self._cluster, clock, _tls_context(tls), port)

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._server.stop()
        except RuntimeError as failure:
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

        Raises ValueError if the topic exists, or if there are fewer brokers than replicas.
        """
        settings = {key.replace("_", "."): _setting(value) for key, value in configs.items()}
        with self._server.change():
            self._cluster.create_topic(name, partitions, replication_factor, settings)

    def delete_topic(self, name: str) -> None:
        """Delete a topic. A topic that is created with the same name later has another id."""
        with self._server.change():
            self._topic(name)
            self._cluster.delete_topic(name)

    def move_leader(self, topic: str, partition: int, broker: int) -> None:
        """Make a broker the leader of a partition. Raises ValueError if it has no replica of the partition."""
        with self._server.change():
            self._partition(topic, partition)
            self._cluster.move_leader(topic, partition, self._broker(broker))

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
        `kconsumer.testing.batches`. `partition`: None spreads the records as a Java producer does: by the hash of the
        key, or in turn without a key. `key`, `headers`, `timestamp` (ms since the Unix epoch, default: now): of the
        records that have none of their own. `compression`: "gzip", "snappy", "lz4" or "zstd".
        """
        codec = check_compression(compression)
        records = as_records(values, key, headers)
        if partition is not None:
            self._partition(topic, partition)
        with self._server.change() as now:
            count = len(self._topic(topic).partitions)
            at = timestamp if timestamp is not None else self._cluster.wall_ms(now)
            chosen = [
                self._partitioner.partition(topic, r.key, count) if partition is None else partition for r in records
            ]
            offsets: dict[int, Iterator[int]] = {}
            for index in sorted(set(chosen)):
                rows = [record for record, to in zip(records, chosen, strict=True) if to == index]
                offsets[index] = iter(self._append(self._partition(topic, index), rows, at, codec, now))
            return [RecordMetadata(topic, index, next(offsets[index])) for index in chosen]

    def _append(self, partition: Partition, records: list[Rec], timestamp: int, codec: str, now: float) -> list[int]:
        """Append records to a partition. Returns their offsets. Raises RuntimeError if it has no leader."""
        if partition.leader == NO_LEADER:
            raise RuntimeError(
                f"partition {partition.topic.name}-{partition.index} has no leader; "
                f"start one of the brokers {partition.replicas}"
            )
        first = partition.log.end
        for batch in build_batches(records, timestamp, codec):
            partition.append(batch, self._cluster.wall_ms(now, self._cluster.brokers[partition.leader]))
        return list(range(first, partition.log.end))

    # --- brokers ---

    def kill(self, broker: int) -> None:
        """Stop a broker: its connections are closed, new ones are refused, and other replicas become leaders."""
        with self._server.change():
            self._cluster.kill(self._broker(broker))

    def start(self, broker: int) -> None:
        """Start a stopped broker. It listens at the same port as before."""
        with self._server.change():
            self._cluster.start(self._broker(broker))

    def disconnect(self, broker: int) -> None:
        """Close all connections to a broker. It continues to run, so clients may connect again."""
        with self._server.change():
            self._cluster.faults.disconnect(self._broker(broker))

    # --- faults ---

    def fail_next(self, api: ApiLike, error: ErrorLike, times: int = 1) -> None:
        """Let the next requests of an API fail with an error. They have no effect.

        `api`: a name such as "Fetch" or "OffsetCommit". `error`: Kafka's name of an error, its number, or the exception
        that kconsumer raises for it.
        """
        self._add_fault(api, Fault(FaultKind.ERROR, times, error_code_of(error)))

    def disconnect_next(self, api: ApiLike, times: int = 1, *, applied: bool = False) -> None:
        """Close the connection at the next requests of an API, in place of a response.

        `applied`: whether the requests have had their effect.
        """
        kind = FaultKind.DISCONNECT_AFTER if applied else FaultKind.DISCONNECT_BEFORE
        self._add_fault(api, Fault(kind, times))

    def truncate_next(self, api: ApiLike, times: int = 1) -> None:
        """Send half of the response to the next requests of an API, and close the connection."""
        self._add_fault(api, Fault(FaultKind.HALF_RESPONSE, times))

    def corrupt_next(self, api: ApiLike, times: int = 1) -> None:
        """Change one byte of the response to the next requests of an API."""
        self._add_fault(api, Fault(FaultKind.CORRUPT_RESPONSE, times))

    def delay(self, api: ApiLike, seconds: float) -> None:
        """Delay all responses of an API from now on. 0 ends the delay."""
        _check_number("seconds", seconds)
        with self._server.change():
            self._cluster.faults.delay(api_of(self._cluster.apis, api), seconds * 1000)

    def corrupt(self, topic: str, partition: int, offset: int) -> None:
        """Make the checksum of the stored batch with an offset wrong."""
        with self._server.change():
            corrupt_batch(self._partition(topic, partition).log, offset)

    def interrupt_network(self, broker: int) -> None:
        """Hold all requests to a broker, and all its responses, until `restore_network`."""
        with self._server.change():
            self._cluster.faults.interrupt(self._broker(broker))

    def restore_network(self, broker: int) -> None:
        """Pass on the requests and responses that were held since `interrupt_network`."""
        with self._server.change() as now:
            self._cluster.faults.restore(self._broker(broker), now)

    def limit_rate(self, broker: int, bytes_per_second: float | None) -> None:
        """Limit the rate at which each connection receives from a broker. None ends the limit."""
        if bytes_per_second is not None:
            _check_number("bytes_per_second", bytes_per_second, positive=True)
        with self._server.change() as now:
            self._cluster.faults.limit_rate(self._broker(broker), bytes_per_second, now)

    def skew_clock(self, broker: int, seconds: float) -> None:
        """Set by how many seconds the clock of a broker is ahead."""
        with self._server.change():
            self._cluster.faults.skew_clock(self._broker(broker), seconds * 1000)

    def _add_fault(self, api: ApiLike, fault: Fault) -> None:
        if isinstance(fault.times, bool) or not isinstance(fault.times, int) or fault.times < 1:
            raise ValueError(f"times is how many requests have the fault, at least 1; not {fault.times!r}")
        with self._server.change():
            self._cluster.faults.add(api_of(self._cluster.apis, api), fault)

    # --- arguments ---

    def _broker(self, broker: int) -> int:
        """Returns the id of a broker. Raises ValueError if there is none with this id."""
        if broker not in self._cluster.brokers:
            raise ValueError(f"there is no broker {broker!r}; there are {list(self._cluster.brokers)}")
        return broker

    def _topic(self, name: str) -> Topic:
        """Returns a topic. Raises ValueError if it does not exist."""
        topic = self._cluster.topics.get(name)
        if topic is None:
            raise ValueError(f"there is no topic {name!r}; create it with create_topic()")
        return topic

    def _partition(self, topic: str, index: int) -> Partition:
        """Returns a partition. Raises ValueError if it does not exist."""
        partitions = self._topic(topic).partitions
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(partitions):
            raise ValueError(f"topic {topic!r} has no partition {index!r}; it has {len(partitions)}, from 0 on")
        return partitions[index]


def _check_number(name: str, value: float, *, positive: bool = False) -> None:
    """Raise ValueError if a value is not a number, or too small."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or (positive and not value):
        raise ValueError(f"{name} is a number {'above' if positive else 'of at least'} 0; not {value!r}")


def _setting(value: object) -> str:
    """Returns a setting as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _tls_context(tls: ssl.SSLContext | str | os.PathLike[str] | None) -> ssl.SSLContext | None:
    """Returns the context of a server with the certificate that `tls` means."""
    if tls is None or isinstance(tls, ssl.SSLContext):
        return tls
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls)
    return context
