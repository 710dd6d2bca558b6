"""Lists, describes and deletes groups, and shows and changes their offsets. See `kconsumer.groups.client`."""

from kconsumer.groups.client import (
    STATES,
    TYPES,
    GroupClient,
    alter_configs,
    alter_offsets,
    alter_share_offsets,
    configs,
    delete,
    delete_offsets,
    delete_share_offsets,
    describe,
    list,
    offsets,
    remove_members,
)
from kconsumer.groups.types import GroupDescription, GroupListing, GroupMember, GroupOffset

__all__ = [
    "STATES",
    "TYPES",
    "GroupClient",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupOffset",
    "alter_configs",
    "alter_offsets",
    "alter_share_offsets",
    "configs",
    "delete",
    "delete_offsets",
    "delete_share_offsets",
    "describe",
    "list",
    "offsets",
    "remove_members",
]
