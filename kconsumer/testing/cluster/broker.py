"""The state of one broker of the model."""

from __future__ import annotations

from kconsumer.testing.cluster.fetch_sessions import FetchSessionCache
from kconsumer.testing.cluster.link import Network


class Broker:
    """One broker: its address, release and fetch sessions. The cluster stores the logs and the groups."""

    def __init__(
        self, node_id: int, *, host: str, port: int, rack: str | None, release: str, sessions: FetchSessionCache
    ) -> None:
        self.id = node_id
        self.host = host  # advertised to clients
        self.port = port
        self.rack = rack
        self.release = release  # the version of Kafka, such as "4.4", which decides the API versions
        self.alive = True
        self.fetch_sessions = sessions
        self.clock_skew_ms = 0.0  # by how much its wall clock is ahead of the cluster's
        self.network = Network()

    def __repr__(self) -> str:
        return f"<Broker {self.id} {self.host}:{self.port}{'' if self.alive else ', stopped'}>"
