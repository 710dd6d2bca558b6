"""The common part of the two sticky assignors: resolves claims, then divides the partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kconsumer.assignors import ClusterView, Subscription
from kconsumer_assignors._common import Roster, by_id
from kconsumer_assignors._ownership import Owners, resolve
from kconsumer_assignors._user_data import Claim

if TYPE_CHECKING:
    from kconsumer_assignors._partition_classes import Division


def assign_sticky(
    cluster: ClusterView, subscriptions: Mapping[str, Subscription], claim: Callable[[Subscription], Claim]
) -> tuple[Roster, Owners, Division]:
    """Return the members, the owners before the rebalance, and the new division.

    `claim` reads the claim of a member from its subscription.
    """
    # These modules are half of this package. Only the leader of a group that chose a sticky assignor needs them.
    from kconsumer_assignors._partition_classes import divide
    from kconsumer_assignors._racks import rack_view

    roster = Roster(cluster, subscriptions, by_id)
    ownership = resolve(roster, [claim(subscription) for subscription in roster.subscriptions])
    return roster, ownership.owners, divide(roster, ownership, rack_view(cluster, roster))
