"""Returns groups and committed offsets of a model cluster (see `kconsumer.testing.cluster`).

The results have the types that `kconsumer.groups` returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kconsumer._internal.managers import Reply
from kconsumer.groups.responses import parse_classic, parse_consumer, parse_share
from kconsumer.groups.types import GroupDescription
from kconsumer.schema import CONSUMER_GROUP_DESCRIBE, DESCRIBE_GROUPS, SHARE_GROUP_DESCRIBE, Api
from kconsumer.schema.admin import ConsumerGroupDescribeRequest, DescribeGroupsRequest
from kconsumer.schema.dsl import Message
from kconsumer.schema.share_group import ShareGroupDescribeRequest
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.connection import Connection
from kconsumer.testing.cluster.requests import Request
from kconsumer.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kconsumer.testing.cluster.broker import Broker


def committed(cluster: Cluster, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """Returns the committed offsets of a group, or an empty dict if there is no such group."""
    return {
        TopicPartition(topic, index): OffsetAndMetadata(
            row.offset, row.metadata, row.leader_epoch if row.leader_epoch >= 0 else None
        )
        for topic, rows in sorted(cluster.groups.offsets.of_group(group_id).items())
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
    connection = Connection(cluster, broker)
    connection.authenticator = None
    request = Request(api, version, 0, None, message, connection, 0)
    return Reply(cluster.handle(request, now), None, now, version)
