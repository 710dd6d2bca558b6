"""The members of a classic group, and the member ids that were sent to new members.

Decides who is a member and who is the leader. When members join, and which of them are removed, is decided by
`classic_join.py` and `classic_rebalance.py`.
"""

from __future__ import annotations

from kconsumer.error_codes import Errors
from kconsumer.schema.classic_group import JoinGroupResponse, JoinGroupResponseMember, SyncGroupResponse
from kconsumer.testing.cluster.groups.classic_member import ClassicMember
from kconsumer.testing.cluster.groups.group import GroupError
from kconsumer.testing.cluster.timers import Timer


class ClassicMembers:
    """The members of one group. It is a base class of `ClassicGroup`."""

    def __init__(self) -> None:
        self.protocol_type = ""  # "" without members, unless members have left
        self.protocol_name: str | None = None  # chosen for this generation
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}  # in the order in which they joined
        self.static_members: dict[str, str] = {}  # member ids by group_instance_id
        self.pending_members: dict[str, Timer] = {}  # the ids of pending members, with their session timers
        self.pending_sync: set[str] = set()  # members that have not sent SyncGroup in this generation

    def add_member(self, member: ClassicMember) -> None:
        """Add a member. The first one is the leader and decides the protocol type."""
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.id
        self.members[member.id] = member
        self.remove_pending(member.id)

    def remove_member(self, member_id: str) -> None:
        """Remove a member or a pending member. If it was the leader, the oldest member becomes leader."""
        member = self.members.pop(member_id, None)
        if member is not None:
            member.cancel_session()
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.remove_pending(member_id)
        self.pending_sync.discard(member_id)

    def remove_pending(self, member_id: str) -> None:
        """Remove a pending member: a member id that was sent to a new member, which has not used it yet."""
        timer = self.pending_members.pop(member_id, None)
        if timer is not None:
            timer.cancel()

    def replace_static_member(self, instance_id: str, new_id: str, now: float) -> ClassicMember:
        """Returns the new member that takes the place, the assignment and the leadership of a static member.

        Requests of the old member that wait get FENCED_INSTANCE_ID.
        """
        old = self.members.pop(self.static_members[instance_id])
        old.cancel_session()
        old.complete_join(JoinGroupResponse(member_id=old.id, error_code=Errors.FENCED_INSTANCE_ID), now)
        old.complete_sync(SyncGroupResponse(error_code=Errors.FENCED_INSTANCE_ID), now)
        new = self.members[new_id] = old.copy(new_id, old.protocols)
        if self.leader_id == old.id:
            self.leader_id = new_id
        self.static_members[instance_id] = new_id
        return new

    def validate_member(self, member_id: str, instance_id: str | None) -> None:
        """Raise GroupError if there is no such member, or if another member has its instance id."""
        if instance_id is not None:
            present = self.static_members.get(instance_id)
            if present is None:
                raise GroupError(Errors.UNKNOWN_MEMBER_ID)
            if present != member_id:
                raise GroupError(Errors.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise GroupError(Errors.UNKNOWN_MEMBER_ID)

    def joining_count(self) -> int:
        """Returns how many members wait in JoinGroup."""
        return sum(member.joining is not None for member in self.members.values())

    def all_joined(self) -> bool:
        """Returns whether all members wait in JoinGroup, and all ids that were handed out were used."""
        return not self.pending_members and self.joining_count() == len(self.members)

    def rebalance_timeout_ms(self) -> int:
        """Returns the longest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def join_members(self) -> list[JoinGroupResponseMember]:
        """Returns the members with their metadata, as the leader receives them."""
        return [
            JoinGroupResponseMember(
                member_id=member.id, group_instance_id=member.instance_id, metadata=member.metadata(self.protocol_name)
            )
            for member in self.members.values()
        ]

    def common_protocols(self) -> set[str]:
        """Returns the protocols that all members support."""
        return set.intersection(*({name for name, _ in member.protocols} for member in self.members.values()))
