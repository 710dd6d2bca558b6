"""The sticky assignor: makes loads as even as the subscriptions allow, with few moves of partitions.

It uses the eager protocol: members revoke all partitions before they join the group. In their user data, they send the
partitions that they owned. The user data has the layout of Java's StickyAssignor, so Java and Python members can be in
the same group.
"""

from __future__ import annotations

from collections.abc import Mapping

from kconsumer.assignors import Assignment, Assignor, ClusterView, Subscription
from kconsumer.types import GroupMetadata, TopicPartition
from kconsumer_assignors._sticky import assign_sticky
from kconsumer_assignors._user_data import NO_GENERATION, Claim, decode_sticky, encode_sticky


class StickyAssignor(Assignor):
    """Makes even assignments with few moves (KIP-54).

    Each member stores its last assignment, and sends it to the leader of the group with its next subscription.
    """

    name = "sticky"

    def __init__(self) -> None:
        self._partitions: tuple[TopicPartition, ...] | None = None
        self._generation = NO_GENERATION

    def assign(self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """Returns an assignment with loads that are as even as possible.

        Among such assignments, prefers those in which members read in their own rack (KIP-881), and among these the
        ones with few moves of partitions.
        """
        roster, _, division = assign_sticky(cluster, subscriptions, _claim)
        return roster.assignments([mine + more for mine, more in zip(*division, strict=True)])

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """Returns the last assignment and its generation, encoded. Returns None before the first assignment."""
        return None if self._partitions is None else encode_sticky(self._partitions, self._generation)

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        """Store the assignment for the next rebalance."""
        self._partitions = assignment.partitions
        self._generation = metadata.generation_id


def _claim(subscription: Subscription) -> Claim:
    """Returns the partitions that a member claims to own, and their generation, from its user data."""
    # `owned_partitions` does not count: an eager member has revoked these partitions.
    return decode_sticky(subscription.user_data)
