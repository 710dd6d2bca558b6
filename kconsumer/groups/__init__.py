"""Lists, describes and deletes groups, and shows and changes their offsets. See `kconsumer.groups.client`."""

from kconsumer.groups.arguments import STATES, TYPES
from kconsumer.groups.client import (
    GroupClient,
    alter_client_metrics,
    alter_configs,
    alter_offsets,
    alter_share_offsets,
    client_metrics,
    configs,
    delete,
    delete_client_metrics,
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
    "alter_client_metrics",
    "alter_configs",
    "alter_offsets",
    "alter_share_offsets",
    "client_metrics",
    "configs",
    "delete",
    "delete_client_metrics",
    "delete_offsets",
    "delete_share_offsets",
    "describe",
    "list",
    "offsets",
    "remove_members",
]
