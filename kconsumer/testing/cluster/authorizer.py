"""Checks the ACLs of requests, with the operations, the errors and the order of Kafka's `KafkaApis`.

`WHOLE` contains the checks that refuse a whole request. `ROWS` contains the checks that refuse single rows of a
request, such as topics or groups. Refused rows are removed from the request before its handler is called, and added to
the response with an error code.

The rows of Fetch are checked in `fetch.py`, because the partitions of a fetch session are not in the request. Those of
requests for settings are checked in `configs.py`, because they are resources of several types, and those of
AddPartitionsToTxn in `transaction_requests.py`, because one refused partition affects the others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from kconsumer._common.error_codes import Errors
from kconsumer.schema.dsl import ZERO_UUID, Message
from kconsumer.testing.cluster.acls import CLUSTER, CLUSTER_NAME, GROUP, TOPIC, TRANSACTIONAL_ID
from kconsumer.testing.cluster.error_responses import error_response
from kconsumer.testing.cluster.produce import lacks_transactional_id
from kconsumer.testing.cluster.requests import Handler, Pending, Request, Response
from kconsumer.testing.cluster.state import ClusterState

ERRORS = {
    TOPIC: Errors.TOPIC_AUTHORIZATION_FAILED,
    GROUP: Errors.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: Errors.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
REFUSED = "The client may not do this."  # the message of such an error
#: The APIs whose error responses have such a message.
WITH_MESSAGE = ("AlterShareGroupOffsets", "DeleteShareGroupOffsets", "FindCoordinator")
#: The operations on the cluster that allow an API for all rows.
OF_CLUSTER = {"CreateTopics": "CREATE", "DeleteTopics": "DELETE", "OffsetForLeaderEpoch": "CLUSTER_ACTION"}


class Check(NamedTuple):
    """A check of a request: if the ACLs do not allow `operation` on the resource, the whole request is refused."""

    operation: str
    resource_type: str
    field: str  # of the request; the name of the resource. A request in which it is empty is not checked


class Rows(NamedTuple):
    """A check of each row of a request: if the ACLs do not allow `operation` on its resource, the row is refused."""

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
    "AlterShareGroupOffsets": (READ_GROUP,),
    "ConsumerGroupHeartbeat": (READ_GROUP,),
    "DeleteShareGroupOffsets": (Check("DELETE", GROUP, "group_id"),),
    "EndTxn": (WRITE_TRANSACTION,),
    "Heartbeat": (READ_GROUP,),
    "InitProducerId": (WRITE_TRANSACTION,),
    "JoinGroup": (READ_GROUP,),
    "LeaveGroup": (READ_GROUP,),
    "OffsetCommit": (READ_GROUP,),
    "OffsetDelete": (Check("DELETE", GROUP, "group_id"),),
    "OffsetFetch": (Check("DESCRIBE", GROUP, "group_id"),),  # up to v7
    "Produce": (WRITE_TRANSACTION,),
    "ShareAcknowledge": (READ_GROUP,),
    "ShareFetch": (READ_GROUP,),
    "ShareGroupHeartbeat": (READ_GROUP,),
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
    "DescribeShareGroupOffsets": Rows("DESCRIBE", GROUP, "groups", "group_id"),
    "ListOffsets": Rows("DESCRIBE", TOPIC, "topics", "name"),
    "Metadata": Rows("DESCRIBE", TOPIC, "topics", "name"),
    "OffsetCommit": Rows("READ", TOPIC, "topics", "name"),
    "OffsetDelete": Rows("READ", TOPIC, "topics", "name"),
    "OffsetFetch": Rows("DESCRIBE", GROUP, "groups", "group_id"),  # since v8
    "OffsetForLeaderEpoch": Rows("DESCRIBE", TOPIC, "topics", "topic"),
    "Produce": Rows("WRITE", TOPIC, "topic_data", "name", "responses"),
    "ShareGroupDescribe": Rows("DESCRIBE", GROUP, "group_ids", response="groups"),
    "TxnOffsetCommit": Rows("READ", TOPIC, "topics", "name"),
}
KEY_TYPES = {0: GROUP, 1: TRANSACTIONAL_ID}  # of FindCoordinator


class Authorizer:
    """Checks the ACLs of requests.

    Passes the allowed rows of a request to its handler, and adds an error to the response for each refused row. A
    request can also be refused as a whole.
    """

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster

    def handle(self, request: Request, now: float, handler: Handler) -> Response:
        """Returns the response to a request. `handler` is called with the allowed rows of the request.

        Refused rows have an error code in the response. If the whole request is refused, `handler` is not called. A
        response that lists all topics or groups contains only those that the client may describe.
        """
        acls = self._cluster.acls
        if not acls.enabled:
            return handler(request, now)
        error = self._error(request)
        if error:
            refused: Any = error_response(self._cluster.topics, request, error)
            if request.api.name in WITH_MESSAGE:
                refused.error_message = REFUSED
            message: Message = refused
            return message
        response = self._handle_rows(request, now, handler)
        if request.api.name == "Metadata" and request.message.topics is None:
            _filter(response, "topics", lambda row: acls.allowed(request, "DESCRIBE", TOPIC, row.name))
        if request.api.name == "ListGroups" and not acls.allowed(request, "DESCRIBE", CLUSTER, CLUSTER_NAME):
            _filter(response, "groups", lambda row: acls.allowed(request, "DESCRIBE", GROUP, row.group_id))
        if request.api.name == "OffsetFetch":
            self._refuse_offsets(request, response)
        return response

    def _error(self, request: Request) -> int:
        """Returns the error code with which the whole request is refused, or NONE."""
        message = request.message
        if request.api.name == "FindCoordinator" and request.version < 4:
            kind = KEY_TYPES.get(message.key_type, GROUP)
            return Errors.NONE if self._cluster.acls.allowed(request, "DESCRIBE", kind, message.key) else ERRORS[kind]
        if request.api.name == "InitProducerId" and not message.transactional_id:
            return self._idempotence_error(request)
        if request.api.name == "Produce" and lacks_transactional_id(message):
            return ERRORS[TRANSACTIONAL_ID]
        for check in WHOLE.get(request.api.name, ()):
            name = getattr(message, check.field)
            if name and not self._cluster.acls.allowed(request, check.operation, check.resource_type, name):
                return ERRORS[check.resource_type]
        if request.api.name in ("ConsumerGroupHeartbeat", "ShareGroupHeartbeat"):
            topics = message.subscribed_topic_names or []
            if not all(self._cluster.acls.allowed(request, "DESCRIBE", TOPIC, topic) for topic in topics):
                return ERRORS[TOPIC]
        return Errors.NONE

    def _idempotence_error(self, request: Request) -> int:
        """Returns the error code of an InitProducerId request without a transactional id, or NONE if it is allowed.

        The client needs IDEMPOTENT_WRITE for the cluster, or WRITE for at least one topic.
        """
        if self._cluster.acls.allowed(request, "IDEMPOTENT_WRITE", CLUSTER, CLUSTER_NAME):
            return Errors.NONE
        writes = self._cluster.acls.allows_any(request.connection.principal, "WRITE", TOPIC)
        return Errors.NONE if writes else ERRORS[CLUSTER]

    def _refuse_offsets(self, request: Request, response: Any) -> None:
        """Remove the offsets of topics that the client may not describe from an OffsetFetch response.

        Their partitions get TOPIC_AUTHORIZATION_FAILED. If the request asks for all topics of a group, the topics
        themselves are removed instead.
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
        """Returns the response of `handler` to the allowed rows of a request, with error rows for the refused ones."""
        rule = self._rule(request)
        rows = None if rule is None else getattr(request.message, rule.field)
        if rule is None or not rows or self._all_rows_allowed(request):
            return handler(request, now)
        allowed = [row for row in rows if self._row_allowed(request, rule, row)]
        if len(allowed) == len(rows):
            return handler(request, now)
        refused = [row for row in rows if not any(row is other for other in allowed)]
        response = handler(_with_rows(request, rule.field, allowed), now)
        errors: Any = error_response(
            self._cluster.topics, _with_rows(request, rule.field, refused), ERRORS[rule.resource_type]
        )
        field = rule.response or rule.field
        if request.api.name in ("CreateTopics", "DeleteTopics"):
            for row in getattr(errors, field):
                row.error_message = REFUSED
                row.name = row.name or self._described_name(request, row.topic_id)
        return _merged(response, errors, field, now)

    def _described_name(self, request: Request, topic_id: bytes) -> str | None:
        """Returns the name of the topic with an id, or None if the client may not describe it."""
        name = self._cluster.topics_by_id[topic_id].name
        return name if self._cluster.acls.allowed(request, "DESCRIBE", TOPIC, name) else None

    def _rule(self, request: Request) -> Rows | None:
        """Returns the check for the rows of a request, or None if the rows of this API are not checked.

        The check of FindCoordinator depends on the key type, that of DeleteTopics on the version.
        """
        if request.api.name == "FindCoordinator" and request.version >= 4:
            kind = KEY_TYPES.get(request.message.key_type, GROUP)
            return Rows("DESCRIBE", kind, "coordinator_keys", response="coordinators")
        if request.api.name == "DeleteTopics":
            return Rows("DELETE", TOPIC, "topics" if request.version >= 6 else "topic_names", response="responses")
        return ROWS.get(request.api.name)

    def _all_rows_allowed(self, request: Request) -> bool:
        operation = OF_CLUSTER.get(request.api.name)
        return operation is not None and self._cluster.acls.allowed(request, operation, CLUSTER, CLUSTER_NAME)

    def _row_allowed(self, request: Request, rule: Rows, row: Any) -> bool:
        """Returns whether the ACLs allow the operation of `rule` on the resource of a row.

        If a Metadata request would create the topic of the row, the client must also be allowed to create it.
        """
        if rule.resource_type != TOPIC:
            name = row if rule.name is None else getattr(row, rule.name)
            return self._cluster.acls.allowed(request, rule.operation, rule.resource_type, name)
        may_create = request.api.name != "Metadata" or self._may_create(request, row.name)
        return may_create and self._topic_allowed(request, rule.operation, row)

    def _may_create(self, request: Request, topic: str | None) -> bool:
        """Returns False if a Metadata request would create a topic that its client may not create, otherwise True."""
        creates = request.message.allow_auto_topic_creation and self._cluster.settings.auto_create_topics_enable
        if not topic or not creates or topic in self._cluster.topics:
            return True
        may_create_all = self._cluster.acls.allowed(request, "CREATE", CLUSTER, CLUSTER_NAME)
        return may_create_all or self._cluster.acls.allowed(request, "CREATE", TOPIC, topic)

    def _topic_allowed(self, request: Request, operation: str, row: Any) -> bool:
        """Returns whether the ACLs allow an operation on the topic of a row.

        Returns True for an unknown topic id: the handler reports it with another error.
        """
        if isinstance(row, str):
            return self._cluster.acls.allowed(request, operation, TOPIC, row)
        name = getattr(row, "topic", None) or getattr(row, "name", None)
        topic_id = getattr(row, "topic_id", ZERO_UUID)
        if not name and topic_id != ZERO_UUID:
            topic = self._cluster.topics_by_id.get(topic_id)
            if topic is None:
                return True
            name = topic.name
        return self._cluster.acls.allowed(request, operation, TOPIC, name or "")


def _with_rows(request: Request, field: str, rows: list[Any]) -> Request:
    values = {known.name: getattr(request.message, known.name) for known in request.message.FIELDS}
    return replace(request, message=request.api.request(**{**values, field: rows}))


def _merged(response: Response, errors: Any, field: str, now: float) -> Response:
    """Returns `response` after adding the rows of `errors` to its field `field`.

    If `response` is a `Pending`, the result is another `Pending`, which is completed with the added rows.
    """
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
