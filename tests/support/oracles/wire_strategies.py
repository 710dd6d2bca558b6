"""Hypothesis strategies for wire messages: any values that one version can carry."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from kconsumer.schema import APIS, Api
from kconsumer.schema.dsl import Array, Field, Kind, Message, Scalar

# Every API at every version, each way: what parametrized tests run over.
CASES = [
    (api, version, direction)
    for api in APIS.values()
    for version in range(api.min_version, api.max_version + 1)
    for direction in ("request", "response")
]
CASE_IDS = [f"{api.name}-v{version}-{direction}" for api, version, direction in CASES]

SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": st.text(max_size=20) | st.just("x" * 200),
    "bytes": st.binary(max_size=20) | st.just(bytes(200)),
    "records": st.binary(max_size=20),
}


def message_class(api: Api, direction: str) -> type[Message]:
    """Returns the API's request or response class."""
    return api.request if direction == "request" else api.response


def messages(cls: type[Message], version: int) -> st.SearchStrategy[Any]:
    """Returns a strategy for any `cls` of a version; fields that the version does not have keep their defaults."""
    return st.builds(cls, **{field.name: values(field, version) for field in cls.FIELDS if version in field.versions})


def values(field: Field, version: int) -> st.SearchStrategy[Any]:
    """Returns a strategy for any value of a field at a version."""
    found = kind_values(field.kind, version)
    nullable = version in field.null or (field.tag is not None and isinstance(field.kind, type))
    return st.none() | found if nullable else found


def kind_values(kind: Kind, version: int) -> st.SearchStrategy[Any]:
    """Returns a strategy for any value of a kind at a version."""
    if isinstance(kind, Scalar):
        return SCALARS[kind.name]
    if isinstance(kind, Array):
        return st.lists(kind_values(kind.element, version), max_size=3)
    return messages(kind, version)
