"""Commits: which offsets of a run are committed, and what an error of a commit leads to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from kconsumer.deferred_calls import get_logger
from kconsumer.error_codes import Errors
from kconsumer.errors import BrokerError, CommitFailedError, KafkaError, RebalanceInProgressError, WakeupError
from kconsumer.parallel.finished_offsets import MAX_METADATA_BYTES
from kconsumer.parallel.offset_tracker import OffsetTracker
from kconsumer.types import OffsetAndMetadata, TopicPartition

log = get_logger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Send = Callable[[Offsets, Callable[[Offsets, KafkaError | None], object]], object]

# The next commit repeats these. If the partitions were lost, the next poll says so.
REPEATED = (RebalanceInProgressError, CommitFailedError, WakeupError)


class Commits:
    """What was committed of each partition, and what has changed since."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, int] = {}  # the last committed offsets, for the summary
        self.error: KafkaError | None = None  # an error that no later commit can repair
        self._limit = MAX_METADATA_BYTES
        self._sent: dict[TopicPartition, OffsetAndMetadata] = {}  # committed, or in flight
        self._in_flight = False

    def changed(self, trackers: Iterable[OffsetTracker]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns what must be committed: the offsets that differ from those that were sent last."""
        found = {tracker.topic_partition: tracker.to_commit(self._limit) for tracker in trackers}
        return {tp: offset for tp, offset in found.items() if offset is not None and offset != self._sent.get(tp)}

    def start(self, trackers: Iterable[OffsetTracker], send: Send) -> None:
        """Commit what has changed, without waiting. Does nothing while an earlier commit is in flight."""
        if self._in_flight:
            return
        offsets = self.changed(trackers)
        if offsets:
            self._sent.update(offsets)
            self._in_flight = True
            send(offsets, self._done)

    def _done(self, offsets: Offsets, error: KafkaError | None) -> None:
        self._in_flight = False
        if error is None:  # a commit that waited may have finished after this one, and before this call
            self.succeeded({tp: offset for tp, offset in offsets.items() if self._sent.get(tp) == offset})
        else:
            self.failed(offsets, error)

    def succeeded(self, offsets: Offsets) -> None:
        """Note that these offsets are committed."""
        self._sent.update(offsets)
        self.committed.update((tp, offset.offset) for tp, offset in offsets.items())

    def failed(self, offsets: Offsets, error: KafkaError) -> None:
        """Note that these offsets were not committed.

        If the metadata are too long for the broker, later ones have half of the length at most.
        """
        for tp, offset in offsets.items():
            if self._sent.get(tp) == offset:
                del self._sent[tp]
        if too_long(error):
            self._limit = max(len(offset.metadata) for offset in offsets.values()) // 2
            log.warning("the broker refused the metadata of a commit; later ones have up to %d characters", self._limit)
        elif self.can_repeat(error):
            log.info("a commit failed, and a later one repeats it: %s", error)
        else:
            self.error = self.error or error

    @staticmethod
    def can_repeat(error: KafkaError) -> bool:
        """Returns True if a later commit may succeed."""
        return error.retriable or isinstance(error, REPEATED)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Forget what was sent for partitions that are no longer assigned."""
        for tp in partitions:
            self._sent.pop(tp, None)


def too_long(error: KafkaError | None) -> bool:
    """Returns True if the broker refused a commit because its metadata are too long."""
    return isinstance(error, BrokerError) and error.code == Errors.OFFSET_METADATA_TOO_LARGE
