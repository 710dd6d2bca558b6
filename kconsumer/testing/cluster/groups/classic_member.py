"""One member of a classic group: its identity, its protocols, and its requests that wait for a response."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import KW_ONLY, dataclass, replace

from kconsumer.schema.classic_group import JoinGroupResponse, SyncGroupResponse
from kconsumer.testing.cluster.requests import Pending
from kconsumer.testing.cluster.timers import NO_TIMER, Timer

Protocols = list[tuple[str, bytes]]  # names and metadata of the protocols that a member supports, the best one first


@dataclass(slots=True, eq=False, repr=False)
class ClassicMember:
    """A client that has joined a classic group. (A pending member has an id, but no such object.)"""

    id: str
    instance_id: str | None  # None: a dynamic member
    _: KW_ONLY
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False  # True until the rebalance in which the member joined has completed
    joining: Pending | None = None  # the JoinGroup request that waits
    syncing: Pending | None = None  # the SyncGroup request that waits
    session: Timer = NO_TIMER

    def metadata(self, protocol: str | None) -> bytes:
        """Returns the metadata that the member sent for a protocol.

        Raises KeyError if the member does not support the protocol.
        """
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise KeyError(protocol)

    def vote(self, candidates: Collection[str]) -> str:
        """Returns the protocol of `candidates` that the member prefers. The member must support one of them."""
        return next(name for name, _ in self.protocols if name in candidates)

    def update(self, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        """Replace the protocols and timeouts by those that the member sends when it joins again."""
        self.protocols = protocols
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms

    def complete_join(self, response: JoinGroupResponse, now: float) -> bool:
        """Send the response to the member's waiting JoinGroup request. Returns False if no such request waits."""
        pending, self.joining = self.joining, None
        if pending is None:
            return False
        pending.complete(for_join_version(response, pending.request.version), now)
        return True

    def complete_sync(self, response: SyncGroupResponse, now: float) -> bool:
        """Send the response to the member's waiting SyncGroup request. Returns False if no such request waits."""
        pending, self.syncing = self.syncing, None
        if pending is None:
            return False
        pending.complete(response, now)
        return True

    def copy(self, member_id: str, protocols: Protocols) -> ClassicMember:
        """Returns a copy with another member id and other protocols. It has no waiting requests and no timer."""
        return replace(
            self, id=member_id, protocols=protocols, is_new=False, joining=None, syncing=None, session=NO_TIMER
        )

    def __repr__(self) -> str:
        return f"<ClassicMember {self.id}>"


def for_join_version(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    """Set a missing protocol name in a JoinGroup response: to "" before version 7, and to null since version 7.

    Returns `response`, the same object.
    """
    response.protocol_name = response.protocol_name or (None if version >= 7 else "")
    return response
