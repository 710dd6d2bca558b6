"""All message tables together: the APIs and their versions, and the consistency of each table."""

from __future__ import annotations

import sys

import pytest

from kconsumer.schema import APIS, all_apis
from kconsumer.schema.dsl import Api, Array, Message
from kconsumer.schema.embedded import ConsumerProtocolAssignment, ConsumerProtocolSubscription

# name: key, versions, flexible from, throttled by the client from
EXPECTED = {
    "Fetch": (1, 4, 18, 12, 8),
    "ListOffsets": (2, 1, 11, 6, 3),
    "Metadata": (3, 0, 13, 9, 6),
    "OffsetCommit": (8, 2, 10, 8, 4),
    "OffsetFetch": (9, 1, 10, 6, 4),
    "FindCoordinator": (10, 0, 6, 3, 2),
    "JoinGroup": (11, 0, 9, 6, 3),
    "Heartbeat": (12, 0, 4, 4, 2),
    "LeaveGroup": (13, 0, 5, 4, 2),
    "SyncGroup": (14, 0, 5, 4, 2),
    "DescribeGroups": (15, 0, 6, 5, 2),
    "ListGroups": (16, 0, 5, 3, 2),
    "SaslHandshake": (17, 0, 1, None, None),
    "ApiVersions": (18, 0, 5, 3, 2),
    "OffsetForLeaderEpoch": (23, 2, 4, 4, 2),
    "SaslAuthenticate": (36, 0, 2, 2, None),
    "DeleteGroups": (42, 0, 3, 2, 1),
    "ConsumerGroupHeartbeat": (68, 0, 1, 0, 0),
    "ConsumerGroupDescribe": (69, 0, 1, 0, 0),
    "GetTelemetrySubscriptions": (71, 0, 0, 0, 0),
    "PushTelemetry": (72, 0, 0, 0, 0),
    "ShareGroupHeartbeat": (76, 1, 1, 0, 0),
    "ShareGroupDescribe": (77, 1, 1, 0, 0),
    "ShareFetch": (78, 1, 2, 0, 0),
    "ShareAcknowledge": (79, 1, 2, 0, 0),
    "DescribeShareGroupOffsets": (90, 0, 1, 0, 0),
    "AlterShareGroupOffsets": (91, 0, 0, 0, 0),
    "DeleteShareGroupOffsets": (92, 0, 0, 0, 0),
}


def classes() -> list[type[Message]]:
    """Returns all message classes."""
    found: list[type[Message]] = []
    todo: list[type[Message]] = [ConsumerProtocolSubscription, ConsumerProtocolAssignment]
    todo += [cls for api in APIS.values() for cls in (api.request, api.response)]
    while todo:
        cls = todo.pop()
        if cls in found:
            continue
        found.append(cls)
        for field in cls.FIELDS:
            inner = field.kind.element if isinstance(field.kind, Array) else field.kind
            if isinstance(inner, type):
                todo.append(inner)
    return found


def test_apis() -> None:
    """The APIs and versions are those that a consumer negotiates with brokers 2.1 to 4.4."""
    found = {
        api.name: (api.key, api.min_version, api.max_version, api.flexible_from, api.throttle_from)
        for api in APIS.values()
    }
    assert EXPECTED == found
    assert all(key == api.key for key, api in APIS.items())


@pytest.mark.parametrize("api", all_apis().values(), ids=lambda api: api.name)
def test_constants(api: Api) -> None:
    """Each API is a constant with the API's name, in the module of its messages."""
    constant = "".join(f"_{c}" if c.isupper() else c.upper() for c in api.name).lstrip("_")
    assert getattr(sys.modules[api.request.__module__], constant) is api


@pytest.mark.parametrize("cls", classes(), ids=lambda cls: cls.__name__)
def test_table_makes_sense(cls: type[Message]) -> None:
    """Field names and tags are unique, and a field is nullable only in versions that have it."""
    names = [field.name for field in cls.FIELDS]
    tags = [field.tag for field in cls.FIELDS if field.tag is not None]
    assert len(names) == len(set(names))
    assert list(range(len(tags))) == sorted(tags)
    for field in cls.FIELDS:
        assert field.name == field.name.lower()
        assert all(v in field.versions for v in range(40) if v in field.null)
        assert field.fresh is None or field.default is None


def test_class_names_are_unique() -> None:
    """Each struct has one class, and no two have the same name."""
    names = [cls.__name__ for cls in classes()]
    assert len(names) == len(set(names))
