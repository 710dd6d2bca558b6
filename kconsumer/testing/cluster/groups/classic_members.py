"""The members of a classic group, and its pending members: new clients that have an id and have not joined yet.

Decides who is a member and who is the leader. `classic_join.py` and `classic_rebalance.py` decide when members join and
which of them are removed.
"""

from __future__ import annotations

from collections import Counter

from kconsumer._common.error_codes import Errors
from kconsumer.schema.classic_group import JoinGroupResponse, JoinGroupResponseMember, SyncGroupResponse
from kconsumer.testing.cluster.groups.classic_member import ClassicMember, Protocols
from kconsumer.testing.cluster.requests import GroupError, Pending
from kconsumer.testing.cluster.timers import NO_TIMER, Timer


class ClassicMembers:
    """The members of one group. It is a base class of `ClassicGroup`.

    Each JoinGroup request needs to know which protocols all members support, and whether all of them have joined. If it
    asked all members, the joins of a group would take quadratic time. So this class counts when members change.
    """

    def __init__(self) -> None:
        self.clear_members()

    def clear_members(self) -> None:
        """Set the state of a group without members. Their timers must have been cancelled."""
        self.protocol_type = ""  # "" without members, unless members have left
        self.protocol_name: str | None = None  # chosen for this generation
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}  # in the order in which they joined
        self.static_members: dict[str, str] = {}  # member ids by group_instance_id
        self.pending_members: dict[str, Timer] = {}  # the ids of pending members, with their session timers
        self.pending_sync: set[str] = set()  # members that have not sent SyncGroup in this generation
        self._joining: set[str] = set()  # members that wait for the response to JoinGroup
        self._supported: Counter[str] = Counter()  # how many members support each protocol

    def add_member(self, member: ClassicMember) -> None:
        """Add a member, which is not pending any more.

        The first member of the group becomes the leader, and decides the protocol type.
        """
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.id
        self.members[member.id] = member
        self._count_protocols(member.protocols, 1)
        self.remove_pending(member.id)

    def remove_member(self, member_id: str) -> None:
        """Remove a member or pending member. Does nothing if the id is unknown.

        If the leader is removed, the member that joined first becomes the leader.
        """
        member = self.members.pop(member_id, None)
        if member is not None:
            member.session.cancel()
            self._joining.discard(member_id)
            self._count_protocols(member.protocols, -1)
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.remove_pending(member_id)
        self.pending_sync.discard(member_id)

    def remove_pending(self, member_id: str) -> None:
        """Remove a pending member, and cancel its session timer. Does nothing if there is no such member.

        A pending member is a new client that has received a member id and has not joined with it yet.
        """
        self.pending_members.pop(member_id, NO_TIMER).cancel()

    def replace_static_member(self, instance_id: str, new_id: str, now: float) -> ClassicMember:
        """Replace the static member with `instance_id` by one with the member id `new_id`. Returns the new member.

        The new member has the old one's assignment and, if the old one was the leader, becomes the leader. Waiting
        requests of the old member get FENCED_INSTANCE_ID.
        """
        old = self.members.pop(self.static_members[instance_id])
        old.session.cancel()
        self.complete_join(old, JoinGroupResponse(member_id=old.id, error_code=Errors.FENCED_INSTANCE_ID), now)
        old.complete_sync(SyncGroupResponse(error_code=Errors.FENCED_INSTANCE_ID), now)
        new = self.members[new_id] = old.copy(new_id, old.protocols)
        if self.leader_id == old.id:
            self.leader_id = new_id
        self.static_members[instance_id] = new_id
        return new

    def start_joining(self, member: ClassicMember, pending: Pending) -> None:
        """Let a member wait for the response to JoinGroup."""
        member.joining = pending
        self._joining.add(member.id)

    def complete_join(self, member: ClassicMember, response: JoinGroupResponse, now: float) -> None:
        """Send the response to the member's waiting JoinGroup request, if there is one."""
        self._joining.discard(member.id)
        member.complete_join(response, now)

    def update_member(
        self, member: ClassicMember, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        """Replace the protocols and timeouts of a member by those that it sends when it joins again."""
        self._count_protocols(member.protocols, -1)
        member.update(protocols, rebalance_timeout_ms, session_timeout_ms)
        self._count_protocols(protocols, 1)

    def _count_protocols(self, protocols: Protocols, change: int) -> None:
        """Add `change` to the number of members that support each of these protocols."""
        for name in {name for name, _ in protocols}:
            self._supported[name] += change

    def validate_member(self, member_id: str, instance_id: str | None) -> None:
        """Raise GroupError if the ids are not those of a member.

        The error is UNKNOWN_MEMBER_ID if no member has the id or the instance id, and FENCED_INSTANCE_ID if another
        member has the instance id.
        """
        if instance_id is not None:
            present = self.static_members.get(instance_id)
            if present is None:
                raise GroupError(Errors.UNKNOWN_MEMBER_ID)
            if present != member_id:
                raise GroupError(Errors.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise GroupError(Errors.UNKNOWN_MEMBER_ID)

    def joining_count(self) -> int:
        """Returns how many members wait for the response to JoinGroup."""
        return len(self._joining)

    def all_joined(self) -> bool:
        """Returns whether all members wait for the response to JoinGroup, and no member is pending."""
        return not self.pending_members and self.joining_count() == len(self.members)

    def rebalance_timeout_ms(self) -> int:
        """Returns the longest rebalance timeout of all members, or 0 if there are no members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def join_members(self) -> list[JoinGroupResponseMember]:
        """Returns the members with their metadata for the chosen protocol, as rows of the leader's response."""
        return [
            JoinGroupResponseMember(
                member_id=member.id, group_instance_id=member.instance_id, metadata=member.metadata(self.protocol_name)
            )
            for member in self.members.values()
        ]

    def common_protocols(self) -> set[str]:
        """Returns the protocols that all members support. The group must have members."""
        return {name for name, count in self._supported.items() if count == len(self.members)}
