"""A share partition: what one share group has to do with one partition, as the leader of the partition knows it.

`acquisition` acquires records and `acknowledgement` acknowledges or releases them. This module has the offsets, the
expiry of acquisition locks, and what is stored.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from kconsumer.testing.cluster.group_configs import GroupConfigs
from kconsumer.testing.cluster.share.dead_letters import DeadLetter, DeadLetterTopics
from kconsumer.testing.cluster.share.in_flight import ACQUIRED, ARCHIVED, AVAILABLE, InFlightBatch, RecordState
from kconsumer.testing.cluster.share_states import StateBatch, StoredState
from kconsumer.testing.cluster.timers import NO_TIMER, Timer, Timers
from kconsumer.testing.cluster.topic import Partition

#: A part of a batch that has changed: its offsets and its state.
Change = tuple[int, int, RecordState]


EXHAUSTED = "Offset delivery count exceeded the threshold."


class SharePartition:
    """The in-flight records of a share group in one partition, from the start offset to the end offset.

    The start offset (SPSO) is the first offset that may have to be delivered yet. `end` is the last offset that was
    acquired so far, or equal to the start offset if no record is in flight.
    """

    def __init__(
        self,
        group_id: str,
        partition: Partition,
        stored: StoredState,
        start: int,
        configs: GroupConfigs,
        timers: Timers,
        dead_letters: DeadLetterTopics,
    ) -> None:
        self.group_id, self.partition, self.stored = group_id, partition, stored
        self.leader_epoch = partition.leader_epoch
        self.start = self.end = start
        self.batches: list[InFlightBatch] = []  # in the order of their offsets
        #: The end offset and the first unknown offset of stored state with gaps: the records in the gaps were acquired
        #: from the last leader, and must be fetched again. None: there are no gaps, or all were fetched.
        self.gap: tuple[int, int] | None = None
        self.read_offset = -1  # the next offset to acquire, when a fetch has read it last
        self._configs, self._timers, self._dead_letters = configs, timers, dead_letters
        self._lock_timer: Timer = NO_TIMER
        self._listeners: dict[Callable[[], None], None] = {}
        self._load(stored.batches())

    # --- settings of the group ---

    def setting(self, name: str) -> int:
        """Returns a setting of the group, such as "delivery.count.limit"."""
        return self._configs.value(self.group_id, f"share.{name}")

    @property
    def read_committed(self) -> bool:
        """True if the group reads only committed transactions."""
        return self._configs.text(self.group_id, "share.isolation.level") == "read_committed"

    @property
    def allows_renewal(self) -> bool:
        """True if the group may renew acquisition locks."""
        return self._configs.text(self.group_id, "share.renew.acknowledge.enable").lower() == "true"

    # --- offsets ---

    def next_fetch_offset(self) -> int:
        """Returns the first offset that can be acquired: of an available record, or after the last acquired one."""
        if not self.batches or self.start > self.batches[-1].last:
            return self.end
        gap = self.gap_start()
        for batch in self.batches:
            if gap is not None:
                if batch.first > gap:
                    return gap
                gap = max(gap, batch.last + 1)
            for first, _, state in batch.parts():
                if state.state == AVAILABLE:
                    return first
        return self.end + 1

    def gap_start(self) -> int | None:
        """Returns the first offset in the gaps of the stored state, or None if there are none any more."""
        return self.gap[1] if self.gap is not None and self.gap[0] == self.end else None

    def advance_gap(self, offset: int) -> None:
        """Record that the records before an offset were acquired."""
        if self.gap is not None:
            self.gap = (self.end, offset) if self.gap[0] == self.end and offset <= self.end else None

    @property
    def in_flight(self) -> int:
        """The number of offsets from the start offset to the end offset."""
        return self.end - self.start + 1 if self.batches else 0

    def can_acquire(self) -> bool:
        """Returns whether records can be acquired: one is available, or the limit of locks is not reached."""
        return self.next_fetch_offset() != self.end + 1 or self.in_flight < self.setting("partition.max.record.locks")

    def between(self, first: int, last: int) -> list[InFlightBatch]:
        return [batch for batch in self.batches if batch.last >= first and batch.first <= last]

    def floor(self, offset: int) -> InFlightBatch | None:
        """Returns the last batch that begins at or before an offset, or None."""
        at = bisect_right(self.batches, offset, key=lambda batch: batch.first)
        return self.batches[at - 1] if at else None

    def state_of(self, offset: int) -> RecordState | None:
        """Returns the state of a record, or None if it is not in flight."""
        batch = self.floor(offset)
        return None if batch is None or offset > batch.last else _state_at(batch, offset)

    def add(self, batch: InFlightBatch) -> None:
        """Add a batch of records that were acquired."""
        at = bisect_right(self.batches, batch.first, key=lambda known: known.first)
        self.batches.insert(at, batch)

    def follow_log_start(self, log_start: int) -> None:
        """Move the start offset, because the records before it were deleted.

        Archives available records before it. Acquired ones keep their locks, but cannot be acknowledged.
        """
        if log_start <= self.start:
            return
        self.archive(self.start, log_start - 1, self.batches, AVAILABLE)
        self.start = log_start
        self.end = max(self.end, self.start)

    def archive(self, first: int, last: int, batches: list[InFlightBatch], state: int) -> None:
        """Archive the records from `first` to `last` in `batches` that are in a state."""
        for batch in batches:
            if batch.offsets is None and batch.state.state != state:
                continue
            if not batch.is_within(first, last) and batch.last >= first and batch.first <= last:
                batch.split()
            for start, _, found in batch.parts():
                if first <= start <= last and found.state == state:
                    found.finish(ARCHIVED, 0)

    # --- changes ---

    def commit(self, changes: list[Change], given_up: list[DeadLetter], now: float) -> None:
        """Store changes, move the start offset, notify waiting fetches, and write dead letters."""
        if not changes:
            return
        if given_up:
            self._dead_letters.write(self.group_id, self.partition, given_up, now)
        rows = [StateBatch(first, last, state.state, state.count) for first, last, state in changes]
        self.stored.write(self.start, self._complete(), rows)
        self.advance_start()
        self.notify()

    def advance_start(self) -> None:
        """Move the start offset over records that will not be delivered again, and forget batches before it."""
        floor = self.floor(self.start)
        if floor is None or not _state_at(floor, max(self.start, floor.first)).is_terminal:
            return
        gap = self.gap_start()
        reached = None
        for batch in self.batches:
            if gap is not None and batch.last >= gap:
                break
            done = True
            for _, last, state in batch.parts():
                if not state.is_terminal:
                    done = False
                    break
                reached = last
            if not done:
                break
        if reached is None:
            return
        if reached == self.batches[-1].last:
            self.start = self.end = reached + 1
            self.batches.clear()
            return
        following = next((batch.first for batch in self.batches if batch.first > reached), reached + 1)
        inside = any(batch.first <= reached < batch.last for batch in self.batches)
        self.start = max(self.start, reached + 1 if inside else following)
        if gap is not None and not inside:
            self.start = min(gap, self.start)
        self.batches = [batch for batch in self.batches if batch.last > reached]

    def _complete(self) -> int:
        """Returns how many records from the start offset on are acknowledged or archived."""
        return sum(
            last - max(first, self.start) + 1
            for batch in self.batches
            for first, last, state in batch.parts()
            if state.is_terminal and last >= self.start
        )

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener()` when records may have become available."""
        self._listeners[listener] = None

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """Stop calling a listener."""
        self._listeners.pop(listener, None)

    def notify(self) -> None:
        """Call all listeners."""
        for listener in list(self._listeners):
            listener()

    # --- acquisition locks ---

    def lock_until(self, now: float) -> float:
        """Returns when a lock expires that is acquired or renewed now, and lets the timer run then."""
        deadline = now + self.setting("record.lock.duration.ms")
        if not self._lock_timer.active or self._lock_timer.deadline > deadline:
            self._start_timer(deadline)
        return deadline

    def close(self) -> None:
        """Cancel the timer, because another broker leads the partition now, or the state was deleted."""
        self._lock_timer.cancel()

    def _start_timer(self, deadline: float) -> None:
        self._lock_timer.cancel()
        self._lock_timer = self._timers.add(deadline, self._expire)

    def _expire(self, now: float) -> None:
        """Release the records whose locks have expired. Those before the start offset are archived."""
        changes: list[Change] = []
        given_up: list[DeadLetter] = []
        limit = self.setting("delivery.count.limit")
        for batch in self.batches:
            expired = batch.offsets is None and _has_expired(batch.state, now)
            if expired and batch.first < self.start <= batch.last:
                batch.split()
            for first, last, state in batch.parts():
                if _has_expired(state, now):
                    if state.finish(ARCHIVED if last < self.start else AVAILABLE, limit):
                        given_up.append(DeadLetter(first, last, state.count, EXHAUSTED))
                    changes.append((first, last, state))
        deadlines = [
            state.deadline for batch in self.batches for _, _, state in batch.parts() if state.deadline is not None
        ]
        if deadlines:
            self._start_timer(min(deadlines))
        self.commit(changes, given_up, now)

    # --- loading ---

    def _load(self, stored: list[StateBatch]) -> None:
        """Begin with the stored state of a former leader."""
        gap, previous = None, self.start - 1
        for row in stored:
            if gap is None and row.first > previous + 1:
                gap = previous + 1
            previous = row.last
            self.batches.append(InFlightBatch(row.first, row.last, RecordState(row.state, row.delivery_count)))
        if self.batches:
            self.end = self.batches[-1].last
            self.gap = None if gap is None else (self.end, gap)
            self.advance_start()


def _state_at(batch: InFlightBatch, offset: int) -> RecordState:
    return batch.state if batch.offsets is None else batch.offsets.get(offset, batch.state)


def _has_expired(state: RecordState, now: float) -> bool:
    return state.state == ACQUIRED and state.deadline is not None and state.deadline <= now
