"""The protocol as tables: the messages of each API, in all versions that brokers of Kafka 2.1 to 4.4 may negotiate.

`APIS` maps each API key to its API. The module that defines an API is imported at the first use of the API, because a
program needs only some of them. These modules are tables, written with the functions of `dsl.py`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from kconsumer.schema.dsl import ZERO_UUID, Api, Message

if TYPE_CHECKING:
    from kconsumer.schema.admin import CONSUMER_GROUP_DESCRIBE, DESCRIBE_GROUPS, LIST_GROUPS
    from kconsumer.schema.classic_group import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
    from kconsumer.schema.consumer_group import CONSUMER_GROUP_HEARTBEAT
    from kconsumer.schema.fetch import FETCH
    from kconsumer.schema.group_deletion import DELETE_GROUPS
    from kconsumer.schema.metadata import API_VERSIONS, FIND_COORDINATOR, METADATA
    from kconsumer.schema.offsets import LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH, OFFSET_FOR_LEADER_EPOCH
    from kconsumer.schema.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE
    from kconsumer.schema.share_group import (
        ALTER_SHARE_GROUP_OFFSETS,
        DELETE_SHARE_GROUP_OFFSETS,
        DESCRIBE_SHARE_GROUP_OFFSETS,
        SHARE_ACKNOWLEDGE,
        SHARE_FETCH,
        SHARE_GROUP_DESCRIBE,
        SHARE_GROUP_HEARTBEAT,
    )
    from kconsumer.schema.telemetry import GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY

    APIS: dict[int, Api]

_HOMES = {
    "FETCH": "fetch",
    "LIST_OFFSETS": "offsets",
    "METADATA": "metadata",
    "OFFSET_COMMIT": "offsets",
    "OFFSET_FETCH": "offsets",
    "FIND_COORDINATOR": "metadata",
    "JOIN_GROUP": "classic_group",
    "HEARTBEAT": "classic_group",
    "LEAVE_GROUP": "classic_group",
    "SYNC_GROUP": "classic_group",
    "DESCRIBE_GROUPS": "admin",
    "LIST_GROUPS": "admin",
    "DELETE_GROUPS": "group_deletion",
    "SASL_HANDSHAKE": "sasl",
    "API_VERSIONS": "metadata",
    "OFFSET_FOR_LEADER_EPOCH": "offsets",
    "SASL_AUTHENTICATE": "sasl",
    "CONSUMER_GROUP_HEARTBEAT": "consumer_group",
    "CONSUMER_GROUP_DESCRIBE": "admin",
    "GET_TELEMETRY_SUBSCRIPTIONS": "telemetry",
    "PUSH_TELEMETRY": "telemetry",
    "SHARE_GROUP_HEARTBEAT": "share_group",
    "SHARE_GROUP_DESCRIBE": "share_group",
    "SHARE_FETCH": "share_group",
    "SHARE_ACKNOWLEDGE": "share_group",
    "DESCRIBE_SHARE_GROUP_OFFSETS": "share_group",
    "ALTER_SHARE_GROUP_OFFSETS": "share_group",
    "DELETE_SHARE_GROUP_OFFSETS": "share_group",
}

__all__ = [
    "ALTER_SHARE_GROUP_OFFSETS",
    "APIS",
    "API_VERSIONS",
    "CONSUMER_GROUP_DESCRIBE",
    "CONSUMER_GROUP_HEARTBEAT",
    "DELETE_GROUPS",
    "DELETE_SHARE_GROUP_OFFSETS",
    "DESCRIBE_GROUPS",
    "DESCRIBE_SHARE_GROUP_OFFSETS",
    "FETCH",
    "FIND_COORDINATOR",
    "GET_TELEMETRY_SUBSCRIPTIONS",
    "HEARTBEAT",
    "JOIN_GROUP",
    "LEAVE_GROUP",
    "LIST_GROUPS",
    "LIST_OFFSETS",
    "METADATA",
    "OFFSET_COMMIT",
    "OFFSET_FETCH",
    "OFFSET_FOR_LEADER_EPOCH",
    "PUSH_TELEMETRY",
    "SASL_AUTHENTICATE",
    "SASL_HANDSHAKE",
    "SHARE_ACKNOWLEDGE",
    "SHARE_FETCH",
    "SHARE_GROUP_DESCRIBE",
    "SHARE_GROUP_HEARTBEAT",
    "SYNC_GROUP",
    "ZERO_UUID",
    "Api",
    "Message",
]


def __getattr__(name: str) -> object:
    """Returns the API `name`, or the dict of all APIs for "APIS". Imports the modules that define them."""
    found: object
    if name == "APIS":
        found = {api.key: api for api in map(_load, _HOMES)}
    elif name in _HOMES:
        found = _load(name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def _load(name: str) -> Api:
    found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    assert isinstance(found, Api)
    return found
