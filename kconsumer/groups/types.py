"""The values that `kconsumer.groups` returns.

A consumer does not need them, so they are not in `kconsumer/types.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kconsumer.types import Node, TopicPartition


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group, as its coordinator lists it."""

    group_id: str
    type: str | None  #: None if the broker does not report it (before Kafka 3.8)
    state: str | None  #: None if the broker does not report it (before Kafka 2.6)
    protocol_type: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member of a group. A field is None if this type of group does not have it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    #: The partitions that the member may read now, sorted by topic and partition.
    assignment: tuple[TopicPartition, ...] = ()
    #: The partitions that the member may read after other members have revoked them (KIP-848), in the same order.
    target_assignment: tuple[TopicPartition, ...] | None = None
    member_epoch: int | None = None
    rack_id: str | None = None
    subscribed_topics: tuple[str, ...] | None = None
    subscribed_pattern: str | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group and its members."""

    group_id: str
    type: str  #: classic, consumer or share
    state: str
    protocol_type: str
    protocol: str  #: the name of the assignor; empty if there is none
    coordinator: Node | None = None
    group_epoch: int | None = None  #: None in a classic group
    assignment_epoch: int | None = None  #: None in a classic group
    members: tuple[GroupMember, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """The progress of a group in one partition."""

    #: None if no offset is committed. In a share group, this is the start offset: earlier records are not delivered.
    committed: int | None
    log_start: int | None  #: None if the partition has no leader or no longer exists
    end: int | None  #: None if the partition has no leader or no longer exists
    lag: int | None  #: the number of records that are not read yet; None if unknown
    owner: str | None = None  #: the id of the member that reads the partition; None if there is none or several
    leader_epoch: int | None = None
    metadata: str = ""
    #: How old the first record is that the group has not read yet (s, by its timestamp); 0.0 if there is none. If that
    #: record is deleted, it is the oldest one that exists. None if no offset is committed, if the record cannot be read
    #: or has no timestamp, or if the age was not requested. It grows with time, so comparisons leave it out.
    lag_seconds: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster and its brokers."""

    cluster_id: str | None
    controller: Node | None  #: any broker, if the controllers are no brokers (KRaft); None if it is unknown
    brokers: tuple[Node, ...]  #: the brokers that run, sorted by id


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open in one partition."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    start_offset: int  #: the first offset of the transaction in this partition
    #: How long the transaction is open (s), or if `hanging`, how old its last record is; None if unknown.
    age_s: float | None
    coordinator: Node | None  #: None if no broker knows the producer
    transactional_id: str | None  #: None if no broker knows the producer
    state: str | None  #: as the coordinator reports it, such as Ongoing; None if no broker knows the producer
    hanging: bool = False  #: True if the coordinator knows of no transaction here, so that it never ends by itself
