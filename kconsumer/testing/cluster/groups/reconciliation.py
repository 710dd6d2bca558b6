"""The reconciliation of a member with its target assignment, one step for each heartbeat (KIP-848).

First the member revokes the partitions that it must not keep, and confirms this. Then it gets the free partitions of
its target assignment, and the epoch of that assignment. Partitions that other members still own are assigned after they
were released.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from kconsumer.testing.cluster.groups.consumer_member import (
    STABLE,
    UNRELEASED_PARTITIONS,
    UNREVOKED_PARTITIONS,
    AssignedPartitions,
    ConsumerMember,
)
from kconsumer.testing.cluster.groups.server_assignors import Partitions

#: The partitions that a member says it owns, by topic id; None: it has not said it.
Owned = Mapping[bytes, Collection[int]] | None


class Reconciliation:
    """One step of the reconciliation of a member."""

    def __init__(
        self,
        member: ConsumerMember,
        *,
        target_epoch: int,
        target: Partitions,
        subscribed: Collection[bytes],
        owned: Owned,
        is_released: Callable[[bytes, int], bool],
    ) -> None:
        self._member = member
        self._target_epoch = target_epoch
        self._target = target
        self._subscribed = subscribed  # ids of the topics to which the member subscribes
        self._owned = owned
        self._is_released = is_released  # returns whether no member owns a partition

    def run(self, *, subscription_changed: bool) -> None:
        """Change the assignment, the state and the epoch of the member by one step.

        If the member has reached its target assignment, or still has to revoke partitions, this step only removes the
        topics to which the member does not subscribe any more. In this case, it does nothing if `subscription_changed`
        is False.
        """
        member = self._member
        reconciled = member.is_reconciled_to(self._target_epoch)
        waits = member.state == UNREVOKED_PARTITIONS and self._owns(member.pending_revocation)
        if not reconciled and not waits:
            self._compute_next()
        elif subscription_changed:
            self._remove_unsubscribed()

    def _owns(self, partitions: AssignedPartitions) -> bool:
        """Returns True if the member reports one of `partitions` as owned, or if it has not reported what it owns."""
        if self._owned is None:
            return True
        return any(
            partition in partitions.get(topic_id, ()) for topic_id, found in self._owned.items() for partition in found
        )

    def _remove_unsubscribed(self) -> None:
        """Remove topics from the assignment of the member if it does not subscribe to them any more.

        If the member may own partitions of these topics, it has to revoke them.
        """
        member = self._member
        removed = {topic_id: found for topic_id, found in member.assigned.items() if topic_id not in self._subscribed}
        if not removed:
            return
        member.assigned = {topic_id: found for topic_id, found in member.assigned.items() if topic_id not in removed}
        member.update_epoch(member.epoch)
        pending = dict(member.pending_revocation)
        for topic_id, found in removed.items():
            pending[topic_id] = {**pending.get(topic_id, {}), **found}
        if self._owns(pending):
            member.state, member.pending_revocation = UNREVOKED_PARTITIONS, pending

    def _compute_next(self) -> None:
        """Compute the next assignment of the member.

        If the member has to revoke partitions, only removes these. Otherwise, adds the free partitions of the target
        assignment, and sets the member epoch to the target epoch.
        """
        member = self._member
        kept: AssignedPartitions = {}
        revoked: AssignedPartitions = {}
        wanted: list[tuple[bytes, int]] = []
        for topic_id in dict.fromkeys((*self._target, *member.assigned)):
            target = self._target.get(topic_id, set()) if topic_id in self._subscribed else set()
            assigned = member.assigned.get(topic_id, {})
            for partition, epoch in assigned.items():
                (kept if partition in target else revoked).setdefault(topic_id, {})[partition] = epoch
            wanted += [(topic_id, partition) for partition in sorted(target) if partition not in assigned]
        if revoked and self._owns(revoked):
            member.state, member.assigned, member.pending_revocation = UNREVOKED_PARTITIONS, kept, revoked
            member.update_epoch(member.epoch)
            return
        free = [(topic_id, partition) for topic_id, partition in wanted if self._is_free(topic_id, partition)]
        for topic_id, partition in free:
            kept.setdefault(topic_id, {})[partition] = self._target_epoch
        member.state = STABLE if len(free) == len(wanted) else UNRELEASED_PARTITIONS
        member.assigned, member.pending_revocation = kept, {}
        member.update_epoch(self._target_epoch)

    def _is_free(self, topic_id: bytes, partition: int) -> bool:
        """Returns whether no other member owns a partition."""
        own = partition in self._member.pending_revocation.get(topic_id, ())
        return own or self._is_released(topic_id, partition)
