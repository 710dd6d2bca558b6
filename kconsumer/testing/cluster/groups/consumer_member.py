"""One member of a group of the consumer protocol (KIP-848): its subscription, its epochs and its partitions."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from kconsumer.testing.cluster.timers import NO_TIMER, Timer

#: The epoch at which each partition was assigned to the member, by topic id and partition.
AssignedPartitions = dict[bytes, dict[int, int]]

#: The member owns what its target assignment allows, and waits for nothing.
STABLE = "STABLE"
#: The member has to revoke partitions, and has not confirmed that it did.
UNREVOKED_PARTITIONS = "UNREVOKED_PARTITIONS"
#: Other members have not released partitions of the member's target assignment.
UNRELEASED_PARTITIONS = "UNRELEASED_PARTITIONS"

LEFT_STATIC_EPOCH = -2  # the epoch of a static member that left and may return


@dataclass(slots=True, frozen=True)
class ClassicProtocol:
    """What a member that uses the classic protocol has sent in JoinGroup."""

    session_timeout_ms: int
    protocols: list[tuple[str, bytes]]


@dataclass(slots=True)
class ConsumerMember:
    """The state of one member.

    Changes replace the dictionaries of a member and never modify them. So a copy keeps the old state.
    """

    id: str
    instance_id: str | None = None  # None: a dynamic member
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    preferred_assignor: str | None = None  # None: the member has no preference
    topics: frozenset[str] = frozenset()  # subscribed by name
    regex: str = ""  # subscribed by regular expression; "": none
    epoch: int = 0
    previous_epoch: int = -1
    state: str = STABLE
    assigned: AssignedPartitions = field(default_factory=dict)
    pending_revocation: AssignedPartitions = field(default_factory=dict)
    classic: ClassicProtocol | None = None  # None: the member uses the consumer protocol
    session: Timer = NO_TIMER
    rebalance: Timer = NO_TIMER  # runs while the member has to revoke partitions
    joining: Timer = NO_TIMER  # of a classic member that has to send JoinGroup
    syncing: Timer = NO_TIMER  # of a classic member that has to send SyncGroup

    def copy(self, member_id: str | None = None) -> ConsumerMember:
        """Returns a shallow copy. Its id is `member_id`, or unchanged if that is None."""
        return dataclasses.replace(self, id=self.id if member_id is None else member_id)

    def successor(self, member_id: str) -> ConsumerMember:
        """Returns the member that replaces this static member: a copy with a new id, the epoch 0 and no timers."""
        member = self.copy(member_id)
        member.epoch = member.previous_epoch = 0
        member.session = member.rebalance = member.joining = member.syncing = NO_TIMER
        return member

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Returns whether the member has reached the target assignment with this epoch."""
        return self.state == STABLE and self.epoch == target_epoch

    def update_epoch(self, epoch: int) -> None:
        """Set the member epoch, and keep the last one as the previous epoch."""
        self.previous_epoch, self.epoch = self.epoch, epoch

    def owned(self) -> set[tuple[bytes, int]]:
        """Returns the partitions that no other member may get: the assigned ones and those not revoked yet."""
        return {
            (topic_id, partition)
            for partitions in (self.assigned, self.pending_revocation)
            for topic_id, found in partitions.items()
            for partition in found
        }

    def assignment_epoch(self, topic_id: bytes, partition: int) -> int | None:
        """Returns the epoch at which a partition was assigned, or None if the member does not have the partition."""
        for partitions in (self.assigned, self.pending_revocation):
            epoch = partitions.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None

    def cancel_timers(self) -> None:
        for timer in (self.session, self.rebalance, self.joining, self.syncing):
            timer.cancel()
