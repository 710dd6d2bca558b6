"""The reader of a streaming query: passes Spark's calls to `StreamProgress`, and returns offsets in Spark's form.

Spark creates the reader twice: in a short-lived process that pickles `read` for the executors, and in a process that
lives as long as the query. So connections are opened only when a method needs them. Spark usually kills the second
process without calling `stop`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kconsumer._core.lock import Clock
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
NO_LIMIT = 2**63 - 1  # read limit without maxOffsetsPerTrigger; Spark uses ReadAllAvailable for Trigger.Once only
Document = dict[str, dict[str, int]]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Chooses the offsets of each micro-batch of a query on the driver, and reads its records on executors."""

    def __init__(self, config: SourceConfig, projection: Projection, parallelism: int | None = None) -> None:
        self._config, self._projection, self._parallelism = config, projection, parallelism
        self._connected: tuple[Admin, StreamProgress] | None = None
        self._last: dict[TopicPartition, int] | None = None
        self._clock = Clock()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connected": None}

    @property
    def _admin(self) -> Admin:
        return self._connect()[0]

    @property
    def _progress(self) -> StreamProgress:
        return self._connect()[1]

    def _connect(self) -> tuple[Admin, StreamProgress]:
        if self._connected is None:
            admin = Admin(self._config)
            self._connected = admin, StreamProgress(self._config, admin, self._parallelism)
            if not ADMISSION_CONTROL:
                _warn_of_old_spark(self._config)
        return self._connected

    # --- offsets ---------------------------------------------------------------------------------------------------

    def initialOffset(self) -> Document:  # noqa: N802  Spark's names, as those below
        """Returns the offsets at which a new query starts."""
        return as_document(self._progress.initial())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Limit the query to the offsets that exist at the next call of `latestOffset`."""
        self._progress.prepare_available_now()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """Returns a read limit, which Spark passes to `latestOffset`.

        `latestOffset` applies the options of the source, and ignores the value of the limit. But if the limit is
        ReadAllAvailable, `latestOffset` ignores the options. So this method must return another limit.
        """
        limit: int | None = self._config["maxOffsetsPerTrigger"]
        return ReadMaxRows(NO_LIMIT if limit is None else limit)

    def latestOffset(self, start: Mapping[str, Any] | None = None, limit: Any = None) -> Document:  # noqa: N802
        """Returns the end offsets of the next micro-batch.

        Before pyspark 4.2, Spark passes no `start`. A micro-batch then starts at the end of the previous one. The start
        of the first micro-batch is unknown: a stream with a checkpoint may continue far beyond the initial offsets. If
        a limit were applied to the initial offsets, the end could be before the real start, and records would be
        repeated. So the first micro-batch reads everything available.
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
        """Returns the end offsets of the partitions for Spark's progress reports, or None if they are not known yet."""
        newest = self._progress.newest
        return None if newest is None else as_document(newest)

    # --- ranges ----------------------------------------------------------------------------------------------------

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[RangePartition]:
        """Plan the tasks of a micro-batch. Returns their inputs. Spark calls this on the driver."""
        tasks = self._progress.tasks(from_document(start), from_document(end))
        return [RangePartition(ranges) for ranges in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task as Arrow batches. Spark calls this in the worker process of the task."""
        return read(self._config, self._projection, ranges_of(partition), _run())

    # --- completion ------------------------------------------------------------------------------------------------

    def commit(self, end: Mapping[str, Any]) -> None:
        """Commit the end offsets of a finished micro-batch for the group that commitGroupId names, if it is set.

        An error is logged, and the query continues.
        """
        group: str | None = self._config["commitGroupId"]
        if group is None:
            return
        try:
            self._admin.commit(group, from_document(end))
        except KafkaError as error:
            log.warning("offsets were not committed to group %s: %s", group, error)

    def stop(self) -> None:
        """Close the connections. Spark usually kills the process instead of calling this."""
        if self._connected is not None:
            self._connected[0].close()
            self._connected = None


def _run() -> tuple[str, ...]:
    """Returns the ids of the query and the micro-batch to which the task of this process belongs."""
    from pyspark import TaskContext

    context = TaskContext.get()
    names = ("sql.streaming.queryId", "streaming.sql.batchId")
    return tuple((context.getLocalProperty(name) if context else None) or "unknown" for name in names)


def _warn_of_old_spark(config: SourceConfig) -> None:
    limits = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger")
    given = [name for name in limits if config[name] is not None]
    if given:
        log.warning(
            "before pyspark 4.2 a Python source does not receive the start of a micro-batch, so the first micro-batch"
            " after each start reads everything available and ignores %s",
            ", ".join(given),
        )
