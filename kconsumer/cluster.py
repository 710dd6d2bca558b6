"""Describes a cluster, looks up offsets, and finds the transactions that hold back readers.

The functions connect, send their requests and disconnect. `kconsumer.groups.GroupClient` has them as methods, and
`kconsumer.aio.groups.GroupClient` has their awaitable forms.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kconsumer.groups.arguments import SPECIAL_TIMES, Servers, Time, TopicOrPartition
from kconsumer.groups.client import GroupClient
from kconsumer.groups.types import ClusterDescription, OpenTransaction
from kconsumer.types import OffsetAndTimestamp, TopicPartition

__all__ = ["TIMES", "ClusterDescription", "OpenTransaction", "describe", "offsets", "stuck_transactions"]

#: The times of `offsets` that have a name.
TIMES = tuple(SPECIAL_TIMES)


def describe(bootstrap_servers: Servers, **options: Any) -> ClusterDescription:
    """Returns the id, the controller and the brokers of a cluster. `options` are those of `Consumer`."""
    with GroupClient(bootstrap_servers, **options) as client:
        return client.describe_cluster()


def offsets(
    partitions: Iterable[TopicOrPartition], bootstrap_servers: Servers, at: Time = "latest", **options: Any
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """Returns the offset at a time in these partitions, or in all partitions of topics. None: there is no such record.

    `at` is a time (a datetime with a time zone, or ms since 1970), for the first record that is not older, or one of

    - `"latest"` and `"earliest"`: the end and the beginning of the log,
    - `"max-timestamp"`: the record with the largest timestamp (Kafka 3.0),
    - `"earliest-local"`: the first record on the disk of the leader, with tiered storage (Kafka 3.5),
    - `"latest-tiered"`: the last record in tiered storage (Kafka 3.9),
    - `"earliest-pending-upload"`: the first record that is not in tiered storage yet (Kafka 4.2).

    Raises UnsupportedVersionError if a broker is older. Java: `Admin.listOffsets`, and `kafka-get-offsets.sh`.
    """
    with GroupClient(bootstrap_servers, **options) as client:
        return client.partition_offsets(partitions, at)


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
