"""What server-side assignors read: the members of a group, their subscriptions and their present target assignments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: Partitions by topic id.
Partitions = dict[bytes, set[int]]


@dataclass(slots=True)
class AssignorMember:
    """The data of a member that assignors use."""

    id: str
    instance_id: str | None
    topic_ids: list[bytes]  # the topics that exist and to which the member subscribes, in the order of a hash map
    target: Partitions = field(default_factory=dict)  # the present target assignment


@dataclass(slots=True)
class AssignorGroup:
    """The data of a group that assignors use. `members` have the order of a hash map."""

    members: Sequence[AssignorMember]
    partition_counts: Mapping[bytes, int]  # by topic id
    homogeneous: bool  # True: all members subscribe to the same topics
