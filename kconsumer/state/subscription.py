"""The subscription or manual assignment of a consumer, and the state of each assigned partition.

Decides which kinds of subscription exclude each other, which state is kept when the assignment changes, and which
partitions need a position, a reset or a validation. The membership decides which partitions are assigned. The managers
send the requests.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from kconsumer.errors import KafkaError, LogTruncationError, NoOffsetForPartitionError, StateError
from kconsumer.state.cluster import NO_LEADER, Cluster, LeaderAndEpoch
from kconsumer.state.delivery import Delivery
from kconsumer.state.partition import (
    AWAIT_RESET,
    AWAIT_VALIDATION,
    INITIALIZING,
    FetchPosition,
    FetchState,
    PartitionState,
    Tally,
)
from kconsumer.types import OffsetAndMetadata, OffsetReset, SubscriptionPattern, TopicPartition


class SubscriptionKind(enum.Enum):
    """The source of the assignment. A consumer keeps one kind until `unsubscribe()`."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    BROKER_PATTERN = "broker pattern"
    ASSIGNED = "assigned"


# This is a tuple and not a set. A test with `in` on a set calls the enum's `__hash__`, which is a slow Python function.
_BY_GROUP = (SubscriptionKind.TOPICS, SubscriptionKind.PATTERN, SubscriptionKind.BROKER_PATTERN)


class Truncation(NamedTuple):
    """A truncation of a partition's log below the position."""

    position: FetchPosition
    divergent: OffsetAndMetadata | None  # the log agrees with the records read up to this offset, if it is known


class SubscriptionState:
    """Subscription and assignment of one consumer (Java's `SubscriptionState`)."""

    def __init__(self, default_reset: OffsetReset = OffsetReset.LATEST) -> None:
        self.default_reset = default_reset
        self.kind = SubscriptionKind.NONE
        self.pattern: re.Pattern[str] | None = None
        self.broker_pattern: str | None = None
        self.assignment_version = 0  # grows with each change of the assigned partitions
        self.topics_version = 0  # grows with each change of the topics that need metadata
        self.delivery = Delivery()
        self._topics: frozenset[str] = frozenset()
        self._group_topics: frozenset[str] = frozenset()  # the topics of all members, while this one is the leader
        self._states: dict[TopicPartition, PartitionState] = {}  # in fetch order
        self._target: frozenset[TopicPartition] | None = None  # the target assignment; None: all assigned partitions
        self._recreated: set[str] = set()  # topics that were deleted and created again
        self._tally = Tally()

    @property
    def now(self) -> float:
        """The current time of the managers (ms). Changes of partitions are recorded with this time."""
        return self._tally.now

    def set_now(self, now: float) -> None:
        """Set the time (ms) of the changes that follow."""
        self._tally.now = now

    # --- what the user subscribes to ---------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> bool:
        """Subscribe to exactly these topics. Returns True if they changed.

        Raises StateError if another kind of subscription is in use.
        """
        self._become(SubscriptionKind.TOPICS)
        return self._set_topics(frozenset(topics))

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        """Subscribe to the topics whose whole name matches the pattern.

        Raises StateError if another kind of subscription is in use.
        """
        self._become(SubscriptionKind.PATTERN)
        if self.pattern != pattern:
            self.pattern = pattern
            self.topics_version += 1
            self._update_fetchable()

    def subscribe_broker_pattern(self, pattern: SubscriptionPattern) -> None:
        """Subscribe to a pattern that the coordinator matches against topic names (KIP-848).

        Raises StateError if another kind of subscription is in use.
        """
        self._become(SubscriptionKind.BROKER_PATTERN)
        if self.broker_pattern != pattern.pattern:
            self.broker_pattern = pattern.pattern
            self.topics_version += 1

    def subscribe_matched(self, topics: Iterable[str]) -> bool:
        """Set the topics that the pattern matches. Returns True if they changed.

        Raises StateError if the subscription is not a pattern that the client matches.
        """
        if self.kind is not SubscriptionKind.PATTERN:
            raise StateError("topics can be matched only for a pattern subscription")
        return self._set_topics(frozenset(topics))

    def update_matched(self, cluster: Cluster, *, exclude_internal: bool) -> bool:
        """Match the pattern against the cluster's topics. Returns True if the subscribed topics changed.

        If `exclude_internal` is True, topics that Kafka itself uses do not match.
        """
        excluded = cluster.internal_topics if exclude_internal else frozenset()
        return self.subscribe_matched(t for t in cluster.topics() - excluded if self.matches_subscription(t))

    def assign(self, partitions: Collection[TopicPartition]) -> bool:
        """Assign exactly these partitions, without a group. Returns True if they changed.

        Partitions that were assigned before keep their state. Raises StateError if another kind of subscription is in
        use.
        """
        self._become(SubscriptionKind.ASSIGNED)
        if self._states.keys() == set(partitions):
            return False
        self._set_assignment(partitions)
        self._set_topics(frozenset(tp.topic for tp in self._states))
        return True

    def unsubscribe(self) -> None:
        """Forget the subscription and the assignment."""
        self.kind = SubscriptionKind.NONE
        self.pattern = self.broker_pattern = None
        self._group_topics = frozenset()
        self._set_topics(frozenset())
        self._set_assignment(())

    def _become(self, kind: SubscriptionKind) -> None:
        if self.kind not in (SubscriptionKind.NONE, kind):
            raise StateError(
                f"subscribing to topics, subscribing to a pattern and assigning partitions exclude each "
                f"other; this consumer is at {self.kind.value}: call unsubscribe() first"
            )
        self.kind = kind

    def _set_topics(self, topics: frozenset[str]) -> bool:
        if self._topics == topics:
            return False
        self._topics = topics
        self.topics_version += 1
        self._update_fetchable()
        return True

    # --- topics ------------------------------------------------------------------------------------------

    @property
    def is_group_managed(self) -> bool:
        """True if the group decides the assignment."""
        return self.kind in _BY_GROUP

    @property
    def has_pattern(self) -> bool:
        """True if the subscription is a pattern that the client matches. Such a subscription needs metadata of all
        topics."""
        return self.kind is SubscriptionKind.PATTERN

    def subscribed_topics(self) -> frozenset[str]:
        """Returns the subscribed topics.

        For a pattern that the client matches, these are the matching topics. For a pattern that the coordinator
        matches, and for a manual assignment, the result is empty.
        """
        return self._topics if self.kind in _BY_GROUP else frozenset()  # inlined: each poll calls this

    def metadata_topics(self) -> frozenset[str]:
        """Returns the topics whose metadata is needed.

        These are the topics of this consumer. For the leader of a group, they are the topics of all members.
        """
        return self._topics | self._group_topics if self._group_topics else self._topics

    def needs_metadata(self, topic: str) -> bool:
        """Returns True if the topic is one of `metadata_topics()`."""
        return topic in self._topics or topic in self._group_topics

    def matches_subscription(self, topic: str) -> bool:
        """Returns True if the topic is subscribed, by name or by pattern.

        If only the coordinator matches the pattern, returns True for every topic.
        """
        if self.pattern is not None:
            return self.pattern.fullmatch(topic) is not None
        if self.kind is SubscriptionKind.BROKER_PATTERN:
            return True  # only the coordinator matches it
        return self.is_group_managed and topic in self._topics

    def group_subscribe(self, topics: Iterable[str]) -> bool:
        """Add all members' topics to `metadata_topics()`, because this consumer is the leader of the group.

        Returns True if some of `topics` are not topics of this consumer. Raises StateError if this consumer has no
        subscription.
        """
        if not self.is_group_managed:
            raise StateError("only a subscription takes part in a group")
        self._set_group_topics(frozenset(topics))
        return not self._topics.issuperset(self._group_topics)

    def reset_group_subscription(self) -> None:
        """Remove other members' topics from `metadata_topics()`."""
        self._set_group_topics(frozenset())

    def _set_group_topics(self, topics: frozenset[str]) -> None:
        if self._group_topics != topics:
            self._group_topics = topics
            self.topics_version += 1

    # --- assignment --------------------------------------------------------------------------------------

    def assign_from_group(self, partitions: Collection[TopicPartition]) -> None:
        """Apply an assignment of the group. Partitions that were assigned before keep their state.

        Raises StateError if this consumer has no subscription.
        """
        if not self.is_group_managed:
            raise StateError("the group cannot assign partitions to a consumer that has no subscription")
        self._set_assignment(partitions)

    def _set_assignment(self, partitions: Collection[TopicPartition]) -> None:
        old, self._states = self._states, {}
        tally = self._tally = self._tally.successor()
        for tp in sorted(set(partitions)):
            state = old.get(tp)
            if state is None:
                state = PartitionState(tally, tp)
            else:
                state.join(tally)
            self._states[tp] = state
        self._target = None
        self._update_fetchable()
        self.assignment_version += 1

    def assigned(self) -> tuple[TopicPartition, ...]:
        """Returns the assigned partitions in the order in which they are fetched."""
        return tuple(self._states)

    def is_assigned(self, tp: TopicPartition) -> bool:
        """Returns True if the partition is assigned."""
        return tp in self._states

    def get(self, tp: TopicPartition) -> PartitionState:
        """Returns the partition's state. Raises StateError if it is not assigned."""
        state = self._states.get(tp)
        if state is None:
            raise StateError(f"partition {tp} is not assigned to this consumer")
        return state

    def find(self, tp: TopicPartition) -> PartitionState | None:
        """Returns the partition's state, or None if it is not assigned."""
        return self._states.get(tp)

    def move_to_end(self, tp: TopicPartition) -> None:
        """Move the partition to the end of the fetch order. Does nothing if it is not assigned."""
        state = self._states.pop(tp, None)
        if state is not None:
            self._states[tp] = state

    # --- positions ---------------------------------------------------------------------------------------

    def seek(
        self, tp: TopicPartition, offset: int, epoch: int | None = None, leader: LeaderAndEpoch = NO_LEADER
    ) -> None:
        """Set the position to `offset`. Raises StateError if the partition is not assigned.

        `epoch` is the leader epoch of the record before `offset`, if known. `leader` is the partition's leader, if
        known. A position with an `epoch` is validated before it is used. If the current leader epoch is unknown, the
        validation starts as soon as that epoch is known.
        """
        position = FetchPosition(offset, epoch, leader)
        state = self.get(tp)
        if epoch is None:
            state.seek(position)
        else:
            state.seek_unvalidated(position)

    def request_reset(self, tp: TopicPartition, strategy: OffsetReset | None = None, retry_at: float = 0.0) -> None:
        """Drop the position and await a reset by `strategy`, or by the reset policy if `strategy` is None.

        The reset is not requested before `retry_at` (ms). Raises NoOffsetForPartitionError if the strategy that applies
        is OffsetReset.NONE, and StateError if the partition is not assigned.
        """
        state = self.get(tp)
        strategy = strategy or self.default_reset
        if strategy == OffsetReset.NONE:
            raise no_offset_error([tp])
        state.reset(strategy, retry_at)

    def reset_out_of_range(self, tp: TopicPartition, delay_ms: Callable[[int], float]) -> None:
        """Drop a position that is out of range, and await a reset by the reset policy.

        `delay_ms` delays repeated resets, as in `PartitionState.reset_out_of_range`. Raises NoOffsetForPartitionError
        if the reset policy is OffsetReset.NONE, and StateError if the partition is not assigned.
        """
        state = self.get(tp)
        if self.default_reset == OffsetReset.NONE:
            raise no_offset_error([tp])
        state.reset_out_of_range(self.default_reset, delay_ms)

    def reset_initializing(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Let the assigned partitions that never had a position await a reset by the reset policy.

        If `partitions` is given, does this only for those of them that are in `partitions`. If the reset policy is
        OffsetReset.NONE, changes nothing, and raises NoOffsetForPartitionError if there are such partitions.
        """
        waiting = self.partitions_to_initialize()
        if partitions is not None:
            chosen = set(partitions)
            waiting = [tp for tp in waiting if tp in chosen]
        if waiting and self.default_reset == OffsetReset.NONE:
            raise no_offset_error(waiting)
        for tp in waiting:
            self._states[tp].reset(self.default_reset)

    def maybe_seek_after_reset(
        self, tp: TopicPartition, offset: int, strategy: OffsetReset, leader: LeaderAndEpoch = NO_LEADER
    ) -> bool:
        """Set the position to the offset that a reset found, and return True.

        Returns False and changes nothing if the partition is no longer assigned, or no longer awaits a reset by this
        strategy.
        """
        state = self._states.get(tp)
        if state is None or state.fetch_state is not AWAIT_RESET or state.reset_strategy != strategy:
            return False
        # No offset epoch: the broker has just reported the offset, so there is nothing to validate.
        state.seek(FetchPosition(offset, None, leader))
        return True

    def position(self, tp: TopicPartition) -> FetchPosition | None:
        """Returns the position, which may await validation, or None if there is no position.

        Raises StateError if the partition is not assigned.
        """
        return self.get(tp).position

    def set_position(self, tp: TopicPartition, position: FetchPosition) -> None:
        """Replace a valid position. Raises StateError if the partition has no valid position, or is not assigned."""
        self.get(tp).set_position(position)

    def all_consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the valid positions as offsets to commit.

        If the running `poll` has moved a position, but has not returned the records yet, the result contains the
        position that the partition had before.
        """
        consumed = {}
        for tp, state in self._states.items():
            position = self.consumed(tp, state)
            if position is not None:
                consumed[tp] = OffsetAndMetadata(position.offset, "", position.offset_epoch)
        return consumed

    def consumed(self, tp: TopicPartition, state: PartitionState) -> FetchPosition | None:
        """Returns the valid position of a partition, or None if it has none.

        If the running `poll` has moved it, but has not returned the records yet, returns the position before it.
        """
        if not state.has_valid_position or state.position is None:
            return None
        return self.delivery.consumed(tp, state.position)

    def restore(self, tp: TopicPartition, position: FetchPosition, reached: FetchPosition) -> bool:
        """Set an earlier position, because the records between it and `reached` were not returned.

        Does nothing and returns False if the partition is not assigned any more, or if its position is not `reached`.
        """
        state = self._states.get(tp)
        if state is None or state.position is None or state.position.offset != reached.offset:
            return False
        state.restore(position)
        return True

    def has_all_positions(self) -> bool:
        """Returns True if every assigned partition has a valid position. Takes constant time."""
        return not self._tally.without_position

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
        moments = [s.next_retry for s in self._states.values() if s.next_retry > now]
        return min(moments) - now if moments else float("inf")

    def _in_state(self, wanted: FetchState, now: float = float("inf")) -> list[TopicPartition]:
        if not self._tally.without_position:
            return []
        items = self._states.items()
        return [tp for tp, state in items if state.fetch_state is wanted and state.next_retry <= now]

    def set_next_retry(self, partitions: Iterable[TopicPartition], at: float, error: str = "") -> None:
        """Delay the next request for these partitions until `at` (ms).

        `partition_states()` shows `error`, unless it is empty. Partitions that are no longer assigned are skipped.
        """
        for tp in partitions:
            state = self._states.get(tp)
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
            state = self._states.get(tp)
            if state is not None:
                state.back_off(now, delay_ms, reason)

    # --- validation (KIP-320) ----------------------------------------------------------------------------

    def maybe_validate(self, tp: TopicPartition, leader: LeaderAndEpoch) -> bool:
        """Let the position await a validation, unless it was validated against `leader` already.

        `leader` is the current leader of the partition. Does nothing if the leader is unknown, or if the partition has
        no position. Returns True if the position awaits validation.
        """
        state = self._states.get(tp)
        return state is not None and state.maybe_validate(leader)

    @property
    def has_unchecked_leaders(self) -> bool:
        """True if a position was set without a leader since the last `validate_all`."""
        return self._tally.unchecked_leaders

    def validate_all(self, cluster: Cluster) -> None:
        """Let each position await a validation if it was not validated against the partition's current leader in
        `cluster`."""
        self._tally.clear_unchecked_leaders()
        leader_of = cluster.leader
        for tp, state in self._states.items():
            state.maybe_validate(leader_of(tp))

    def forget_epochs(self, topics: Collection[str]) -> None:
        """Drop the leader epochs of positions in topics that were deleted and created again.

        The epochs of the old log must not be compared with those of the new one. Without epochs, a position beyond the
        end of the new log is handled as out of range, and not as a truncation. Later, an offset that was committed for
        the old topic may still become a position, with its epoch: see `_truncate_at`.
        """
        self._recreated |= set(topics)
        for tp, state in self._states.items():
            position = state.position
            if tp.topic in topics and position is not None and position.offset_epoch is not None:
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
        state = self.get(tp)
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
        if self.default_reset == OffsetReset.NONE:
            return Truncation(position, divergent)
        if divergent is None or (tp.topic in self._recreated and state.topic_id is None):
            state.reset(self.default_reset)
        else:
            found = FetchPosition(divergent.offset, divergent.leader_epoch, position.leader)
            # The running poll may not have returned yet what it has read before the divergent offset.
            consumed = self.delivery.consumed(tp, position)
            state.seek(consumed._replace(leader=position.leader) if consumed.offset < found.offset else found)
        return None

    def _awaiting_validation(self, tp: TopicPartition, requested: FetchPosition) -> PartitionState | None:
        state = self._states.get(tp)
        if state is None or state.fetch_state is not AWAIT_VALIDATION or state.position != requested:
            return None
        return state

    # --- flags and fetching ------------------------------------------------------------------------------

    def pause(self, tp: TopicPartition) -> None:
        """Stop fetching the partition. Raises StateError if it is not assigned."""
        self.get(tp).pause()

    def resume(self, tp: TopicPartition) -> None:
        """Allow fetching again after `pause`. Raises StateError if the partition is not assigned."""
        self.get(tp).resume()

    def paused(self) -> frozenset[TopicPartition]:
        """Returns the paused partitions."""
        return frozenset(tp for tp, state in self._states.items() if state.paused)

    def set_target_assignment(self, partitions: Iterable[TopicPartition]) -> None:
        """Set the target assignment.

        Records of other assigned partitions are neither fetched nor returned, until the assignment or the target
        changes.
        """
        self._target = frozenset(partitions)
        self._update_fetchable()

    def mark_pending_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove these partitions from the target assignment. Their records are no longer fetched or returned.

        Raises StateError if one of them is not assigned.
        """
        revoked = {tp for tp in partitions if self.get(tp)}
        kept = self._states.keys() if self._target is None else self._target
        self.set_target_assignment(kept - revoked)

    def _update_fetchable(self) -> None:
        """Set the flags `pending_revocation` and `unsubscribed` of all partitions.

        Called whenever the target assignment, the subscription or the assignment has changed.
        """
        target = self._target
        unsubscribed = {tp.topic: False for tp in self._states}
        if self.kind in (SubscriptionKind.TOPICS, SubscriptionKind.PATTERN):
            unsubscribed = {topic: not self.matches_subscription(topic) for topic in unsubscribed}
        for tp, state in self._states.items():
            pending = target is not None and tp not in target
            if (pending, unsubscribed[tp.topic]) != (state.pending_revocation, state.unsubscribed):
                state.flag(pending_revocation=pending, unsubscribed=unsubscribed[tp.topic])

    def mark_awaiting_callback(self, partitions: Iterable[TopicPartition], awaiting: bool = True) -> None:
        """Stop fetching these partitions until on_assign has returned.

        Then call this again with `awaiting=False` to allow fetching. Partitions that are no longer assigned are
        skipped.
        """
        for tp in partitions:
            state = self._states.get(tp)
            if state is not None:
                state.flag(awaiting_callback=awaiting)

    def is_fetchable(self, tp: TopicPartition) -> bool:
        """Returns True if the partition is assigned, has a valid position and has no flag that stops fetching."""
        state = self._states.get(tp)
        return state is not None and state.fetchable

    def fetchable(self, available: Callable[[TopicPartition], bool] | None = None) -> list[TopicPartition]:
        """Returns the fetchable partitions in fetch order.

        If `available` is given, returns only those for which `available(partition)` is True.
        """
        if available is None:
            return [tp for tp, state in self._states.items() if state.fetchable]
        return [tp for tp, state in self._states.items() if state.fetchable and available(tp)]

    def states(self) -> Mapping[TopicPartition, PartitionState]:
        """Returns the states by partition. This is not a copy, so do not change the assignment while iterating."""
        return self._states

    @property
    def has_changes(self) -> bool:
        """True if `take_changes` would return at least one state."""
        return bool(self._tally.dirty)

    def take_changes(self) -> Iterable[PartitionState]:
        """Returns the states whose fetchability, position or broker has changed since the last call.

        A new assignment is not reported here, but by `assignment_version`.
        """
        return self._tally.take_dirty()

    def __repr__(self) -> str:
        what = (
            self.pattern.pattern if self.pattern is not None else self.broker_pattern or ", ".join(sorted(self._topics))
        )
        missing = self._tally.without_position
        return (
            f"<SubscriptionState {self.kind.value}({what}), {len(self._states)} assigned "
            f"(v{self.assignment_version}), {missing} without position>"
        )


def truncation_error(truncations: Mapping[TopicPartition, Truncation]) -> LogTruncationError:
    """Returns the error for partitions whose log was truncated below the position.

    It is raised if the reset policy is OffsetReset.NONE.
    """
    offsets = {tp: cut.position.offset for tp, cut in truncations.items()}
    divergent = {tp: cut.divergent for tp, cut in truncations.items() if cut.divergent is not None}
    names = ", ".join(f"{tp} at offset {offset}" for tp, offset in offsets.items())
    return LogTruncationError(
        f"the log was truncated below the position of {names} (unclean leader election) and auto_offset_reset is none:"
        " seek() to an offset; divergent_offsets has the offsets where the logs diverge",
        offsets,
        divergent,
    )


def no_offset_error(partitions: Iterable[TopicPartition]) -> NoOffsetForPartitionError:
    """Returns the error for partitions without a committed offset. It is raised if the reset policy is
    OffsetReset.NONE."""
    names = tuple(sorted(partitions))
    return NoOffsetForPartitionError(
        f"no committed offset for {', '.join(map(str, names))} and auto_offset_reset is none: "
        f"seek() to an offset, or set auto_offset_reset",
        names,
    )
