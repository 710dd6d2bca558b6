"""The tables of actions for the error codes of ShareGroupHeartbeat, ShareFetch and ShareAcknowledge.

The managers of a share consumer use them. The values of the actions describe the reactions.
"""

from __future__ import annotations

from kconsumer._common.error_codes import Errors
from kconsumer._common.error_tables import ErrorAction, ErrorTable


class ShareHeartbeatErrorAction(ErrorAction):
    """The reaction to an error code of ShareGroupHeartbeat."""

    COORDINATOR = "look the coordinator up again, then heartbeat after the backoff"
    RETRY = "heartbeat again after the backoff"
    FENCED = "the partitions are lost: join again"
    REPORT = "raise from poll; the member stays what it is"
    FATAL = "raise from every poll until the consumer unsubscribes"


H = ShareHeartbeatErrorAction
HEARTBEAT_ACTIONS: ErrorTable[ShareHeartbeatErrorAction] = ErrorTable(
    {
        Errors.COORDINATOR_LOAD_IN_PROGRESS: H.RETRY,
        Errors.COORDINATOR_NOT_AVAILABLE: H.COORDINATOR,
        Errors.NOT_COORDINATOR: H.COORDINATOR,
        Errors.UNKNOWN_MEMBER_ID: H.FENCED,
        Errors.FENCED_MEMBER_EPOCH: H.FENCED,
        Errors.TOPIC_AUTHORIZATION_FAILED: H.REPORT,
        Errors.GROUP_AUTHORIZATION_FAILED: H.REPORT,
        Errors.GROUP_MAX_SIZE_REACHED: H.FATAL,
        Errors.GROUP_ID_NOT_FOUND: H.FATAL,
        Errors.UNSUPPORTED_VERSION: H.FATAL,
        Errors.INVALID_REQUEST: H.FATAL,
    },
    default=H.FATAL,
)


class ShareSessionErrorAction(ErrorAction):
    """The reaction to an error code of a whole response to ShareFetch or ShareAcknowledge."""

    NEW_SESSION = "open another share session; the acknowledgements of the request have failed"
    REFRESH = "request metadata, and send the next request after the backoff"
    RETRY = "send the next request after the backoff"
    RAISE = "raise from poll; the acknowledgements of the request have failed"


T = ShareSessionErrorAction
SESSION_ACTIONS: ErrorTable[ShareSessionErrorAction] = ErrorTable(
    {
        Errors.SHARE_SESSION_NOT_FOUND: T.NEW_SESSION,
        Errors.INVALID_SHARE_SESSION_EPOCH: T.NEW_SESSION,
        Errors.SHARE_SESSION_LIMIT_REACHED: T.NEW_SESSION,
        Errors.UNKNOWN_TOPIC_ID: T.REFRESH,
        Errors.GROUP_AUTHORIZATION_FAILED: T.RAISE,
    },
    default=T.RAISE,
    default_retriable=T.RETRY,
)


class ShareFetchErrorAction(ErrorAction):
    """The reaction to the error code of a partition in a ShareFetch."""

    ACCEPT = "the consumer uses the records"
    REFRESH = "request metadata, and fetch again after the backoff"
    RETRY = "fetch again after the backoff"
    RAISE = "raise from poll, and fetch again after the backoff"


F = ShareFetchErrorAction
FETCH_ACTIONS: ErrorTable[ShareFetchErrorAction] = ErrorTable(
    {
        Errors.NONE: F.ACCEPT,
        Errors.NOT_LEADER_OR_FOLLOWER: F.REFRESH,
        Errors.FENCED_LEADER_EPOCH: F.REFRESH,
        Errors.REPLICA_NOT_AVAILABLE: F.REFRESH,
        Errors.KAFKA_STORAGE_ERROR: F.REFRESH,
        Errors.OFFSET_NOT_AVAILABLE: F.REFRESH,
        Errors.UNKNOWN_TOPIC_OR_PARTITION: F.REFRESH,
        Errors.UNKNOWN_TOPIC_ID: F.REFRESH,
        Errors.INCONSISTENT_TOPIC_ID: F.REFRESH,
        Errors.UNKNOWN_LEADER_EPOCH: F.RETRY,
        Errors.UNKNOWN_SERVER_ERROR: F.RETRY,
        Errors.TOPIC_AUTHORIZATION_FAILED: F.RAISE,
        Errors.CORRUPT_MESSAGE: F.RAISE,
    },
    default=F.RAISE,
    default_retriable=F.RETRY,
)


class AcknowledgeErrorAction(ErrorAction):
    """The reaction to the error code of an acknowledged partition."""

    DONE = "the records are acknowledged"
    RETRY = "send the acknowledgements again after the backoff, until the deadline of the commit"
    FAIL = "the acknowledgements have failed; the group may deliver the records again"
    MOVED = "the same, and request metadata: only the leader that delivered the records could acknowledge them"


A = AcknowledgeErrorAction
ACKNOWLEDGE_ACTIONS: ErrorTable[AcknowledgeErrorAction] = ErrorTable(
    {
        Errors.NONE: A.DONE,
        Errors.NOT_LEADER_OR_FOLLOWER: A.MOVED,
        Errors.FENCED_LEADER_EPOCH: A.MOVED,
        Errors.UNKNOWN_TOPIC_OR_PARTITION: A.MOVED,
        Errors.UNKNOWN_TOPIC_ID: A.MOVED,
        Errors.INVALID_RECORD_STATE: A.FAIL,
        Errors.TOPIC_AUTHORIZATION_FAILED: A.FAIL,
    },
    default=A.FAIL,
    default_retriable=A.RETRY,
)

NAMES_LEADER = frozenset({Errors.NOT_LEADER_OR_FOLLOWER, Errors.FENCED_LEADER_EPOCH})
"""A partition with one of these codes may name the new leader, with its address."""
