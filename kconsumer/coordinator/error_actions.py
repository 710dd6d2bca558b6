"""Tables of the actions for the group coordinator's error codes, one table for each request of a member.

The rows follow Java (`AbstractCoordinator`, `ConsumerCoordinator`). The manager that sent a request finds the action
here and carries it out. The manager also checks whether the member's generation has changed since the request. A code
without a row has the default action of its table.
"""

from __future__ import annotations

from kconsumer._common.error_codes import Errors
from kconsumer._common.error_tables import ErrorAction, ErrorTable


class GroupErrorAction(ErrorAction):
    """The reaction of a member, or of a coordinator lookup, to an error code; the value describes it."""

    RETRY = "retry after the backoff"
    RETRY_NOW = "retry at once"
    COORDINATOR = "look the coordinator up again, then retry"
    REJOIN = "the group rebalances: join again with the next poll"
    RESET = "forget generation and member id, and join again"
    RESET_KEEP_ID = "forget the generation, and join again with the member id"
    ADOPT_ID = "join again with the member id that came with the error (KIP-394)"
    FENCED = "raise FencedInstanceIdError: another consumer has this group_instance_id"
    TOPIC_AUTHORIZATION = "raise TopicAuthorizationError with all topics concerned"
    NOT_A_MEMBER = "raise CommitFailedError: the next heartbeat shows if the member is still in the group (KIP-848)"
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
        Errors.REBALANCE_IN_PROGRESS: RETRY_NOW,  # sent by a coordinator that has just lost the group
        Errors.GROUP_AUTHORIZATION_FAILED: RAISE,
        Errors.UNSUPPORTED_VERSION: RAISE,
        Errors.MEMBER_ID_REQUIRED: ADOPT_ID,
        Errors.GROUP_MAX_SIZE_REACHED: RAISE,
        Errors.FENCED_INSTANCE_ID: RAISE,  # even if the generation has changed since the request
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
        Errors.REBALANCE_IN_PROGRESS: REJOIN,  # also restarts the session timeout
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

# For members of the consumer protocol. A refused commit does not change the membership, because the response to the
# next heartbeat shows whether the coordinator still has the member.
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

# For error codes of partitions. OffsetFetch v1 has no error code for the group, so errors of the coordinator appear
# here, too.
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

# For the error code of the group. Retriable codes without a row are retried.
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

# For error codes of partitions. The topic is assigned, so it exists, and a coordinator whose metadata lacks it will
# receive it soon.
CONSUMER_OFFSET_FETCH_ACTIONS: Table = ErrorTable(
    {
        **OFFSET_FETCH_ACTIONS,
        Errors.UNKNOWN_TOPIC_OR_PARTITION: RETRY,
        Errors.UNKNOWN_TOPIC_ID: RETRY,
    },
    default=RAISE,
)

# By error code, what the user can change. This is appended to the error message if the member has a
# group_instance_id.
HINTS: dict[int, str] = {
    Errors.UNSUPPORTED_VERSION: (
        "this broker does not support static members (Kafka 2.3 and later do): leave group_instance_id out"
    )
}
