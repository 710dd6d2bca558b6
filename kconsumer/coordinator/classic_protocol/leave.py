"""The LeaveGroup request. It is sent once. Failures are logged and not retried."""

from __future__ import annotations

from kconsumer._common.deferred_calls import get_logger
from kconsumer._internal.managers import Reply, UnsentRequest
from kconsumer.coordinator.classic_protocol.state import Member, MemberState
from kconsumer.coordinator.error_actions import LEAVE_ACTIONS, GroupErrorAction
from kconsumer.coordinator.lookup import CoordinatorManager
from kconsumer.errors import error_for
from kconsumer.schema.classic_group import LEAVE_GROUP, LeaveGroupRequest, MemberIdentity

log = get_logger(__name__)

REASON_LENGTH = 255


def leave_request(
    member: Member, coordinator: CoordinatorManager, reason: str, *, leave_group: bool | None = None
) -> UnsentRequest | None:
    """Returns a LeaveGroup for the member. Returns None if the member stays, or if the coordinator is unknown.

    With `leave_group` None, dynamic members leave, and static members stay until their session times out. With True,
    every member leaves. With False, every member stays. Also closes the connection to the coordinator if a SyncGroup
    may wait there.
    """
    wanted = member.group_instance_id is None if leave_group is None else leave_group
    member_id = member.generation.member_id
    if not wanted or not member.in_group or coordinator.connection_id is None:
        return None
    log.info("group %s: member %s leaves: %s", member.group_id, member_id, reason)
    node = coordinator.connection_id
    if member.rebalancing and coordinator.coordinator is not None:
        # On each connection, a broker responds in the order of the requests. It responds to a JoinGroup only when all
        # members have joined, and to a SyncGroup only when the leader has sent the assignments. LeaveGroup would wait
        # behind such a request, so it is sent over the other connection to this broker, which is used for fetching.
        node = str(coordinator.coordinator.id)
        if member.state is MemberState.SYNCING:
            # The coordinator completes the JoinGroup of a member that leaves, but never responds to its SyncGroup. It
            # would read no other request from that connection either, such as the JoinGroup of a new subscription.
            coordinator.close_connection()
    identity = MemberIdentity(member_id=member_id, reason=reason[:REASON_LENGTH])
    message = LeaveGroupRequest(group_id=member.group_id, member_id=member_id, members=[identity])
    return UnsentRequest(LEAVE_GROUP, message, _on_reply, node=node)


def _on_reply(reply: Reply) -> None:
    if reply.error is not None:
        log.warning("LeaveGroup failed: %s", reply.error)
        return
    for code in (reply.message.error_code, *(member.error_code for member in reply.message.members)):
        if code and LEAVE_ACTIONS[code] is GroupErrorAction.LOG:
            log.warning("LeaveGroup failed: %s", error_for(code))
