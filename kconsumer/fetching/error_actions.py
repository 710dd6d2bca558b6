"""The table of actions for the error codes of partitions in a Fetch response (Java `FetchCollector`).

The response handler and the collector use the table. A code without a row has the action RAISE.
"""

from __future__ import annotations

from kconsumer.error_codes import Errors
from kconsumer.error_tables import ErrorAction, ErrorTable
from kconsumer.errors import BrokerError, TopicAuthorizationError, error_for
from kconsumer.types import TopicPartition


class FetchErrorAction(ErrorAction):
    """What is done for an error code. RESET and RAISE are done when the partition is next to be read, so that the
    records before the error are returned first. The others are done when the response arrives."""

    ACCEPT = "take the records"
    REFRESH = "request metadata, clear the preferred replica, fetch again"
    RETRY = "fetch again"
    RESET = "reset the position by policy, or raise OffsetOutOfRangeError"
    RAISE = "raise in every poll until the user acts or another fetch from there succeeds"


ACCEPT, REFRESH, RETRY, RESET, RAISE = FetchErrorAction

ERROR_ACTIONS: ErrorTable[FetchErrorAction] = ErrorTable(
    {
        Errors.NONE: ACCEPT,
        Errors.UNKNOWN_SERVER_ERROR: RETRY,
        Errors.OFFSET_OUT_OF_RANGE: RESET,
        Errors.CORRUPT_MESSAGE: RAISE,
        Errors.UNKNOWN_TOPIC_OR_PARTITION: REFRESH,
        Errors.NOT_LEADER_OR_FOLLOWER: REFRESH,
        Errors.REPLICA_NOT_AVAILABLE: REFRESH,
        Errors.TOPIC_AUTHORIZATION_FAILED: RAISE,
        Errors.KAFKA_STORAGE_ERROR: REFRESH,
        Errors.FENCED_LEADER_EPOCH: REFRESH,
        Errors.UNKNOWN_LEADER_EPOCH: RETRY,
        Errors.OFFSET_NOT_AVAILABLE: REFRESH,
        Errors.UNKNOWN_TOPIC_ID: REFRESH,
        Errors.INCONSISTENT_TOPIC_ID: REFRESH,
    },
    default=RAISE,
)

# A response with one of these codes may contain the new leader (KIP-951).
NAMES_LEADER = frozenset({Errors.NOT_LEADER_OR_FOLLOWER, Errors.FENCED_LEADER_EPOCH})


def fetch_error(tp: TopicPartition, offset: int, code: int) -> BrokerError:
    """Returns the exception for an error code, with the partition and the offset of the fetch."""
    error: BrokerError
    if code == Errors.TOPIC_AUTHORIZATION_FAILED:
        about = f"fetching from {tp} at offset {offset}"
        error = TopicAuthorizationError(about, topics=frozenset({tp.topic}), operation="Read")
    elif code == Errors.CORRUPT_MESSAGE:
        error = error_for(code, f"the broker could not read {tp} at offset {offset}; seek past it to continue")
    else:
        error = error_for(code, f"fetching from {tp} at offset {offset}")
    error.topic_partition, error.offset = tp, offset
    return error
