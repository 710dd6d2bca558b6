"""The state of one assigned partition: its position, its flags, the offsets that brokers reported.

Decides which changes of state are legal (`TRANSITIONS`) and whether the partition may be fetched.
`offsets/reset_manager.py` decides when requests for resets and validations are sent.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import NamedTuple

from kconsumer._core.cycle import ChangeLog, PartitionPosition
from kconsumer._internal.transitions import checked_transition
from kconsumer.errors import KafkaError, StateError
from kconsumer.state.cluster import NO_LEADER, LeaderAndEpoch
from kconsumer.state.read_replica import ReadReplica
from kconsumer.state.stored_offsets import StoredOffsets
from kconsumer.types import OffsetReset, TopicPartition


class FetchState(enum.Enum):
    """What a partition needs before it can be fetched (Java's `SubscriptionState.FetchStates`)."""

    INITIALIZING = "initializing"
    FETCHING = "fetching"
    AWAIT_RESET = "await_reset"
    AWAIT_VALIDATION = "await_validation"


INITIALIZING, FETCHING, AWAIT_RESET, AWAIT_VALIDATION = FetchState

# A response that arrives late must not change the state. So `Positions` compares the request with the current
# state before it calls a method that changes the state.
TRANSITIONS: Mapping[FetchState, frozenset[FetchState]] = {
    INITIALIZING: frozenset({FETCHING, AWAIT_RESET, AWAIT_VALIDATION}),
    FETCHING: frozenset({FETCHING, AWAIT_RESET, AWAIT_VALIDATION}),
    AWAIT_RESET: frozenset({FETCHING, AWAIT_RESET}),
    AWAIT_VALIDATION: frozenset({FETCHING, AWAIT_RESET, AWAIT_VALIDATION}),
}
HAS_POSITION = frozenset({FETCHING, AWAIT_VALIDATION})
_NAMELESS = TopicPartition("", -1)


class FetchPosition(NamedTuple):
    """The position of a partition (Java `FetchPosition`)."""

    offset: int  # the offset of the next record to return
    offset_epoch: int | None = None  # the leader epoch of the record before `offset`, if known
    leader: LeaderAndEpoch = NO_LEADER  # the leader that the position was validated against


class PartitionState(PartitionPosition[FetchPosition]):
    """The state of one assigned partition."""

    __slots__ = (
        "awaiting_callback",
        "failures",
        "fetch_state",
        "flags_since",
        "last_error",
        "next_retry",
        "out_of_range_offset",
        "pending_revocation",
        "replica",
        "reset_end",
        "reset_strategy",
        "state_since",
        "stored",
        "unsubscribed",
    )

    def __init__(
        self, changes: ChangeLog[PartitionState] | None = None, topic_partition: TopicPartition = _NAMELESS
    ) -> None:
        self.changes: ChangeLog[PartitionState] = changes or ChangeLog()
        self.topic_partition = topic_partition
        self.changes.add_without_position(1)
        self.fetch_state = INITIALIZING
        self.position: FetchPosition | None = None
        self.topic_id: bytes | None = None  # of the topic that was read up to the position; None if nothing was read
        self.fetchable = False  # computed with each change, because it is read far more often
        self.paused = False
        # `Assignment` sets these two, from the target assignment and from the subscription.
        self.pending_revocation = False
        self.unsubscribed = False
        self.awaiting_callback = False  # on_assign has not returned
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.reset_strategy: OffsetReset | None = None
        self.reset_end: int | None = None  # the end of the log, for a reset by duration
        self.next_retry = 0.0  # ms; no request for this partition is sent before this time
        self.failures = 0  # failures in a row of the request that the current state waits for
        self.out_of_range = 0  # resets in a row of a position that was out of range
        self.out_of_range_offset: int | None = None  # the position that is being reset, because it was out of range
        self.last_error: KafkaError | str = ""
        self.stored: StoredOffsets | None = None  # None: nothing was read or stored since the position was set
        self.state_since = self.flags_since = self.changes.now  # ms
        self.replica = ReadReplica()

    # --- transitions -------------------------------------------------------------------------------------

    def transition_to(self, new: FetchState, position: FetchPosition | None = None) -> None:
        """Change the state. If `position` is given, also set the position. Ends a backoff and clears `last_error`.

        In the states INITIALIZING and AWAIT_RESET, a partition has no position, so the position is dropped. Raises
        StateError and changes nothing if `TRANSITIONS` does not allow the change, or if the new state needs a position
        and there is none.
        """
        old = self.fetch_state
        checked_transition(TRANSITIONS, f"partition {self.topic_partition}", old, new)
        if new in HAS_POSITION:
            if position is None:
                position = self.position
            if position is None:
                raise StateError(f"partition {self.topic_partition} cannot become {new.value} without a position")
            self.position = position
            if position.leader.leader is None:
                self.changes.set_unchecked_leaders()
        else:
            self.position = None
        if new is not old:
            self.changes.add_without_position((old is FETCHING) - (new is FETCHING))
            self.fetch_state = new
            self.state_since = self.changes.now
        self.next_retry = 0.0
        self.failures = 0
        self.last_error = ""
        self._refresh()

    def join(self) -> None:
        """Count this state in a new assignment that also contains the partition."""
        self.changes.add_without_position(not self.has_valid_position)

    def leave(self) -> None:
        """Record later changes elsewhere, because the partition is not assigned any more."""
        self.changes = ChangeLog(self.changes.now)

    def set_position(self, position: FetchPosition) -> None:
        """Replace a valid position. Raises StateError if the partition has no valid position."""
        if not self.has_valid_position:
            raise StateError(f"partition {self.topic_partition} has no valid position to move on from")
        self.position = position

    def restore(self, position: FetchPosition) -> None:
        """Set an earlier position, for the current leader. If the position awaits validation, the earlier one does."""
        assert self.position is not None
        position = position._replace(leader=self.position.leader)
        if self.fetch_state is AWAIT_VALIDATION:
            self.validate(position)
        else:
            self.position = position
            self.mark_dirty()

    def reset(self, strategy: OffsetReset, retry_at: float = 0.0) -> None:
        """Drop the position and await a reset by `strategy`. The reset is not requested before `retry_at` (ms)."""
        self.transition_to(AWAIT_RESET)
        self.stored = None
        self.reset_strategy = strategy
        self.reset_end = self.out_of_range_offset = None
        self.next_retry = retry_at

    def reset_out_of_range(self, strategy: OffsetReset, delay_ms: Callable[[int], float]) -> None:
        """Reset a position that is out of range.

        The first reset is requested at once. If the resulting offset is out of range, too, the second reset is delayed
        by `delay_ms(0)` ms, the third by `delay_ms(1)` ms, and so on.
        """
        resets, position = self.out_of_range, self.position
        self.reset(strategy, self.changes.now + delay_ms(resets - 1) if resets else 0.0)
        self.out_of_range += 1
        if position is not None:
            self.out_of_range_offset = position.offset
            self.last_error = f"the broker refused offset {position.offset} (OFFSET_OUT_OF_RANGE)"

    def clear_out_of_range(self) -> None:
        """Clear `out_of_range`, because the broker accepted the position's offset."""
        self.out_of_range = 0

    def set_reset_end(self, end: int) -> None:
        """Store the log's end offset for a reset by duration. The next request for this reset may be sent at once.

        If `end` is LATEST (-1), the end offset is not known yet, and is requested next.
        """
        self.reset_end = end
        self.next_retry = 0.0

    def seek(self, position: FetchPosition) -> None:
        """Set this position, without validation."""
        self.transition_to(FETCHING, position)
        self.topic_id = self.stored = None
        self.reset_strategy = None

    def stored_from(self, start: int) -> StoredOffsets:
        """Returns the stored offsets. If there are none yet, the partition is read from `start` on."""
        if self.stored is None:
            self.stored = StoredOffsets(start)
        return self.stored

    def keep_stored(self, stored: StoredOffsets | None) -> None:
        """Set the stored offsets from before a `seek` back to records that the application has not reached."""
        self.stored = stored

    def seek_unvalidated(self, position: FetchPosition) -> None:
        """Set this position, and await its validation if that is possible (KIP-320).

        It is possible if `offset_epoch` and the leader's epoch are known. If one of them is unknown, the position is
        used at once.
        """
        self.seek(position)
        self.validate(position)

    def validate(self, position: FetchPosition) -> None:
        """Set this position, and await its validation if that is possible.

        It is possible if `offset_epoch` and the leader's epoch are known. If one of them is unknown, the position is
        used at once.
        """
        checkable = position.offset_epoch is not None and position.leader.epoch is not None
        self.transition_to(AWAIT_VALIDATION if checkable else FETCHING, position)

    def maybe_validate(self, leader: LeaderAndEpoch) -> bool:
        """Let the position await a validation, unless it was validated against `leader` already.

        `leader` is the current leader of the partition. Does nothing if the leader is unknown, or if the partition has
        no position. Returns True if the position awaits validation.
        """
        position = self.position
        if position is None or leader.leader is None:
            return False
        if position.leader is not leader and position.leader != leader:
            self.validate(position._replace(leader=leader))
            self.replica.leader_changed()
        return self.fetch_state is AWAIT_VALIDATION

    def complete_validation(self) -> None:
        """End the validation, because the position is valid or cannot be validated."""
        if self.fetch_state is AWAIT_VALIDATION:
            self.transition_to(FETCHING)

    # --- retries -----------------------------------------------------------------------------------------

    def retry_at(self, at: float, error: KafkaError | str = "") -> None:
        """Delay the next request for this partition until `at` (ms). `partition_states()` shows `error`, unless it is
        empty."""
        self.next_retry = at
        if error:
            self.last_error = error

    def back_off(self, now: float, delay_ms: Callable[[int], float], error: KafkaError | str) -> None:
        """Count a failure, and delay the next request by `delay_ms(n)` ms. n is the number of earlier failures in a
        row."""
        self.failures += 1
        self.retry_at(now + delay_ms(self.failures - 1), error)

    def set_last_error(self, error: KafkaError | str) -> None:
        """Set the error that `partition_states()` shows until the state changes."""
        self.last_error = error

    # --- flags -------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Stop fetching until `resume`."""
        self.flag(paused=True)

    def resume(self) -> None:
        """Allow fetching again after `pause`."""
        self.flag(paused=False)

    def flag(
        self,
        *,
        paused: bool | None = None,
        pending_revocation: bool | None = None,
        unsubscribed: bool | None = None,
        awaiting_callback: bool | None = None,
    ) -> None:
        """Set or clear the flags that stop fetching; None leaves a flag unchanged."""
        before = self._flags()
        if paused is not None:
            self.paused = paused
        if pending_revocation is not None:
            self.pending_revocation = pending_revocation
        if unsubscribed is not None:
            self.unsubscribed = unsubscribed
        if awaiting_callback is not None:
            self.awaiting_callback = awaiting_callback
        if before != self._flags():
            self.flags_since = self.changes.now
        self._refresh()

    def _flags(self) -> tuple[bool, bool, bool, bool]:
        return self.paused, self.pending_revocation, self.unsubscribed, self.awaiting_callback

    def _refresh(self) -> None:
        self.fetchable = self.fetch_state is FETCHING and not any(self._flags())
        self.mark_dirty()

    def mark_dirty(self) -> None:
        """Make the fetch planner check this partition again. The next fetch may need another offset or broker."""
        self.changes.dirty[self] = None

    @property
    def has_valid_position(self) -> bool:
        """True if the position needs neither a reset nor a validation. Only then is it used to fetch."""
        return self.fetch_state is FETCHING

    @property
    def returnable(self) -> bool:
        """True if records that were taken before the position may be returned: no flag stops that."""
        return self.position is not None and not any(self._flags())

    # --- what brokers report -----------------------------------------------------------------------------

    def update_offsets(self, high_watermark: int, last_stable_offset: int = -1, log_start_offset: int = -1) -> None:
        """Store the offsets that a broker reported. An offset of -1 means that it was not reported."""
        if high_watermark >= 0:
            self.high_watermark = high_watermark
        if last_stable_offset >= 0:
            self.last_stable_offset = last_stable_offset
        if log_start_offset >= 0:
            self.log_start_offset = log_start_offset

    @property
    def has_open_transaction(self) -> bool:
        """True if the broker reported a last stable offset before the high watermark."""
        end, high_watermark = self.last_stable_offset, self.high_watermark
        return end is not None and high_watermark is not None and end < high_watermark

    def prefer_replica(self, broker_id: int, until: float, offset: int) -> None:
        """Set the replica to fetch from, with a lease that ends at `until` (ms). The leader named it at `offset`."""
        if self.replica.prefer(broker_id, until, offset):
            self.mark_dirty()

    def prefer_leader(self) -> None:
        """Fetch from the leader again."""
        if self.replica.prefer_leader():
            self.mark_dirty()

    def refuse_replica(
        self, offset: int, now: float, lease_ms: float, reason: str, first_lease_ms: float | None = None
    ) -> bool:
        """Fetch from the leader again, because a replica returned no records. `ReadReplica.refuse` says the rest."""
        refused = self.replica.refuse(offset, now, lease_ms, reason, first_lease_ms)
        self.mark_dirty()
        return refused

    def clear_refusal(self) -> None:
        """Let the leader name a read replica again, because a replica has responded without an error."""
        self.replica.clear_refusal()
        self.mark_dirty()

    def end_offset(self, read_committed: bool = False) -> int | None:
        """Returns the last stable offset if `read_committed` is True, else the high watermark.

        Returns None if this offset is unknown.
        """
        return self.last_stable_offset if read_committed else self.high_watermark

    def lag(self, read_committed: bool = False) -> int | None:
        """Returns the number of offsets from the position to `end_offset`, or None if one of these two is unknown."""
        end = self.end_offset(read_committed)
        return None if end is None or self.position is None else end - self.position.offset

    def lead(self) -> int | None:
        """Returns the number of offsets from the log start to the position, or None if one of these two is unknown."""
        start = self.log_start_offset
        return None if start is None or self.position is None else self.position.offset - start

    def __repr__(self) -> str:
        names = ("paused", "pending_revocation", "unsubscribed", "awaiting_callback")
        flags = "".join(f" {name}" for name in names if getattr(self, name))
        at = "" if self.position is None else f" at {self.position.offset}"
        return f"<PartitionState {self.fetch_state.value}{at}{flags}>"
