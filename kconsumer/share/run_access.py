"""RunAccess: what a run of `kconsumer.parallel` does with the records that a share engine has acquired.

Decides how many records its polls acquire, and when locks are renewed. Unlike other users, a run polls while earlier
records have no acknowledgement, and renewed records stay its records: no poll returns them again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kconsumer._internal.managers import FOREVER
from kconsumer.share.components import ShareComponents
from kconsumer.types import TopicPartition

if TYPE_CHECKING:
    from kconsumer._core.decode import ShareRecord
    from kconsumer.engine.driver import Driver
    from kconsumer.share.acknowledgements import AcquiredBatch

DEFAULT_LOCK_MS = 30_000  # before the first response of a broker
MAX_FETCH_WAIT_SHARE = 10  # of the lock: the longest wait of a broker during a run, whose acknowledgements wait for it
RENEWAL_LEAD_SHARE = 3  # of the lock: a lock is renewed this long before its end


class RunAccess:
    """The part of a share engine that only runs use."""

    def __init__(self, parts: ShareComponents, batches: Callable[[], list[AcquiredBatch]]) -> None:
        self.room: int | None = None  # how many further records the run can work on; None: there is no run
        self._parts = parts
        self._batches = batches

    def set_room(self, room: int | None) -> None:
        """Let the next polls acquire at most this number of records, and keep earlier ones. None ends the run."""
        self.room = room
        if not room:
            with self._parts.changing():
                self._parts.fetch.want_no_records()

    def want_records(self) -> None:
        """Let the manager acquire records. The caller holds the lock."""
        fetch, room = self._parts.fetch, self.room
        if room is None:
            fetch.want_records()
        elif room:
            limit = room if room < self._parts.config.max_poll_records else None
            fetch.want_records(limit, self._lock_ms() / MAX_FETCH_WAIT_SHARE)

    def refused_record(self, tp: TopicPartition, offset: int) -> ShareRecord | None:
        """Returns the record that a deserializer has refused, with its bytes, after a poll has raised the error."""
        for batch in self._batches():
            if batch.refused and batch.topic_partition == tp and offset in batch.records:
                return batch.records[offset]
        return None

    def lost_records(self) -> list[ShareRecord]:
        """Returns the records without an acknowledgement whose locks may have expired."""
        now = self._parts.clock.now()
        return [record for batch in self._batches() for record in batch.lost(now)]

    def renew_locks(self, driver: Driver) -> float:
        """Renew the locks of unacknowledged records that end soon, unless the group refuses that.

        The records can still be acknowledged. Returns the time (ms) of the next renewal.
        """
        parts, lead_ms = self._parts, self._lock_ms() / RENEWAL_LEAD_SHARE
        with parts.changing():
            if parts.fetch.renewals_refused:
                return FOREVER
            now = parts.changes.now
            taken = [each for batch in self._batches() if (each := batch.take_renewals(now, lead_ms)) is not None]
            for each in taken:
                each.deadline = now + lead_ms
            if taken:
                parts.fetch.acknowledge(taken)
                if parts.fetch.may_acknowledge:
                    driver.flush_managers(parts.membership, parts.fetch)
            return min((batch.next_renewal(now, lead_ms) for batch in self._batches()), default=FOREVER)

    def _lock_ms(self) -> float:
        return self._parts.fetch.lock_timeout_ms or DEFAULT_LOCK_MS
