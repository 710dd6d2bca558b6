"""Share groups on the brokers: the handlers of ShareFetch and ShareAcknowledge, and what changes of the cluster do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kconsumer.schema import Api
from kconsumer.testing.cluster.requests import Handler
from kconsumer.testing.cluster.share.acknowledge import ShareAcknowledgeHandler
from kconsumer.testing.cluster.share.fetch import ShareFetchHandler
from kconsumer.testing.cluster.share.partitions import SharePartitions
from kconsumer.testing.cluster.share.requests import ShareRequests
from kconsumer.testing.cluster.share.state_store import StateStore

if TYPE_CHECKING:
    from kconsumer.testing.cluster.cluster import Cluster
    from kconsumer.testing.cluster.connection import Connection


class Shares:
    """The share partitions of the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.partitions = SharePartitions(cluster)
        self._requests = ShareRequests(cluster, self.partitions)
        self._components = (
            ShareFetchHandler(cluster, self._requests, self.partitions),
            ShareAcknowledgeHandler(self._requests),
        )

    def handlers(self) -> Mapping[Api, Handler]:
        """Returns the handler of each API."""
        return {api: handler for part in self._components for api, handler in part.handlers().items()}

    @property
    def store(self) -> StateStore:
        """The stored state of all share partitions."""
        return self.partitions.store

    def on_disconnect(self, connection: Connection) -> None:
        """End the share sessions of a connection that was closed."""
        self._requests.on_disconnect(connection)

    def on_topic_deleted(self, topic_id: bytes) -> None:
        """Remove the stored state of a deleted topic."""
        self.store.on_topic_deleted(topic_id)
