"""AcquiredRecords: the records that a run has acquired from a share consumer, and how they are acknowledged."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from kconsumer._common.deferred_calls import get_logger
from kconsumer._core.decode import ShareRecord
from kconsumer.errors import RecordDeserializationError, StateError
from kconsumer.parallel.offset_tracker import OffsetTracker
from kconsumer.share.types import AcknowledgeType
from kconsumer.types import TopicPartition

log = get_logger(__name__)


class ShareTracker(OffsetTracker):
    """Records of one partition, which workers finish. Any thread may call `finish` and `skip`."""

    __slots__ = ("acquired", "done")

    def __init__(self, topic_partition: TopicPartition) -> None:
        super().__init__(topic_partition)
        self.acquired: dict[int, ShareRecord] = {}  # records without an acknowledgement, by offset
        self.done: deque[tuple[int, AcknowledgeType]] = deque()  # offsets, and how to acknowledge the records

    def finish(self, offset: int) -> None:
        """Accept a record."""
        self.done.append((offset, AcknowledgeType.ACCEPT))

    def skip(self, offset: int) -> None:
        """Reject a record whose last attempt failed."""
        self.done.append((offset, AcknowledgeType.REJECT))


Running = Callable[[], set[tuple[OffsetTracker, int]]]
"""Returns the tracker and the offset of each record whose handler has not returned."""


class AcquiredRecords:
    """The acquired records of a run. Only the thread that polls uses this object."""

    def __init__(self, acknowledge: Callable[[ShareRecord, AcknowledgeType], None], running: Running) -> None:
        self._acknowledge_record = acknowledge
        self._running = running
        self._trackers: dict[ShareTracker, None] = {}  # of records without an acknowledgement
        self._tracker_of: dict[tuple[TopicPartition, int], ShareTracker] = {}  # that of each of these records

    @property
    def empty(self) -> bool:
        """True if every record is acknowledged."""
        return not self._trackers

    @property
    def count(self) -> int:
        """The number of records without an acknowledgement."""
        return len(self._tracker_of)

    @property
    def trackers(self) -> list[ShareTracker]:
        """The trackers of the records without an acknowledgement."""
        return list(self._trackers)

    def add(self, records: Iterable[ShareRecord]) -> dict[ShareTracker, list[ShareRecord]]:
        """Take the records of a poll. Returns those that are new, by their trackers.

        If the lock of a record was lost while its handler runs, the group may deliver the record to this member again.
        The result of the handler then counts for the last delivery.
        """
        new: dict[TopicPartition, ShareTracker] = {}
        for record in records:
            tp, offset = record.topic_partition, record.offset
            tracker = self._tracker_of.get((tp, offset))
            if tracker is None:
                tracker = new.setdefault(tp, ShareTracker(tp))
                self._tracker_of[tp, offset] = tracker
            tracker.acquired[offset] = record
        self._trackers.update(dict.fromkeys(new.values()))
        return {tracker: list(tracker.acquired.values()) for tracker in new.values()}

    def add_refused(
        self, record: ShareRecord, error: RecordDeserializationError
    ) -> dict[ShareTracker, list[ShareRecord]]:
        """Take a record that a deserializer has refused, as `add` does. Its handler is not called."""
        found = self.add([record])
        for tracker in found:
            tracker.poisoned[record.offset] = error
        return found

    def acknowledge_finished(self) -> bool:
        """Acknowledge what workers have finished. Returns whether there was any such record."""
        changed = False
        for tracker in self.trackers:
            while tracker.done:
                changed = self._acknowledge(tracker, *tracker.done.popleft()) or changed
        return changed

    def lose(self, records: Iterable[ShareRecord]) -> set[ShareTracker]:
        """Log the records whose locks have expired. Returns their trackers, of which nothing must be started."""
        found = set()
        for record in records:
            tp, offset = record.topic_partition, record.offset
            tracker = self._tracker_of.get((tp, offset))
            if tracker is not None and not tracker.closed and tracker.acquired.get(offset) is record:
                log.warning("the lock of %s offset %d has expired; the group delivers the record again", tp, offset)
                found.add(tracker)
        return found

    def release_stopped(self) -> None:
        """Release the records of closed trackers whose handlers do not run. They will not be started."""
        if not any(tracker.closed for tracker in self._trackers):
            return
        running = self._running()  # first: a handler that returns now has finished its record before
        self.acknowledge_finished()
        for tracker in self.trackers:
            for offset in list(tracker.acquired) if tracker.closed else ():
                if (tracker, offset) not in running:
                    self._acknowledge(tracker, offset, AcknowledgeType.RELEASE)

    def release(self) -> None:
        for tracker in self.trackers:
            for offset in list(tracker.acquired):
                self._acknowledge(tracker, offset, AcknowledgeType.RELEASE)

    def _acknowledge(self, tracker: ShareTracker, offset: int, kind: AcknowledgeType) -> bool:
        """Acknowledge a record. Returns False if it was acknowledged before."""
        record = tracker.acquired.pop(offset, None)
        if record is None:
            return False
        del self._tracker_of[tracker.topic_partition, offset]
        if not tracker.acquired:
            del self._trackers[tracker]
        try:
            self._acknowledge_record(record, kind)
        except StateError as error:  # its lock was lost, so the group delivers it again
            log.warning("a record was not acknowledged: %s", error)
        return True
