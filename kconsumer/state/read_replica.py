"""From which replica a partition is read: the leader, or one that the leader prefers for this consumer (KIP-392)."""

from __future__ import annotations

from typing import NamedTuple


class PreferredReplica(NamedTuple):
    """The replica that the leader has named for reading a partition (KIP-392)."""

    broker_id: int
    until: float  # when its lease ends (ms)
    offset: int  # the offset at which the leader named it


class Refusal(NamedTuple):
    """Why a partition is read from its leader, although the leader prefers another replica."""

    broker_id: int  # the replica that gave nothing
    until: float  # when the leader may name a replica again (ms)
    reason: str

    def __str__(self) -> str:
        return f"broker {self.broker_id}, the preferred read replica, gave no records: {self.reason}"


class ReadReplica:
    """The replica to read a partition from, and whether the leader may name another one.

    Only the state of the partition changes it, and then has the fetch planner check the partition again.
    """

    __slots__ = ("_preferred", "_refusal", "_refusals")

    def __init__(self) -> None:
        self._preferred: PreferredReplica | None = None
        self._refusal: Refusal | None = None
        self._refusals = 0  # in a row; a replica that has given records ends the row

    def preferred(self, now: float) -> int | None:
        """Returns the id of the preferred read replica, or None if there is none or its lease has ended."""
        if self._preferred is not None and now > self._preferred.until:
            self._preferred = None
        return None if self._preferred is None else self._preferred.broker_id

    def prefer(self, broker_id: int, until: float, offset: int) -> bool:
        """Set the replica to fetch from, with a lease that ends at `until` (ms). The leader named it at `offset`.

        Returns False for the same replica as before, whose lease is not extended.
        """
        if self._preferred is not None and self._preferred.broker_id == broker_id:
            return False
        self._preferred = PreferredReplica(broker_id, until, offset)
        return True

    def prefer_leader(self) -> bool:
        """Fetch from the leader again. Returns False if there is no preferred replica."""
        old, self._preferred = self._preferred, None
        return old is not None

    def leader_changed(self) -> None:
        """Fetch from the new leader, which may name any replica."""
        self._preferred = self._refusal = None

    def refuse(
        self, offset: int, now: float, lease_ms: float, reason: str, first_lease_ms: float | None = None
    ) -> bool:
        """Fetch from the leader again, because the preferred replica returned no records for `offset`.

        If it has returned none at all since the leader named it, the leader is asked not to name a replica for
        `lease_ms`. With `first_lease_ms`, the first such pause has this length (ms), and each further one twice the
        length of the one before, up to `lease_ms`. Returns True if this is new.
        """
        old = self._preferred
        self._preferred = None
        if old is None or old.offset != offset:
            return False
        if first_lease_ms is not None:
            lease_ms = min(lease_ms, first_lease_ms * 2**self._refusals)
        self._refusals += 1
        before, self._refusal = self._refusal, Refusal(old.broker_id, now + lease_ms, reason)
        return before is None

    def refusal(self, now: float) -> Refusal | None:
        """Returns why the leader must not name a read replica, or None if it may."""
        if self._refusal is not None and now > self._refusal.until:
            self._refusal = None
        return self._refusal

    @property
    def has_refusal(self) -> bool:
        """True if `refusal` returned a reason when it was last called, or there has been another since."""
        return self._refusal is not None

    @property
    def was_refused(self) -> bool:
        """True if a replica gave no records, and none has responded without an error since."""
        return self._refusals > 0

    def clear_refusal(self) -> None:
        """Let the leader name a read replica again, because a replica has responded without an error."""
        self._refusal, self._refusals = None, 0

    @property
    def lease_end(self) -> float:
        """The time (ms) at which the broker to fetch from may change: the lease of the preferred replica ends, or the
        leader may name a replica again; inf if neither will happen."""
        ends = [entry.until for entry in (self._preferred, self._refusal) if entry is not None]
        return min(ends, default=float("inf"))
