"""Commits: which offsets of a run are committed, and what an error of a commit leads to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from kconsumer._common.deferred_calls import get_logger
from kconsumer._common.error_codes import Errors
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
        self.limit = MAX_METADATA_BYTES  # characters of metadata, as far as the broker has refused no shorter ones
        self.longest = 0  # characters of metadata in the last commit
        self._acknowledged: dict[TopicPartition, OffsetAndMetadata] = {}  # of partitions that are assigned
        self._in_flight: dict[TopicPartition, OffsetAndMetadata] | None = None  # the periodic commit

    @property
    def in_flight(self) -> bool:
        """True while a commit is in flight that is not waited for."""
        return self._in_flight is not None

    def changed(self, trackers: Iterable[OffsetTracker]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns what must be committed: the offsets that differ from those that the group has acknowledged."""
        found = {tracker.topic_partition: tracker.to_commit(self.limit) for tracker in trackers}
        return {
            tp: offset for tp, offset in found.items() if offset is not None and offset != self._acknowledged.get(tp)
        }

    def start(self, trackers: Iterable[OffsetTracker], send: Send) -> None:
        """Commit what has changed, without waiting. Does nothing while an earlier commit is in flight."""
        if self._in_flight is None:
            self.send(trackers, send)

    def send(self, trackers: Iterable[OffsetTracker], send: Send) -> None:
        """Commit what has changed, without waiting, whatever is in flight."""
        offsets = self.changed(trackers)
        if offsets:
            self._in_flight = sent = dict(offsets)
            try:
                send(offsets, partial(self._done, sent))
            except BaseException:
                self._in_flight = None
                raise

    def _done(self, sent: dict[TopicPartition, OffsetAndMetadata], _: Offsets, error: KafkaError | None) -> None:
        if sent is not self._in_flight:  # a later commit was acknowledged before this call, and contained these offsets
            return
        self._in_flight = None
        if error is None:
            self._acknowledge(sent)
        elif sent:
            self.failed(sent, error)

    def succeeded(self, offsets: Offsets) -> None:
        """Note that a commit that was waited for is acknowledged. So are those that were sent before it."""
        self._in_flight = None
        self._acknowledge(offsets)

    def _acknowledge(self, offsets: Offsets) -> None:
        self.longest = max((len(offset.metadata) for offset in offsets.values()), default=0)
        self._acknowledged.update(offsets)
        self.committed.update((tp, offset.offset) for tp, offset in offsets.items())

    def failed(self, offsets: Offsets, error: KafkaError) -> None:
        """Note that these offsets were not committed.

        If the metadata are too long for the broker, later ones have half of the length at most.
        """
        if too_long(error):
            self.limit = max(len(offset.metadata) for offset in offsets.values()) // 2
            log.warning("the broker refused the metadata of a commit; later ones have up to %d characters", self.limit)
        elif self.can_repeat(error):
            log.info("a commit failed, and a later one repeats it: %s", error)
        else:
            self.error = self.error or error

    @staticmethod
    def can_repeat(error: KafkaError) -> bool:
        """Returns True if a later commit may succeed."""
        return error.retriable or isinstance(error, REPEATED)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Forget what was committed of partitions that are no longer assigned."""
        for tp in partitions:
            self._acknowledged.pop(tp, None)
            if self._in_flight is not None:
                self._in_flight.pop(tp, None)


def too_long(error: KafkaError | None) -> bool:
    """Returns True if the broker refused a commit because its metadata are too long."""
    return isinstance(error, BrokerError) and error.code == Errors.OFFSET_METADATA_TOO_LARGE
