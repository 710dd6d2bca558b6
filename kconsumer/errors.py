"""The exception classes, and the class for each error code of a broker.

`KafkaError` has two kinds of subclasses. `BrokerError` and its subclasses are raised for error codes in responses
(`error_codes.py`). Codes with similar meanings share a class. All other classes are for errors that the client itself
detects, such as a timeout or a misuse of the API.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from kconsumer._common.error_codes import CODES, Errors, is_retriable

if TYPE_CHECKING:
    from kconsumer.types import TopicPartition


class KafkaError(Exception):
    """The base class of all errors that kconsumer raises."""

    retriable: ClassVar[bool] = False  # True if the same call may succeed when it is repeated


# --- detected by the client ----------------------------------------------------------------------------------------


class ConfigError(KafkaError, ValueError):
    """An option is unknown, out of range, or contradicts another option."""


class StateError(KafkaError, RuntimeError):
    """The call is not allowed in the consumer's state.

    For example, the consumer is closed, the partition is not assigned, or assign() is mixed with subscribe().
    """


class TimeoutError(KafkaError, builtins.TimeoutError):
    """The call did not finish within its timeout. The last underlying error, if there is one, is the `__cause__`."""

    retriable = True


class WakeupError(KafkaError):
    """`wakeup()` ended a blocking call. No record is lost, and the call may be repeated."""


class ConcurrentAccessError(KafkaError, RuntimeError):
    """A second thread called a method that only one thread at a time may call, such as `poll`, `commit` or `seek`.

    Any thread may call `commit_async`, `pause`, `resume`, `wakeup`, and methods that only return a state.
    """


class ForkedConsumerError(KafkaError, RuntimeError):
    """The process forked after the consumer was created. The child process must create its own consumer."""


class BrokerConnectionError(KafkaError, ConnectionError):
    """A broker could not be reached, or the connection was lost. The client reconnects by itself."""

    retriable = True


class BootstrapResolutionError(BrokerConnectionError):
    """No name in `bootstrap_servers` can be resolved, so the client has found no broker yet. It continues to try."""


class ProtocolError(KafkaError):
    """A response cannot be parsed, or a request cannot contain a value.

    If a response cannot be parsed, the server may not be a Kafka broker, or a proxy may have changed the data.
    """


class CorruptRecordError(KafkaError):
    """The bytes of records cannot be parsed, or the checksum is wrong. `seek` past `offset` to skip the records."""

    def __init__(self, message: str, *, topic: str = "", partition: int = 0, offset: int = -1) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class RecordTooLargeError(KafkaError):
    """A fetch returned data but not one complete batch, so the position cannot advance."""

    def __init__(self, message: str, *, topic_partition: TopicPartition | None = None, offset: int = -1) -> None:
        super().__init__(message)
        self.topic_partition = topic_partition
        self.offset = offset

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class BatchTooLargeError(KafkaError):
    """A batch has more than `limit` bytes after decompression.

    `limit` is the value of the option `decompressed_batch_max_bytes` or, if it is not set, a limit that depends on the
    compressed size. Increase the option, or `seek` to `next_offset` to skip the batch.
    """

    def __init__(
        self,
        message: str,
        *,
        topic_partition: TopicPartition | None = None,
        offset: int = -1,
        next_offset: int = -1,
        limit: int = 0,
    ) -> None:
        super().__init__(message)
        self.topic_partition = topic_partition
        self.offset = offset
        self.next_offset = next_offset
        self.limit = limit

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class RecordDeserializationError(KafkaError):
    """A deserializer failed. The position stays at the record; `seek(tp, offset + 1)` skips it (KIP-1036)."""

    def __init__(
        self,
        message: str,
        *,
        topic_partition: TopicPartition,
        offset: int,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        timestamp: int = -1,
        origin: str = "value",
    ) -> None:
        super().__init__(message)
        self.topic_partition = topic_partition
        self.offset = offset
        self.key = key
        self.value = value
        self.headers = headers
        self.timestamp = timestamp
        self.origin = origin

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(cls: type[KafkaError], args: tuple[Any, ...], state: dict[str, Any]) -> KafkaError:
    """Recreate an error from its pickle. Used for classes whose constructor takes more arguments than the message."""
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class RecordFilterError(RecordDeserializationError):
    """The callable of `record_filter` failed. No record is lost; `seek(tp, offset + 1)` skips this one."""


class InvalidOffsetError(KafkaError):
    """Some partitions have no usable position. `partitions` contains them."""

    def __init__(self, message: str, partitions: tuple[TopicPartition, ...] = ()) -> None:
        super().__init__(message)
        self.partitions = partitions

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class NoOffsetForPartitionError(InvalidOffsetError):
    """A partition has no committed offset, and `auto_offset_reset` is "none"."""


class OffsetOutOfRangeError(InvalidOffsetError):
    """A position is outside the log, and `auto_offset_reset` is "none".

    `offsets` maps each such partition to its position.
    """

    def __init__(self, message: str, offsets: Mapping[TopicPartition, int]) -> None:
        super().__init__(message, tuple(offsets))
        self.offsets = dict(offsets)


class LogTruncationError(OffsetOutOfRangeError):
    """An unclean leader election has truncated the log below the position (KIP-320).

    `divergent_offsets` maps each partition to the first offset at which the logs differ, if the leader reported it.
    """

    def __init__(
        self,
        message: str,
        offsets: Mapping[TopicPartition, int],
        divergent_offsets: Mapping[TopicPartition, Any],
    ) -> None:
        super().__init__(message, offsets)
        self.divergent_offsets = dict(divergent_offsets)


class TableTooLargeError(KafkaError):
    """A `TopicTable` would exceed its `max_entries` or `max_bytes`. It ends: increase the limit, or read fewer keys."""


class CommitFailedError(KafkaError):
    """The commit was rejected because the member is no longer in the group. Its partitions may have another owner."""


class WorkerProcessError(KafkaError):
    """A worker process of `kconsumer.parallel` died, could not start, or raised what cannot be pickled."""


class UnknownAssignorError(ConfigError):
    """No installed distribution provides an assignor with this name."""


class AssignorLoadError(ConfigError):
    """An assignor could not be loaded, or does not fulfil the plugin contract."""


class AssignorError(KafkaError):
    """An assignor raised an error, or returned an invalid assignment. The message names the plugin."""


# --- sent by a broker -----------------------------------------------------------------------------------------------


class BrokerError(KafkaError):
    """A response contains an error code. `code` is the number, and `name` is Kafka's name for it.

    For a fetch, `topic_partition` and `offset` are the partition and the offset of the request.
    """

    topic_partition: TopicPartition | None = None
    offset: int | None = None

    def __init__(self, message: str = "", *, code: int = Errors.UNKNOWN_SERVER_ERROR) -> None:
        row = CODES.get(code)
        self.code = int(code)
        self.name = row.name if row else f"UNKNOWN_ERROR_CODE_{code}"
        self.message = message  # the text without the code
        text = row.meaning if row else "error code unknown to this client"
        super().__init__(f"{message}: {self.name} ({text})" if message else f"{self.name} ({text})")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class RetriableBrokerError(BrokerError):
    """A temporary error of the broker. The client retries by itself."""

    retriable = True


class StaleMetadataError(RetriableBrokerError):
    """The metadata of the client are outdated. The client requests new metadata and retries."""


class CoordinatorError(RetriableBrokerError):
    """The group coordinator moved or is not ready. The client finds the coordinator again and retries."""


class AuthorizationError(BrokerError):
    """The principal lacks a permission. `operation` is the operation that an ACL must allow, or "" if it is unknown."""

    resource: ClassVar[str] = "resource"

    def __init__(self, message: str = "", *, code: int = Errors.UNKNOWN_SERVER_ERROR, operation: str = "") -> None:
        super().__init__(message, code=code)
        self.operation = operation
        if operation:
            self.args = (f"{self.args[0]}; an ACL must allow {operation} on the {self.resource}",)


class TopicAuthorizationError(AuthorizationError):
    """The principal lacks a permission on topics. `topics` contains the names of these topics."""

    resource = "topic"

    def __init__(
        self,
        message: str = "",
        *,
        code: int = Errors.TOPIC_AUTHORIZATION_FAILED,
        topics: frozenset[str] = frozenset(),
        operation: str = "",
    ) -> None:
        super().__init__(message, code=code, operation=operation)
        self.topics = topics


class GroupAuthorizationError(AuthorizationError):
    """The principal lacks a permission on the consumer group."""

    resource = "group"

    def __init__(
        self, message: str = "", *, code: int = Errors.GROUP_AUTHORIZATION_FAILED, operation: str = ""
    ) -> None:
        super().__init__(message, code=code, operation=operation)


class AuthenticationError(BrokerError):
    """The TLS handshake or SASL authentication failed. Blocking calls raise this error at once.

    `code` is 0 if the error does not come from a response.
    """

    def __init__(self, message: str = "", *, code: int = 0) -> None:
        if code:
            super().__init__(message, code=code)
        else:
            KafkaError.__init__(self, message)
            self.code, self.name = 0, ""


class UnsupportedVersionError(BrokerError):
    """The broker and the client have no common version of a request, or the broker is too old for an option."""

    def __init__(self, message: str = "", *, code: int = Errors.UNSUPPORTED_VERSION) -> None:
        super().__init__(message, code=code)


class InvalidTopicError(BrokerError):
    """The names of topics are not allowed. `topics` contains these names."""

    def __init__(
        self, message: str = "", *, code: int = Errors.INVALID_TOPIC_EXCEPTION, topics: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(message, code=code)
        self.topics = topics


class GroupError(BrokerError):
    """The group, or the membership of this consumer, is not in the state that the request requires."""


class RebalanceInProgressError(GroupError):
    """The group is rebalancing. Call `poll()` to rejoin, then try again."""

    def __init__(self, message: str = "", *, code: int = Errors.REBALANCE_IN_PROGRESS) -> None:
        super().__init__(message, code=code)


class FencedInstanceIdError(GroupError):
    """Another consumer joined the group with the same `group_instance_id`."""

    def __init__(self, message: str = "", *, code: int = Errors.FENCED_INSTANCE_ID) -> None:
        super().__init__(message, code=code)


_CLASSES: dict[int, type[BrokerError]] = {
    code: cls
    for cls, codes in {
        StaleMetadataError: (
            Errors.UNKNOWN_TOPIC_OR_PARTITION,
            Errors.LEADER_NOT_AVAILABLE,
            Errors.NOT_LEADER_OR_FOLLOWER,
            Errors.REPLICA_NOT_AVAILABLE,
            Errors.NETWORK_EXCEPTION,
            Errors.KAFKA_STORAGE_ERROR,
            Errors.LISTENER_NOT_FOUND,
            Errors.FENCED_LEADER_EPOCH,
            Errors.PREFERRED_LEADER_NOT_AVAILABLE,
            Errors.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            Errors.ELECTION_NOT_NEEDED,
            Errors.UNKNOWN_TOPIC_ID,
            Errors.INCONSISTENT_TOPIC_ID,
            Errors.REBOOTSTRAP_REQUIRED,
        ),
        CoordinatorError: (
            Errors.COORDINATOR_LOAD_IN_PROGRESS,
            Errors.COORDINATOR_NOT_AVAILABLE,
            Errors.NOT_COORDINATOR,
        ),
        InvalidTopicError: (Errors.INVALID_TOPIC_EXCEPTION,),
        GroupError: (
            Errors.ILLEGAL_GENERATION,
            Errors.INCONSISTENT_GROUP_PROTOCOL,
            Errors.INVALID_GROUP_ID,
            Errors.UNKNOWN_MEMBER_ID,
            Errors.INVALID_SESSION_TIMEOUT,
            Errors.NON_EMPTY_GROUP,
            Errors.GROUP_ID_NOT_FOUND,
            Errors.MEMBER_ID_REQUIRED,
            Errors.GROUP_MAX_SIZE_REACHED,
            Errors.FENCED_MEMBER_EPOCH,
            Errors.UNRELEASED_INSTANCE_ID,
            Errors.UNSUPPORTED_ASSIGNOR,
            Errors.STALE_MEMBER_EPOCH,
            Errors.GROUP_DELETION_FAILED,
        ),
        RebalanceInProgressError: (Errors.REBALANCE_IN_PROGRESS,),
        TopicAuthorizationError: (Errors.TOPIC_AUTHORIZATION_FAILED,),
        GroupAuthorizationError: (Errors.GROUP_AUTHORIZATION_FAILED,),
        AuthorizationError: (
            Errors.CLUSTER_AUTHORIZATION_FAILED,
            Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            Errors.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        ),
        AuthenticationError: (
            Errors.UNSUPPORTED_SASL_MECHANISM,
            Errors.ILLEGAL_SASL_STATE,
            Errors.SASL_AUTHENTICATION_FAILED,
        ),
        UnsupportedVersionError: (Errors.UNSUPPORTED_VERSION,),
        FencedInstanceIdError: (Errors.FENCED_INSTANCE_ID,),
    }.items()
    for code in codes
}


def error_class(code: int) -> type[BrokerError]:
    """Returns the exception class for an error code."""
    return _CLASSES.get(code) or (RetriableBrokerError if is_retriable(code) else BrokerError)


def error_for(code: int, message: str = "", *, operation: str = "") -> BrokerError:
    """Returns the exception for an error code.

    `message` names the topic, group or broker that has the error. `operation` is the operation that an ACL must allow.
    """
    cls = error_class(code)
    if operation and issubclass(cls, AuthorizationError):
        return cls(message, code=code, operation=operation)
    return cls(message, code=code)


def framing_hint(error: object, data: bytes | None) -> str:
    """Returns advice for a deserializer of plain JSON that fails on a value with the id of a schema; else "".

    Such values begin with a byte 0 and an id of 4 bytes, or with a byte 1 and one of 16 bytes.
    """
    guessed = isinstance(error, UnicodeDecodeError) and error.encoding.startswith(("utf-16", "utf-32"))
    if data is None or len(data) < 6 or data[0] > 1 or not (guessed or type(error).__name__ == "JSONDecodeError"):
        return ""
    return "; this looks like a schema registry frame, the id of a schema before the value: use kconsumer.registry"
