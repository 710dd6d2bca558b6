"""What the two sticky assignors share: settle the claims, then divide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kconsumer.assignors import ClusterView, Subscription
from kconsumer_assignors._claims import Owners, settle
from kconsumer_assignors._common import Roster, by_id
from kconsumer_assignors._user_data import Claim

if TYPE_CHECKING:
    from kconsumer_assignors._lots import Division


def assign_sticky(
    cluster: ClusterView, subscriptions: Mapping[str, Subscription], claim: Callable[[Subscription], Claim]
) -> tuple[Roster, Owners, Division]:
    """The members, who owned what, and who gets what. `claim` reads a member's claim from its subscription."""
    from kconsumer_assignors._lots import divide  # half of this package, and a leader's work:
    from kconsumer_assignors._racks import rack_view  # loaded when the group has chosen a sticky assignor

    roster = Roster(cluster, subscriptions, by_id)
    ownership = settle(roster, [claim(subscription) for subscription in roster.subscriptions])
    return roster, ownership.owners, divide(roster, ownership, rack_view(cluster, roster))
