"""The cooperative sticky assignor: the sticky assignor for members that keep consuming during a rebalance (KIP-429).

A partition that must move to another member is at first not assigned to any member. Its owner revokes it and rejoins
the group, and the next rebalance assigns it to the new member. So a partition never has two owners, and members keep
consuming the partitions that do not move.
"""

from __future__ import annotations

from collections.abc import Mapping

from kconsumer.assignors import Assignment, Assignor, ClusterView, RebalanceProtocol, Subscription
from kconsumer.types import GroupMetadata, TopicPartition
from kconsumer_assignors._common import Roster
from kconsumer_assignors._ownership import FREE, Owners
from kconsumer_assignors._sticky import assign_sticky
from kconsumer_assignors._user_data import NO_GENERATION, Claim, decode_generation, encode_generation


class CooperativeStickyAssignor(Assignor):
    """Assigns like `StickyAssignor`, but does not assign a partition to a new member until its owner has revoked it."""

    name = "cooperative-sticky"
    protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def assign(self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """Returns the assignment that `sticky` would make, but without partitions that another member must first
        revoke."""
        roster, owners, (kept, received) = assign_sticky(cluster, subscriptions, _claim)
        if owners:
            received = [_free(roster, owners, partitions) for partitions in received]
        return roster.assignments([mine + more for mine, more in zip(kept, received, strict=True)])

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """Returns the encoded generation of the last assignment.

        A subscription in version 2 or later has a field for the generation. Only leaders that support no such version
        read this user data.
        """
        return encode_generation(self._generation)

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        """Store the generation of the assignment."""
        self._generation = metadata.generation_id


def _claim(subscription: Subscription) -> Claim:
    """Returns the claim of a member to the partitions that its subscription contains as owned.

    The generation of the claim is that of the subscription. If the subscription has none, the generation is read from
    the user data.
    """
    generation = subscription.generation_id
    if generation < 0:
        generation = decode_generation(subscription.user_data)
    return Claim(generation, subscription.owned_partitions)


def _free(roster: Roster, owners: Owners, partitions: list[TopicPartition]) -> list[TopicPartition]:
    """Returns those of `partitions` that have neither an owner nor conflicting claims."""
    return [
        partition
        for partition in partitions
        if partition[0] not in owners or owners[partition[0]][roster.index_of(*partition)] == FREE
    ]
