"""The responses in which the cluster model reports an error of a whole request."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer._core.codec import decode_response, encode_response
from kconsumer.schema import all_apis
from kconsumer.schema.dsl import Api, Array, Message
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.error_responses import error_response
from kconsumer.testing.cluster.requests import Request

APIS = sorted(all_apis().values(), key=lambda api: api.key)
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
        response = error_response(Cluster().topics, made, ERROR)
        _, decoded = decode_response(api, version, encode_response(api, version, 7, response)[4:])
        assert int(ERROR) in codes(decoded), version
