"""Builds JoinGroup and SyncGroup from the state of the member. `manager.py` decides when they are sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kconsumer._internal.managers import Reply, UnsentRequest
from kconsumer.assignors import Assignor
from kconsumer.config.option_groups import GroupRebalanceConfig
from kconsumer.coordinator.classic_protocol.leader import encode_own_subscription
from kconsumer.coordinator.classic_protocol.leave import REASON_LENGTH
from kconsumer.coordinator.classic_protocol.state import Member
from kconsumer.schema.classic_group import (
    JOIN_GROUP,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kconsumer.types import TopicPartition

PROTOCOL_TYPE = "consumer"
JOIN_TIMEOUT_SLACK_MS = 5000  # the response is awaited this much longer than the rebalance timeout
STATIC_MEMBERS_FROM = 5  # the first version of JoinGroup with a group_instance_id
NEEDED_BY_STATIC_MEMBERS = "group_instance_id needs Kafka 2.3; leave this option out for older brokers"


def join_message(
    config: GroupRebalanceConfig,
    member: Member,
    assignors: Iterable[Assignor],
    topics: frozenset[str],
    owned: Iterable[TopicPartition],
    last_generation: int,
) -> JoinGroupRequest:
    """Returns a JoinGroup. It contains one subscription for each of `assignors`, in this order.

    The subscriptions differ only in the user data, which each assignor adds. Raises AssignorError if an assignor fails.
    """
    owned = sorted(owned)
    protocols = [
        JoinGroupRequestProtocol(
            name=assignor.name,
            metadata=encode_own_subscription(assignor, topics, owned, last_generation, config.client_rack),
        )
        for assignor in assignors
    ]
    return JoinGroupRequest(
        group_id=member.group_id,
        session_timeout_ms=config.session_timeout_ms,
        rebalance_timeout_ms=config.max_poll_interval_ms,
        member_id=member.generation.member_id,
        group_instance_id=member.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=protocols,
        reason=(member.rejoin_reason or "")[:REASON_LENGTH],
    )


def join_request(
    config: GroupRebalanceConfig, message: JoinGroupRequest, handler: Callable[[Reply], None], node: str | None
) -> UnsentRequest:
    return UnsentRequest(
        JOIN_GROUP,
        message,
        handler,
        node=node,
        timeout_ms=join_timeout_ms(config),
        min_version=STATIC_MEMBERS_FROM if message.group_instance_id is not None else 0,
        needs=NEEDED_BY_STATIC_MEMBERS,
    )


def join_timeout_ms(config: GroupRebalanceConfig) -> float:
    """Returns the request timeout (ms) of a JoinGroup.

    It is longer than max_poll_interval_ms, because the coordinator responds only when all members have joined.
    """
    return float(max(config.request_timeout_ms, config.max_poll_interval_ms + JOIN_TIMEOUT_SLACK_MS))


def sync_message(member: Member, assignments: list[SyncGroupRequestAssignment]) -> SyncGroupRequest:
    """Returns a SyncGroup. The leader passes the assignments of all members; other members pass an empty list."""
    generation = member.generation
    return SyncGroupRequest(
        group_id=member.group_id,
        generation_id=generation.id,
        member_id=generation.member_id,
        group_instance_id=member.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=generation.protocol,
        assignments=assignments,
    )
