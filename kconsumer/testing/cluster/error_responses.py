"""Builds the error response to a request of any API.

A response has either one error code, or one error code in each of its rows. It has one row for each row (topic,
partition or group) of the request. As in Kafka, all rows get the same error code.

The other fields of a response row are copied from the row of the request. They have the same names in both, except for
the only list of a request or row, and for the fields in `REQUEST_FIELDS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kconsumer._common.error_codes import Errors
from kconsumer.schema.dsl import Array, Field, Message
from kconsumer.schema.metadata import MetadataRequestTopic
from kconsumer.testing.cluster.requests import Request
from kconsumer.testing.cluster.topic import Topic

#: API and field of the response -> the field of the request from which it is filled, if that has another name and is
#: not the only list there.
REQUEST_FIELDS = {
    ("Fetch", "partition_index"): "partition",
    ("Fetch", "responses"): "topics",
    ("ShareFetch", "responses"): "topics",
}
#: API and field of the response -> its value in a response that reports an error, if that is not the default.
ERROR_VALUES: dict[tuple[str, str], object] = {
    ("CreateTopics", "num_partitions"): -1,
    ("CreateTopics", "replication_factor"): -1,
    ("DeleteRecords", "low_watermark"): -1,
    ("Fetch", "high_watermark"): -1,
    ("Fetch", "records"): b"",
    ("FindCoordinator", "node_id"): -1,
    ("FindCoordinator", "port"): -1,
    ("JoinGroup", "generation_id"): -1,
    ("OffsetFetch", "committed_offset"): -1,
    ("Produce", "base_offset"): -1,
    ("ShareFetch", "records"): b"",
}
SHARE_SESSION_ERRORS = frozenset(
    {
        Errors.SHARE_SESSION_NOT_FOUND,
        Errors.INVALID_SHARE_SESSION_EPOCH,
        Errors.SHARE_SESSION_LIMIT_REACHED,
        Errors.GROUP_AUTHORIZATION_FAILED,
        Errors.INVALID_REQUEST,
        Errors.UNKNOWN_SERVER_ERROR,
    }
)
#: APIs whose responses have an error code of their own and error codes in rows, and which report errors in the rows
#: -> the errors that they report in the error code of the response nevertheless.
ROWS_BEFORE_TOP: dict[str, frozenset[int]] = {
    "Fetch": frozenset(
        {
            Errors.FETCH_SESSION_ID_NOT_FOUND,
            Errors.INVALID_FETCH_SESSION_EPOCH,
            Errors.FETCH_SESSION_TOPIC_ID_ERROR,
            Errors.UNKNOWN_SERVER_ERROR,
        }
    ),
    "Metadata": frozenset({Errors.REBOOTSTRAP_REQUIRED}),
    "ShareAcknowledge": SHARE_SESSION_ERRORS,
    "ShareFetch": SHARE_SESSION_ERRORS,
}
#: APIs that report errors in the error code of the response -> the errors that they report in the rows nevertheless.
IN_ROWS: dict[str, frozenset[int]] = {"OffsetDelete": frozenset({Errors.TOPIC_AUTHORIZATION_FAILED})}
ERROR_CODES = ("error_code", "partition_error_code")
BY_ID = ("DeleteTopics", "Metadata")  # APIs that name a topic by its id, without a name
IN_SESSIONS = ("Fetch", "ShareFetch", "ShareAcknowledge")


def error_response(topics: Mapping[str, Topic], request: Request, error: int) -> Message:
    """Returns the response to a request, with the error code `error`.

    Depending on the API, the error code is in the response itself, or in each of its rows.
    """
    response: Any = request.api.response()
    _fill(response, _with_all_topics(topics, request), request, error)
    if request.api.name == "Fetch" and not response.error_code:
        response.session_id = request.message.session_id
    if request.api.name in IN_SESSIONS and not response.error_code and not response.responses:
        response.error_code = error  # a request in a session need not name a partition
    message: Message = response
    return message


def reports_errors(request: Request) -> bool:
    """Returns whether the response to a request has an error code, in itself or in its rows."""
    return _has_error(request.api.response, request.version)


def _with_all_topics(topics: Mapping[str, Topic], request: Request) -> Any:
    """Returns the message of a request.

    For a Metadata request for all topics, returns a message that names each topic of the cluster instead.
    """
    message = request.message
    if request.api.name == "Metadata" and not message.topics:
        names = [MetadataRequestTopic(name=name, topic_id=topic.id) for name, topic in topics.items()]
        return request.api.request(topics=names)
    return message


def _fill(response: Any, source: Any, request: Request, error: int) -> None:
    """Set the error code of a new response or row. If it reports this error in its rows, add them, each with the code.

    `response`: the response, or a row of it (rows can contain rows). `source`: what it responds to, the request or a
    row of the request. One row is added for each row in `source`.
    """
    name, version = request.api.name, request.version
    for field in response.FIELDS:
        if (name, field.name) in ERROR_VALUES:
            setattr(response, field.name, ERROR_VALUES[name, field.name])
    rows = [field for field in _arrays(type(response), version) if _has_error(_element(field), version)]
    code = _error_field(type(response), version)
    errors_at_top = ROWS_BEFORE_TOP.get(name, {error} - IN_ROWS.get(name, frozenset()))
    at_top = not rows or not isinstance(response, request.api.response) or error in errors_at_top
    if code is not None and at_top:
        setattr(response, code, error)
        if name == "ShareFetch" and getattr(source, "acknowledgement_batches", None):
            response.acknowledge_error_code = error  # the request had no effect: nothing was acknowledged
        return
    for field in rows:
        found = [_row(_element(field), row, request, error) for row in _rows(source, field, request)]
        setattr(response, field.name, found)


def _rows(source: Any, field: Field, request: Request) -> list[Any]:
    """Returns the rows in `source` that correspond to the rows in `field` of the response.

    `source`: a request, or a row of a request that contains rows.
    """
    lists = [each.name for each in source.FIELDS if isinstance(each.kind, Array) and request.version in each.versions]
    name = REQUEST_FIELDS.get((request.api.name, field.name), field.name)
    rows: list[Any] = getattr(source, name if name in lists else lists[0])
    return rows or []


def _row(cls: type[Message], source: Any, request: Request, error: int) -> Message:
    """Returns an error row of the class `cls`, with fields copied from a row of the request.

    `source`: the row of the request. It is a message or a single value, such as a group id.
    """
    row = cls()
    names = [field.name for field in cls.FIELDS if not isinstance(field.kind, Array)]
    if not isinstance(source, Message):
        key = next(name for name in names if name not in (*ERROR_CODES, "error_message"))
        setattr(row, key, source)
    else:
        for name in names:
            value = getattr(source, REQUEST_FIELDS.get((request.api.name, name), name), None)
            if value is not None or (name == "name" and request.api.name in BY_ID):
                setattr(row, name, value)
    _fill(row, source, request, error)
    return row


def _arrays(cls: type[Message], version: int) -> Iterator[Field]:
    """Yields the fields of a message class that are arrays of structs, if the version of the API has them."""
    for field in cls.FIELDS:
        if isinstance(field.kind, Array) and isinstance(field.kind.element, type) and version in field.versions:
            yield field


def _element(field: Field) -> type[Message]:
    """Returns the class of the elements of an array of structs."""
    assert isinstance(field.kind, Array)
    assert isinstance(field.kind.element, type)
    return field.kind.element


def _error_field(cls: type[Message], version: int) -> str | None:
    """Returns the name of the error code field of a message class, or None if it has none in this version."""
    return next((f.name for f in cls.FIELDS if f.name in ERROR_CODES and version in f.versions), None)


def _has_error(cls: type[Message], version: int) -> bool:
    """Returns whether messages of a class have an error code in this version, in themselves or in their rows."""
    rows = _arrays(cls, version)
    return _error_field(cls, version) is not None or any(_has_error(_element(field), version) for field in rows)
