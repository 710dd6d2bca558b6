"""The batch that the running poll has taken from the buffer, and has not returned yet.

A poll moves positions before it returns. In between, signal handlers, deserializers, interceptors and other threads may
commit, close, seek or poll. A batch counts as consumed when the public method that returns it has ended, never before.
"""

from __future__ import annotations

from kconsumer.state.partition import FetchPosition
from kconsumer.types import TopicPartition


class Delivery:
    """The positions before and after the last batch that a poll has taken.

    `open` is True until the public method has ended. It ends with `delivery.open = False` and a return. This is a store
    and not a call, because signal handlers may run after each call, and must still find the batch open.
    """

    __slots__ = ("after", "before", "open", "version")

    def __init__(self) -> None:
        self.open = False
        self.before: dict[TopicPartition, FetchPosition] = {}  # for each partition that the batch has moved
        self.after: dict[TopicPartition, FetchPosition] = {}
        #: The value of `EngineLock.version` when the batch was taken or checked. Another value: the state may have
        #: changed since.
        self.version = 0

    def begin(self) -> None:
        """Begin to take a batch. The one before was returned, or its positions were restored."""
        self.open = False
        self.before, self.after = {}, {}

    def forget(self, tp: TopicPartition) -> None:
        """Drop a partition from the batch, because the user has set its position."""
        if self.open and tp in self.after:
            self.before = {each: position for each, position in self.before.items() if each != tp}
            self.after = {each: position for each, position in self.after.items() if each != tp}

    def end_at(self, tp: TopicPartition, position: FetchPosition) -> None:
        """Shorten the batch, because the records of a partition from this position on are not returned."""
        if self.open and tp in self.after:
            self.after = {**self.after, tp: position}  # the batch that uses the old mapping is unchanged

    def consumed(self, tp: TopicPartition, position: FetchPosition) -> FetchPosition:
        """Returns the position up to which records of a partition were returned. `position` is the current one."""
        if not self.open:
            return position
        before, after = self.before.get(tp), self.after.get(tp)
        if before is None or after is None or after.offset != position.offset:  # the user has called seek()
            return position
        return before
