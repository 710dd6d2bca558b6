"""What the user subscribed to or assigned, and the state of each assigned partition.

Decides how subscriptions exclude each other, which state is kept when the assignment changes, and which
partitions wait for what. It does not decide who gets a partition (membership does) nor ask brokers (managers
do).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from kconsumer.errors import LogTruncationError, NoOffsetForPartitionError, StateError
from kconsumer.state.cluster import NO_LEADER, Cluster, LeaderAndEpoch
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
    """How partitions come to this consumer. Kinds exclude each other until `unsubscribe()`."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    BROKER_PATTERN = "broker pattern"
    ASSIGNED = "assigned"


# A tuple: membership in a set would call the enum's `__hash__`, which is Python, several times in each poll.
_BY_GROUP = (SubscriptionKind.TOPICS, SubscriptionKind.PATTERN, SubscriptionKind.BROKER_PATTERN)


class Truncation(NamedTuple):
    """The log was cut below `position`; `divergent` is where it still agrees with what was read, if known."""

    position: FetchPosition
    divergent: OffsetAndMetadata | None


class SubscriptionState:
    """Subscription and assignment of one consumer (Java `SubscriptionState`).

    `assignment_version` grows with each change of the assigned set, `topics_version` with each change of the
    topics that metadata is needed for. Partitions are kept in the order in which they are to be fetched.
    """

    def __init__(self, default_reset: OffsetReset = OffsetReset.LATEST) -> None:
        self.default_reset = default_reset
        self.kind = SubscriptionKind.NONE
        self.pattern: re.Pattern[str] | None = None
        self.broker_pattern: str | None = None
        self.assignment_version = 0
        self.topics_version = 0
        self.unreturned: dict[TopicPartition, FetchPosition] = {}  # where `poll` found what it has not returned yet
        self._topics: frozenset[str] = frozenset()
        self._group_topics: frozenset[str] = frozenset()
        self._states: dict[TopicPartition, PartitionState] = {}
        self._target: frozenset[TopicPartition] | None = None  # the target assignment; None: all that is assigned
        self._tally = Tally()

    @property
    def now(self) -> float:
        """The last moment (ms) a manager told; stamps the changes of partitions."""
        return self._tally.now

    @now.setter
    def now(self, now: float) -> None:
        self._tally.now = now

    # --- what the user asks for --------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> bool:
        """Subscribe to exactly these topics. True if they differ from before. StateError with another
        kind."""
        self._become(SubscriptionKind.TOPICS)
        return self._set_topics(frozenset(topics))

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        """Subscribe to the topics whose whole name matches. StateError with another kind."""
        self._become(SubscriptionKind.PATTERN)
        if self.pattern != pattern:
            self.pattern = pattern
            self.topics_version += 1
            self._update_fetchable()

    def subscribe_broker_pattern(self, pattern: SubscriptionPattern) -> None:
        """Subscribe to what the coordinator finds the pattern to match (KIP-848). StateError with another kind."""
        self._become(SubscriptionKind.BROKER_PATTERN)
        if self.broker_pattern != pattern.pattern:
            self.broker_pattern = pattern.pattern
            self.topics_version += 1

    def subscribe_matched(self, topics: Iterable[str]) -> bool:
        """The topics a pattern matches now. True if they differ from before."""
        if self.kind is not SubscriptionKind.PATTERN:
            raise StateError("topics can be matched only for a pattern subscription")
        return self._set_topics(frozenset(topics))

    def update_matched(self, cluster: Cluster, *, exclude_internal: bool) -> bool:
        """Match the pattern against the cluster's topics. True if the subscription changed."""
        excluded = cluster.internal_topics if exclude_internal else frozenset()
        return self.subscribe_matched(t for t in cluster.topics() - excluded if self.matches_subscription(t))

    def assign(self, partitions: Collection[TopicPartition]) -> bool:
        """Take exactly these partitions, without a group. True if they differ from before. StateError with
        another kind. Partitions kept keep their state."""
        self._become(SubscriptionKind.ASSIGNED)
        if self._states.keys() == set(partitions):
            return False
        self._set_assignment(partitions)
        self._set_topics(frozenset(tp.topic for tp in self._states))
        return True

    def unsubscribe(self) -> None:
        """Forget subscription and assignment."""
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
        """Whether the group decides the assignment."""
        return self.kind in _BY_GROUP

    @property
    def has_pattern(self) -> bool:
        """Whether metadata of all topics is needed."""
        return self.kind is SubscriptionKind.PATTERN

    def subscribed_topics(self) -> frozenset[str]:
        """The topics subscribed to, for a pattern those matched; empty for a manual assignment."""
        return self._topics if self.kind in _BY_GROUP else frozenset()  # each poll asks: no call

    def metadata_topics(self) -> frozenset[str]:
        """The topics that metadata is needed for: ours, and for a group leader those of all members."""
        return self._topics | self._group_topics if self._group_topics else self._topics

    def needs_metadata(self, topic: str) -> bool:
        """Whether the topic is one of `metadata_topics()`."""
        return topic in self._topics or topic in self._group_topics

    def matches_subscription(self, topic: str) -> bool:
        """Whether the topic is subscribed to, by name or by pattern."""
        if self.pattern is not None:
            return self.pattern.fullmatch(topic) is not None
        if self.kind is SubscriptionKind.BROKER_PATTERN:
            return True  # only the coordinator can tell
        return self.is_group_managed and topic in self._topics

    def group_subscribe(self, topics: Iterable[str]) -> bool:
        """As group leader, want metadata of all members' topics. True if some are not ours."""
        if not self.is_group_managed:
            raise StateError("only a subscription takes part in a group")
        self._set_group_topics(frozenset(topics))
        return not self._topics.issuperset(self._group_topics)

    def reset_group_subscription(self) -> None:
        """Want metadata of our own topics only."""
        self._set_group_topics(frozenset())

    def _set_group_topics(self, topics: frozenset[str]) -> None:
        if self._group_topics != topics:
            self._group_topics = topics
            self.topics_version += 1

    # --- assignment --------------------------------------------------------------------------------------

    def assign_from_group(self, partitions: Collection[TopicPartition]) -> None:
        """Take exactly these partitions, given by the group. Partitions kept keep their state."""
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
        """The assigned partitions in the order in which they are to be fetched."""
        return tuple(self._states)

    def is_assigned(self, tp: TopicPartition) -> bool:
        """Whether the partition is assigned."""
        return tp in self._states

    def get(self, tp: TopicPartition) -> PartitionState:
        """The partition's state. StateError if it is not assigned."""
        state = self._states.get(tp)
        if state is None:
            raise StateError(f"partition {tp} is not assigned to this consumer")
        return state

    def find(self, tp: TopicPartition) -> PartitionState | None:
        """The partition's state, None if it is not assigned."""
        return self._states.get(tp)

    def move_to_end(self, tp: TopicPartition) -> None:
        """Let the others be fetched before this one; ignored if it is not assigned."""
        state = self._states.pop(tp, None)
        if state is not None:
            self._states[tp] = state

    # --- positions ---------------------------------------------------------------------------------------

    def seek(
        self, tp: TopicPartition, offset: int, epoch: int | None = None, leader: LeaderAndEpoch = NO_LEADER
    ) -> None:
        """Read from `offset` on. With the epoch of the record before it, the position is validated first, as
        soon as the leader's epoch is known too. `leader`: who leads the partition, if known."""
        position = FetchPosition(offset, epoch, leader)
        state = self.get(tp)
        if epoch is None:
            state.seek(position)
        else:
            state.seek_unvalidated(position)

    def request_reset(self, tp: TopicPartition, strategy: OffsetReset | None = None, retry_at: float = 0.0) -> None:
        """Drop the position and look one up by `strategy` (None: the configured one), not before `retry_at`
        (ms)."""
        state = self.get(tp)
        strategy = strategy or self.default_reset
        if strategy == OffsetReset.NONE:
            raise no_offset_error([tp])
        state.reset(strategy, retry_at)

    def reset_out_of_range(self, tp: TopicPartition, delay_ms: Callable[[int], float]) -> None:
        """Reset a position that is outside the log: at once, or after `delay_ms(delays)` if the broker has refused the
        offset of the last reset, too."""
        state = self.get(tp)
        if self.default_reset == OffsetReset.NONE:
            raise no_offset_error([tp])
        state.reset_out_of_range(self.default_reset, delay_ms)

    def reset_initializing(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Reset those of the partitions (None: all assigned) that are still without a position.

        Raises NoOffsetForPartitionError naming all of them, and changes nothing, when the policy is `none`.
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
        """Take the offset that a reset found. False, and nothing changed, if the partition is no longer
        assigned or no longer awaits a reset by this strategy."""
        state = self._states.get(tp)
        if state is None or state.fetch_state is not AWAIT_RESET or state.reset_strategy != strategy:
            return False
        # No offset epoch: the broker has just told the offset, there is nothing to validate.
        state.seek(FetchPosition(offset, None, leader))
        return True

    def position(self, tp: TopicPartition) -> FetchPosition | None:
        """The position, validated or not; None if there is none. StateError if not assigned."""
        return self.get(tp).position

    def set_position(self, tp: TopicPartition, position: FetchPosition) -> None:
        """Replace a valid position. Raises StateError unless the partition is being fetched."""
        self.get(tp).set_position(position)

    def mark_unreturned(self, positions: dict[TopicPartition, FetchPosition]) -> None:
        """Keep where `poll` found the positions that it is moving, until its records are returned."""
        self.unreturned = positions

    def clear_unreturned(self) -> None:
        """Note that `poll` returned its records, or put the positions back."""
        self.unreturned = {}

    def all_consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The valid positions, in the form of commits. Records that `poll` has not returned yet do not count."""
        unreturned = self.unreturned
        consumed = {}
        for tp, state in self._states.items():
            if state.has_valid_position and state.position is not None:
                position = unreturned.get(tp, state.position)
                consumed[tp] = OffsetAndMetadata(position.offset, "", position.offset_epoch)
        return consumed

    def has_all_positions(self) -> bool:
        """Whether every assigned partition has a valid position. Costs nothing."""
        return not self._tally.without_position

    def partitions_to_initialize(self) -> list[TopicPartition]:
        """Those that have never had a position."""
        return self._in_state(INITIALIZING)

    def partitions_to_reset(self, now: float) -> list[TopicPartition]:
        """Those that await a reset and are not backing off."""
        return self._in_state(AWAIT_RESET, now)

    def partitions_to_validate(self, now: float) -> list[TopicPartition]:
        """Those whose position must be checked and are not backing off."""
        return self._in_state(AWAIT_VALIDATION, now)

    def next_retry(self, now: float) -> float:
        """How many ms until the first partition that is backing off may try again; inf if none is."""
        moments = [s.next_retry for s in self._states.values() if s.next_retry > now]
        return min(moments) - now if moments else float("inf")

    def _in_state(self, wanted: FetchState, now: float = float("inf")) -> list[TopicPartition]:
        if not self._tally.without_position:
            return []
        items = self._states.items()
        return [tp for tp, state in items if state.fetch_state is wanted and state.next_retry <= now]

    def set_next_retry(self, partitions: Iterable[TopicPartition], at: float, error: str = "") -> None:
        """Request nothing for these before `at` (ms). `error` is shown by `partition_states()`. Skips partitions that
        are no longer assigned."""
        for tp in partitions:
            state = self._states.get(tp)
            if state is not None:
                state.retry_at(at, error)

    def back_off(self, reasons: Mapping[TopicPartition, object], now: float, delay_ms: Callable[[int], float]) -> None:
        """Count a failure of each partition and back it off by `delay_ms(failures)`. The reasons are shown
        by `partition_states()`."""
        for tp, reason in reasons.items():
            state = self._states.get(tp)
            if state is not None:
                state.back_off(now, delay_ms, str(reason))

    # --- validation (KIP-320) ----------------------------------------------------------------------------

    def maybe_validate(self, tp: TopicPartition, leader: LeaderAndEpoch) -> bool:
        """The partition's leader is now this one. True if its position awaits validation."""
        state = self._states.get(tp)
        return state is not None and state.maybe_validate(leader)

    @property
    def has_unchecked_leaders(self) -> bool:
        """Whether a position was set without a leader since the last `validate_all`."""
        return self._tally.unchecked_leaders

    def validate_all(self, cluster: Cluster) -> None:
        """Compare every position's leader with the cluster's."""
        self._tally.clear_unchecked_leaders()
        leader_of = cluster.leader
        for tp, state in self._states.items():
            state.maybe_validate(leader_of(tp))

    def forget_epochs(self, topics: Collection[str]) -> None:
        """These topics are not those that positions were taken in: the epochs of the old logs say nothing of the new
        ones, and a position beyond their end is out of range, not the end of what was cut off."""
        for tp, state in self._states.items():
            position = state.position
            if tp.topic in topics and position is not None and position.offset_epoch is not None:
                state.validate(position._replace(offset_epoch=None))

    def complete_validation(self, tp: TopicPartition, requested: FetchPosition) -> None:
        """Validation of `requested` is not possible at this broker; ignored if the position has changed
        since."""
        state = self._awaiting_validation(tp, requested)
        if state is not None:
            state.complete_validation()

    def maybe_complete_validation(
        self, tp: TopicPartition, requested: FetchPosition, end_offset: int, end_epoch: int
    ) -> Truncation | None:
        """The leader's log has `end_offset` as the end of the position's epoch (-1: it knows no such epoch).

        A position below it is good. Otherwise the log was cut: with a reset policy the position is moved to
        where the logs part, or reset when that is not known; without one the truncation is returned, to be
        raised. Ignored if the position has changed since the request.
        """
        state = self._awaiting_validation(tp, requested)
        if state is None:
            return None
        if end_offset < 0 or end_epoch < 0:
            return self._truncate_at(state, requested, None)
        if end_offset < requested.offset:
            return self._truncate_at(state, requested, OffsetAndMetadata(end_offset, "", end_epoch))
        state.complete_validation()
        return None

    def truncate(self, tp: TopicPartition, divergent: OffsetAndMetadata) -> Truncation | None:
        """A leader says that its log parts at `divergent` from what was read of it (KIP-595): as if validation had
        found that. Ignored if the position is not beyond."""
        state = self.get(tp)
        position = state.position
        if position is None or position.offset <= divergent.offset:
            return None
        return self._truncate_at(state, position, divergent)

    def _truncate_at(
        self, state: PartitionState, position: FetchPosition, divergent: OffsetAndMetadata | None
    ) -> Truncation | None:
        """The log was cut below the position: move to where it parts, or reset; without a policy tell the caller."""
        if self.default_reset == OffsetReset.NONE:
            return Truncation(position, divergent)
        if divergent is None:
            state.reset(self.default_reset)
        else:
            state.seek(FetchPosition(divergent.offset, divergent.leader_epoch, position.leader))
        return None

    def _awaiting_validation(self, tp: TopicPartition, requested: FetchPosition) -> PartitionState | None:
        state = self._states.get(tp)
        if state is None or state.fetch_state is not AWAIT_VALIDATION or state.position != requested:
            return None
        return state

    # --- flags and fetching ------------------------------------------------------------------------------

    def pause(self, tp: TopicPartition) -> None:
        """Stop fetching the partition. StateError if not assigned."""
        self.get(tp).pause()

    def resume(self, tp: TopicPartition) -> None:
        """Undo `pause`. StateError if not assigned."""
        self.get(tp).resume()

    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions."""
        return frozenset(tp for tp, state in self._states.items() if state.paused)

    def set_target_assignment(self, partitions: Iterable[TopicPartition]) -> None:
        """Set what the group lets this consumer keep. Every other assigned partition is neither fetched nor returned,
        until the assignment or the target changes."""
        self._target = frozenset(partitions)
        self._update_fetchable()

    def mark_pending_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """Take these out of the target assignment: nothing of them is fetched or returned any more."""
        revoked = {tp for tp in partitions if self.get(tp)}
        kept = self._states.keys() if self._target is None else self._target
        self.set_target_assignment(kept - revoked)

    def _update_fetchable(self) -> None:
        """Compute which partitions the target assignment or the subscription leaves out. Called whenever one of them,
        or the assignment, has changed."""
        target = self._target
        unsubscribed = {tp.topic: False for tp in self._states}
        if self.kind in (SubscriptionKind.TOPICS, SubscriptionKind.PATTERN):
            unsubscribed = {topic: not self.matches_subscription(topic) for topic in unsubscribed}
        for tp, state in self._states.items():
            pending = target is not None and tp not in target
            if (pending, unsubscribed[tp.topic]) != (state.pending_revocation, state.unsubscribed):
                state.flag(pending_revocation=pending, unsubscribed=unsubscribed[tp.topic])

    def mark_awaiting_callback(self, partitions: Iterable[TopicPartition], awaiting: bool = True) -> None:
        """Do not fetch these until on_assign has returned (then call again with False)."""
        for tp in partitions:
            state = self._states.get(tp)
            if state is not None:
                state.flag(awaiting_callback=awaiting)

    def is_fetchable(self, tp: TopicPartition) -> bool:
        """Whether the partition is assigned, has a valid position and nothing holds it back."""
        state = self._states.get(tp)
        return state is not None and state.fetchable

    def fetchable(self, available: Callable[[TopicPartition], bool] | None = None) -> list[TopicPartition]:
        """The fetchable partitions that are `available`, in the order in which they are to be fetched."""
        if available is None:
            return [tp for tp, state in self._states.items() if state.fetchable]
        return [tp for tp, state in self._states.items() if state.fetchable and available(tp)]

    def states(self) -> Mapping[TopicPartition, PartitionState]:
        """The live states by partition; not to be changed while iterating."""
        return self._states

    @property
    def has_changes(self) -> bool:
        """Whether `take_changes` would return any."""
        return bool(self._tally.dirty)

    def take_changes(self) -> Iterable[PartitionState]:
        """The states that changed for fetching since the last call: fetchable or not, moved, read from another
        broker. A new assignment is not told here; `assignment_version` tells that."""
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
    """The error for logs that were cut below positions while the reset policy is `none`."""
    offsets = {tp: cut.position.offset for tp, cut in truncations.items()}
    divergent = {tp: cut.divergent for tp, cut in truncations.items() if cut.divergent is not None}
    names = ", ".join(f"{tp} at offset {offset}" for tp, offset in offsets.items())
    return LogTruncationError(
        f"the log was truncated below the position of {names} (unclean leader election) and auto_offset_reset is none:"
        " seek() to an offset, divergent_offsets tells where the logs part",
        offsets,
        divergent,
    )


def no_offset_error(partitions: Iterable[TopicPartition]) -> NoOffsetForPartitionError:
    """The error for partitions that have no committed offset while the reset policy is `none`."""
    names = tuple(sorted(partitions))
    return NoOffsetForPartitionError(
        f"no committed offset for {', '.join(map(str, names))} and auto_offset_reset is none: "
        f"seek() to an offset, or set auto_offset_reset",
        names,
    )
