"""The records of a share partition that are in flight: acquired, released, or acknowledged before earlier records.

As on a broker, the records that were acquired together form a batch with one state, until a part of them is treated
differently. From then on, each record of the batch has a state of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = 0, 1, 2, 4
TERMINAL = (ACKNOWLEDGED, ARCHIVED)
NO_MEMBER = ""


@dataclass(slots=True, eq=False)
class RecordState:
    """The state of a record, or of all records of a batch."""

    state: int
    count: int  # how often it was delivered
    member_id: str = NO_MEMBER  # of the member that has acquired it; "": none
    deadline: float | None = None  # when the acquisition lock expires (ms); None: it is not acquired

    @property
    def is_terminal(self) -> bool:
        """True if the record will not be delivered again."""
        return self.state in TERMINAL

    def copy(self) -> RecordState:
        return replace(self)

    def restore(self, other: RecordState) -> None:
        """Set all values to those of another state."""
        self.state, self.count, self.member_id, self.deadline = (
            other.state,
            other.count,
            other.member_id,
            other.deadline,
        )

    def acquire(self, member_id: str, deadline: float) -> None:
        """Deliver the record to a member, which increases its delivery count."""
        self.state, self.member_id, self.deadline = ACQUIRED, member_id, deadline
        self.count += 1

    def finish(self, state: int, limit: int) -> bool:
        """End the acquisition. If the record would become available after `limit` deliveries, archives it instead.

        Returns True in this case.
        """
        exhausted = state == AVAILABLE and self.count >= limit
        self.state = ARCHIVED if exhausted else state
        self.member_id, self.deadline = NO_MEMBER, None
        return exhausted


class InFlightBatch:
    """Records that were acquired together."""

    __slots__ = ("first", "last", "offsets", "state")

    def __init__(self, first: int, last: int, state: RecordState) -> None:
        self.first, self.last = first, last
        self.state = state  # of all records, if `offsets` is None
        self.offsets: dict[int, RecordState] | None = None  # the state of each record

    def split(self) -> dict[int, RecordState]:
        """Give each record a state of its own, if that was not done before. Returns the states by offset."""
        if self.offsets is None:
            self.offsets = {offset: self.state.copy() for offset in range(self.first, self.last + 1)}
        return self.offsets

    def is_within(self, first: int, last: int) -> bool:
        return first <= self.first and self.last <= last

    def parts(self) -> Iterator[tuple[int, int, RecordState]]:
        """Yields the first offset, the last offset and the state of each part whose records have one state."""
        if self.offsets is None:
            yield self.first, self.last, self.state
        else:
            for offset, state in self.offsets.items():
                yield offset, offset, state
