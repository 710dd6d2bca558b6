"""Values of group health, public through `kconsumer.groups`. No behaviour.

They are not in `kconsumer/types.py` because a consumer needs none of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from kconsumer.types import Node, TopicPartition


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group as its coordinator lists it. `state` is None before Kafka 2.6, `type` before 3.8: the broker does not
    report it."""

    group_id: str
    type: str | None
    state: str | None
    protocol_type: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member of a group, as its coordinator describes it. Fields that its kind of group does not have are None.

    `assignment` is what the member may read now, `target_assignment` what it will read after others have revoked their
    partitions (KIP-848); both are sorted by topic and partition.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...] = ()
    target_assignment: tuple[TopicPartition, ...] | None = None
    member_epoch: int | None = None
    rack_id: str | None = None
    subscribed_topics: tuple[str, ...] | None = None
    subscribed_pattern: str | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group and its members. `type` is classic, consumer or share; `protocol` is the assignor's name, empty if there
    is none; the epochs are None in a classic group."""

    group_id: str
    type: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: Node | None = None
    group_epoch: int | None = None
    assignment_epoch: int | None = None
    members: tuple[GroupMember, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """The progress of a group in one partition. `committed` is None without a committed offset. `log_start` and `end`
    are None if the partition has no leader or no longer exists. `owner` is the id of the member that reads it.

    In a share group `committed` is the first offset whose record is not finished by all members.
    """

    committed: int | None
    log_start: int | None
    end: int | None
    lag: int | None
    owner: str | None = None
    leader_epoch: int | None = None
    metadata: str = ""
