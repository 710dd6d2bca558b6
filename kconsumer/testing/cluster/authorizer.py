"""Checks the ACLs of requests, with the operations, the errors and the order of Kafka's `KafkaApis`.

A request is refused as a whole (`WHOLE`), or in some of its rows (`ROWS`). Refused rows are removed from the request
before it is handled, and added to the response with their error. Fetch checks its rows itself, because those of a fetch
session are not in the request. Not checked are DescribeConfigs, IncrementalAlterConfigs, and the partitions of
AddPartitionsToTxn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kconsumer.error_codes import Errors
from kconsumer.schema.dsl import ZERO_UUID, Message
from kconsumer.testing.cluster.acls import CLUSTER, CLUSTER_NAME, GROUP, TOPIC, TRANSACTIONAL_ID
from kconsumer.testing.cluster.error_responses import error_response
from kconsumer.testing.cluster.requests import Handler, Pending, Request, Response

if TYPE_CHECKING:
    from kconsumer.testing.cluster.cluster import Cluster

ERRORS = {
    TOPIC: Errors.TOPIC_AUTHORIZATION_FAILED,
    GROUP: Errors.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: Errors.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Check(NamedTuple):
    """An operation on a resource that an ACL must allow, or else the whole request is refused."""

    operation: str
    resource_type: str
    field: str  # of the request; the name of the resource. A request in which it is empty is not checked


class Rows(NamedTuple):
    """An operation that an ACL must allow on the resource of each row of a request, or else that row is refused."""

    operation: str
    resource_type: str
    field: str  # of the request: its rows
    name: str | None = None  # of the row: the name of the resource; None: the row is the name
    response: str = ""  # the field of the response; "": that of the request


READ_GROUP = Check("READ", GROUP, "group_id")
WRITE_TRANSACTION = Check("WRITE", TRANSACTIONAL_ID, "transactional_id")

WHOLE: dict[str, tuple[Check, ...]] = {
    "AddOffsetsToTxn": (WRITE_TRANSACTION, READ_GROUP),
    "AddPartitionsToTxn": (Check("WRITE", TRANSACTIONAL_ID, "v3_and_below_transactional_id"),),
    "ConsumerGroupHeartbeat": (READ_GROUP,),
    "EndTxn": (WRITE_TRANSACTION,),
    "Heartbeat": (READ_GROUP,),
    "InitProducerId": (WRITE_TRANSACTION,),
    "JoinGroup": (READ_GROUP,),
    "LeaveGroup": (READ_GROUP,),
    "OffsetCommit": (READ_GROUP,),
    "OffsetDelete": (Check("DELETE", GROUP, "group_id"),),
    "OffsetFetch": (Check("DESCRIBE", GROUP, "group_id"),),  # up to v7
    "Produce": (WRITE_TRANSACTION,),
    "SyncGroup": (READ_GROUP,),
    "TxnOffsetCommit": (WRITE_TRANSACTION, READ_GROUP),
}
ROWS: dict[str, Rows] = {
    "ConsumerGroupDescribe": Rows("DESCRIBE", GROUP, "group_ids", response="groups"),
    "CreatePartitions": Rows("ALTER", TOPIC, "topics", "name", "results"),
    "CreateTopics": Rows("CREATE", TOPIC, "topics", "name"),
    "DeleteGroups": Rows("DELETE", GROUP, "groups_names", response="results"),
    "DeleteRecords": Rows("DELETE", TOPIC, "topics", "name"),
    "DescribeGroups": Rows("DESCRIBE", GROUP, "groups"),
    "ListOffsets": Rows("DESCRIBE", TOPIC, "topics", "name"),
    "Metadata": Rows("DESCRIBE", TOPIC, "topics", "name"),
    "OffsetCommit": Rows("READ", TOPIC, "topics", "name"),
    "OffsetDelete": Rows("READ", TOPIC, "topics", "name"),
    "OffsetFetch": Rows("DESCRIBE", GROUP, "groups", "group_id"),  # since v8
    "OffsetForLeaderEpoch": Rows("DESCRIBE", TOPIC, "topics", "topic"),
    "Produce": Rows("WRITE", TOPIC, "topic_data", "name", "responses"),
    "TxnOffsetCommit": Rows("READ", TOPIC, "topics", "name"),
}
KEY_TYPES = {0: GROUP, 1: TRANSACTIONAL_ID}  # of FindCoordinator


class Authorizer:
    """Handles requests as far as the ACLs allow them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def handle(self, request: Request, now: float, handler: Handler) -> Response:
        """Handle a request by its handler, or the part of it that is allowed."""
        if not self._cluster.acls.enabled:
            return handler(request, now)
        error = self._error(request)
        if error:
            return error_response(self._cluster, request, error)
        response = self._handle_rows(request, now, handler)
        if request.api.name == "Metadata" and request.message.topics is None:
            _filter(response, "topics", lambda row: self.allowed(request, "DESCRIBE", TOPIC, row.name))
        if request.api.name == "ListGroups" and not self.allowed(request, "DESCRIBE", CLUSTER, CLUSTER_NAME):
            _filter(response, "groups", lambda row: self.allowed(request, "DESCRIBE", GROUP, row.group_id))
        if request.api.name == "OffsetFetch":
            self._refuse_offsets(request, response)
        return response

    def allowed(self, request: Request, operation: str, resource_type: str, name: str) -> bool:
        """Returns whether the client that sent a request may do something with a resource."""
        return self._cluster.acls.allows(request.connection.principal, operation, resource_type, name)

    def _error(self, request: Request) -> int:
        """Returns why a request is refused as a whole, or NONE."""
        message = request.message
        if request.api.name == "FindCoordinator" and request.version < 4:
            kind = KEY_TYPES.get(message.key_type, GROUP)
            return Errors.NONE if self.allowed(request, "DESCRIBE", kind, message.key) else ERRORS[kind]
        if request.api.name == "InitProducerId" and not message.transactional_id:
            return self._idempotence_error(request)
        for check in WHOLE.get(request.api.name, ()):
            name = getattr(message, check.field)
            if name and not self.allowed(request, check.operation, check.resource_type, name):
                return ERRORS[check.resource_type]
        if request.api.name == "ConsumerGroupHeartbeat":
            topics = message.subscribed_topic_names or []
            if not all(self.allowed(request, "DESCRIBE", TOPIC, topic) for topic in topics):
                return ERRORS[TOPIC]
        return Errors.NONE

    def _idempotence_error(self, request: Request) -> int:
        """Returns why a producer without transactions gets no id: it may not write to any topic."""
        if self.allowed(request, "IDEMPOTENT_WRITE", CLUSTER, CLUSTER_NAME):
            return Errors.NONE
        writes = self._cluster.acls.allows_any(request.connection.principal, "WRITE", TOPIC)
        return Errors.NONE if writes else ERRORS[CLUSTER]

    def _refuse_offsets(self, request: Request, response: Any) -> None:
        """Replace the offsets of topics in a response to OffsetFetch that the client may not describe by errors.

        If the request is for all topics of a group, they are left out.
        """
        asked = request.message.groups if request.version >= 8 else [request.message]
        named = {getattr(group, "group_id", ""): group.topics is not None for group in asked}
        for group in response.groups if request.version >= 8 else [response]:
            refused = [topic for topic in group.topics if not self._topic_allowed(request, "DESCRIBE", topic)]
            for row in (row for topic in refused for row in topic.partitions):
                row.error_code, row.committed_offset, row.metadata = ERRORS[TOPIC], -1, ""
            if not named.get(getattr(group, "group_id", request.message.group_id), True):
                group.topics = [topic for topic in group.topics if not any(topic is other for other in refused)]

    # --- rows ---

    def _handle_rows(self, request: Request, now: float, handler: Handler) -> Response:
        """Handle the allowed rows of a request, and add the errors of the others to the response."""
        rule = self._rule(request)
        rows = None if rule is None else getattr(request.message, rule.field)
        if rule is None or not rows or self._all_topics_may_be_created(request):
            return handler(request, now)
        allowed = [row for row in rows if self._row_allowed(request, rule, row)]
        if len(allowed) == len(rows):
            return handler(request, now)
        refused = [row for row in rows if not any(row is other for other in allowed)]
        response = handler(_with_rows(request, rule.field, allowed), now)
        errors = error_response(self._cluster, _with_rows(request, rule.field, refused), ERRORS[rule.resource_type])
        return _merged(response, errors, rule.response or rule.field, now)

    def _rule(self, request: Request) -> Rows | None:
        """Returns what the rows of a request need. FindCoordinator has groups or transactional ids as rows."""
        if request.api.name == "FindCoordinator" and request.version >= 4:
            kind = KEY_TYPES.get(request.message.key_type, GROUP)
            return Rows("DESCRIBE", kind, "coordinator_keys", response="coordinators")
        if request.api.name == "DeleteTopics":
            return Rows("DELETE", TOPIC, "topics" if request.version >= 6 else "topic_names", response="responses")
        return ROWS.get(request.api.name)

    def _all_topics_may_be_created(self, request: Request) -> bool:
        return request.api.name == "CreateTopics" and self.allowed(request, "CREATE", CLUSTER, CLUSTER_NAME)

    def _row_allowed(self, request: Request, rule: Rows, row: Any) -> bool:
        """Returns whether a row is allowed."""
        if rule.resource_type != TOPIC:
            name = row if rule.name is None else getattr(row, rule.name)
            return self.allowed(request, rule.operation, rule.resource_type, name)
        may_create = request.api.name != "Metadata" or self._may_create(request, row.name)
        return may_create and self._topic_allowed(request, rule.operation, row)

    def _may_create(self, request: Request, topic: str | None) -> bool:
        """Returns False if a Metadata request would create a topic that its client may not create."""
        creates = request.message.allow_auto_topic_creation and self._cluster.settings.auto_create_topics_enable
        if not topic or not creates or topic in self._cluster.topics:
            return True
        may_create_all = self.allowed(request, "CREATE", CLUSTER, CLUSTER_NAME)
        return may_create_all or self.allowed(request, "CREATE", TOPIC, topic)

    def _topic_allowed(self, request: Request, operation: str, row: Any) -> bool:
        """Returns whether the topic of a row is allowed. An unknown topic id is: the handler reports it."""
        if isinstance(row, str):
            return self.allowed(request, operation, TOPIC, row)
        name = getattr(row, "topic", None) or getattr(row, "name", None)
        topic_id = getattr(row, "topic_id", ZERO_UUID)
        if not name and topic_id != ZERO_UUID:
            topic = self._cluster.topics_by_id.get(topic_id)
            if topic is None:
                return True
            name = topic.name
        return self.allowed(request, operation, TOPIC, name or "")


def _with_rows(request: Request, field: str, rows: list[Any]) -> Request:
    """Returns a request with other rows."""
    values = {known.name: getattr(request.message, known.name) for known in request.message.FIELDS}
    message = request.api.request(**{**values, field: rows})
    connection = request.connection
    return Request(
        request.api, request.version, request.correlation_id, request.client_id, message, connection, request.size
    )


def _merged(response: Response, errors: Any, field: str, now: float) -> Response:
    """Returns a response with the rows of two, also if the first one comes later."""
    if not isinstance(response, Pending):
        return _add(response, errors, field)
    merged = Pending(response.request)
    response.on_complete(lambda message, at: merged.complete(_add(message, errors, field) or message, at), now)
    return merged


def _add(response: Any, errors: Any, field: str) -> Message | None:
    if response is not None:
        setattr(response, field, getattr(response, field) + getattr(errors, field))
    message: Message | None = response
    return message


def _filter(response: Any, field: str, keep: Any) -> None:
    setattr(response, field, [row for row in getattr(response, field) if keep(row)])
