"""The sticky assignor: as even as the subscriptions allow, and among those the fewest partitions moved.

Eager: members give up everything before they join, and say in their user data what they had. The bytes are those
of Java's StickyAssignor, so Java and Python members can share a group.
"""

from __future__ import annotations

from collections.abc import Mapping

from kconsumer.assignors import Assignment, Assignor, ClusterView, Subscription
from kconsumer.types import GroupMetadata, TopicPartition
from kconsumer_assignors._sticky import assign_sticky
from kconsumer_assignors._user_data import NO_GENERATION, Claim, decode_sticky, encode_sticky


class StickyAssignor(Assignor):
    """Remembers its member's last assignment and tells the leader about it (KIP-54)."""

    name = "sticky"

    def __init__(self) -> None:
        self._partitions: tuple[TopicPartition, ...] | None = None
        self._generation = NO_GENERATION

    def assign(self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """Balance first, then racks (KIP-881), then stickiness."""
        roster, _, division = assign_sticky(cluster, subscriptions, _claim)
        return roster.assignments([mine + more for mine, more in zip(*division, strict=True)])

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """The last assignment and its generation; None before the first."""
        return None if self._partitions is None else encode_sticky(self._partitions, self._generation)

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        """Remember it for the next rebalance."""
        self._partitions = assignment.partitions
        self._generation = metadata.generation_id


def _claim(subscription: Subscription) -> Claim:
    # Not from `owned_partitions`: an eager member has given them up by now.
    return decode_sticky(subscription.user_data)
