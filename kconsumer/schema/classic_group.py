"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

For static membership (KIP-345), JoinGroup, SyncGroup and Heartbeat have the field `group_instance_id` since Kafka 2.3.
LeaveGroup has it since 2.4, for each member in its list.
"""

from __future__ import annotations

from kconsumer.schema.dsl import BOOL, BYTES, INT16, INT32, STRING, F, api, array, struct

# --- JoinGroup ----------------------------------------------------------------------------------------------
# v1 adds the rebalance timeout. Since v4, the broker first sends a new member its id, with which the member must repeat
# the request (KIP-394). v7 adds the protocol type to the response, v8 the reason for joining (KIP-800). Since v9, the
# response may request that the leader skips the assignment (KIP-814).

JoinGroupRequestProtocol = struct(
    "JoinGroupRequestProtocol",
    F("name", STRING),
    F("metadata", BYTES),
)

JoinGroupRequest = struct(
    "JoinGroupRequest",
    F("group_id", STRING),
    F("session_timeout_ms", INT32),
    F("rebalance_timeout_ms", INT32, "1+", default=-1),
    F("member_id", STRING),
    F("group_instance_id", STRING, "5+", null="5+", default=None),
    F("protocol_type", STRING),
    F("protocols", array(JoinGroupRequestProtocol)),
    F("reason", STRING, "8+", null="8+", default=None),
)

JoinGroupResponseMember = struct(
    "JoinGroupResponseMember",
    F("member_id", STRING),
    F("group_instance_id", STRING, "5+", null="5+", default=None),
    F("metadata", BYTES),
)

JoinGroupResponse = struct(
    "JoinGroupResponse",
    F("throttle_time_ms", INT32, "2+"),
    F("error_code", INT16),
    F("generation_id", INT32, default=-1),
    F("protocol_type", STRING, "7+", null="7+", default=None),
    F("protocol_name", STRING, null="7+"),
    F("leader", STRING),
    F("skip_assignment", BOOL, "9+"),
    F("member_id", STRING),
    F("members", array(JoinGroupResponseMember)),
)

JOIN_GROUP = api(
    "JoinGroup",
    key=11,
    versions="0-9",
    flexible=6,
    throttle=3,
    request=JoinGroupRequest,
    response=JoinGroupResponse,
)

# --- SyncGroup ----------------------------------------------------------------------------------------------
# v5 adds the protocol type and name to request and response, so that the broker can detect a mismatch.

SyncGroupRequestAssignment = struct(
    "SyncGroupRequestAssignment",
    F("member_id", STRING),
    F("assignment", BYTES),
)

SyncGroupRequest = struct(
    "SyncGroupRequest",
    F("group_id", STRING),
    F("generation_id", INT32),
    F("member_id", STRING),
    F("group_instance_id", STRING, "3+", null="3+", default=None),
    F("protocol_type", STRING, "5+", null="5+", default=None),
    F("protocol_name", STRING, "5+", null="5+", default=None),
    F("assignments", array(SyncGroupRequestAssignment)),
)

SyncGroupResponse = struct(
    "SyncGroupResponse",
    F("throttle_time_ms", INT32, "1+"),
    F("error_code", INT16),
    F("protocol_type", STRING, "5+", null="5+", default=None),
    F("protocol_name", STRING, "5+", null="5+", default=None),
    F("assignment", BYTES),
)

SYNC_GROUP = api(
    "SyncGroup",
    key=14,
    versions="0-5",
    flexible=4,
    throttle=2,
    request=SyncGroupRequest,
    response=SyncGroupResponse,
)

# --- Heartbeat ----------------------------------------------------------------------------------------------

HeartbeatRequest = struct(
    "HeartbeatRequest",
    F("group_id", STRING),
    F("generation_id", INT32),
    F("member_id", STRING),
    F("group_instance_id", STRING, "3+", null="3+", default=None),
)

HeartbeatResponse = struct(
    "HeartbeatResponse",
    F("throttle_time_ms", INT32, "1+"),
    F("error_code", INT16),
)

HEARTBEAT = api(
    "Heartbeat",
    key=12,
    versions="0-4",
    flexible=4,
    throttle=2,
    request=HeartbeatRequest,
    response=HeartbeatResponse,
)

# --- LeaveGroup ---------------------------------------------------------------------------------------------
# Since v3 the request contains a list of members, and the response an error for each of them. v5 adds the reason
# (KIP-800).

MemberIdentity = struct(
    "MemberIdentity",
    F("member_id", STRING, "3+"),
    F("group_instance_id", STRING, "3+", null="3+", default=None),
    F("reason", STRING, "5+", null="5+", default=None),
)

LeaveGroupRequest = struct(
    "LeaveGroupRequest",
    F("group_id", STRING),
    F("member_id", STRING, "0-2"),
    F("members", array(MemberIdentity), "3+"),
)

MemberResponse = struct(
    "MemberResponse",
    F("member_id", STRING, "3+"),
    F("group_instance_id", STRING, "3+", null="3+"),
    F("error_code", INT16, "3+"),
)

LeaveGroupResponse = struct(
    "LeaveGroupResponse",
    F("throttle_time_ms", INT32, "1+"),
    F("error_code", INT16),
    F("members", array(MemberResponse), "3+"),
)

LEAVE_GROUP = api(
    "LeaveGroup",
    key=13,
    versions="0-5",
    flexible=4,
    throttle=2,
    request=LeaveGroupRequest,
    response=LeaveGroupResponse,
)
