"""What follows from an error code of the group coordinator: one table for each request of a member.

The tables are Java's (`AbstractCoordinator`, `ConsumerCoordinator`). They decide nothing by themselves: the managers
that send these requests read them, and check whether the member's generation changed since. A code without a row is
raised.
"""

from __future__ import annotations

from kconsumer.error_codes import Errors
from kconsumer.error_tables import ErrorAction, ErrorTable


class GroupErrorAction(ErrorAction):
    """What a member, or a lookup for its group, does about an error code of the coordinator."""

    RETRY = "retry after the backoff"
    RETRY_NOW = "retry at once"
    COORDINATOR = "look the coordinator up again, then retry"
    REJOIN = "the group rebalances: join again with the next poll"
    RESET = "forget generation and member id, and join again"
    RESET_KEEP_ID = "forget the generation, and join again with the member id"
    ADOPT_ID = "join again with the member id that came with the error (KIP-394)"
    FENCED = "raise FencedInstanceIdError: another consumer has this group_instance_id"
    TOPIC_AUTHORIZATION = "raise TopicAuthorizationError with all topics concerned"
    NOT_A_MEMBER = "raise CommitFailedError: the next heartbeat learns what became of the member (KIP-848)"
    STALE_EPOCH = (
        "the member epoch changed: retry what the consumer itself requested, raise the error of a caller's commit"
    )
    LOG = "log it: the member has left in any case"
    RAISE = "raise"


RETRY, RETRY_NOW, COORDINATOR, REJOIN, RESET, RESET_KEEP_ID, *_OTHERS = GroupErrorAction
ADOPT_ID, FENCED, TOPIC_AUTHORIZATION, NOT_A_MEMBER, STALE_EPOCH, LOG, RAISE = _OTHERS

Table = ErrorTable[GroupErrorAction]

FIND_COORDINATOR_ACTIONS: Table = ErrorTable(
    {
        Errors.COORDINATOR_LOAD_IN_PROGRESS: RETRY,
        Errors.COORDINATOR_NOT_AVAILABLE: RETRY,
        Errors.NOT_COORDINATOR: RETRY,
        Errors.INVALID_GROUP_ID: RAISE,
        Errors.GROUP_AUTHORIZATION_FAILED: RAISE,
    },
    default=RAISE,
    default_retriable=RETRY,
)

JOIN_ACTIONS: Table = ErrorTable(
    {
        Errors.COORDINATOR_LOAD_IN_PROGRESS: RETRY,
        Errors.COORDINATOR_NOT_AVAILABLE: COORDINATOR,
        Errors.NOT_COORDINATOR: COORDINATOR,
        Errors.INCONSISTENT_GROUP_PROTOCOL: RAISE,
        Errors.INVALID_GROUP_ID: RAISE,
        Errors.UNKNOWN_MEMBER_ID: RESET,
        Errors.INVALID_SESSION_TIMEOUT: RAISE,
        Errors.REBALANCE_IN_PROGRESS: RETRY_NOW,  # from a coordinator that has just lost the group
        Errors.GROUP_AUTHORIZATION_FAILED: RAISE,
        Errors.UNSUPPORTED_VERSION: RAISE,
        Errors.MEMBER_ID_REQUIRED: ADOPT_ID,
        Errors.GROUP_MAX_SIZE_REACHED: RAISE,
        Errors.FENCED_INSTANCE_ID: RAISE,  # whatever became of the generation meanwhile
    },
    default=RAISE,
)

SYNC_ACTIONS: Table = ErrorTable(
    {
        Errors.COORDINATOR_NOT_AVAILABLE: COORDINATOR,
        Errors.NOT_COORDINATOR: COORDINATOR,
        Errors.ILLEGAL_GENERATION: RESET_KEEP_ID,
        Errors.UNKNOWN_MEMBER_ID: RESET,
        Errors.REBALANCE_IN_PROGRESS: RETRY_NOW,
        Errors.GROUP_AUTHORIZATION_FAILED: RAISE,
        Errors.FENCED_INSTANCE_ID: RAISE,
    },
    default=RAISE,
)

HEARTBEAT_ACTIONS: Table = ErrorTable(
    {
        Errors.COORDINATOR_NOT_AVAILABLE: COORDINATOR,
        Errors.NOT_COORDINATOR: COORDINATOR,
        Errors.ILLEGAL_GENERATION: RESET_KEEP_ID,
        Errors.UNKNOWN_MEMBER_ID: RESET,
        Errors.REBALANCE_IN_PROGRESS: REJOIN,  # which is a sign of life, too
        Errors.GROUP_AUTHORIZATION_FAILED: RAISE,
        Errors.FENCED_INSTANCE_ID: FENCED,
    },
    default=RAISE,
)

LEAVE_ACTIONS: Table = ErrorTable(
    {
        Errors.COORDINATOR_LOAD_IN_PROGRESS: LOG,
        Errors.COORDINATOR_NOT_AVAILABLE: LOG,
        Errors.NOT_COORDINATOR: LOG,
        Errors.UNKNOWN_MEMBER_ID: LOG,
        Errors.GROUP_AUTHORIZATION_FAILED: LOG,
        Errors.FENCED_INSTANCE_ID: LOG,
    },
    default=LOG,
)

COMMIT_ACTIONS: Table = ErrorTable(
    {
        Errors.UNKNOWN_TOPIC_OR_PARTITION: RETRY,
        Errors.REQUEST_TIMED_OUT: COORDINATOR,
        Errors.OFFSET_METADATA_TOO_LARGE: RAISE,
        Errors.COORDINATOR_LOAD_IN_PROGRESS: RETRY,
        Errors.COORDINATOR_NOT_AVAILABLE: COORDINATOR,
        Errors.NOT_COORDINATOR: COORDINATOR,
        Errors.ILLEGAL_GENERATION: RESET_KEEP_ID,
        Errors.UNKNOWN_MEMBER_ID: RESET,
        Errors.REBALANCE_IN_PROGRESS: REJOIN,
        Errors.INVALID_COMMIT_OFFSET_SIZE: RAISE,
        Errors.TOPIC_AUTHORIZATION_FAILED: TOPIC_AUTHORIZATION,
        Errors.GROUP_AUTHORIZATION_FAILED: RAISE,
        Errors.FENCED_INSTANCE_ID: FENCED,
    },
    default=RAISE,
)

# Of a member of the consumer protocol: its heartbeats learn what became of it, so no commit changes the membership.
CONSUMER_COMMIT_ACTIONS: Table = ErrorTable(
    {
        Errors.UNKNOWN_TOPIC_OR_PARTITION: RETRY,
        Errors.REQUEST_TIMED_OUT: COORDINATOR,
        Errors.OFFSET_METADATA_TOO_LARGE: RAISE,
        Errors.COORDINATOR_LOAD_IN_PROGRESS: RETRY,
        Errors.COORDINATOR_NOT_AVAILABLE: COORDINATOR,
        Errors.NOT_COORDINATOR: COORDINATOR,
        Errors.UNKNOWN_MEMBER_ID: NOT_A_MEMBER,
        Errors.INVALID_COMMIT_OFFSET_SIZE: RAISE,
        Errors.TOPIC_AUTHORIZATION_FAILED: TOPIC_AUTHORIZATION,
        Errors.GROUP_AUTHORIZATION_FAILED: RAISE,
        Errors.UNKNOWN_TOPIC_ID: RETRY,
        Errors.STALE_MEMBER_EPOCH: STALE_EPOCH,
    },
    default=RAISE,
)

# Of a partition. OffsetFetch v1 has no error code of the group and reports errors of the coordinator here.
OFFSET_FETCH_ACTIONS: Table = ErrorTable(
    {
        Errors.UNKNOWN_TOPIC_OR_PARTITION: RAISE,
        Errors.COORDINATOR_LOAD_IN_PROGRESS: RETRY,
        Errors.COORDINATOR_NOT_AVAILABLE: COORDINATOR,
        Errors.NOT_COORDINATOR: COORDINATOR,
        Errors.TOPIC_AUTHORIZATION_FAILED: TOPIC_AUTHORIZATION,
        Errors.UNSTABLE_OFFSET_COMMIT: RETRY,
    },
    default=RAISE,
)

# Of the group; any other that is retriable is retried.
OFFSET_FETCH_GROUP_ACTIONS: Table = ErrorTable(
    {
        Errors.COORDINATOR_LOAD_IN_PROGRESS: RETRY,
        Errors.COORDINATOR_NOT_AVAILABLE: COORDINATOR,
        Errors.NOT_COORDINATOR: COORDINATOR,
        Errors.GROUP_AUTHORIZATION_FAILED: RAISE,
    },
    default=RAISE,
    default_retriable=RETRY,
)

CONSUMER_OFFSET_FETCH_GROUP_ACTIONS: Table = ErrorTable(
    {
        **OFFSET_FETCH_GROUP_ACTIONS,
        Errors.UNKNOWN_MEMBER_ID: RAISE,
        Errors.STALE_MEMBER_EPOCH: STALE_EPOCH,
    },
    default=RAISE,
    default_retriable=RETRY,
)

# Of a partition: the topic is assigned, so a broker that does not know it will soon.
CONSUMER_OFFSET_FETCH_ACTIONS: Table = ErrorTable(
    {
        **OFFSET_FETCH_ACTIONS,
        Errors.UNKNOWN_TOPIC_OR_PARTITION: RETRY,
        Errors.UNKNOWN_TOPIC_ID: RETRY,
    },
    default=RAISE,
)

HINTS: dict[int, str] = {
    Errors.UNSUPPORTED_VERSION: "this broker knows no static members (Kafka 2.3 does): leave group_instance_id out"
}
