"""The online migration between the classic and the consumer protocol (`group.consumer.migration.policy`).

A classic group becomes a group of the consumer protocol when a member joins with the consumer protocol. It becomes a
classic group again when the last member that uses the consumer protocol leaves, or when a member that uses the classic
protocol replaces that member.
"""

from __future__ import annotations

from collections.abc import Collection

from kconsumer._common.error_codes import Errors
from kconsumer.errors import ProtocolError
from kconsumer.schema.embedded import PROTOCOL_TYPE
from kconsumer.testing.cluster.groups.classic import ClassicGroup
from kconsumer.testing.cluster.groups.classic_generation import STABLE
from kconsumer.testing.cluster.groups.classic_member import ClassicMember
from kconsumer.testing.cluster.groups.consumer_group import ConsumerGroup
from kconsumer.testing.cluster.groups.consumer_member import ClassicProtocol, ConsumerMember
from kconsumer.testing.cluster.groups.embedded_protocol import (
    partitions_by_id,
    read_assignment,
    read_subscription,
    write_assignment,
)
from kconsumer.testing.cluster.requests import GroupError

UPGRADE_POLICIES = ("upgrade", "bidirectional")
DOWNGRADE_POLICIES = ("downgrade", "bidirectional")


# --- from the classic to the consumer protocol ---


def validate_upgrade(group: ClassicGroup) -> None:
    """Raise GroupError if a classic group must not become a group of the consumer protocol."""
    settings = group.coordinator.cluster.settings
    for invalid, reason in (
        (settings.group_consumer_migration_policy not in UPGRADE_POLICIES, "online upgrade is disabled"),
        (group.protocol_type != PROTOCOL_TYPE, "the group does not use the consumer embedded protocol"),
        (
            len(group.members) > settings.group_consumer_max_size,
            "the group size exceeds the consumer group maximum size",
        ),
    ):
        if invalid:
            raise _not_upgraded(group, f"because {reason}")


def upgrade(classic: ClassicGroup, group: ConsumerGroup) -> None:
    """Copy the members, the generation and the assignment of a classic group to a new group.

    Raises GroupError if a subscription or assignment cannot be decoded, or if an assignor has added user data.
    """
    group.begin_at(classic.generation)
    for member in classic.members.values():
        try:
            upgraded = _upgraded_member(classic, member)
        except ProtocolError:
            raise _not_upgraded(classic, "because the embedded consumer protocol is malformed") from None
        group.put_member(upgraded)
        group.target[member.id] = {topic_id: set(found) for topic_id, found in upgraded.assigned.items()}
    group.store_topics()


def _upgraded_member(group: ClassicGroup, member: ClassicMember) -> ConsumerMember:
    """Returns the `ConsumerMember` for a member of a classic group. It continues to use the classic protocol."""
    subscription = read_subscription(member.metadata(group.protocol_name))
    assignment = read_assignment(member.assignment)
    if assignment.user_data:
        raise _not_upgraded(
            group,
            "because an unsupported custom assignor is in use. Please refer to the documentation or switch to a "
            "default assignor before re-attempting the upgrade",
        )
    owned = partitions_by_id(assignment.assigned_partitions, group.coordinator.cluster.topics)
    return ConsumerMember(
        member.id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topics=frozenset(subscription.topics),
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned={topic_id: dict.fromkeys(found, group.generation) for topic_id, found in owned.items() if found},
        classic=ClassicProtocol(member.session_timeout_ms, member.protocols),
    )


def _not_upgraded(group: ClassicGroup, reason: str) -> GroupError:
    message = f"Cannot upgrade classic group {group.id} to consumer group {reason}."
    return GroupError(Errors.GROUP_ID_NOT_FOUND, message)


# --- from the consumer to the classic protocol ---


def can_downgrade(group: ConsumerGroup, leaving: Collection[str], *, replaced: bool = False) -> bool:
    """Returns whether a group has to become a classic group when the members with the ids `leaving` leave.

    This is so if members remain, all of them use the classic protocol, and the settings allow it. `replaced`: True if a
    classic member replaces the one that leaves.
    """
    settings = group.coordinator.cluster.settings
    remaining = [member for member in group.members.values() if member.id not in leaving]
    size = len(remaining) + replaced
    return (
        all(member.classic is not None for member in remaining)
        and size > 0
        and settings.group_consumer_migration_policy in DOWNGRADE_POLICIES
        and size <= settings.group_max_size
    )


def downgrade(group: ConsumerGroup, members: Collection[ConsumerMember], now: float, *, rebalance: bool) -> None:
    """Replace a group by a classic group with these members, all of which must use the classic protocol.

    `rebalance`: True to begin a rebalance of the classic group.
    """
    topics = group.coordinator.cluster.topics_by_id
    classic = ClassicGroup(group.coordinator, group.id, now)
    for member in members:
        if member.classic is not None:
            classic.add_member(_downgraded_member(member, member.classic))
    classic.begin_generation(now)
    classic.generation = group.epoch
    for row in classic.members.values():
        row.assignment = write_assignment(group.target.get(row.id, {}), row.metadata(classic.protocol_name), topics)
    classic.transition(STABLE, now)
    classic.store()
    group.coordinator.replace(classic, now)
    for row in classic.members.values():
        classic.rebalance.renew_session(row, now)
    if rebalance:
        classic.rebalance.prepare(now)


def _downgraded_member(member: ConsumerMember, classic: ClassicProtocol) -> ClassicMember:
    """Returns the `ClassicMember` for a member of a consumer group. `classic`: what it sent in JoinGroup."""
    return ClassicMember(
        member.id,
        member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        protocol_type=PROTOCOL_TYPE,
        protocols=classic.protocols,
    )
