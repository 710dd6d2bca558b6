"""Kafka's error codes: one table with the number, the name and the meaning of each, and whether it is retriable.

`errors.py` maps the codes to exception classes. The `error_actions.py` next to each manager maps them to actions.
"""

from __future__ import annotations

#: The rows of the table by error code.
CODES: dict[int, ErrorCode] = {}


class ErrorCode(int):
    """A row of the table. It is an int, so that it can be compared with the error code of a response."""

    name: str  # Kafka's name, such as NOT_COORDINATOR
    retriable: bool  # whether the same request may succeed later
    meaning: str  # a description for error messages

    # An `enum.IntEnum` with columns would do the same, but the import would take ten times as long.
    def __new__(cls, code: int, retriable: bool, meaning: str) -> ErrorCode:
        """Create a row. Its name is the name of the attribute of `Errors` to which it is assigned."""
        row = super().__new__(cls, code)
        row.retriable = retriable
        row.meaning = meaning
        return row

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        CODES[int(self)] = self


YES, NO = True, False


class Errors:
    """The error codes by Kafka's names (Java `Errors`). The columns are number, retriable and meaning."""

    NONE = 0
    UNKNOWN_SERVER_ERROR = ErrorCode(-1, NO, "the broker met an unexpected error")
    OFFSET_OUT_OF_RANGE = ErrorCode(1, NO, "the offset is outside the partition's log")
    CORRUPT_MESSAGE = ErrorCode(2, YES, "a record's checksum or size is wrong")
    UNKNOWN_TOPIC_OR_PARTITION = ErrorCode(3, YES, "the broker does not host this topic-partition")
    INVALID_FETCH_SIZE = ErrorCode(4, NO, "the fetch size is not valid")
    LEADER_NOT_AVAILABLE = ErrorCode(5, YES, "the partition has no leader right now")
    NOT_LEADER_OR_FOLLOWER = ErrorCode(6, YES, "the broker is not the replica asked for")
    REQUEST_TIMED_OUT = ErrorCode(7, YES, "the broker timed out")
    BROKER_NOT_AVAILABLE = ErrorCode(8, NO, "the broker is not available")
    REPLICA_NOT_AVAILABLE = ErrorCode(9, YES, "the replica is not available")
    MESSAGE_TOO_LARGE = ErrorCode(10, NO, "the record is larger than the broker accepts")
    STALE_CONTROLLER_EPOCH = ErrorCode(11, NO, "the controller moved")
    OFFSET_METADATA_TOO_LARGE = ErrorCode(12, NO, "the metadata of a committed offset is too long")
    NETWORK_EXCEPTION = ErrorCode(13, YES, "the broker lost its connection")
    COORDINATOR_LOAD_IN_PROGRESS = ErrorCode(14, YES, "the coordinator is still loading")
    COORDINATOR_NOT_AVAILABLE = ErrorCode(15, YES, "the coordinator is not available")
    NOT_COORDINATOR = ErrorCode(16, YES, "the broker is not this group's coordinator")
    INVALID_TOPIC_EXCEPTION = ErrorCode(17, NO, "the topic name is not legal")
    RECORD_LIST_TOO_LARGE = ErrorCode(18, NO, "the batch is larger than the broker accepts")
    NOT_ENOUGH_REPLICAS = ErrorCode(19, YES, "too few in-sync replicas")
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = ErrorCode(20, YES, "too few in-sync replicas after the append")
    INVALID_REQUIRED_ACKS = ErrorCode(21, NO, "the acks setting is not valid")
    ILLEGAL_GENERATION = ErrorCode(22, NO, "the group generation is not the current one")
    INCONSISTENT_GROUP_PROTOCOL = ErrorCode(23, NO, "no assignor or protocol type common to all members")
    INVALID_GROUP_ID = ErrorCode(24, NO, "the group id is not legal")
    UNKNOWN_MEMBER_ID = ErrorCode(25, NO, "the coordinator does not know this member")
    INVALID_SESSION_TIMEOUT = ErrorCode(26, NO, "session_timeout_ms is outside the broker's limits")
    REBALANCE_IN_PROGRESS = ErrorCode(27, NO, "the group is rebalancing")
    INVALID_COMMIT_OFFSET_SIZE = ErrorCode(28, NO, "the committed offset is too large to store")
    TOPIC_AUTHORIZATION_FAILED = ErrorCode(29, NO, "no permission on the topic")
    GROUP_AUTHORIZATION_FAILED = ErrorCode(30, NO, "no permission on the group")
    CLUSTER_AUTHORIZATION_FAILED = ErrorCode(31, NO, "no permission on the cluster")
    INVALID_TIMESTAMP = ErrorCode(32, NO, "the timestamp is outside the accepted range")
    UNSUPPORTED_SASL_MECHANISM = ErrorCode(33, NO, "the broker has this mechanism disabled")
    ILLEGAL_SASL_STATE = ErrorCode(34, NO, "a request came out of order during login")
    UNSUPPORTED_VERSION = ErrorCode(35, NO, "the broker does not support this version")
    TOPIC_ALREADY_EXISTS = ErrorCode(36, NO, "the topic exists already")
    INVALID_PARTITIONS = ErrorCode(37, NO, "the number of partitions is not valid")
    INVALID_REPLICATION_FACTOR = ErrorCode(38, NO, "the replication factor is not valid")
    INVALID_REPLICA_ASSIGNMENT = ErrorCode(39, NO, "the replica assignment is not valid")
    INVALID_CONFIG = ErrorCode(40, NO, "the configuration is not valid")
    NOT_CONTROLLER = ErrorCode(41, YES, "the broker is not the controller")
    INVALID_REQUEST = ErrorCode(42, NO, "the broker found the request malformed")
    UNSUPPORTED_FOR_MESSAGE_FORMAT = ErrorCode(43, NO, "the stored message format is too old for this request")
    POLICY_VIOLATION = ErrorCode(44, NO, "a broker policy refused the request")
    OUT_OF_ORDER_SEQUENCE_NUMBER = ErrorCode(45, NO, "a producer sequence number is out of order")
    DUPLICATE_SEQUENCE_NUMBER = ErrorCode(46, NO, "a producer sequence number came twice")
    INVALID_PRODUCER_EPOCH = ErrorCode(47, NO, "the producer epoch is old")
    INVALID_TXN_STATE = ErrorCode(48, NO, "the transaction is in another state")
    INVALID_PRODUCER_ID_MAPPING = ErrorCode(49, NO, "the producer id does not fit the transactional id")
    INVALID_TRANSACTION_TIMEOUT = ErrorCode(50, NO, "the transaction timeout is too long")
    CONCURRENT_TRANSACTIONS = ErrorCode(51, YES, "another step of the transaction is in progress")
    TRANSACTION_COORDINATOR_FENCED = ErrorCode(52, NO, "the transaction coordinator is old")
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = ErrorCode(53, NO, "no permission on the transactional id")
    SECURITY_DISABLED = ErrorCode(54, NO, "security features are off")
    OPERATION_NOT_ATTEMPTED = ErrorCode(55, NO, "the broker did not try the operation")
    KAFKA_STORAGE_ERROR = ErrorCode(56, YES, "the broker's disk failed")
    LOG_DIR_NOT_FOUND = ErrorCode(57, NO, "the log directory does not exist")
    SASL_AUTHENTICATION_FAILED = ErrorCode(58, NO, "the login was refused")
    UNKNOWN_PRODUCER_ID = ErrorCode(59, NO, "the producer's state has expired")
    REASSIGNMENT_IN_PROGRESS = ErrorCode(60, NO, "a reassignment is in progress")
    DELEGATION_TOKEN_AUTH_DISABLED = ErrorCode(61, NO, "delegation tokens are off")
    DELEGATION_TOKEN_NOT_FOUND = ErrorCode(62, NO, "the delegation token does not exist")
    DELEGATION_TOKEN_OWNER_MISMATCH = ErrorCode(63, NO, "the token belongs to another principal")
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = ErrorCode(64, NO, "token requests are not allowed here")
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = ErrorCode(65, NO, "no permission on the token")
    DELEGATION_TOKEN_EXPIRED = ErrorCode(66, NO, "the delegation token has expired")
    INVALID_PRINCIPAL_TYPE = ErrorCode(67, NO, "the principal type is not supported")
    NON_EMPTY_GROUP = ErrorCode(68, NO, "the group has members")
    GROUP_ID_NOT_FOUND = ErrorCode(69, NO, "the group does not exist")
    FETCH_SESSION_ID_NOT_FOUND = ErrorCode(70, YES, "the broker dropped the fetch session")
    INVALID_FETCH_SESSION_EPOCH = ErrorCode(71, YES, "the fetch session epoch is not the expected one")
    LISTENER_NOT_FOUND = ErrorCode(72, YES, "the leader has no such listener")
    TOPIC_DELETION_DISABLED = ErrorCode(73, NO, "topic deletion is off")
    FENCED_LEADER_EPOCH = ErrorCode(74, YES, "the leader epoch in the request is old")
    UNKNOWN_LEADER_EPOCH = ErrorCode(75, YES, "the leader epoch in the request is newer than the broker's")
    UNSUPPORTED_COMPRESSION_TYPE = ErrorCode(76, NO, "the compression type is not supported")
    STALE_BROKER_EPOCH = ErrorCode(77, NO, "the broker epoch is old")
    OFFSET_NOT_AVAILABLE = ErrorCode(78, YES, "the leader's high watermark has not caught up")
    MEMBER_ID_REQUIRED = ErrorCode(79, NO, "the member must join with the id the coordinator gave")
    PREFERRED_LEADER_NOT_AVAILABLE = ErrorCode(80, YES, "the preferred leader is not available")
    GROUP_MAX_SIZE_REACHED = ErrorCode(81, NO, "the group is full")
    FENCED_INSTANCE_ID = ErrorCode(82, NO, "another member has taken this group_instance_id")
    ELIGIBLE_LEADERS_NOT_AVAILABLE = ErrorCode(83, YES, "no eligible leader is available")
    ELECTION_NOT_NEEDED = ErrorCode(84, YES, "no election is needed")
    NO_REASSIGNMENT_IN_PROGRESS = ErrorCode(85, NO, "no reassignment is in progress")
    GROUP_SUBSCRIBED_TO_TOPIC = ErrorCode(86, NO, "the group is subscribed to the topic")
    INVALID_RECORD = ErrorCode(87, NO, "the record failed the broker's validation")
    UNSTABLE_OFFSET_COMMIT = ErrorCode(88, YES, "a transaction with offsets for this group is still open")
    THROTTLING_QUOTA_EXCEEDED = ErrorCode(89, YES, "the quota is exceeded")
    PRODUCER_FENCED = ErrorCode(90, NO, "a newer producer has the same transactional id")
    RESOURCE_NOT_FOUND = ErrorCode(91, NO, "the resource does not exist")
    DUPLICATE_RESOURCE = ErrorCode(92, NO, "the resource exists already")
    UNACCEPTABLE_CREDENTIAL = ErrorCode(93, NO, "the credential is not acceptable")
    INCONSISTENT_VOTER_SET = ErrorCode(94, NO, "the voter sets differ")
    INVALID_UPDATE_VERSION = ErrorCode(95, NO, "the update version is not valid")
    FEATURE_UPDATE_FAILED = ErrorCode(96, NO, "the feature update failed")
    PRINCIPAL_DESERIALIZATION_FAILURE = ErrorCode(97, NO, "the principal could not be read")
    SNAPSHOT_NOT_FOUND = ErrorCode(98, NO, "the snapshot does not exist")
    POSITION_OUT_OF_RANGE = ErrorCode(99, NO, "the position is outside the snapshot")
    UNKNOWN_TOPIC_ID = ErrorCode(100, YES, "the broker does not host this topic id")
    DUPLICATE_BROKER_REGISTRATION = ErrorCode(101, NO, "the broker id is taken")
    BROKER_ID_NOT_REGISTERED = ErrorCode(102, NO, "the broker id is not registered")
    INCONSISTENT_TOPIC_ID = ErrorCode(103, YES, "the topic id is not the one in the broker's log")
    INCONSISTENT_CLUSTER_ID = ErrorCode(104, NO, "the cluster id is another one")
    TRANSACTIONAL_ID_NOT_FOUND = ErrorCode(105, NO, "the transactional id does not exist")
    FETCH_SESSION_TOPIC_ID_ERROR = ErrorCode(106, YES, "the fetch session mixes topic names and ids")
    INELIGIBLE_REPLICA = ErrorCode(107, NO, "the replica is not eligible")
    NEW_LEADER_ELECTED = ErrorCode(108, NO, "a new leader was elected")
    OFFSET_MOVED_TO_TIERED_STORAGE = ErrorCode(109, NO, "the offset is in tiered storage")
    FENCED_MEMBER_EPOCH = ErrorCode(110, NO, "the member epoch is not the current one")
    UNRELEASED_INSTANCE_ID = ErrorCode(111, NO, "another member still holds this group_instance_id")
    UNSUPPORTED_ASSIGNOR = ErrorCode(112, NO, "the broker has no such assignor")
    STALE_MEMBER_EPOCH = ErrorCode(113, NO, "the member epoch is old; poll() to take part in the rebalance")
    MISMATCHED_ENDPOINT_TYPE = ErrorCode(114, NO, "the request went to the wrong endpoint type")
    UNSUPPORTED_ENDPOINT_TYPE = ErrorCode(115, NO, "the endpoint type is not supported")
    UNKNOWN_CONTROLLER_ID = ErrorCode(116, NO, "the controller id is unknown")
    UNKNOWN_SUBSCRIPTION_ID = ErrorCode(117, NO, "the telemetry subscription is old")
    TELEMETRY_TOO_LARGE = ErrorCode(118, NO, "the telemetry push is too large")
    INVALID_REGISTRATION = ErrorCode(119, NO, "the broker registration is not valid")
    TRANSACTION_ABORTABLE = ErrorCode(120, NO, "the transaction must be aborted")
    INVALID_RECORD_STATE = ErrorCode(121, NO, "the share record is in another state")
    SHARE_SESSION_NOT_FOUND = ErrorCode(122, YES, "the broker dropped the share session")
    INVALID_SHARE_SESSION_EPOCH = ErrorCode(123, YES, "the share session epoch is not the expected one")
    FENCED_STATE_EPOCH = ErrorCode(124, NO, "the share state epoch is old")
    INVALID_VOTER_KEY = ErrorCode(125, NO, "the voter key is not valid")
    DUPLICATE_VOTER = ErrorCode(126, NO, "the voter is in the set already")
    VOTER_NOT_FOUND = ErrorCode(127, NO, "the voter is not in the set")
    INVALID_REGULAR_EXPRESSION = ErrorCode(128, NO, "the broker cannot read the regular expression (RE2)")
    REBOOTSTRAP_REQUIRED = ErrorCode(129, YES, "the client must bootstrap again")
    STREAMS_INVALID_TOPOLOGY = ErrorCode(130, NO, "the topology of the Streams group is not valid")
    STREAMS_INVALID_TOPOLOGY_EPOCH = ErrorCode(131, NO, "the topology epoch of the Streams group is not valid")
    STREAMS_TOPOLOGY_FENCED = ErrorCode(132, NO, "the topology epoch of the Streams group is old")
    SHARE_SESSION_LIMIT_REACHED = ErrorCode(133, YES, "the broker has as many share sessions as it allows")
    GROUP_DELETION_FAILED = ErrorCode(134, NO, "the group was not deleted, or not completely")
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = ErrorCode(
        135, NO, "the broker could not process the description of the topology"
    )
    CONTROLLER_ID_NOT_REGISTERED = ErrorCode(136, NO, "the controller id is not registered")


def is_retriable(code: int) -> bool:
    """Returns True if the same request may succeed later. Returns False for a code without a row."""
    row = CODES.get(code)
    return row is not None and row.retriable
