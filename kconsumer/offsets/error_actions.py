"""What a partition's error code in a ListOffsets or OffsetForLeaderEpoch response leads to: two tables.

Decides nothing by itself: `list_offsets.py` and `validation.py` walk the tables. A code that is not in them is asked
again, as in Java (`OffsetFetcherUtils`, `OffsetsForLeaderEpochUtils`), and a warning says so.
"""

from __future__ import annotations

from kconsumer.deferred_calls import get_logger
from kconsumer.error_codes import Errors
from kconsumer.error_tables import ErrorAction, ErrorTable
from kconsumer.errors import TopicAuthorizationError, error_for
from kconsumer.types import TopicPartition

_log = get_logger(__name__)


class OffsetErrorAction(ErrorAction):
    """What follows from an error code."""

    ACCEPT = "take the answer"
    NOTHING = "no such offset: None to the user, asked again for a reset"
    RETRY = "ask for metadata, ask again after the backoff"
    WARN = "the same, and log a warning"
    REFUSE = "raise TopicAuthorizationError; asked again after the backoff while the partition waits for it"


ACCEPT, NOTHING, RETRY, WARN, REFUSE = OffsetErrorAction

LEADER_EPOCH_ACTIONS: ErrorTable[OffsetErrorAction] = ErrorTable(
    {
        Errors.NONE: ACCEPT,
        Errors.UNKNOWN_TOPIC_OR_PARTITION: WARN,
        Errors.LEADER_NOT_AVAILABLE: RETRY,
        Errors.NOT_LEADER_OR_FOLLOWER: RETRY,
        Errors.REPLICA_NOT_AVAILABLE: RETRY,
        Errors.TOPIC_AUTHORIZATION_FAILED: REFUSE,
        Errors.KAFKA_STORAGE_ERROR: RETRY,
        Errors.FENCED_LEADER_EPOCH: RETRY,
        Errors.UNKNOWN_LEADER_EPOCH: RETRY,
        Errors.OFFSET_NOT_AVAILABLE: RETRY,
    },
    default=WARN,
)

LIST_OFFSETS_ACTIONS: ErrorTable[OffsetErrorAction] = ErrorTable(
    {
        **LEADER_EPOCH_ACTIONS,
        Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT: NOTHING,  # too old to have timestamps
    },
    default=WARN,
)


def action_for(table: ErrorTable[OffsetErrorAction], code: int, tp: TopicPartition, what: str) -> OffsetErrorAction:
    """The reaction to a partition's code. `what` was asked, for the log."""
    reaction = table[code]
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
