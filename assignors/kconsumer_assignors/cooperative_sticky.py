"""The cooperative sticky assignor: the sticky one for members that keep consuming during a rebalance (KIP-429).

A partition that moves is assigned to no member at first. Its old owner revokes it and rejoins, and the next rebalance
assigns it. So no partition ever has two owners, and partitions that do not move are never interrupted.
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
    """Withholds, for one rebalance, every partition that another member still owns."""

    name = "cooperative-sticky"
    protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def assign(self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """Assign as `sticky` does, without the partitions that must be revoked first."""
        roster, owners, (kept, received) = assign_sticky(cluster, subscriptions, _claim)
        if owners:
            received = [_free(roster, owners, partitions) for partitions in received]
        return roster.assignments([mine + more for mine, more in zip(kept, received, strict=True)])

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """Return the generation of the last assignment, for leaders that read no subscription above version 1."""
        return encode_generation(self._generation)

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        """Store the generation of the assignment."""
        self._generation = metadata.generation_id


def _claim(subscription: Subscription) -> Claim:
    generation = subscription.generation_id
    if generation < 0:
        generation = decode_generation(subscription.user_data)
    return Claim(generation, subscription.owned_partitions)


def _free(roster: Roster, owners: Owners, partitions: list[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions without an owner and without conflicting claims."""
    return [
        partition
        for partition in partitions
        if partition[0] not in owners or owners[partition[0]][roster.index_of(*partition)] == FREE
    ]
