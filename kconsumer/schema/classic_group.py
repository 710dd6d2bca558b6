"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

For static membership (KIP-345), JoinGroup, SyncGroup and Heartbeat have the field `group_instance_id` since Kafka 2.3.
LeaveGroup has it since 2.4, for each member in its list.
"""

from __future__ import annotations

from kconsumer.schema.dsl import BOOL, BYTES, INT16, INT32, STRING, Api, F, Message, array

# --- JoinGroup ----------------------------------------------------------------------------------------------
# v1 adds the rebalance timeout. Since v4, the broker first sends a new member its id, with which the member must repeat
# the request (KIP-394). v7 adds the protocol type to the response, v8 the reason for joining (KIP-800). Since v9, the
# response may request that the leader skips the assignment (KIP-814).


class JoinGroupRequestProtocol(Message):
    name: str = F(STRING)
    metadata: bytes = F(BYTES)


class JoinGroupRequest(Message):
    group_id: str = F(STRING)
    session_timeout_ms: int = F(INT32)
    rebalance_timeout_ms: int = F(INT32, "1+", default=-1)
    member_id: str = F(STRING)
    group_instance_id: str | None = F(STRING, "5+", null="5+", default=None)
    protocol_type: str = F(STRING)
    protocols: list[JoinGroupRequestProtocol] = F(array(JoinGroupRequestProtocol))
    reason: str | None = F(STRING, "8+", null="8+", default=None)


class JoinGroupResponseMember(Message):
    member_id: str = F(STRING)
    group_instance_id: str | None = F(STRING, "5+", null="5+", default=None)
    metadata: bytes = F(BYTES)


class JoinGroupResponse(Message):
    throttle_time_ms: int = F(INT32, "2+")
    error_code: int = F(INT16)
    generation_id: int = F(INT32, default=-1)
    protocol_type: str | None = F(STRING, "7+", null="7+", default=None)
    protocol_name: str | None = F(STRING, null="7+")
    leader: str = F(STRING)
    skip_assignment: bool = F(BOOL, "9+")
    member_id: str = F(STRING)
    members: list[JoinGroupResponseMember] = F(array(JoinGroupResponseMember))


JOIN_GROUP = Api(JoinGroupRequest, JoinGroupResponse, key=11, versions="0-9", flexible=6, throttle=3)

# --- SyncGroup ----------------------------------------------------------------------------------------------
# v5 adds the protocol type and name to request and response, so that the broker can detect a mismatch.


class SyncGroupRequestAssignment(Message):
    member_id: str = F(STRING)
    assignment: bytes = F(BYTES)


class SyncGroupRequest(Message):
    group_id: str = F(STRING)
    generation_id: int = F(INT32)
    member_id: str = F(STRING)
    group_instance_id: str | None = F(STRING, "3+", null="3+", default=None)
    protocol_type: str | None = F(STRING, "5+", null="5+", default=None)
    protocol_name: str | None = F(STRING, "5+", null="5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = F(array(SyncGroupRequestAssignment))


class SyncGroupResponse(Message):
    throttle_time_ms: int = F(INT32, "1+")
    error_code: int = F(INT16)
    protocol_type: str | None = F(STRING, "5+", null="5+", default=None)
    protocol_name: str | None = F(STRING, "5+", null="5+", default=None)
    assignment: bytes = F(BYTES)


SYNC_GROUP = Api(SyncGroupRequest, SyncGroupResponse, key=14, versions="0-5", flexible=4, throttle=2)

# --- Heartbeat ----------------------------------------------------------------------------------------------


class HeartbeatRequest(Message):
    group_id: str = F(STRING)
    generation_id: int = F(INT32)
    member_id: str = F(STRING)
    group_instance_id: str | None = F(STRING, "3+", null="3+", default=None)


class HeartbeatResponse(Message):
    throttle_time_ms: int = F(INT32, "1+")
    error_code: int = F(INT16)


HEARTBEAT = Api(HeartbeatRequest, HeartbeatResponse, key=12, versions="0-4", flexible=4, throttle=2)

# --- LeaveGroup ---------------------------------------------------------------------------------------------
# Since v3 the request contains a list of members, and the response an error for each of them. v5 adds the reason
# (KIP-800).


class MemberIdentity(Message):
    member_id: str = F(STRING, "3+")
    group_instance_id: str | None = F(STRING, "3+", null="3+", default=None)
    reason: str | None = F(STRING, "5+", null="5+", default=None)


class LeaveGroupRequest(Message):
    group_id: str = F(STRING)
    member_id: str = F(STRING, "0-2")
    members: list[MemberIdentity] = F(array(MemberIdentity), "3+")


class MemberResponse(Message):
    member_id: str = F(STRING, "3+")
    group_instance_id: str | None = F(STRING, "3+", null="3+")
    error_code: int = F(INT16, "3+")


class LeaveGroupResponse(Message):
    throttle_time_ms: int = F(INT32, "1+")
    error_code: int = F(INT16)
    members: list[MemberResponse] = F(array(MemberResponse), "3+")


LEAVE_GROUP = Api(LeaveGroupRequest, LeaveGroupResponse, key=13, versions="0-5", flexible=4, throttle=2)
