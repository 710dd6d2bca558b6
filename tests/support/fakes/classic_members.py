"""Members of a classic group that speak to the cluster model in virtual time."""

from __future__ import annotations

from typing import Any

from kconsumer.schema.classic_group import (
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from support.fakes.cluster_client import ClusterClient, advance

METADATA = b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x01t" + b"\xff\xff\xff\xff"  # subscribes to topic t, version 0


class FakeMember:
    """A member with a connection of its own. Its fields are those of the last JoinGroup response."""

    def __init__(self, cluster: Cluster, clock: VirtualClock, group: str = "g", *, instance: str | None = None) -> None:
        coordinator = cluster.coordinator(group, "group")
        assert coordinator is not None
        self.client = ClusterClient(cluster, clock, coordinator.id)
        self.group, self.instance = group, instance
        self.id = ""
        self.generation = -1
        self.protocols = [("range", METADATA)]
        self.protocol_type = "consumer"
        self.session_ms, self.rebalance_ms = 10_000, 60_000
        self.version = 9
        self._joining = self._syncing = -1

    def join(self) -> Any:
        """Send JoinGroup. Returns the response, or None if it waits."""
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in self.protocols],
        )
        self._joining = self.client.send(JOIN_GROUP, self.version, request)
        return self.joined()

    def enter(self) -> Any:
        """Join without a member id, then with the id of the response. Returns the last response, or None."""
        self.id = ""
        self.id = self.join().member_id
        return self.join()

    def joined(self) -> Any:
        """Returns the response to the last JoinGroup request, or None if it waits."""
        response = self.client.response(self._joining)
        if response is not None and not response.error_code:
            self.id, self.generation = response.member_id, response.generation_id
        return response

    def sync(self, assignments: dict[str, bytes] | None = None, **fields: Any) -> Any:
        """Send SyncGroup. Returns the response, or None if it waits."""
        rows = [
            SyncGroupRequestAssignment(member_id=name, assignment=data) for name, data in (assignments or {}).items()
        ]
        values: dict[str, Any] = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.id,
            "group_instance_id": self.instance,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocols[0][0],
            "assignments": rows,
        }
        self._syncing = self.client.send(SYNC_GROUP, 5, SyncGroupRequest(**{**values, **fields}))
        return self.synced()

    def synced(self) -> Any:
        """Returns the response to the last SyncGroup request, or None if it waits."""
        return self.client.response(self._syncing)

    def heartbeat(self, **fields: Any) -> int:
        """Send Heartbeat. Returns the error code."""
        values = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.id,
            "group_instance_id": self.instance,
        }
        error: int = self.client.call(HEARTBEAT, 4, HeartbeatRequest(**{**values, **fields})).error_code
        return error

    def leave(self, *identities: MemberIdentity, version: int = 5) -> Any:
        """Send LeaveGroup for this member, or for others. Returns the response."""
        members = list(identities) or [MemberIdentity(member_id=self.id, group_instance_id=self.instance)]
        request = LeaveGroupRequest(group_id=self.group, member_id=self.id, members=members)
        return self.client.call(LEAVE_GROUP, version, request)


def stable(cluster: Cluster, clock: VirtualClock, *members: FakeMember) -> None:
    """Complete a rebalance with these members. The first one is the leader."""
    for one in members:
        response = one.join() if one.instance is not None or one.id else one.enter()
        assert response is None
    advance(cluster, clock, 0)
    assert [0] * len(members) == [one.joined().error_code for one in members]
    for one in reversed(members):
        one.sync({other.id: other.id.encode() for other in members})
    assert [one.id.encode() for one in members] == [one.synced().assignment for one in members]
