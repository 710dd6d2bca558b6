"""Tables of actions for the error codes of partitions in ListOffsets and OffsetForLeaderEpoch responses.

`list_offsets.py` and `validation.py` use the tables. A code without a row is retried, as in Java (`OffsetFetcherUtils`,
`OffsetsForLeaderEpochUtils`), and logged as a warning.
"""

from __future__ import annotations

from kconsumer._common.deferred_calls import get_logger
from kconsumer._common.error_codes import Errors
from kconsumer._common.error_tables import ErrorAction, ErrorTable
from kconsumer._common.repeated_failures import RepeatedFailures
from kconsumer.errors import KafkaError, TopicAuthorizationError
from kconsumer.types import TopicPartition

_log = get_logger(__name__)


class OffsetErrorAction(ErrorAction):
    """The consumer's reaction to an error code; the value describes it."""

    ACCEPT = "the consumer uses the result"
    NOTHING = "no offset exists: a lookup returns None to the user, and a reset is retried"
    RETRY = "the consumer requests metadata and retries after the backoff"
    WARN = "the consumer logs a warning, at most once a minute, requests metadata and retries after the backoff"
    RAISE = "the next call raises TopicAuthorizationError; a reset or validation is retried after the backoff"


ACCEPT, NOTHING, RETRY, WARN, RAISE = OffsetErrorAction

LEADER_EPOCH_ACTIONS: ErrorTable[OffsetErrorAction] = ErrorTable(
    {
        Errors.NONE: ACCEPT,
        Errors.UNKNOWN_TOPIC_OR_PARTITION: WARN,
        Errors.LEADER_NOT_AVAILABLE: RETRY,
        Errors.NOT_LEADER_OR_FOLLOWER: RETRY,
        Errors.REPLICA_NOT_AVAILABLE: RETRY,
        Errors.TOPIC_AUTHORIZATION_FAILED: RAISE,
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


class UnexpectedErrors:
    """Logs errors whose action is WARN, each cause at most once a minute."""

    __slots__ = ("_failures",)

    def __init__(self) -> None:
        self._failures = RepeatedFailures()

    def log(self, action: OffsetErrorAction, error: KafkaError, now: float) -> None:
        """Log the error that a response at `now` (ms) contains, if the action is WARN and it is due."""
        if action is WARN and self._failures.failed([str(error)], now) is not None:
            _log.warning("%s, retrying", error)


def authorization_error(purpose: str, offsets: dict[TopicPartition, int | None]) -> TopicAuthorizationError:
    """Returns the error for partitions that may not be read.

    The keys of `offsets` are these partitions. The error message contains the offsets that are not None.
    """
    names = ", ".join(str(tp) if offset is None else f"{tp} at offset {offset}" for tp, offset in offsets.items())
    topics = frozenset(tp.topic for tp in offsets)
    error = TopicAuthorizationError(f"{purpose} of {names}", topics=topics, operation="Describe")
    error.topic_partition, error.offset = next(iter(offsets.items()))
    return error
