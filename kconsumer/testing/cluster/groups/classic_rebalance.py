"""The rebalances of a classic group, and its timers.

A rebalance has two phases. In PreparingRebalance, the members join, until all have joined or a timeout has passed. Then
each member gets the new generation. In CompletingRebalance, the members wait for the assignment of the leader. This
module decides when each phase begins and ends, and which members are removed because they did not send a request in
time.
"""

from __future__ import annotations

from kconsumer._common.error_codes import Errors
from kconsumer.schema.classic_group import JoinGroupResponse, SyncGroupResponse
from kconsumer.testing.cluster.groups.classic_generation import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGeneration,
)
from kconsumer.testing.cluster.groups.classic_member import ClassicMember
from kconsumer.testing.cluster.state import ClusterState
from kconsumer.testing.cluster.timers import NO_TIMER, Timer

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000  # of members that wait in their first JoinGroup


class ClassicRebalance:
    """The timers and phases of one group's rebalances."""

    def __init__(self, group: ClassicGeneration, cluster: ClusterState) -> None:
        self._group = group
        self._settings, self._timers = cluster.settings, cluster.timers
        self._join_timer: Timer = NO_TIMER  # ends the joining phase
        self._sync_timer: Timer = NO_TIMER  # removes members that do not send SyncGroup
        self._extend_initial_delay = False  # True: a member has joined since the last initial delay began

    # --- sessions ---

    def renew_session(self, member: ClassicMember, now: float, timeout_ms: float | None = None) -> None:
        """Restart the session timer of a member. `timeout_ms`: None means the member's session timeout."""
        member.session.cancel()
        deadline = now + (member.session_timeout_ms if timeout_ms is None else timeout_ms)
        member.session = self._timers.add(deadline, lambda at: self._session_expired(member, at))

    def add_pending(self, member_id: str, session_timeout_ms: int, now: float) -> None:
        """Add a pending member: a new client to which a member id was sent.

        It is removed if it does not join within the session timeout.
        """
        self._group.pending_members[member_id] = self._timers.add(
            now + session_timeout_ms, lambda at: self.pending_left(member_id, at)
        )

    def pending_left(self, member_id: str, now: float) -> None:
        """Remove a pending member. If all members have joined, this ends the joining phase."""
        group = self._group
        group.remove_pending(member_id)
        if group.state == PREPARING_REBALANCE and group.all_joined():
            self._complete_join(now)

    def _session_expired(self, member: ClassicMember, now: float) -> None:
        """Remove a member whose session has expired.

        Begins a rebalance, or ends the joining phase of the present one if all remaining members have joined.

        Does nothing if the member was removed or replaced. Does nothing, either, if the member waits in JoinGroup or
        SyncGroup, unless this is its first JoinGroup.
        """
        group = self._group
        if group.members.get(member.id) is not member:
            return
        if not member.is_new and (member.joining is not None or member.syncing is not None):
            return
        self.remove(member, now)
        if group.state in (STABLE, COMPLETING_REBALANCE):
            self.rebalance(now)
        elif group.state == PREPARING_REBALANCE and group.all_joined():
            self._complete_join(now)

    def remove(self, member: ClassicMember, now: float) -> None:
        """Remove a member. If its JoinGroup request waits, the response is UNKNOWN_MEMBER_ID."""
        group = self._group
        group.complete_join(member, JoinGroupResponse(error_code=Errors.UNKNOWN_MEMBER_ID), now)
        group.remove_member(member.id)

    # --- the joining phase ---

    def add_member(self, member: ClassicMember, now: float) -> None:
        """Add a new member whose JoinGroup request waits, and begin a rebalance."""
        group = self._group
        member.is_new = True
        if group.state == PREPARING_REBALANCE and group.previous_state == EMPTY:
            self._extend_initial_delay = True
        group.add_member(member)
        self.renew_session(member, now, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self.rebalance(now)

    def rebalance(self, now: float) -> None:
        """Begin a rebalance, or call `proceed` if the group is in the joining phase of one already."""
        if self._group.state == PREPARING_REBALANCE:
            self.proceed(now)
        else:
            self.prepare(now)

    def prepare(self, now: float) -> None:
        """Begin the joining phase of a rebalance. Members that wait in SyncGroup get REBALANCE_IN_PROGRESS.

        In an empty group, the phase lasts at least as long as the initial delay, so that more members can join.
        """
        group = self._group
        if group.state == COMPLETING_REBALANCE:
            self._reject_sync(Errors.REBALANCE_IN_PROGRESS, now)
        group.pending_sync.clear()
        self._sync_timer.cancel()
        initial = group.state == EMPTY
        group.transition(PREPARING_REBALANCE, now)
        if initial:
            delay = self._settings.group_initial_rebalance_delay_ms
            self._delay_initial(delay, max(group.rebalance_timeout_ms() - delay, 0), now)
        elif group.all_joined():
            self._complete_join(now)
        else:
            self._start_join_timer(group.rebalance_timeout_ms(), now)

    def proceed(self, now: float) -> None:
        """End the joining phase if all members have joined. Does nothing during the initial delay of an empty group."""
        group = self._group
        if group.state == PREPARING_REBALANCE and group.previous_state != EMPTY and group.all_joined():
            self._complete_join(now)

    def _delay_initial(self, delay: float, remaining: float, now: float) -> None:
        """Start a timer that ends the joining phase after `delay` ms.

        If other members join until then, the phase is extended instead, by at most `remaining` ms in total.
        """
        self._join_timer.cancel()
        self._join_timer = self._timers.add(now + delay, lambda at: self._initial_delay_ended(delay, remaining, at))

    def _initial_delay_ended(self, delay: float, remaining: float, now: float) -> None:
        if self._extend_initial_delay and remaining:
            self._extend_initial_delay = False
            longest = self._settings.group_initial_rebalance_delay_ms
            self._delay_initial(min(longest, remaining), max(remaining - delay, 0), now)
        else:
            self._complete_join(now)

    def _start_join_timer(self, timeout_ms: float, now: float) -> None:
        self._join_timer.cancel()
        self._join_timer = self._timers.add(now + timeout_ms, self._complete_join)

    def _complete_join(self, now: float) -> None:
        """End the joining phase: remove dynamic members that have not joined, and begin the next generation.

        If only static members remain and none has joined, waits for another rebalance timeout.
        """
        group = self._group
        self._join_timer.cancel()
        for member in list(group.members.values()):
            if member.joining is None and member.instance_id is None:
                group.remove_member(member.id)
        if group.members and not self._elect_leader():
            self._start_join_timer(group.rebalance_timeout_ms(), now)
            return
        group.begin_generation(now)
        if not group.members:
            group.store()
            return
        for member in list(group.members.values()):
            group.complete_join(member, self.join_response(member), now)
            self.renew_session(member, now)
            member.is_new = False
            group.pending_sync.add(member.id)
        generation = group.generation
        self._sync_timer.cancel()
        self._sync_timer = self._timers.add(
            now + group.rebalance_timeout_ms(), lambda at: self._sync_expired(generation, at)
        )

    def _elect_leader(self) -> bool:
        """Make a member that has joined the leader, if the present leader has not joined.

        Returns False if no member has joined, otherwise True.
        """
        group = self._group
        leader = group.members.get(group.leader_id or "")
        if leader is not None and leader.joining is not None:
            return True
        joined = next((member.id for member in group.members.values() if member.joining is not None), None)
        if joined is not None:
            group.leader_id = joined
        return joined is not None

    def join_response(self, member: ClassicMember) -> JoinGroupResponse:
        """Returns the JoinGroup response of a member, with the present generation.

        Only the leader's response lists the members.
        """
        group = self._group
        return JoinGroupResponse(
            generation_id=group.generation,
            protocol_type=group.protocol_type or None,
            protocol_name=group.protocol_name,
            leader=group.leader_id or "",
            member_id=member.id,
            members=group.join_members() if member.id == group.leader_id else [],
        )

    # --- the assignment phase ---

    def sync_received(self, member_id: str) -> None:
        """Record that a member has sent SyncGroup. Cancels the sync timer when all members have sent it."""
        self._group.pending_sync.discard(member_id)
        if not self._group.pending_sync:
            self._sync_timer.cancel()

    def assign(self, assignments: dict[str, bytes], now: float) -> None:
        """Store the leader's assignments (by member id), set the state to Stable, and respond to waiting SyncGroup
        requests.
        """
        group = self._group
        for member in group.members.values():
            member.assignment = assignments.get(member.id, b"")
        group.transition(STABLE, now)
        group.store()
        for member in list(group.members.values()):
            if member.complete_sync(self.sync_response(member), now):
                self.renew_session(member, now)

    def sync_response(self, member: ClassicMember) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self._group.protocol_type or None,
            protocol_name=self._group.protocol_name,
            assignment=member.assignment,
        )

    def _reject_sync(self, error: int, now: float) -> None:
        """Remove the assignments of all members, and respond to waiting SyncGroup requests with an error."""
        for member in self._group.members.values():
            member.assignment = b""
        for member in list(self._group.members.values()):
            if member.complete_sync(SyncGroupResponse(error_code=error), now):
                self.renew_session(member, now)

    def _sync_expired(self, generation: int, now: float) -> None:
        """Remove the members that have not sent SyncGroup in the generation `generation`, and rebalance.

        Does nothing if another generation or rebalance has begun, or if all members have sent SyncGroup.
        """
        group = self._group
        late = [member_id for member_id in group.members if member_id in group.pending_sync]
        if group.generation != generation or group.state not in (COMPLETING_REBALANCE, STABLE) or not late:
            return
        for member_id in late:
            group.remove_member(member_id)
        self.prepare(now)

    # --- changes of the coordinator ---

    def stop(self, error: int, now: float) -> None:
        """Cancel all timers, remove the pending members, and respond to all waiting requests with an error."""
        group = self._group
        self._join_timer.cancel()
        self._sync_timer.cancel()
        for member_id in list(group.pending_members):
            group.remove_pending(member_id)
        for member in list(group.members.values()):
            member.session.cancel()
            group.complete_join(member, JoinGroupResponse(member_id=member.id, error_code=error), now)
            member.complete_sync(SyncGroupResponse(error_code=error), now)

    def restart(self, now: float) -> None:
        """Start the sessions of all members, after the group was loaded.

        Begins a rebalance if the group has more members than `group_max_size`.
        """
        for member in self._group.members.values():
            self.renew_session(member, now)
        if len(self._group.members) > self._settings.group_max_size:
            self.prepare(now)
