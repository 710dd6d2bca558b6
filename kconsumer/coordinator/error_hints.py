"""What the user can check or change if a request to the group coordinator fails again and again, by error code.

Warnings and `consumer.status()` contain these hints. Code 0 stands for a request that has no response.
"""

from __future__ import annotations

from kconsumer._common.error_codes import Errors

_LOADING = "the coordinator still reads __consumer_offsets; if that does not end, the log of this broker says why"
_MOVING = "brokers disagree about the coordinator of this group; if that does not end, check their cluster state"

FIND_COORDINATOR_HINTS: dict[int, str] = {
    Errors.COORDINATOR_NOT_AVAILABLE: (
        "the topic __consumer_offsets may not exist or have no leader; on a cluster with fewer brokers than"
        " offsets.topic.replication.factor (default 3), lower this broker option"
    ),
    Errors.COORDINATOR_LOAD_IN_PROGRESS: _LOADING,
    Errors.NOT_COORDINATOR: _MOVING,
    0: "no broker has responded to FindCoordinator",
}

MEMBERSHIP_HINTS: dict[int, str] = {
    0: (
        "the coordinator waits until the other members have joined; a member may take as long as its"
        " max_poll_interval_ms"
    ),
    Errors.COORDINATOR_LOAD_IN_PROGRESS: _LOADING,
    Errors.NOT_COORDINATOR: _MOVING,
    Errors.COORDINATOR_NOT_AVAILABLE: _MOVING,
    Errors.REBALANCE_IN_PROGRESS: "members keep joining or leaving; their logs say why",
    Errors.UNKNOWN_MEMBER_ID: (
        "the coordinator removes this member after it has joined; check session_timeout_ms and the load of the broker"
    ),
    Errors.ILLEGAL_GENERATION: "the group rebalances before this member is ready; check session_timeout_ms",
    Errors.FENCED_MEMBER_EPOCH: "the coordinator removes this member after it has joined; its log says why",
}

OFFSETS_HINTS: dict[int, str] = {
    Errors.COORDINATOR_LOAD_IN_PROGRESS: _LOADING,
    Errors.NOT_COORDINATOR: _MOVING,
    Errors.UNSTABLE_OFFSET_COMMIT: (
        "a producer has an open transaction with offsets of this group; it ends after the transaction.timeout.ms of"
        " the producer at the latest"
    ),
    Errors.UNKNOWN_TOPIC_OR_PARTITION: "the topic may have been deleted",
}
