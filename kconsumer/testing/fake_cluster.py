"""A Kafka cluster in the process of a test: `FakeCluster` serves the model of a cluster on loopback sockets."""

from __future__ import annotations

import dataclasses
import os
import ssl
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from kconsumer.clock import Clock
from kconsumer.testing.cluster import releases
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.settings import Settings
from kconsumer.testing.server import NOT_RUNNING, Server

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

    # --- brokers ---

    def kill(self, broker: int) -> None:
        """Stop a broker: its connections are closed, new ones are refused, and other replicas become leaders."""
        with self._server.change():
            self._cluster.kill(self._broker(broker))

    def start(self, broker: int) -> None:
        """Start a stopped broker. It listens at the same port as before."""
        with self._server.change():
            self._cluster.start(self._broker(broker))

    # --- arguments ---

    def _broker(self, broker: int) -> int:
        """Returns the id of a broker. Raises ValueError if there is none with this id."""
        if broker not in self._cluster.brokers:
            raise ValueError(f"there is no broker {broker!r}; there are {list(self._cluster.brokers)}")
        return broker

    def _topic(self, name: str) -> None:
        """Raise ValueError if a topic does not exist."""
        if name not in self._cluster.topics:
            raise ValueError(f"there is no topic {name!r}; create it with create_topic()")

    def _partition(self, topic: str, partition: int) -> None:
        """Raise ValueError if a partition does not exist."""
        self._topic(topic)
        if self._cluster.partition(topic, partition) is None:
            count = len(self._cluster.topics[topic].partitions)
            raise ValueError(f"topic {topic!r} has no partition {partition!r}; it has {count}, from 0 on")


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
