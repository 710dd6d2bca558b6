"""A stream as Spark drives it: its questions handed to `StreamProgress`, its answers in Spark's form.

Spark makes the reader twice, in a short-lived process that pickles `read` and in one that lives as long as the query;
so nothing connects before the first question. That process is killed at the end, not told.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kconsumer.clock import Clock
from kconsumer.errors import KafkaError
from kconsumer.spark.admin import Admin
from kconsumer.spark.batch import RangePartition, ranges_of
from kconsumer.spark.compat import (
    ADMISSION_CONTROL,
    DataSourceStreamReader,
    InputPartition,
    ReadAllAvailable,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from kconsumer.spark.executor import read
from kconsumer.spark.offsets import as_document, from_document
from kconsumer.spark.options import SourceConfig
from kconsumer.spark.schema import Projection
from kconsumer.spark.stream_offsets import StreamProgress
from kconsumer.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["StreamReader"]

log = logging.getLogger(__name__)
NO_LIMIT = 2**63 - 1  # tells "as much as the options allow" from Trigger.Once, which Spark says by ReadAllAvailable
Document = dict[str, dict[str, int]]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The source's side of one streaming query."""

    def __init__(self, config: SourceConfig, projection: Projection, parallelism: int | None = None) -> None:
        self._config, self._projection, self._parallelism = config, projection, parallelism
        self._made: tuple[Admin, StreamProgress] | None = None
        self._last: dict[TopicPartition, int] | None = None
        self._clock = Clock()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}

    @property
    def _admin(self) -> Admin:
        return self._both()[0]

    @property
    def _progress(self) -> StreamProgress:
        return self._both()[1]

    def _both(self) -> tuple[Admin, StreamProgress]:
        if self._made is None:
            admin = Admin(self._config)
            self._made = admin, StreamProgress(self._config, admin, self._parallelism)
            if not ADMISSION_CONTROL:
                _warn_of_old_spark(self._config)
        return self._made

    # --- offsets ---------------------------------------------------------------------------------------------------

    def initialOffset(self) -> Document:  # noqa: N802  Spark's names, as those below
        """Where a new query starts."""
        return as_document(self._progress.initial())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Only what is there now is to be read."""
        self._progress.prepare_available_now()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """As much as the options allow, which `latestOffset` knows best."""
        most: int | None = self._config["maxOffsetsPerTrigger"]
        return ReadMaxRows(NO_LIMIT if most is None else most)

    def latestOffset(self, start: Mapping[str, Any] | None = None, limit: Any = None) -> Document:  # noqa: N802
        """Where the next micro-batch ends. Before pyspark 4.2 there is no `start`: then, where the last one ended.

        Of the first one nothing is known then: a stream that goes on from a checkpoint may be far behind where new ones
        start, and an end before its start would have it read again. So the first micro-batch takes everything.
        """
        unknown = start is None and self._last is None
        if start is None:
            begin = self._last if self._last is not None else self._progress.initial()
        else:
            begin = from_document(start)
        everything = unknown or (ReadAllAvailable is not None and isinstance(limit, ReadAllAvailable))
        end = self._progress.latest(begin, self._clock.now(), everything=everything)
        self._last = end
        return as_document(end)

    def reportLatestOffset(self) -> Document | None:  # noqa: N802
        """Where partitions end, for progress reports."""
        newest = self._progress.newest
        return None if newest is None else as_document(newest)

    # --- ranges ----------------------------------------------------------------------------------------------------

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[RangePartition]:
        """The tasks of a micro-batch."""
        tasks = self._progress.tasks(from_document(start), from_document(end))
        return [RangePartition(ranges) for ranges in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task, in its worker process."""
        return read(self._config, self._projection, ranges_of(partition), _run())

    # --- ends ------------------------------------------------------------------------------------------------------

    def commit(self, end: Mapping[str, Any]) -> None:
        """A micro-batch is done. Commits it to commitGroupId; whatever goes wrong with that, the query goes on."""
        group: str | None = self._config["commitGroupId"]
        if group is None:
            return
        try:
            self._admin.commit(group, from_document(end))
        except KafkaError as error:
            log.warning("offsets were not committed to group %s: %s", group, error)

    def stop(self) -> None:
        """Close connections, if Spark says so at all."""
        if self._made is not None:
            self._made[0].close()
            self._made = None


def _run() -> tuple[str, ...]:
    """The query and micro-batch of the task that runs here."""
    from pyspark import TaskContext

    context = TaskContext.get()
    names = ("sql.streaming.queryId", "streaming.sql.batchId")
    return tuple((context.getLocalProperty(name) if context else None) or "unknown" for name in names)


def _warn_of_old_spark(config: SourceConfig) -> None:
    limits = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger")
    given = [name for name in limits if config[name] is not None]
    if given:
        log.warning(
            "before pyspark 4.2 a Python source is not told where a stream goes on, so the first micro-batch after each"
            " start takes all there is, whatever %s says",
            ", ".join(given),
        )
