"""The model of a cluster in place of a real Kafka, for integration tests that run with `--cluster=fake`.

`FakeKafka` has the methods of `KafkaCluster` and serves a `FakeCluster` with the options of the real test brokers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from kconsumer.testing import FakeCluster
from kconsumer.testing.cluster.settings import Settings
from support.brokers.kafka import CHOSEN_VERSION, broker_properties
from support.brokers.kafka_admin import Kafka

#: The default of each setting of the model, by its property's name.
SETTINGS = {field.name.replace("_", "."): field.default for field in dataclasses.fields(Settings)}


class FakeNode:
    """One broker of a `FakeKafka`, with the methods of `KafkaNode`."""

    def __init__(self, cluster: FakeCluster, node_id: int, bootstrap: str) -> None:
        self._cluster = cluster
        self.node_id = node_id
        self.bootstrap = bootstrap
        self.port = int(bootstrap.rpartition(":")[2])
        self.alive = True

    def __repr__(self) -> str:
        return f"FakeNode({self.node_id}, port={self.port}, alive={self.alive})"

    def kill(self) -> None:
        """Stop the broker."""
        if self.alive:
            self._cluster.kill(self.node_id)
            self.alive = False

    def stop(self) -> None:
        """Stop the broker. The model has no difference between this and `kill`."""
        self.resume()
        self.kill()

    def start(self) -> None:
        """Start the broker again on the same port."""
        if not self.alive:
            self._cluster.start(self.node_id)
            self.alive = True

    def restart(self) -> None:
        """Stop the broker if it runs, then start it."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Hold all requests and responses of the broker. Its sockets stay open."""
        self._cluster.interrupt_network(self.node_id)

    def resume(self) -> None:
        """Let a paused broker continue."""
        self._cluster.restore_network(self.node_id)


class FakeKafka(Kafka):
    """A `FakeCluster` of one or more brokers; a context manager. `properties` override the brokers' options."""

    def __init__(
        self, version: str = CHOSEN_VERSION, nodes: int = 1, properties: Mapping[str, str] | None = None
    ) -> None:
        super().__init__("", version)
        chosen = settings_of({**broker_properties(nodes), **(properties or {})})
        self.cluster = FakeCluster(nodes, version=".".join(version.split(".")[:2]), **chosen)
        self.nodes: list[FakeNode] = []

    def __enter__(self) -> Self:
        self.cluster.__enter__()
        self.bootstrap_servers = self.cluster.bootstrap_servers
        self.nodes = [
            FakeNode(self.cluster, node_id, address)
            for node_id, address in enumerate(self.bootstrap_servers.split(","), start=1)
        ]
        return self

    def __exit__(self, *error: Any) -> None:
        self._admin = None
        self.cluster.__exit__(*error)

    def node(self, node_id: int) -> FakeNode:
        """Returns the broker with this id, for example the one that `leader_of` returns."""
        return self.nodes[node_id - 1]


def settings_of(properties: Mapping[str, str]) -> dict[str, Any]:
    """Returns the settings of the model that broker properties mean, without those that the model ignores."""
    return {
        name.replace(".", "_"): _parsed(value, SETTINGS[name]) for name, value in properties.items() if name in SETTINGS
    }


def _parsed(value: str, default: Any) -> Any:
    """Returns the value of a property in the type of its default."""
    if isinstance(default, bool):
        return value == "true"
    if isinstance(default, tuple):
        return tuple(value.split(","))
    return type(default)(value)
