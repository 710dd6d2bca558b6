"""Describes a cluster, and finds the transactions that hold back its readers.

The functions connect, send their requests and disconnect. `kconsumer.groups.GroupClient` has them as methods, and
`kconsumer.aio.groups.GroupClient` has their awaitable forms.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kconsumer.groups.client import GroupClient
from kconsumer.groups.client_base import Servers, TopicOrPartition
from kconsumer.groups.types import ClusterDescription, OpenTransaction

__all__ = ["ClusterDescription", "OpenTransaction", "describe", "stuck_transactions"]


def describe(bootstrap_servers: Servers, **options: Any) -> ClusterDescription:
    """Returns the id, the controller and the brokers of a cluster. `options` are those of `Consumer`."""
    with GroupClient(bootstrap_servers, **options) as client:
        return client.describe_cluster()


def stuck_transactions(
    partitions: Iterable[TopicOrPartition], bootstrap_servers: Servers, **options: Any
) -> list[OpenTransaction]:
    """Returns the open transactions in these partitions, or in all partitions of topics, the oldest first.

    A reader with `isolation_level="read_committed"` reads no record behind the start of the first of them: they explain
    a last stable offset that does not move. A young transaction is no problem, one that is older than the producer's
    `transaction.timeout.ms` is. Raises UnsupportedVersionError if a broker is older than Kafka 3.0. Java:
    `Admin.describeProducers`, and `kafka-transactions.sh find-hanging`.
    """
    with GroupClient(bootstrap_servers, **options) as client:
        return client.stuck_transactions(partitions)
