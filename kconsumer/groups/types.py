"""Plain values of group health, public through `kconsumer.groups`. No behaviour.

Apart from `types.py` because a consumer needs none of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from kconsumer.types import Node, TopicPartition


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group as its coordinator lists it. Brokers before 2.6 tell no state, those before 3.8 no type: then None."""

    group_id: str
    type: str | None
    state: str | None
    protocol_type: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member of a group, as the coordinator sees it. What its kind of group does not have is None.

    `assignment` is what it may read now and `target_assignment` what it will once others have given theirs up
    (KIP-848); both sorted by topic and partition.
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
    """A group and who is in it. `type` is classic, consumer or share; `protocol` is the assignor's name, empty while
    there is none; the epochs are None in a classic group."""

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
    """How far a group is in one partition. `committed` None: nothing is; `log_start` and `end` None: nobody can tell,
    because the partition has no leader or does not exist any more; `owner`: the member id of its reader.

    In a share group `committed` is where the records begin that not everybody has done with.
    """

    committed: int | None
    log_start: int | None
    end: int | None
    lag: int | None
    owner: str | None = None
    leader_epoch: int | None = None
    metadata: str = ""
