"""Lists and describes groups, their members and their offsets. See `kconsumer.groups.client`."""

from kconsumer.groups.client import STATES, TYPES, GroupClient, describe, list, offsets
from kconsumer.groups.types import GroupDescription, GroupListing, GroupMember, GroupOffset

__all__ = [
    "STATES",
    "TYPES",
    "GroupClient",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupOffset",
    "describe",
    "list",
    "offsets",
]
