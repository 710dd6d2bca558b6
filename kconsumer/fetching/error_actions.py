"""The table of actions for the error codes of partitions in a Fetch response (Java `FetchCollector`).

The response handler and the collector use the table. A code without a row has the action RAISE.
"""

from __future__ import annotations

from kconsumer._common.error_codes import Errors
from kconsumer._common.error_tables import ErrorAction, ErrorTable
from kconsumer.errors import BrokerError, TopicAuthorizationError, error_for
from kconsumer.types import TopicPartition


class FetchErrorAction(ErrorAction):
    """The consumer's reaction to an error code; the value describes it.

    RESET and RAISE are carried out when a poll reaches the error in the buffer, so that the records before it are
    returned first. The other actions are carried out when the response arrives.
    """

    ACCEPT = "the consumer uses the records"
    REFRESH = "the consumer requests metadata, clears the preferred replica and fetches again"
    RETRY = "the consumer fetches again"
    RESET = "the consumer resets the position by policy; without a policy, poll raises OffsetOutOfRangeError"
    RAISE = "every poll raises the error until the user acts or another fetch from the same offset succeeds"


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
    """Returns the exception for an error code. It contains the partition and the offset that was fetched from."""
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
