"""Runs deserializers on the records that the fast path has received.

The fast path has moved the positions, and sent the next fetch, when they begin. They run without the engine's lock.
The batch is open meanwhile (`Delivery`), so commits do not count its records, and `poll` cannot be called, as on the
general path. `Collector.finish` decides which records are returned after a deserializer has failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kconsumer.engine.components import Components
from kconsumer.engine.driver import Driver
from kconsumer.errors import RecordDeserializationError
from kconsumer.records import ConsumerRecords, Position
from kconsumer.types import TopicPartition

if TYPE_CHECKING:
    from kconsumer._core.record_run import RecordRun
    from kconsumer.fetching.collector import Skipped


class ReceivedRecords:
    """The records that the fast path has received in the last poll."""

    def __init__(self, parts: Components, driver: Driver) -> None:
        self._parts = parts
        self._driver = driver
        self._runs: Sequence[RecordRun] = ()
        self._skipped: Skipped = {}

    def make_batch(
        self, runs: list[RecordRun], positions: Mapping[TopicPartition, Position], skipped: Skipped
    ) -> ConsumerRecords:
        """Returns the received records as a batch, and keeps the arguments for `complete`."""
        self._runs, self._skipped = runs, skipped
        return ConsumerRecords.from_runs(runs, positions, skipped)

    def complete(self, records: ConsumerRecords, *, deserialize: bool) -> ConsumerRecords:
        """Run the deserializers, unless `deserialize` is False. Returns the records that `poll` must return.

        Raises RecordDeserializationError if the first record fails. If a later one fails, returns the records before
        it, and the next poll raises the error. After any exception, the caller must roll back the last poll.
        """
        runs = self.take()
        if not deserialize:
            return records
        collector = self._parts.collector
        collector.mark_busy(True)
        try:
            done, failed, error = self._deserialize(runs)
        finally:
            collector.mark_busy(False)
        if error is not None and done == 0:
            raise error
        return self.finish(records, runs, done, failed)

    def take(self) -> Sequence[RecordRun]:
        """Returns the received records, whose deserializers the caller runs before it calls `finish`."""
        runs, self._runs = self._runs, ()
        return runs

    def finish(
        self, records: ConsumerRecords, runs: Sequence[RecordRun], done: int, failed: RecordRun | None
    ) -> ConsumerRecords:
        """Returns the records that `poll` must return: the first `done` runs, and `failed` (see `Collector.finish`).

        `records` is the batch of all runs.
        """
        collector = self._parts.collector
        if done == len(runs):
            collector.record_received(runs)
            return records
        with self._parts.changing():
            records = collector.finish_received(runs, done, failed, self._skipped)
            self._driver.request_manager_poll()
        collector.record_received(records._runs)
        return records

    def _deserialize(
        self, runs: Sequence[RecordRun]
    ) -> tuple[int, RecordRun | None, RecordDeserializationError | None]:
        """Run the deserializers on each run, until one fails.

        Returns the number of complete runs, the next run if it was cut off before the record that failed, and the error
        if that was its first record.
        """
        collector = self._parts.collector
        for index, run in enumerate(runs):
            count = len(run)
            try:
                collector.deserialize(run)
            except RecordDeserializationError as error:
                return index, None, error
            if len(run) < count:
                return index, run, None
        return len(runs), None, None
