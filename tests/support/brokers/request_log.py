"""Kafka's own request log: a broker writes one line for each request it has served.

A cluster writes it if its JVMs get the options `REQUEST_LOG`.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from support.brokers.kafka import KafkaCluster, KafkaNode

REQUEST_LOG = "-Dorg.slf4j.simpleLogger.log.kafka.request.logger=debug"
MARK = "Completed request:"


class Served(NamedTuple):
    """One request and its response, as the broker's JSON."""

    api: str
    request: dict[str, Any]
    response: dict[str, Any]

    @property
    def partitions(self) -> list[dict[str, Any]]:
        """Returns the partitions of a Fetch response."""
        topics = self.response.get("responses", [])
        return [row for topic in topics for row in topic.get("partitions") or topic["partitionResponses"]]  # before 3.0

    @property
    def record_bytes(self) -> int:
        """Returns bytes of records in a Fetch response."""
        return sum(row["recordsSizeInBytes"] for row in self.partitions)


def served(node: KafkaNode, client_id: str) -> list[Served]:
    """Returns the requests of a client that a broker has responded to since its start, oldest first."""
    found = []
    for line in node.log_text().splitlines(keepends=True):
        _, mark, text = line.partition(MARK)
        if mark and line.endswith("\n") and f'"clientId":"{client_id}"' in text:
            entry = json.loads(text)
            found.append(Served(entry["requestHeader"]["requestApiKeyName"], entry["request"], entry["response"]))
    return found


def counts(cluster: KafkaCluster, client_id: str, api: str) -> dict[int, int]:
    """Returns how many requests of this kind each running broker has responded to."""
    return {
        node.node_id: sum(1 for entry in served(node, client_id) if entry.api == api)
        for node in cluster.nodes
        if node.alive
    }
