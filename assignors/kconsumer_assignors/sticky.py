"""The sticky assignor: loads as even as the subscriptions allow, and among such assignments the fewest moves.

It is eager: members revoke all partitions before they join, and send the partitions in their user data. Its layout is
that of Java's StickyAssignor, so Java and Python members can share a group.
"""

from __future__ import annotations

from collections.abc import Mapping

from kconsumer.assignors import Assignment, Assignor, ClusterView, Subscription
from kconsumer.types import GroupMetadata, TopicPartition
from kconsumer_assignors._sticky import assign_sticky
from kconsumer_assignors._user_data import NO_GENERATION, Claim, decode_sticky, encode_sticky


class StickyAssignor(Assignor):
    """Stores the last assignment of its member and sends it to the leader (KIP-54)."""

    name = "sticky"

    def __init__(self) -> None:
        self._partitions: tuple[TopicPartition, ...] | None = None
        self._generation = NO_GENERATION

    def assign(self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """Assign by balance first, then by racks (KIP-881), then by stickiness."""
        roster, _, division = assign_sticky(cluster, subscriptions, _claim)
        return roster.assignments([mine + more for mine, more in zip(*division, strict=True)])

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """Return the last assignment and its generation. None before the first assignment."""
        return None if self._partitions is None else encode_sticky(self._partitions, self._generation)

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        """Store the assignment for the next rebalance."""
        self._partitions = assignment.partitions
        self._generation = metadata.generation_id


def _claim(subscription: Subscription) -> Claim:
    # `owned_partitions` does not count: an eager member has revoked these partitions.
    return decode_sticky(subscription.user_data)
