"""ShareBuffer: acquired data that no poll has returned yet, in order of arrival.

Data is dropped when its acquisition locks have expired, or when its share session has ended. The group may have
delivered the records to another member then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from kconsumer._core.metrics import ResponseTally
from kconsumer._core.wire import Slice
from kconsumer._internal.managers import FOREVER
from kconsumer.schema.share_group import AcquiredRecords
from kconsumer.share.metrics import ShareMetrics
from kconsumer.share.session import TopicIdPartition
from kconsumer.types import TopicPartition

MIN_POLL_SHARE = 2  # divided data has at least this part of the records of a poll


class CompletedShareFetch:
    """The data of one partition in one ShareFetch response."""

    __slots__ = (
        "acquired",
        "divisible",
        "locked_until",
        "next_offset",
        "node_id",
        "partition",
        "records",
        "tally",
        "topic_partition",
    )

    def __init__(
        self,
        node_id: int,
        partition: TopicIdPartition,
        topic_partition: TopicPartition,
        records: Slice | bytes | None,
        acquired: Sequence[AcquiredRecords],
        tally: ResponseTally,
        locked_until: float = FOREVER,
        divisible: bool = False,
    ) -> None:
        self.node_id = node_id
        self.partition = partition
        self.topic_partition = topic_partition
        self.records = records
        self.acquired = acquired  # ranges of offsets in ascending order, with their delivery counts
        self.next_offset = acquired[0].first_offset  # the first offset that no poll has returned
        self.tally = tally  # the sums of the whole response
        tally.expect()
        self.locked_until = locked_until  # ms; the locks do not expire earlier
        self.divisible = divisible  # it was requested for several polls

    def split(self, min_records: int) -> CompletedShareFetch | None:
        """Returns the data of the first ranges with at least `min_records` offsets, and keeps the rest.

        Returns None if there is no rest. No range is divided, because a broker must do much more for acknowledgements
        of a part of what it has acquired together.
        """
        if self.next_offset != self.acquired[0].first_offset:
            return None
        count = 0
        for number, row in enumerate(self.acquired[:-1], 1):
            count += row.last_offset - row.first_offset + 1
            if count >= min_records:
                head, self.acquired = self.acquired[:number], self.acquired[number:]
                self.next_offset = self.acquired[0].first_offset
                return CompletedShareFetch(
                    self.node_id,
                    self.partition,
                    self.topic_partition,
                    self.records,
                    head,
                    self.tally,
                    self.locked_until,
                )
        return None

    def offsets(self) -> list[int]:
        """Returns the acquired offsets that no poll has returned."""
        return [
            offset
            for row in self.acquired
            for offset in range(max(row.first_offset, self.next_offset), row.last_offset + 1)
        ]

    def __repr__(self) -> str:
        ranges = ", ".join(f"{a.first_offset}-{a.last_offset}" for a in self.acquired)
        return f"<CompletedShareFetch of {self.topic_partition}: {ranges}>"


class ShareBuffer:
    """The data of responses, until a poll takes it."""

    def __init__(self, metrics: ShareMetrics) -> None:
        self._metrics = metrics
        self._fetches: deque[CompletedShareFetch] = deque()

    @property
    def records(self) -> int:
        """The number of acquired offsets in the buffer."""
        count = 0
        for fetch in self._fetches:
            for row in fetch.acquired:
                count += row.last_offset - row.first_offset + 1
        return count

    def has_data(self) -> bool:
        """Returns True if a poll would find records."""
        return bool(self._fetches)

    def add(self, fetch: CompletedShareFetch) -> None:
        """Append data that has arrived."""
        self._fetches.append(fetch)

    def put_back(self, fetch: CompletedShareFetch) -> None:
        """Make the rest of a fetch the first data of the next poll."""
        fetch.tally.expect()
        self._fetches.appendleft(fetch)

    def pop(self, max_records: int) -> CompletedShareFetch:
        """Returns the first data, which is no longer buffered: about `max_records` records if it can be divided."""
        first = self._fetches[0]
        head = first.split(max_records // MIN_POLL_SHARE) if first.divisible else None
        return head or self._fetches.popleft()

    def drop_expired(self, now: float) -> None:
        """Drop data whose locks have expired: the group may have delivered its records again."""
        for fetch in self._fetches:
            if fetch.locked_until <= now:
                self._retain(lambda fetch: fetch.locked_until > now, now)
                return

    def drop_from(self, node_id: int, now: float) -> None:
        """Drop the data of a broker whose share session has ended: the broker has released the records."""
        self._retain(lambda fetch: fetch.node_id != node_id, now)

    def drop(self, fetch: CompletedShareFetch, now: float) -> None:
        """Drop this data, if it is in the buffer."""
        self._retain(lambda each: each is not fetch, now)

    def clear(self, now: float) -> None:
        """Drop all data. The brokers release its records when the sessions are closed."""
        self._retain(lambda fetch: False, now)

    def _retain(self, keep: Callable[[CompletedShareFetch], bool], now: float) -> None:
        """Drop the data for which `keep` returns False."""
        fetches, self._fetches = self._fetches, deque()
        for fetch in fetches:
            if keep(fetch):
                self._fetches.append(fetch)
            else:
                self._metrics.taken(fetch.tally, fetch.topic_partition.topic, 0, 0, now)
