"""What managers use of the member of a group, in both protocols: its generation, and the interface of its state.

`classic_protocol/state.py` and `consumer_protocol/state.py` have the members, and decide which changes are legal.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Generation(NamedTuple):
    """A generation of a group, or a member epoch (KIP-848), with the member id of this consumer."""

    id: int = -1
    member_id: str = ""
    protocol: str | None = None  # the name of the assignor that the group chose

    @property
    def valid(self) -> bool:
        """True if the coordinator has assigned a generation and a member id, and neither has been reset since."""
        return self.id >= 0 and self.member_id != ""


class HeartbeatMember(Protocol):
    """The part of a member that sends heartbeats, also in a share group."""

    group_id: str

    @property
    def in_group(self) -> bool:
        """True if the coordinator may regard this consumer as a member of the group."""


class GroupMember(HeartbeatMember, Protocol):
    """The part of a member that commits offsets and takes part in rebalances."""

    group_instance_id: str | None

    @property
    def generation(self) -> Generation:
        """The generation or member epoch, with the member id."""

    @property
    def rebalancing(self) -> bool:
        """True while a JoinGroup or SyncGroup is due or in flight."""

    @property
    def may_commit(self) -> bool:
        """True if the coordinator accepts commits of this generation."""

    def request_rejoin(self, reason: str) -> None:
        """Make the next poll join again, if the protocol lets a member request that."""
