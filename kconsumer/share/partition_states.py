"""Explains for `status()` why an assigned partition of a share consumer is or is not fetched."""

from __future__ import annotations

from kconsumer.share.components import ShareComponents
from kconsumer.types import PartitionCondition, PartitionStatus, TopicPartition


def partition_states(parts: ShareComponents) -> dict[TopicPartition, PartitionStatus]:
    """Returns the status of each assigned partition. It has no position, because the broker has it."""
    now = parts.clock.now()
    return {tp: _status(parts, tp, now) for tp in sorted(parts.assignment.assigned())}


def _status(parts: ShareComponents, tp: TopicPartition, now: float) -> PartitionStatus:
    leader = parts.cluster.leader(tp).leader
    if leader is None:
        reason = parts.metadata.topic_errors.problem_with(tp) or "no leader is known"
        return PartitionStatus(PartitionCondition.NO_LEADER, reason, 0.0, None, None, None)
    error = parts.client.last_error(str(leader.id), now)
    condition, reason = (PartitionCondition.BACKOFF, error) if error else parts.fetch.broker_condition(leader.id, now)
    return PartitionStatus(condition, reason, 0.0, None, None, None)
