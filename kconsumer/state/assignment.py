"""The assigned partitions of a consumer: their states, their order, and the flags that stop fetching them.

Decides which state is kept when the assignment changes. The membership decides which partitions are assigned, and
`subscription.py` who may assign them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from kconsumer._core.cycle import AssignedPartitions, ChangeLog
from kconsumer.errors import StateError
from kconsumer.state.partition import PartitionState
from kconsumer.types import TopicPartition


class Assignment(AssignedPartitions[PartitionState]):
    """The states of the assigned partitions, in the order in which they are fetched."""

    def __init__(self, changes: ChangeLog[PartitionState] | None = None) -> None:
        super().__init__(changes or ChangeLog())
        self._target: frozenset[TopicPartition] | None = None  # the target assignment; None: all assigned partitions

    def replace(self, partitions: Collection[TopicPartition]) -> None:
        """Assign exactly these partitions. Those that were assigned before keep their state."""
        old, self._states = self._states, {}
        self._target = None
        self.changes.begin_assignment()
        for tp in sorted(set(partitions)):
            state = old.pop(tp, None)
            if state is None:
                state = PartitionState(self.changes, tp)
            else:
                state.join()
            self._states[tp] = state
        for state in old.values():
            state.leave()
        self._update_pending()

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
            hint = "" if self._states else "; poll() assigns those of subscribe(), and calls on_assign with them"
            raise StateError(f"partition {tp} is not assigned to this consumer{hint}")
        return state

    # --- flags ------------------------------------------------------------------------------------------

    def pause(self, tp: TopicPartition) -> None:
        """Stop fetching the partition. Raises StateError if it is not assigned."""
        self.get(tp).pause()

    def resume(self, tp: TopicPartition) -> None:
        """Allow fetching again after `pause`. Raises StateError if the partition is not assigned."""
        self.get(tp).resume()

    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(tp for tp, state in self._states.items() if state.paused)

    def set_target_assignment(self, partitions: Iterable[TopicPartition]) -> None:
        """Set the target assignment.

        Records of other assigned partitions are neither fetched nor returned, until the assignment or the target
        changes.
        """
        self._target = frozenset(partitions)
        self._update_pending()

    def mark_pending_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove these partitions from the target assignment. Their records are no longer fetched or returned.

        Raises StateError if one of them is not assigned.
        """
        revoked = {tp for tp in partitions if self.get(tp)}
        kept = self._states.keys() if self._target is None else self._target
        self.set_target_assignment(kept - revoked)

    def _update_pending(self) -> None:
        """Set the flag `pending_revocation` of all partitions, after the target assignment has changed."""
        target = self._target
        for tp, state in self._states.items():
            pending = target is not None and tp not in target
            if pending != state.pending_revocation:
                state.flag(pending_revocation=pending)

    def set_unsubscribed(self, unsubscribed: Callable[[str], bool]) -> None:
        """Set the flag `unsubscribed` of all partitions, after the subscription or the assignment has changed.

        `unsubscribed` returns True for a topic that is not subscribed. It is called once for each topic.
        """
        flags = {topic: unsubscribed(topic) for topic in {tp.topic for tp in self._states}}
        for tp, state in self._states.items():
            if flags[tp.topic] != state.unsubscribed:
                state.flag(unsubscribed=flags[tp.topic])

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

    def __repr__(self) -> str:
        changes = self.changes
        return (
            f"<Assignment v{changes.assignment_version}: {len(self._states)} partitions, "
            f"{changes.without_position} without position>"
        )
