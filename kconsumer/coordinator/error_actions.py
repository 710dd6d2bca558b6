"""What an error code in an answer of the group coordinator leads to: one table for each request of a member.

The tables are Java's (`AbstractCoordinator`, `ConsumerCoordinator`). They decide nothing by themselves: the managers of
these requests walk them, and know whether the member has moved on since it asked. A code without a row is raised.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from kconsumer.errors import is_retriable


class ErrorAction(enum.Enum):
    """What follows from an error code."""

    RETRY = "ask again after the backoff"
    RETRY_NOW = "ask again at once"
    COORDINATOR = "look the coordinator up again, then ask it"
    REJOIN = "the group rebalances: join in at the next poll"
    RESET = "forget generation and member id, and join anew"
    RESET_KEEP_ID = "forget the generation, and join anew with the member id"
    ADOPT_ID = "join again with the member id that came with the error (KIP-394)"
    FENCED = "raise FencedInstanceIdError: another consumer has this group_instance_id"
    TOPIC_AUTHORIZATION = "raise TopicAuthorizationError with all topics concerned"
    NOT_A_MEMBER = "raise CommitFailedError: the next heartbeat will say what became of us (KIP-848)"
    STALE_EPOCH = "the member epoch moved on: what the consumer itself asked is asked again, a caller's commit raised"
    LOG = "log it: the member is gone either way"
    RAISE = "raise"


RETRY, RETRY_NOW, COORDINATOR, REJOIN, RESET, RESET_KEEP_ID, ADOPT_ID, FENCED, TOPIC_AUTHORIZATION = list(ErrorAction)[
    :9
]
NOT_A_MEMBER, STALE_EPOCH, LOG, RAISE = list(ErrorAction)[9:]

Table = Mapping[int, ErrorAction]

FIND_COORDINATOR_ACTIONS: Table = {
    14: RETRY,  # COORDINATOR_LOAD_IN_PROGRESS
    15: RETRY,  # COORDINATOR_NOT_AVAILABLE
    16: RETRY,  # NOT_COORDINATOR
    24: RAISE,  # INVALID_GROUP_ID
    30: RAISE,  # GROUP_AUTHORIZATION_FAILED
}

JOIN_ACTIONS: Table = {
    14: RETRY,  # COORDINATOR_LOAD_IN_PROGRESS
    15: COORDINATOR,  # COORDINATOR_NOT_AVAILABLE
    16: COORDINATOR,  # NOT_COORDINATOR
    23: RAISE,  # INCONSISTENT_GROUP_PROTOCOL
    24: RAISE,  # INVALID_GROUP_ID
    25: RESET,  # UNKNOWN_MEMBER_ID
    26: RAISE,  # INVALID_SESSION_TIMEOUT
    27: RETRY_NOW,  # REBALANCE_IN_PROGRESS, from a coordinator that has just lost the group
    30: RAISE,  # GROUP_AUTHORIZATION_FAILED
    35: RAISE,  # UNSUPPORTED_VERSION
    79: ADOPT_ID,  # MEMBER_ID_REQUIRED
    81: RAISE,  # GROUP_MAX_SIZE_REACHED
    82: RAISE,  # FENCED_INSTANCE_ID, whatever became of the generation meanwhile
}

SYNC_ACTIONS: Table = {
    15: COORDINATOR,  # COORDINATOR_NOT_AVAILABLE
    16: COORDINATOR,  # NOT_COORDINATOR
    22: RESET_KEEP_ID,  # ILLEGAL_GENERATION
    25: RESET,  # UNKNOWN_MEMBER_ID
    27: RETRY_NOW,  # REBALANCE_IN_PROGRESS
    30: RAISE,  # GROUP_AUTHORIZATION_FAILED
    82: RAISE,  # FENCED_INSTANCE_ID
}

HEARTBEAT_ACTIONS: Table = {
    15: COORDINATOR,  # COORDINATOR_NOT_AVAILABLE
    16: COORDINATOR,  # NOT_COORDINATOR
    22: RESET_KEEP_ID,  # ILLEGAL_GENERATION
    25: RESET,  # UNKNOWN_MEMBER_ID
    27: REJOIN,  # REBALANCE_IN_PROGRESS, which is a sign of life, too
    30: RAISE,  # GROUP_AUTHORIZATION_FAILED
    82: FENCED,  # FENCED_INSTANCE_ID
}

LEAVE_ACTIONS: Table = {
    14: LOG,  # COORDINATOR_LOAD_IN_PROGRESS
    15: LOG,  # COORDINATOR_NOT_AVAILABLE
    16: LOG,  # NOT_COORDINATOR
    25: LOG,  # UNKNOWN_MEMBER_ID
    30: LOG,  # GROUP_AUTHORIZATION_FAILED
    82: LOG,  # FENCED_INSTANCE_ID
}

COMMIT_ACTIONS: Table = {
    3: RETRY,  # UNKNOWN_TOPIC_OR_PARTITION
    7: COORDINATOR,  # REQUEST_TIMED_OUT
    12: RAISE,  # OFFSET_METADATA_TOO_LARGE
    14: RETRY,  # COORDINATOR_LOAD_IN_PROGRESS
    15: COORDINATOR,  # COORDINATOR_NOT_AVAILABLE
    16: COORDINATOR,  # NOT_COORDINATOR
    22: RESET_KEEP_ID,  # ILLEGAL_GENERATION
    25: RESET,  # UNKNOWN_MEMBER_ID
    27: REJOIN,  # REBALANCE_IN_PROGRESS
    28: RAISE,  # INVALID_COMMIT_OFFSET_SIZE
    29: TOPIC_AUTHORIZATION,  # TOPIC_AUTHORIZATION_FAILED
    30: RAISE,  # GROUP_AUTHORIZATION_FAILED
    82: FENCED,  # FENCED_INSTANCE_ID
}

# Of a member of KIP-848: what became of it is told by its heartbeats, so no commit changes the membership.
CONSUMER_COMMIT_ACTIONS: Table = {
    3: RETRY,  # UNKNOWN_TOPIC_OR_PARTITION
    7: COORDINATOR,  # REQUEST_TIMED_OUT
    12: RAISE,  # OFFSET_METADATA_TOO_LARGE
    14: RETRY,  # COORDINATOR_LOAD_IN_PROGRESS
    15: COORDINATOR,  # COORDINATOR_NOT_AVAILABLE
    16: COORDINATOR,  # NOT_COORDINATOR
    25: NOT_A_MEMBER,  # UNKNOWN_MEMBER_ID
    28: RAISE,  # INVALID_COMMIT_OFFSET_SIZE
    29: TOPIC_AUTHORIZATION,  # TOPIC_AUTHORIZATION_FAILED
    30: RAISE,  # GROUP_AUTHORIZATION_FAILED
    100: RETRY,  # UNKNOWN_TOPIC_ID
    113: STALE_EPOCH,  # STALE_MEMBER_EPOCH
}

# Of a partition. OffsetFetch v1 has no code of the group and tells the coordinator's trouble here.
OFFSET_FETCH_ACTIONS: Table = {
    3: RAISE,  # UNKNOWN_TOPIC_OR_PARTITION
    14: RETRY,  # COORDINATOR_LOAD_IN_PROGRESS
    15: COORDINATOR,  # COORDINATOR_NOT_AVAILABLE
    16: COORDINATOR,  # NOT_COORDINATOR
    29: TOPIC_AUTHORIZATION,  # TOPIC_AUTHORIZATION_FAILED
    88: RETRY,  # UNSTABLE_OFFSET_COMMIT
}

# Of the group; any other that is retriable is retried.
OFFSET_FETCH_GROUP_ACTIONS: Table = {
    14: RETRY,  # COORDINATOR_LOAD_IN_PROGRESS
    15: COORDINATOR,  # COORDINATOR_NOT_AVAILABLE
    16: COORDINATOR,  # NOT_COORDINATOR
    30: RAISE,  # GROUP_AUTHORIZATION_FAILED
}

CONSUMER_OFFSET_FETCH_GROUP_ACTIONS: Table = {
    **OFFSET_FETCH_GROUP_ACTIONS,
    25: RAISE,  # UNKNOWN_MEMBER_ID
    113: STALE_EPOCH,  # STALE_MEMBER_EPOCH
}

# Of a partition: the topic is assigned, so a broker that does not know it will soon.
CONSUMER_OFFSET_FETCH_ACTIONS: Table = {
    **OFFSET_FETCH_ACTIONS,
    3: RETRY,  # UNKNOWN_TOPIC_OR_PARTITION
    100: RETRY,  # UNKNOWN_TOPIC_ID
}

# Tables whose other codes are retried if the error is a passing one; in those that are not here they are raised.
RETRY_TRANSIENT = (FIND_COORDINATOR_ACTIONS, OFFSET_FETCH_GROUP_ACTIONS, CONSUMER_OFFSET_FETCH_GROUP_ACTIONS)

HINTS = {35: "this broker knows no static members (Kafka 2.3 does): leave group_instance_id out"}


def action_for(table: Table, code: int) -> ErrorAction:
    """The reaction to a code in an answer."""
    known = table.get(code)
    if known is not None:
        return known
    if table is LEAVE_ACTIONS:
        return LOG
    return RETRY if is_retriable(code) and any(table is passing for passing in RETRY_TRANSIENT) else RAISE
