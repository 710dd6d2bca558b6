"""The responses in which the cluster model reports an error of a whole request."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer._core.codec import decode_response, encode_response
from kconsumer.schema import FETCH, METADATA, OFFSET_FETCH
from kconsumer.schema.dsl import Api, Array, Message
from kconsumer.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from kconsumer.schema.metadata import MetadataRequest
from kconsumer.schema.offsets import OffsetFetchRequest, OffsetFetchRequestTopic
from kconsumer.testing.cluster import releases
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.error_responses import error_response
from kconsumer.testing.cluster.requests import Request

APIS = sorted(releases.apis().values(), key=lambda api: api.key)
ERROR = Errors.UNKNOWN_SERVER_ERROR


def request(api: Api, version: int, message: Message) -> Request:
    """Returns a request as a broker of the model receives it."""
    connection = Cluster().connect(1)
    assert connection is not None
    return Request(api, version, 7, None, message, connection, 0)


def with_rows(cls: type[Message], version: int) -> Message:
    """Returns a message in which each array of a version has one element."""
    message = cls()
    for field in cls.FIELDS:
        if version in field.versions and isinstance(field.kind, Array):
            element = field.kind.element
            row = with_rows(element, version) if isinstance(element, type) else element.default
            setattr(message, field.name, [row])
    return message


def codes(message: Any) -> set[int]:
    """Returns all error codes of a message and its rows."""
    found = set()
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            found.add(value)
        if isinstance(field.kind, Array) and isinstance(field.kind.element, type):
            found |= {code for row in value or [] for code in codes(row)}
    return found


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_every_api_reports_errors(api: Api) -> None:
    """The response to a request with one row of each kind contains the error code, in every version."""
    for version in range(api.min_version, api.max_version + 1):
        made = request(api, version, with_rows(api.request, version))
        response = error_response(Cluster(), made, ERROR)
        _, decoded = decode_response(api, version, encode_response(api, version, 7, response)[4:])
        assert int(ERROR) in codes(decoded), version


def test_rows_of_a_fetch() -> None:
    """An error of partitions is in their rows, and the session continues; an error of the session is at the top."""
    message = FetchRequest(session_id=5, topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=3)])])
    response: Any = error_response(Cluster(), request(FETCH, 12, message), Errors.NOT_LEADER_OR_FOLLOWER)
    ((row,),) = [topic.partitions for topic in response.responses]
    assert (0, 5, "t") == (response.error_code, response.session_id, response.responses[0].topic)
    assert (3, Errors.NOT_LEADER_OR_FOLLOWER, -1) == (row.partition_index, row.error_code, row.high_watermark)
    response = error_response(Cluster(), request(FETCH, 12, message), Errors.FETCH_SESSION_ID_NOT_FOUND)
    assert (Errors.FETCH_SESSION_ID_NOT_FOUND, []) == (response.error_code, response.responses)


def test_rows_of_single_values() -> None:
    """A row of the request that is a single value becomes the key of its row in the response."""
    message = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[4, 2])])
    response: Any = error_response(Cluster(), request(OFFSET_FETCH, 1, message), Errors.NOT_COORDINATOR)
    (topic,) = response.topics
    rows = [(row.partition_index, row.committed_offset, row.error_code) for row in topic.partitions]
    assert ("t", [(4, -1, 16), (2, -1, 16)]) == (topic.name, rows)


def test_metadata_of_all_topics() -> None:
    """The error of a Metadata request for all topics is in the row of each topic."""
    cluster = Cluster()
    cluster.create_topic("t")
    made = request(METADATA, 9, MetadataRequest(topics=None))
    response: Any = error_response(cluster, made, Errors.LEADER_NOT_AVAILABLE)
    assert [("t", Errors.LEADER_NOT_AVAILABLE)] == [(row.name, row.error_code) for row in response.topics]
