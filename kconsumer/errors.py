"""The classes people catch, and the one table of broker error codes.

Two families under `KafkaError`: `BrokerError` is what a broker answered (one class per code family, the codes in
`CODES`); the rest is what the client itself found out, from a timeout to a misuse of the API.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from kconsumer.types import TopicPartition


class KafkaError(Exception):
    """Root of everything kconsumer raises. `retriable`: the same call may succeed if made again."""

    retriable: ClassVar[bool] = False


# --- what the client found out -------------------------------------------------------------------------------------


class ConfigError(KafkaError, ValueError):
    """An option is unknown, out of range, or does not go with another one."""


class StateError(KafkaError, RuntimeError):
    """The call does not fit the consumer's state (closed, not assigned, assign mixed with subscribe…)."""


class TimeoutError(KafkaError, builtins.TimeoutError):
    """The call did not finish within its timeout; the last underlying error, if any, is the cause."""

    retriable = True


class WakeupError(KafkaError):
    """`wakeup()` ended a blocking call. Nothing is lost: call again, or close."""


class ConcurrentAccessError(KafkaError, RuntimeError):
    """A second thread used the consumer. Only `wakeup()` may be called from another thread."""


class ForkedConsumerError(KafkaError, RuntimeError):
    """The process forked after the consumer was made; the child must make its own."""


class BrokerConnectionError(KafkaError, ConnectionError):
    """A broker could not be reached or its connection was lost; the client reconnects by itself."""

    retriable = True


class ProtocolError(KafkaError):
    """Something does not fit the protocol: a response that cannot be parsed (not a Kafka broker? a proxy in between?),
    or a value that no request can carry."""


class CorruptRecordError(KafkaError):
    """Record bytes that do not parse or whose checksum is wrong. `seek` past `offset` to skip them."""

    def __init__(self, message: str, *, topic: str = "", partition: int = 0, offset: int = -1) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class RecordTooLargeError(KafkaError):
    """A fetch returned bytes but not one complete batch, so the position cannot advance."""

    def __init__(self, message: str, *, topic_partition: TopicPartition | None = None, offset: int = -1) -> None:
        super().__init__(message)
        self.topic_partition = topic_partition
        self.offset = offset

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class BatchTooLargeError(KafkaError):
    """A compressed batch holds more than `limit` bytes, which `decompressed_batch_max_bytes` sets.

    Raise the option, or `seek` to `next_offset` to skip the batch.
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
    """A deserializer failed. The record stays next in line; `seek(tp, offset + 1)` skips it (KIP-1036)."""

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
    """Unpickle an error whose constructor takes more than its message."""
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class InvalidOffsetError(KafkaError):
    """Some partitions have no usable position; `partitions` names them."""

    def __init__(self, message: str, partitions: tuple[TopicPartition, ...] = ()) -> None:
        super().__init__(message)
        self.partitions = partitions

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class NoOffsetForPartitionError(InvalidOffsetError):
    """No committed offset and `auto_offset_reset="none"`."""


class OffsetOutOfRangeError(InvalidOffsetError):
    """The position is outside the log and `auto_offset_reset="none"`; `offsets` maps partition to position."""

    def __init__(self, message: str, offsets: Mapping[TopicPartition, int]) -> None:
        super().__init__(message, tuple(offsets))
        self.offsets = dict(offsets)


class LogTruncationError(OffsetOutOfRangeError):
    """The log was truncated below the position (unclean leader election, KIP-320)."""

    def __init__(
        self,
        message: str,
        offsets: Mapping[TopicPartition, int],
        divergent_offsets: Mapping[TopicPartition, Any],
    ) -> None:
        super().__init__(message, offsets)
        self.divergent_offsets = dict(divergent_offsets)


class CommitFailedError(KafkaError):
    """The member is no longer part of the group, so its commit was refused; its partitions may have a new owner."""


class UnknownAssignorError(ConfigError):
    """No installed distribution offers an assignor of this name."""


class AssignorLoadError(ConfigError):
    """An assignor was found but could not be loaded, or does not keep the plugin contract."""


class AssignorError(KafkaError):
    """An assignor raised, or returned an assignment that breaks the rules; the message names the plugin."""


# --- what a broker answered ----------------------------------------------------------------------------------------


class BrokerError(KafkaError):
    """A broker answered with an error code. `code` is the number, `name` Kafka's name for it. When it answered a fetch,
    `topic_partition` and `offset` say of what."""

    topic_partition: TopicPartition | None = None
    offset: int | None = None

    def __init__(self, message: str = "", *, code: int = -1) -> None:
        entry = CODES.get(code)
        self.code = code
        self.name = entry.name if entry else f"UNKNOWN_ERROR_CODE_{code}"
        text = entry.meaning if entry else "error code unknown to this client"
        super().__init__(f"{message}: {self.name} ({text})" if message else f"{self.name} ({text})")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class RetriableBrokerError(BrokerError):
    """Passing trouble at the broker; the client retries by itself."""

    retriable = True


class StaleMetadataError(RetriableBrokerError):
    """The client's view of leaders is old; it refreshes metadata and retries."""


class CoordinatorError(RetriableBrokerError):
    """The group coordinator moved or is not ready; the client looks it up and retries."""


class AuthorizationError(BrokerError):
    """The principal lacks a permission. `operation` is what an ACL must allow, if that is known."""

    resource: ClassVar[str] = "resource"

    def __init__(self, message: str = "", *, code: int = -1, operation: str = "") -> None:
        super().__init__(message, code=code)
        self.operation = operation
        if operation:
            self.args = (f"{self.args[0]}; an ACL must allow {operation} on the {self.resource}",)


class TopicAuthorizationError(AuthorizationError):
    """No permission on a topic; `topics` names those refused."""

    resource = "topic"

    def __init__(
        self, message: str = "", *, code: int = 29, topics: frozenset[str] = frozenset(), operation: str = ""
    ) -> None:
        super().__init__(message, code=code, operation=operation)
        self.topics = topics


class GroupAuthorizationError(AuthorizationError):
    """No permission on the consumer group."""

    resource = "group"

    def __init__(self, message: str = "", *, code: int = 30, operation: str = "") -> None:
        super().__init__(message, code=code, operation=operation)


class AuthenticationError(BrokerError):
    """TLS handshake or SASL login failed; raised at once from the blocking call. `code`: 0 unless a broker sent one."""

    def __init__(self, message: str = "", *, code: int = 0) -> None:
        if code:
            super().__init__(message, code=code)
        else:
            KafkaError.__init__(self, message)
            self.code, self.name = 0, ""


class UnsupportedVersionError(BrokerError):
    """Broker and client share no version of a request, or the broker is too old for an option."""

    def __init__(self, message: str = "", *, code: int = 35) -> None:
        super().__init__(message, code=code)


class InvalidTopicError(BrokerError):
    """The topic's name is not legal in Kafka; `topics` names those refused."""

    def __init__(self, message: str = "", *, code: int = 17, topics: frozenset[str] = frozenset()) -> None:
        super().__init__(message, code=code)
        self.topics = topics


class GroupError(BrokerError):
    """The group or this member's place in it is not what the request assumed."""


class RebalanceInProgressError(GroupError):
    """The group is rebalancing; `poll()` to rejoin, then try again."""

    def __init__(self, message: str = "", *, code: int = 27) -> None:
        super().__init__(message, code=code)


class FencedInstanceIdError(GroupError):
    """Another consumer took over this `group_instance_id`."""

    def __init__(self, message: str = "", *, code: int = 82) -> None:
        super().__init__(message, code=code)


class ErrorCode(NamedTuple):
    """One row of the table: Kafka's name, the class raised, and the meaning in our words."""

    name: str
    error: type[BrokerError]
    meaning: str


_R, _M, _C, _G, _B = RetriableBrokerError, StaleMetadataError, CoordinatorError, GroupError, BrokerError

CODES: dict[int, ErrorCode] = {
    -1: ErrorCode("UNKNOWN_SERVER_ERROR", _B, "the broker met an unexpected error"),
    1: ErrorCode("OFFSET_OUT_OF_RANGE", _B, "the offset is outside the partition's log"),
    2: ErrorCode("CORRUPT_MESSAGE", _R, "a record's checksum or size is wrong"),
    3: ErrorCode("UNKNOWN_TOPIC_OR_PARTITION", _M, "the broker does not host this topic-partition"),
    4: ErrorCode("INVALID_FETCH_SIZE", _B, "the fetch size is not valid"),
    5: ErrorCode("LEADER_NOT_AVAILABLE", _M, "the partition has no leader right now"),
    6: ErrorCode("NOT_LEADER_OR_FOLLOWER", _M, "the broker is not the replica asked for"),
    7: ErrorCode("REQUEST_TIMED_OUT", _R, "the broker timed out"),
    8: ErrorCode("BROKER_NOT_AVAILABLE", _B, "the broker is not available"),
    9: ErrorCode("REPLICA_NOT_AVAILABLE", _M, "the replica is not available"),
    10: ErrorCode("MESSAGE_TOO_LARGE", _B, "the record is larger than the broker accepts"),
    11: ErrorCode("STALE_CONTROLLER_EPOCH", _B, "the controller moved"),
    12: ErrorCode("OFFSET_METADATA_TOO_LARGE", _B, "the metadata of a committed offset is too long"),
    13: ErrorCode("NETWORK_EXCEPTION", _M, "the broker lost its connection"),
    14: ErrorCode("COORDINATOR_LOAD_IN_PROGRESS", _C, "the coordinator is still loading"),
    15: ErrorCode("COORDINATOR_NOT_AVAILABLE", _C, "the coordinator is not available"),
    16: ErrorCode("NOT_COORDINATOR", _C, "the broker is not this group's coordinator"),
    17: ErrorCode("INVALID_TOPIC_EXCEPTION", InvalidTopicError, "the topic name is not legal"),
    18: ErrorCode("RECORD_LIST_TOO_LARGE", _B, "the batch is larger than the broker accepts"),
    19: ErrorCode("NOT_ENOUGH_REPLICAS", _R, "too few in-sync replicas"),
    20: ErrorCode("NOT_ENOUGH_REPLICAS_AFTER_APPEND", _R, "too few in-sync replicas after the append"),
    21: ErrorCode("INVALID_REQUIRED_ACKS", _B, "the acks setting is not valid"),
    22: ErrorCode("ILLEGAL_GENERATION", _G, "the group generation is not the current one"),
    23: ErrorCode("INCONSISTENT_GROUP_PROTOCOL", _G, "no assignor or protocol type common to all members"),
    24: ErrorCode("INVALID_GROUP_ID", _G, "the group id is not legal"),
    25: ErrorCode("UNKNOWN_MEMBER_ID", _G, "the coordinator does not know this member"),
    26: ErrorCode("INVALID_SESSION_TIMEOUT", _G, "session_timeout_ms is outside the broker's limits"),
    27: ErrorCode("REBALANCE_IN_PROGRESS", RebalanceInProgressError, "the group is rebalancing"),
    28: ErrorCode("INVALID_COMMIT_OFFSET_SIZE", _B, "the committed offset is too large to store"),
    29: ErrorCode("TOPIC_AUTHORIZATION_FAILED", TopicAuthorizationError, "no permission on the topic"),
    30: ErrorCode("GROUP_AUTHORIZATION_FAILED", GroupAuthorizationError, "no permission on the group"),
    31: ErrorCode("CLUSTER_AUTHORIZATION_FAILED", AuthorizationError, "no permission on the cluster"),
    32: ErrorCode("INVALID_TIMESTAMP", _B, "the timestamp is outside the accepted range"),
    33: ErrorCode("UNSUPPORTED_SASL_MECHANISM", AuthenticationError, "the broker has this mechanism disabled"),
    34: ErrorCode("ILLEGAL_SASL_STATE", AuthenticationError, "a request came out of order during login"),
    35: ErrorCode("UNSUPPORTED_VERSION", UnsupportedVersionError, "the broker does not support this version"),
    36: ErrorCode("TOPIC_ALREADY_EXISTS", _B, "the topic exists already"),
    37: ErrorCode("INVALID_PARTITIONS", _B, "the number of partitions is not valid"),
    38: ErrorCode("INVALID_REPLICATION_FACTOR", _B, "the replication factor is not valid"),
    39: ErrorCode("INVALID_REPLICA_ASSIGNMENT", _B, "the replica assignment is not valid"),
    40: ErrorCode("INVALID_CONFIG", _B, "the configuration is not valid"),
    41: ErrorCode("NOT_CONTROLLER", _R, "the broker is not the controller"),
    42: ErrorCode("INVALID_REQUEST", _B, "the broker found the request malformed"),
    43: ErrorCode("UNSUPPORTED_FOR_MESSAGE_FORMAT", _B, "the stored message format is too old for this request"),
    44: ErrorCode("POLICY_VIOLATION", _B, "a broker policy refused the request"),
    45: ErrorCode("OUT_OF_ORDER_SEQUENCE_NUMBER", _B, "a producer sequence number is out of order"),
    46: ErrorCode("DUPLICATE_SEQUENCE_NUMBER", _B, "a producer sequence number came twice"),
    47: ErrorCode("INVALID_PRODUCER_EPOCH", _B, "the producer epoch is old"),
    48: ErrorCode("INVALID_TXN_STATE", _B, "the transaction is in another state"),
    49: ErrorCode("INVALID_PRODUCER_ID_MAPPING", _B, "the producer id does not fit the transactional id"),
    50: ErrorCode("INVALID_TRANSACTION_TIMEOUT", _B, "the transaction timeout is too long"),
    51: ErrorCode("CONCURRENT_TRANSACTIONS", _R, "another transaction step is under way"),
    52: ErrorCode("TRANSACTION_COORDINATOR_FENCED", _B, "the transaction coordinator is old"),
    53: ErrorCode("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", AuthorizationError, "no permission on the transactional id"),
    54: ErrorCode("SECURITY_DISABLED", _B, "security features are off"),
    55: ErrorCode("OPERATION_NOT_ATTEMPTED", _B, "the broker did not try the operation"),
    56: ErrorCode("KAFKA_STORAGE_ERROR", _M, "the broker's disk failed"),
    57: ErrorCode("LOG_DIR_NOT_FOUND", _B, "the log directory does not exist"),
    58: ErrorCode("SASL_AUTHENTICATION_FAILED", AuthenticationError, "the login was refused"),
    59: ErrorCode("UNKNOWN_PRODUCER_ID", _B, "the producer's state has expired"),
    60: ErrorCode("REASSIGNMENT_IN_PROGRESS", _B, "a reassignment is under way"),
    61: ErrorCode("DELEGATION_TOKEN_AUTH_DISABLED", _B, "delegation tokens are off"),
    62: ErrorCode("DELEGATION_TOKEN_NOT_FOUND", _B, "the delegation token does not exist"),
    63: ErrorCode("DELEGATION_TOKEN_OWNER_MISMATCH", _B, "the token belongs to another principal"),
    64: ErrorCode("DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", _B, "token requests are not allowed here"),
    65: ErrorCode("DELEGATION_TOKEN_AUTHORIZATION_FAILED", AuthorizationError, "no permission on the token"),
    66: ErrorCode("DELEGATION_TOKEN_EXPIRED", _B, "the delegation token has expired"),
    67: ErrorCode("INVALID_PRINCIPAL_TYPE", _B, "the principal type is not supported"),
    68: ErrorCode("NON_EMPTY_GROUP", _B, "the group has members"),
    69: ErrorCode("GROUP_ID_NOT_FOUND", _G, "the group does not exist"),
    70: ErrorCode("FETCH_SESSION_ID_NOT_FOUND", _R, "the broker dropped the fetch session"),
    71: ErrorCode("INVALID_FETCH_SESSION_EPOCH", _R, "the fetch session epoch is not the expected one"),
    72: ErrorCode("LISTENER_NOT_FOUND", _M, "the leader has no such listener"),
    73: ErrorCode("TOPIC_DELETION_DISABLED", _B, "topic deletion is off"),
    74: ErrorCode("FENCED_LEADER_EPOCH", _M, "the leader epoch in the request is old"),
    75: ErrorCode("UNKNOWN_LEADER_EPOCH", _R, "the leader epoch in the request is newer than the broker's"),
    76: ErrorCode("UNSUPPORTED_COMPRESSION_TYPE", _B, "the compression type is not supported"),
    77: ErrorCode("STALE_BROKER_EPOCH", _B, "the broker epoch is old"),
    78: ErrorCode("OFFSET_NOT_AVAILABLE", _R, "the leader's high watermark has not caught up"),
    79: ErrorCode("MEMBER_ID_REQUIRED", _G, "the member must join with the id the coordinator gave"),
    80: ErrorCode("PREFERRED_LEADER_NOT_AVAILABLE", _M, "the preferred leader is not available"),
    81: ErrorCode("GROUP_MAX_SIZE_REACHED", _G, "the group is full"),
    82: ErrorCode("FENCED_INSTANCE_ID", FencedInstanceIdError, "another member has taken this group_instance_id"),
    83: ErrorCode("ELIGIBLE_LEADERS_NOT_AVAILABLE", _M, "no eligible leader is available"),
    84: ErrorCode("ELECTION_NOT_NEEDED", _M, "no election is needed"),
    85: ErrorCode("NO_REASSIGNMENT_IN_PROGRESS", _B, "no reassignment is under way"),
    86: ErrorCode("GROUP_SUBSCRIBED_TO_TOPIC", _B, "the group is subscribed to the topic"),
    87: ErrorCode("INVALID_RECORD", _B, "the record failed the broker's validation"),
    88: ErrorCode("UNSTABLE_OFFSET_COMMIT", _R, "a transaction with offsets for this group is still open"),
    89: ErrorCode("THROTTLING_QUOTA_EXCEEDED", _R, "the quota is exceeded"),
    90: ErrorCode("PRODUCER_FENCED", _B, "a newer producer has the same transactional id"),
    91: ErrorCode("RESOURCE_NOT_FOUND", _B, "the resource does not exist"),
    92: ErrorCode("DUPLICATE_RESOURCE", _B, "the resource exists already"),
    93: ErrorCode("UNACCEPTABLE_CREDENTIAL", _B, "the credential is not acceptable"),
    94: ErrorCode("INCONSISTENT_VOTER_SET", _B, "the voter sets differ"),
    95: ErrorCode("INVALID_UPDATE_VERSION", _B, "the update version is not valid"),
    96: ErrorCode("FEATURE_UPDATE_FAILED", _B, "the feature update failed"),
    97: ErrorCode("PRINCIPAL_DESERIALIZATION_FAILURE", _B, "the principal could not be read"),
    98: ErrorCode("SNAPSHOT_NOT_FOUND", _B, "the snapshot does not exist"),
    99: ErrorCode("POSITION_OUT_OF_RANGE", _B, "the position is outside the snapshot"),
    100: ErrorCode("UNKNOWN_TOPIC_ID", _M, "the broker does not host this topic id"),
    101: ErrorCode("DUPLICATE_BROKER_REGISTRATION", _B, "the broker id is taken"),
    102: ErrorCode("BROKER_ID_NOT_REGISTERED", _B, "the broker id is not registered"),
    103: ErrorCode("INCONSISTENT_TOPIC_ID", _M, "the topic id is not the one in the broker's log"),
    104: ErrorCode("INCONSISTENT_CLUSTER_ID", _B, "the cluster id is another one"),
    105: ErrorCode("TRANSACTIONAL_ID_NOT_FOUND", _B, "the transactional id does not exist"),
    106: ErrorCode("FETCH_SESSION_TOPIC_ID_ERROR", _R, "the fetch session mixes topic names and ids"),
    107: ErrorCode("INELIGIBLE_REPLICA", _B, "the replica is not eligible"),
    108: ErrorCode("NEW_LEADER_ELECTED", _B, "a new leader was elected"),
    109: ErrorCode("OFFSET_MOVED_TO_TIERED_STORAGE", _B, "the offset is in tiered storage"),
    110: ErrorCode("FENCED_MEMBER_EPOCH", _G, "the member epoch is not the current one"),
    111: ErrorCode("UNRELEASED_INSTANCE_ID", _G, "another member still holds this group_instance_id"),
    112: ErrorCode("UNSUPPORTED_ASSIGNOR", _G, "the broker has no such assignor"),
    113: ErrorCode("STALE_MEMBER_EPOCH", _G, "the member epoch is old; poll() to take part in the rebalance"),
    114: ErrorCode("MISMATCHED_ENDPOINT_TYPE", _B, "the request went to the wrong endpoint type"),
    115: ErrorCode("UNSUPPORTED_ENDPOINT_TYPE", _B, "the endpoint type is not supported"),
    116: ErrorCode("UNKNOWN_CONTROLLER_ID", _B, "the controller id is unknown"),
    117: ErrorCode("UNKNOWN_SUBSCRIPTION_ID", _B, "the telemetry subscription is old"),
    118: ErrorCode("TELEMETRY_TOO_LARGE", _B, "the telemetry push is too large"),
    119: ErrorCode("INVALID_REGISTRATION", _B, "the broker registration is not valid"),
    120: ErrorCode("TRANSACTION_ABORTABLE", _B, "the transaction must be aborted"),
    121: ErrorCode("INVALID_RECORD_STATE", _B, "the share record is in another state"),
    122: ErrorCode("SHARE_SESSION_NOT_FOUND", _R, "the broker dropped the share session"),
    123: ErrorCode("INVALID_SHARE_SESSION_EPOCH", _R, "the share session epoch is not the expected one"),
    124: ErrorCode("FENCED_STATE_EPOCH", _B, "the share state epoch is old"),
    125: ErrorCode("INVALID_VOTER_KEY", _B, "the voter key is not valid"),
    126: ErrorCode("DUPLICATE_VOTER", _B, "the voter is in the set already"),
    127: ErrorCode("VOTER_NOT_FOUND", _B, "the voter is not in the set"),
    128: ErrorCode("INVALID_REGULAR_EXPRESSION", _B, "the broker cannot read the regular expression (RE2)"),
    129: ErrorCode("REBOOTSTRAP_REQUIRED", _M, "the client must bootstrap again"),
}


def error_for(code: int, message: str = "", *, operation: str = "") -> BrokerError:
    """The error to raise for a broker's code; `message` says to which topic, group or broker it belongs, `operation`
    which permission was needed."""
    entry = CODES.get(code)
    kind = entry.error if entry else BrokerError
    if operation and issubclass(kind, AuthorizationError):
        return kind(message, code=code, operation=operation)
    return kind(message, code=code)


def is_retriable(code: int) -> bool:
    """Whether a broker's code means that the same request may succeed later."""
    entry = CODES.get(code)
    return entry is not None and entry.error.retriable
