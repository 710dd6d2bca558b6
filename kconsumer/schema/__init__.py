"""The protocol as tables: the messages of each API, in all versions that brokers of Kafka 2.1 to 4.4 may negotiate.

The modules are tables, written with the functions of `dsl.py`. Each has the APIs of one family. A program needs only
some of them. `APIS` maps the keys of those that consumers use to the APIs.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kconsumer.schema.dsl import Api

_OF_CONSUMERS = {
    "admin": ("CONSUMER_GROUP_DESCRIBE", "DESCRIBE_GROUPS", "LIST_GROUPS"),
    "classic_group": ("HEARTBEAT", "JOIN_GROUP", "LEAVE_GROUP", "SYNC_GROUP"),
    "consumer_group": ("CONSUMER_GROUP_HEARTBEAT",),
    "fetch": ("FETCH",),
    "group_deletion": ("DELETE_GROUPS",),
    "metadata": ("API_VERSIONS", "FIND_COORDINATOR", "METADATA"),
    "offsets": ("LIST_OFFSETS", "OFFSET_COMMIT", "OFFSET_FETCH", "OFFSET_FOR_LEADER_EPOCH"),
    "sasl": ("SASL_AUTHENTICATE", "SASL_HANDSHAKE"),
    "share_group": (
        *("ALTER_SHARE_GROUP_OFFSETS", "DELETE_SHARE_GROUP_OFFSETS", "DESCRIBE_SHARE_GROUP_OFFSETS"),
        *("SHARE_ACKNOWLEDGE", "SHARE_FETCH", "SHARE_GROUP_DESCRIBE", "SHARE_GROUP_HEARTBEAT"),
    ),
    "telemetry": ("GET_TELEMETRY_SUBSCRIPTIONS", "PUSH_TELEMETRY"),
}


def __getattr__(name: str) -> dict[int, Api]:
    """Returns `APIS`: the APIs that consumers use, by their keys. Imports the modules that define them."""
    if name != "APIS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    tables = ((import_module(f"{__name__}.{module}"), names) for module, names in _OF_CONSUMERS.items())
    found = (getattr(table, each) for table, names in tables for each in names)
    globals()[name] = apis = {api.key: api for api in found}
    return apis


@cache
def all_apis() -> dict[int, Api]:
    """Returns all APIs, by their keys. Imports all modules of this package."""
    from kconsumer.schema.dsl import Api

    tables = (import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))
    return {api.key: api for table in tables for api in vars(table).values() if isinstance(api, Api)}
