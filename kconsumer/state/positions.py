"""The positions of the assigned partitions: how they are set, reset, validated and committed.

Decides which partitions need a position, a reset or a validation, and how a response changes a position. The managers
in `offsets/` send the requests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from kconsumer._core.cycle import Delivery
from kconsumer._core.decode import ConsumerRecord, RecordRun
from kconsumer.errors import KafkaError
from kconsumer.state.assignment import Assignment
from kconsumer.state.cluster import NO_LEADER, Cluster, LeaderAndEpoch
from kconsumer.state.partition import (
    AWAIT_RESET,
    AWAIT_VALIDATION,
    INITIALIZING,
    FetchPosition,
    FetchState,
    PartitionState,
)
from kconsumer.state.position_errors import Truncation, no_offset_error
from kconsumer.types import OffsetAndMetadata, OffsetReset, TopicPartition


class Positions:
    """The positions of the assigned partitions of one consumer."""

    def __init__(
        self,
        assignment: Assignment,
        default_reset: OffsetReset = OffsetReset.LATEST,
        *,
        auto_store: bool = True,
        initial_reset: Callable[[TopicPartition], OffsetReset | None] = lambda _: None,
    ) -> None:
        self.assignment = assignment
        self.auto_store = auto_store  # records are stored when a poll returns them, and not by `store_offsets`
        self.default_reset = default_reset
        self._initial_reset = initial_reset  # how a partition that never had a position is reset; None: by default
        self.delivery: Delivery[FetchPosition] = Delivery()
        self._changes = assignment.changes
        self._recreated: set[str] = set()  # topics that were deleted and created again

    def seek(
        self, tp: TopicPartition, offset: int, epoch: int | None = None, leader: LeaderAndEpoch = NO_LEADER
    ) -> None:
        """Set the position to `offset`. Raises StateError if the partition is not assigned.

        `epoch` is the leader epoch of the record before `offset`, if known. `leader` is the partition's leader, if
        known. A position with an `epoch` is validated before it is used. If the current leader epoch is unknown, the
        validation starts as soon as that epoch is known.
        """
        position = FetchPosition(offset, epoch, leader)
        state = self.assignment.get(tp)
        if epoch is None:
            state.seek(position)
        else:
            state.seek_unvalidated(position)

    def all_consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the positions as offsets to commit, or the stored offsets if `auto_store` is False.

        If the running `poll` has moved a position, but has not returned the records yet, the result contains the
        position that the partition had before.
        """
        if not self.auto_store:
            return self._all_stored()
        consumed = {}
        for tp, state in self.assignment.states().items():
            position = self.consumed(tp, state)
            if position is not None:
                consumed[tp] = OffsetAndMetadata(position.offset, "", position.offset_epoch)
        return consumed

    def consumed(self, tp: TopicPartition, state: PartitionState) -> FetchPosition | None:
        """Returns the position of a partition as it may be committed, or None if it has none.

        If the running `poll` has moved it, but has not returned the records yet, returns the position before it. A
        position that awaits validation counts, too, unlike in Java (`allConsumed`): the records before it were
        consumed, and a commit without it would let the next member read them again. A commit contains the epoch of the
        position, so that member finds out if the log was truncated.
        """
        if state.position is None:
            return None
        return self.delivery.consumed(tp, state.position)

    # --- stored offsets ----------------------------------------------------------------------------------

    def _all_stored(self) -> dict[TopicPartition, OffsetAndMetadata]:
        items = [(tp, state.stored.to_commit()) for tp, state in self.assignment.states().items() if state.stored]
        return {tp: offset for tp, offset in items if offset is not None}

    def pass_over(self, runs: Iterable[RecordRun]) -> None:
        """Record which offsets the running poll passes over. `runs` are the records that it has taken."""
        by_partition: dict[TopicPartition, list[RecordRun]] = {}
        for run in runs:
            by_partition.setdefault(run.topic_partition, []).append(run)
        for tp, reached in self.delivery.after.items():
            state, start, taken = self.assignment.find(tp), self.delivery.before[tp].offset, by_partition.get(tp, ())
            if state is None:
                continue
            stored = state.stored_from(start)
            if sum(map(len, taken)) < reached.offset - start:
                records = (record for run in taken for record in run)
                stored.pass_over(start, records, reached.offset, reached.offset_epoch)

    def store_records(self, records: Iterable[ConsumerRecord]) -> None:
        """Store records. Ignores those that were not returned since their partition was assigned or its position set.

        For example, a seek or a revocation came before.
        """
        for record in records:
            tp = record.topic_partition
            state = self.assignment.find(tp)
            if state is None or state.stored is None or state.position is None:
                continue
            if record.offset < self.delivery.consumed(tp, state.position).offset:
                state.stored.store_record(record.offset, record.leader_epoch)

    def store_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Store the offset to commit of each partition. Ignores partitions that are not assigned."""
        for tp, offset in offsets.items():
            state = self.assignment.find(tp)
            if state is not None:
                state.stored_from(offset.offset).store_offset(offset)

    def restore(self, tp: TopicPartition, position: FetchPosition, reached: FetchPosition) -> bool:
        """Set an earlier position, because the records between it and `reached` were not returned.

        Does nothing and returns False if the partition is not assigned any more, or if its position is not `reached`.
        """
        state = self.assignment.find(tp)
        if state is None or state.position is None or state.position.offset != reached.offset:
            return False
        state.restore(position)
        return True

    # --- resets -----------------------------------------------------------------------------------------

    def request_reset(self, tp: TopicPartition, strategy: OffsetReset | None = None, retry_at: float = 0.0) -> None:
        """Drop the position and await a reset by `strategy`, or by the reset policy if `strategy` is None.

        The reset is not requested before `retry_at` (ms). Raises NoOffsetForPartitionError if the strategy that applies
        is OffsetReset.NONE, and StateError if the partition is not assigned.
        """
        state = self.assignment.get(tp)
        strategy = strategy or self.default_reset
        if strategy == OffsetReset.NONE:
            raise no_offset_error([tp])
        state.reset(strategy, retry_at)

    def reset_out_of_range(self, tp: TopicPartition, delay_ms: Callable[[int], float]) -> None:
        """Drop a position that is out of range, and await a reset by the reset policy.

        `delay_ms` delays repeated resets, as in `PartitionState.reset_out_of_range`. Raises NoOffsetForPartitionError
        if the reset policy is OffsetReset.NONE, and StateError if the partition is not assigned.
        """
        state, policy = self.assignment.get(tp), self._reset_policy(tp)
        if policy == OffsetReset.NONE:
            raise no_offset_error([tp])
        state.reset_out_of_range(policy, delay_ms)

    def _reset_policy(self, tp: TopicPartition) -> OffsetReset:
        """Returns the reset policy for a position that is not in the log: that of new partitions if its topic was
        created again."""
        return (self._initial_reset(tp) if tp.topic in self._recreated else None) or self.default_reset

    def reset_initializing(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Let the assigned partitions that never had a position await a reset by the reset policy.

        If `partitions` is given, does this only for those of them that are in `partitions`. If the policy of some is
        OffsetReset.NONE, does not change them, and raises NoOffsetForPartitionError.
        """
        waiting = self.partitions_to_initialize()
        if partitions is not None:
            chosen = set(partitions)
            waiting = [tp for tp in waiting if tp in chosen]
        policies = {tp: self._initial_reset(tp) or self.default_reset for tp in waiting}
        for tp, policy in policies.items():
            if policy != OffsetReset.NONE:
                self.assignment.get(tp).reset(policy)
        refused = [tp for tp, policy in policies.items() if policy == OffsetReset.NONE]
        if refused:
            raise no_offset_error(refused)

    def maybe_seek_after_reset(
        self, tp: TopicPartition, offset: int, strategy: OffsetReset, leader: LeaderAndEpoch = NO_LEADER
    ) -> bool:
        """Set the position to the offset that a reset found, and return True.

        Returns False and changes nothing if the partition is no longer assigned, or no longer awaits a reset by this
        strategy.
        """
        state = self.assignment.find(tp)
        if state is None or state.fetch_state is not AWAIT_RESET or state.reset_strategy != strategy:
            return False
        # No offset epoch: the broker has just reported the offset, so there is nothing to validate.
        state.seek(FetchPosition(offset, None, leader))
        return True

    # --- partitions that need a request --------------------------------------------------------------------

    def has_all_positions(self) -> bool:
        """Returns True if every assigned partition has a valid position. Takes constant time."""
        return not self._changes.without_position

    def partitions_to_initialize(self) -> list[TopicPartition]:
        """Returns the partitions that never had a position."""
        return self._in_state(INITIALIZING)

    def partitions_to_reset(self, now: float) -> list[TopicPartition]:
        """Returns the partitions that await a reset and are not backed off."""
        return self._in_state(AWAIT_RESET, now)

    def partitions_to_validate(self, now: float) -> list[TopicPartition]:
        """Returns the partitions that await validation and are not backed off."""
        return self._in_state(AWAIT_VALIDATION, now)

    def next_retry(self, now: float) -> float:
        """Returns the time (ms) until the next partition may be retried; inf if none is backed off."""
        moments = [s.next_retry for s in self.assignment.states().values() if s.next_retry > now]
        return min(moments) - now if moments else float("inf")

    def _in_state(self, wanted: FetchState, now: float = float("inf")) -> list[TopicPartition]:
        if not self._changes.without_position:
            return []
        items = self.assignment.states().items()
        return [tp for tp, state in items if state.fetch_state is wanted and state.next_retry <= now]

    def set_next_retry(self, partitions: Iterable[TopicPartition], at: float, error: str = "") -> None:
        """Delay the next request for these partitions until `at` (ms).

        `partition_states()` shows `error`, unless it is empty. Partitions that are no longer assigned are skipped.
        """
        for tp in partitions:
            state = self.assignment.find(tp)
            if state is not None:
                state.retry_at(at, error)

    def back_off(
        self, reasons: Mapping[TopicPartition, KafkaError | str], now: float, delay_ms: Callable[[int], float]
    ) -> None:
        """Count a failure of each partition in `reasons`, and back the partition off for `delay_ms(n)` ms.

        n is the number of the partition's earlier failures in a row. `partition_states()` shows the reasons. Partitions
        that are no longer assigned are skipped.
        """
        for tp, reason in reasons.items():
            state = self.assignment.find(tp)
            if state is not None:
                state.back_off(now, delay_ms, reason)

    # --- validation (KIP-320) ---------------------------------------------------------------------------

    @property
    def has_unchecked_leaders(self) -> bool:
        """True if a position was set without a leader since the last `validate_all`."""
        return self._changes.unchecked_leaders

    def validate_all(self, cluster: Cluster) -> None:
        """Let each position await a validation if it was not validated against the partition's current leader in
        `cluster`."""
        self._changes.clear_unchecked_leaders()
        leader_of = cluster.leader
        for tp, state in self.assignment.states().items():
            state.maybe_validate(leader_of(tp))

    def forget_epochs(self, topics: Collection[str]) -> None:
        """Drop the leader epochs of positions in topics that were deleted and created again.

        The epochs of the old log must not be compared with those of the new one. Without epochs, a position beyond the
        end of the new log is handled as out of range, and not as a truncation. Later, an offset that was committed for
        the old topic may still become a position, with its epoch: see `_truncate_at`.

        If new partitions are read from the first offset, a position at which nothing was read is reset to it, and a
        reset that is awaited becomes one to it. This includes what the application has requested: when it did, the
        metadata had the old topic or none, so it is unknown which topic the request was for, and records of the new
        one could be skipped. If new partitions begin at the end, what was requested skips no more than that does.
        """
        self._recreated |= set(topics)
        for tp, state in self.assignment.states().items():
            if tp.topic in topics:
                self._forget_epoch(state, self._initial_reset(tp))

    def _forget_epoch(self, state: PartitionState, policy: OffsetReset | None) -> None:
        position = state.position
        unread = state.fetch_state is AWAIT_RESET or (position is not None and state.topic_id is None)
        if unread and policy == OffsetReset.EARLIEST:
            state.reset(policy)
        elif position is not None and position.offset_epoch is not None:
            state.validate(position._replace(offset_epoch=None))

    def complete_validation(self, tp: TopicPartition, requested: FetchPosition) -> None:
        """Use the position `requested` without validation, because the broker does not support validation.

        Does nothing if the position has changed since the request.
        """
        state = self._awaiting_validation(tp, requested)
        if state is not None:
            state.complete_validation()

    def maybe_complete_validation(
        self, tp: TopicPartition, requested: FetchPosition, end_offset: int, end_epoch: int
    ) -> Truncation | None:
        """Handle the response to a validation of the position `requested`.

        `end_offset` is the offset at which the position's leader epoch ends in the leader's log, and `end_epoch` is the
        leader epoch there. They are -1 if the log has no such epoch. If the position is not greater than `end_offset`,
        it is valid. If it is greater, or if there is no such epoch, the log was truncated.

        After a truncation, the position moves to `end_offset`, or is reset if there is no such epoch. But with the
        reset policy OffsetReset.NONE, nothing is changed, and the truncation is returned. In all other cases the result
        is None. Does nothing if the position has changed since the request.
        """
        state = self._awaiting_validation(tp, requested)
        if state is None:
            return None
        if end_offset < 0 or end_epoch < 0:
            return self._truncate_at(tp, state, requested, None)
        if end_offset < requested.offset:
            return self._truncate_at(tp, state, requested, OffsetAndMetadata(end_offset, "", end_epoch))
        state.complete_validation()
        return None

    def truncate(self, tp: TopicPartition, divergent: OffsetAndMetadata) -> Truncation | None:
        """Handle a Fetch response in which the leader reports that the log was truncated (KIP-595).

        The leader's log diverges from the records that were read, at the offset `divergent`. The effects and the result
        are the same as for a truncation in `maybe_complete_validation`. Does nothing if the position is not greater
        than that offset.
        """
        state = self.assignment.get(tp)
        position = state.position
        if position is None or position.offset <= divergent.offset:
            return None
        return self._truncate_at(tp, state, position, divergent)

    def _truncate_at(
        self, tp: TopicPartition, state: PartitionState, position: FetchPosition, divergent: OffsetAndMetadata | None
    ) -> Truncation | None:
        """Move the position to the divergent offset, or reset it if that offset is unknown. Returns None.

        But with the reset policy OffsetReset.NONE, changes nothing and returns the truncation.

        If the topic was deleted and created again, and nothing was read from the new one yet, the position is probably
        a committed offset of the old topic. Then it is reset, because the records of the new topic before the divergent
        offset would be skipped. (Java skips them.)
        """
        policy = self._reset_policy(tp)
        if policy == OffsetReset.NONE:
            return Truncation(position, divergent)
        if divergent is None or (tp.topic in self._recreated and state.topic_id is None):
            state.reset(policy)
        else:
            found = FetchPosition(divergent.offset, divergent.leader_epoch, position.leader)
            # The running poll may not have returned yet what it has read before the divergent offset.
            consumed = self.delivery.consumed(tp, position)
            state.seek(consumed._replace(leader=position.leader) if consumed.offset < found.offset else found)
        return None

    def _awaiting_validation(self, tp: TopicPartition, requested: FetchPosition) -> PartitionState | None:
        state = self.assignment.find(tp)
        if state is None or state.fetch_state is not AWAIT_VALIDATION or state.position != requested:
            return None
        return state

    def __repr__(self) -> str:
        return f"<Positions of {self.assignment!r}>"
