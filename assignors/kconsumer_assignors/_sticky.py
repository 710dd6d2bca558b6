"""The common part of the two sticky assignors: finds the owners of the partitions, then divides the partitions."""

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
    """Returns the members, the owners of partitions before the rebalance, and the new partitions of each member.

    `claim` is called with the subscription of each member, and returns which partitions the member claims to own.
    """
    # These modules are half of the code of this package. They are imported here because only the leader of a group with
    # a sticky assignor needs them.
    from kconsumer_assignors._partition_classes import divide
    from kconsumer_assignors._racks import rack_view

    roster = Roster(cluster, subscriptions, by_id)
    ownership = resolve(roster, [claim(subscription) for subscription in roster.subscriptions])
    return roster, ownership.owners, divide(roster, ownership, rack_view(cluster, roster))
