"""Checks of ConsumerGroupHeartbeat: the fields of the request, and the member epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kconsumer._common.error_codes import Errors
from kconsumer.testing.cluster.groups.consumer_member import LEFT_STATIC_EPOCH, ConsumerMember
from kconsumer.testing.cluster.groups.group import GroupError
from kconsumer.testing.cluster.groups.reconciliation import Owned

UNSET_TIMEOUT = -1  # the rebalance timeout of a request that does not change it


def check_request(message: Any, version: int, assignors: tuple[str, ...]) -> None:
    """Raise GroupError if a field of a heartbeat is missing or not allowed with the others.

    The error is INVALID_REQUEST, or UNSUPPORTED_ASSIGNOR if the request names an assignor that is not in `assignors`.
    """
    epoch = message.member_epoch
    for invalid, text in (
        (not message.member_id and (version >= 1 or epoch > 0 or epoch == -1), "MemberId can't be empty."),
        (not message.group_id, "GroupId can't be empty."),
        (message.instance_id == "", "InstanceId can't be empty."),
        (message.rack_id == "", "RackId can't be empty."),
        (
            epoch == 0 and message.rebalance_timeout_ms == UNSET_TIMEOUT,
            "RebalanceTimeoutMs must be provided in first request.",
        ),
        (epoch == 0 and message.topic_partitions != [], "TopicPartitions must be empty when (re-)joining."),
        (
            epoch == 0 and message.subscribed_topic_names is None and message.subscribed_topic_regex is None,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        (epoch == LEFT_STATIC_EPOCH and message.instance_id is None, "InstanceId can't be null."),
        (epoch < LEFT_STATIC_EPOCH, "MemberEpoch is invalid."),
    ):
        if invalid:
            raise GroupError(Errors.INVALID_REQUEST, text)
    if message.server_assignor is not None and message.server_assignor not in assignors:
        raise GroupError(
            Errors.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {message.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def check_epoch(member: ConsumerMember, epoch: int, owned: Owned) -> None:
    """Raise GroupError with FENCED_MEMBER_EPOCH if the epoch in a heartbeat is not valid.

    The present member epoch is valid, and so is 0, with which a member joins again. The previous member epoch is valid
    only if all partitions that the member reports as owned are still assigned to it: the response with the new epoch
    may have been lost.
    """
    if epoch in (0, member.epoch):
        return
    repeats = epoch == member.previous_epoch and owned is not None
    if epoch < member.epoch and repeats and _is_subset(owned or {}, member):
        return
    size = "greater" if epoch > member.epoch else "smaller"
    raise GroupError(
        Errors.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {size} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_subset(owned: Mapping[bytes, Any], member: ConsumerMember) -> bool:
    """Returns whether all partitions that a member reports as owned are assigned to it."""
    return all(
        topic_id in member.assigned and all(partition in member.assigned[topic_id] for partition in partitions)
        for topic_id, partitions in owned.items()
    )
