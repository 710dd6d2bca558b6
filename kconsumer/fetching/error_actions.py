"""What a partition's error code in a Fetch response leads to: one table (java-like: `FetchCollector`).

Decides nothing by itself: the manager and the collector walk the table. A code that is not in it is raised.
"""

from __future__ import annotations

import enum

from kconsumer.errors import BrokerError, TopicAuthorizationError, error_for
from kconsumer.types import TopicPartition


class ErrorAction(enum.Enum):
    """What follows from an error code. RESET and RAISE wait for the turn of their partition, so that what was
    fetched before is returned first; the others act when the response arrives."""

    ACCEPT = "take the records"
    REFRESH = "ask for metadata, forget the preferred replica, fetch again"
    RETRY = "fetch again"
    RESET = "reset the position by policy, or raise OffsetOutOfRangeError"
    RAISE = "raise in every poll until the user acts or another fetch from there succeeds"


ACCEPT, REFRESH, RETRY, RESET, RAISE = ErrorAction

ERROR_ACTIONS: dict[int, ErrorAction] = {
    0: ACCEPT,
    -1: RETRY,  # UNKNOWN_SERVER_ERROR
    1: RESET,  # OFFSET_OUT_OF_RANGE
    2: RAISE,  # CORRUPT_MESSAGE
    3: REFRESH,  # UNKNOWN_TOPIC_OR_PARTITION
    6: REFRESH,  # NOT_LEADER_OR_FOLLOWER
    9: REFRESH,  # REPLICA_NOT_AVAILABLE
    29: RAISE,  # TOPIC_AUTHORIZATION_FAILED
    56: REFRESH,  # KAFKA_STORAGE_ERROR
    74: REFRESH,  # FENCED_LEADER_EPOCH
    75: RETRY,  # UNKNOWN_LEADER_EPOCH
    78: REFRESH,  # OFFSET_NOT_AVAILABLE
    100: REFRESH,  # UNKNOWN_TOPIC_ID
    103: REFRESH,  # INCONSISTENT_TOPIC_ID
}

# With these the broker may name the new leader in the response itself (KIP-951).
NAMES_LEADER = frozenset({6, 74})


def action_for(code: int) -> ErrorAction:
    """The reaction to a partition's error code."""
    return ERROR_ACTIONS.get(code, RAISE)


def fetch_error(tp: TopicPartition, offset: int, code: int) -> BrokerError:
    """A code as an error that knows its partition and offset."""
    error: BrokerError
    if code == 29:
        about = f"fetching from {tp} at offset {offset}"
        error = TopicAuthorizationError(about, topics=frozenset({tp.topic}), operation="Read")
    elif code == 2:
        error = error_for(code, f"the broker could not read {tp} at offset {offset}; seek past it to go on")
    else:
        error = error_for(code, f"fetching from {tp} at offset {offset}")
    error.topic_partition, error.offset = tp, offset
    return error
