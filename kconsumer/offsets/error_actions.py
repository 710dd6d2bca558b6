"""What a partition's error code in a ListOffsets or OffsetForLeaderEpoch response leads to: two tables.

Decides nothing by itself: `list_offsets.py` and `validation.py` walk the tables. A code that is not in them is asked
again, as in Java (`OffsetFetcherUtils`, `OffsetsForLeaderEpochUtils`), and a warning says so.
"""

from __future__ import annotations

import enum

from kconsumer.deferred_calls import get_logger
from kconsumer.errors import TopicAuthorizationError, error_for
from kconsumer.types import TopicPartition

_log = get_logger(__name__)


class ErrorAction(enum.Enum):
    """What follows from an error code."""

    ACCEPT = "take the answer"
    NOTHING = "no such offset: None to the user, asked again for a reset"
    RETRY = "ask for metadata, ask again after the backoff"
    WARN = "the same, and log a warning"
    REFUSE = "raise TopicAuthorizationError; asked again after the backoff while the partition waits for it"


ACCEPT, NOTHING, RETRY, WARN, REFUSE = ErrorAction

LEADER_EPOCH_ACTIONS: dict[int, ErrorAction] = {
    0: ACCEPT,
    3: WARN,  # UNKNOWN_TOPIC_OR_PARTITION
    5: RETRY,  # LEADER_NOT_AVAILABLE
    6: RETRY,  # NOT_LEADER_OR_FOLLOWER
    9: RETRY,  # REPLICA_NOT_AVAILABLE
    29: REFUSE,  # TOPIC_AUTHORIZATION_FAILED
    56: RETRY,  # KAFKA_STORAGE_ERROR
    74: RETRY,  # FENCED_LEADER_EPOCH
    75: RETRY,  # UNKNOWN_LEADER_EPOCH
    78: RETRY,  # OFFSET_NOT_AVAILABLE
}

LIST_OFFSETS_ACTIONS: dict[int, ErrorAction] = {
    **LEADER_EPOCH_ACTIONS,
    43: NOTHING,  # UNSUPPORTED_FOR_MESSAGE_FORMAT: too old to have timestamps
}


def action_for(table: dict[int, ErrorAction], code: int, tp: TopicPartition, what: str) -> ErrorAction:
    """The reaction to a partition's code. `what` was asked, for the log."""
    reaction = table.get(code, WARN)
    if reaction is WARN:
        _log.warning("%s, asking again", error_for(code, f"{what} of {tp}"))
    return reaction


def refusal(what: str, refused: dict[TopicPartition, int | None]) -> TopicAuthorizationError:
    """The error for partitions that may not be read, by the offset concerned if there is one. `what` was asked."""
    names = ", ".join(str(tp) if offset is None else f"{tp} at offset {offset}" for tp, offset in refused.items())
    topics = frozenset(tp.topic for tp in refused)
    error = TopicAuthorizationError(f"{what} of {names}", topics=topics, operation="Describe")
    error.topic_partition, error.offset = next(iter(refused.items()))
    return error
