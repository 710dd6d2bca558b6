"""AcquiredRecords: the records that a run has acquired from a ShareConsumer, and how they are acknowledged.

A poll of a ShareConsumer is possible only when each record of the last one is acknowledged. So before each poll, the
acquisition locks of records that are not finished are renewed. The poll then returns these records, and no others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from kconsumer._core.record import ConsumerRecord
from kconsumer.deferred_calls import get_logger
from kconsumer.errors import StateError
from kconsumer.parallel.offset_tracker import OffsetTracker
from kconsumer.share.consumer import ShareConsumer
from kconsumer.share.types import AcknowledgeType
from kconsumer.types import TopicPartition

log = get_logger(__name__)


class ShareTracker(OffsetTracker):
    """Records of one partition, which workers finish. Any thread may call `finish` and `skip`."""

    __slots__ = ("done",)

    def __init__(self, topic_partition: TopicPartition) -> None:
        super().__init__(topic_partition)
        self.done: deque[tuple[int, AcknowledgeType]] = deque()  # offsets, and how to acknowledge the records

    def finish(self, offset: int) -> None:
        """Accept a record."""
        self.done.append((offset, AcknowledgeType.ACCEPT))

    def skip(self, offset: int) -> None:
        """Reject a record whose last attempt failed."""
        self.done.append((offset, AcknowledgeType.REJECT))


class Acquired:
    """A record that is locked for this consumer."""

    __slots__ = ("kind", "record", "tracker", "waits_until")

    def __init__(self, record: ConsumerRecord, tracker: ShareTracker) -> None:
        self.record = record
        self.tracker = tracker
        self.kind: AcknowledgeType | None = None  # how to acknowledge it; None: it is not finished
        self.waits_until: float | None = None  # ms; it is being renewed, and lost if no poll returns it until then


class AcquiredRecords:
    """The acquired records of a run. Only the thread that polls uses this object."""

    def __init__(self, consumer: ShareConsumer) -> None:
        self._consumer = consumer
        self._acquired: dict[tuple[TopicPartition, int], Acquired] = {}
        self._trackers: dict[ShareTracker, None] = {}

    @property
    def empty(self) -> bool:
        """True if every record is acknowledged."""
        return not self._acquired

    @property
    def renewing(self) -> bool:
        """True if a poll must return records whose locks are being renewed."""
        return any(acquired.waits_until is not None for acquired in self._acquired.values())

    @property
    def trackers(self) -> list[ShareTracker]:
        """The trackers of the records."""
        return list(self._trackers)

    def add(self, records: Iterable[ConsumerRecord]) -> dict[ShareTracker, list[ConsumerRecord]]:
        """Take the records of a poll. Returns those that are new, by their trackers."""
        new: dict[TopicPartition, list[ConsumerRecord]] = {}
        for record in records:
            known = self._acquired.get((record.topic_partition, record.offset))
            if known is None or known.waits_until is None:
                new.setdefault(record.topic_partition, []).append(record)
            else:
                known.record, known.waits_until = record, None
                self._acknowledge(known)
        found = {ShareTracker(tp): batch for tp, batch in new.items()}
        for tracker, batch in found.items():
            self._trackers[tracker] = None
            for record in batch:
                self._acquired[tracker.topic_partition, record.offset] = Acquired(record, tracker)
        return found

    def acknowledge_finished(self) -> bool:
        """Acknowledge what workers have finished. Returns whether there was any such record."""
        changed = False
        for tracker in self.trackers:
            while tracker.done:
                offset, kind = tracker.done.popleft()
                acquired = self._acquired.get((tracker.topic_partition, offset))
                if acquired is not None and acquired.tracker is tracker:
                    acquired.kind = kind
                    changed = self._acknowledge(acquired) or changed
        return changed

    def renew(self, until: float) -> None:
        """Renew the locks of records that are not finished. They are lost if no poll returns them until then (ms)."""
        for acquired in list(self._acquired.values()):
            if acquired.waits_until is None:
                self._send(acquired, AcknowledgeType.RENEW)
                acquired.waits_until = until

    def forget_lost(self, now: float) -> None:
        """Forget records whose locks were not renewed. The group delivers them again."""
        for key, acquired in list(self._acquired.items()):
            if acquired.waits_until is not None and acquired.waits_until <= now:
                log.warning("the lock of %s offset %d was not renewed; the group delivers the record again", *key)
                del self._acquired[key]
        in_use = {acquired.tracker for acquired in self._acquired.values()}
        self._trackers = {tracker: None for tracker in self._trackers if tracker in in_use}

    def release(self) -> None:
        """Release all records that are not finished, except those whose locks are being renewed."""
        for acquired in list(self._acquired.values()):
            if acquired.waits_until is None:
                acquired.kind = AcknowledgeType.RELEASE
                self._acknowledge(acquired)

    def _acknowledge(self, acquired: Acquired) -> bool:
        if acquired.kind is None or acquired.waits_until is not None:
            return False
        self._send(acquired, acquired.kind)
        self._acquired.pop((acquired.tracker.topic_partition, acquired.record.offset), None)
        return True

    def _send(self, acquired: Acquired, kind: AcknowledgeType) -> None:
        try:
            self._consumer.acknowledge(acquired.record, kind)
        except StateError as error:  # its lock was lost, so the group delivers it again
            log.warning("a record was not acknowledged: %s", error)
