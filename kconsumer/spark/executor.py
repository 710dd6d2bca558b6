"""Reads the ranges of a task on an executor, as Arrow batches with exactly the schema that Spark expects.

Connections stay open in the worker process, whose next task reuses them (`kconsumer.ranges.borrow`). This module
decides what happens to records that are lost or cannot be decoded. The driver decides which ranges a task reads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from kconsumer.errors import BatchTooLargeError, CorruptRecordError, KafkaError, OffsetOutOfRangeError, TimeoutError
from kconsumer.ranges import EARLIEST, LATEST, RangeClient, RangeReader, borrow
from kconsumer.spark import dead_letters, offsets
from kconsumer.spark.columns import BadTimestampError, Converter
from kconsumer.spark.dead_letters import DeadLetter
from kconsumer.spark.loss import LossPolicy
from kconsumer.spark.options import SourceConfig
from kconsumer.spark.planning import OffsetRange
from kconsumer.spark.prefetch import Prefetch
from kconsumer.spark.schema import Projection
from kconsumer.spark.shared_task import read_together

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Scan", "read"]

log = logging.getLogger(__name__)
# The records of a range are in the log already, so the broker never needs to wait for them. But the read-ahead sends a
# fetch beyond the end of the range. The broker delays the response to this fetch for `fetch_max_wait_ms`. The next
# request of the same worker has to wait until then. With a longer delay, a small task waited for 20 of its 26 ms.
FETCH_MAX_WAIT_MS = 3
LOST = ("retention", "missing", "truncated")  # the reasons of gaps that are lost records
BOUNDS = {offsets.EARLIEST: EARLIEST, offsets.LATEST: LATEST}


def read(
    config: SourceConfig, projection: Projection, ranges: Sequence[OffsetRange], run: tuple[str, ...]
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the records of a task's ranges as Arrow batches, and write the dead letters of each range.

    `run` contains the names of the query and the micro-batch, for the paths of dead letters.
    """
    if not ranges:
        return
    with borrow(**executor_options(config)) as client:

        def batches() -> Generator[pa.RecordBatch, None, None]:
            with client.in_use():  # during the whole task; otherwise each range starts a timer that closes connections
                left = yield from read_together(config, projection, ranges, client)
                for item in left:
                    scan = Scan(config, projection, item, client)
                    yield from scan.batches()
                    scan.finish(run)

        with closing(Prefetch(batches())) as prefetched:
            yield from prefetched


def executor_options(config: SourceConfig) -> dict[str, Any]:
    """Returns the options of a client on an executor: those that the user set, and defaults of this source."""
    defaults = {
        "default_api_timeout_ms": config["kafkaConsumer.pollTimeoutMs"],
        "max_partition_fetch_bytes": max(config["batchBytes"], 1 << 20),
        "fetch_max_wait_ms": FETCH_MAX_WAIT_MS,
    }
    return {**defaults, **config.client_options()}


class Scan:
    """Reads one range. The caller iterates over `batches`, then calls `finish`."""

    def __init__(self, config: SourceConfig, projection: Projection, task: OffsetRange, client: RangeClient) -> None:
        self._config, self._projection, self._task, self._client = config, projection, task, client
        self._converter = Converter(projection)
        self._loss = LossPolicy(config.fails_on_data_loss)
        self.dead_letters: list[DeadLetter] = []
        self.skipped = 0  # records or offsets that were skipped because they could not be decoded
        self.lost = 0  # offsets that are no longer in the log

    # --- reading ---------------------------------------------------------------------------------------------------

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield Arrow batches with exactly the schema of the projection.

        Records that are corrupt or cannot be decoded are skipped, or raise CorruptRecordError if `onCorrupt` is `fail`.
        """
        names = self._projection.record_columns
        columns = [*names, *(["offset"] if self._converter.needs_offset and "offset" not in names else [])]
        start: int = self._task.start
        end: int = self._task.end
        while True:
            reader = self._open(start, end, columns)
            with reader:
                try:
                    for batch in reader:
                        yield self._convert(batch.to_pyarrow())
                    self._account(reader)
                    return
                except CorruptRecordError as error:
                    end = reader.end_offset
                    self._account(reader)
                    bad, cause = reader.next_offset, error
                except BatchTooLargeError as error:
                    raise _too_large(error) from error
                except OffsetOutOfRangeError as error:
                    self._loss.report("COULD_NOT_READ_OFFSET_RANGE", str(error).rstrip("."))
                    raise
                except TimeoutError as error:
                    raise self._timed_out(reader, error) from error
            start = self._skip_corrupt(bad, end, cause)
            if start >= end:
                return

    def _open(self, start: int, end: int, columns: list[str]) -> RangeReader:
        """Open a reader of the offsets from `start` up to, but not including, `end`.

        `start` may be EARLIEST, and `end` may be LATEST. Raises DataLossError if offsets of the range are not in the
        log and lost records fail the query.
        """
        try:
            return self._client.read_range(
                self._task.topic_partition,
                BOUNDS.get(start, start),
                BOUNDS.get(end, end),
                columns=columns,
                schema="spark",
                max_rows=self._config["batchRows"],
                max_bytes=self._config["batchBytes"],
                on_data_loss="error" if self._loss.fails else "skip",
            )
        except OffsetOutOfRangeError as error:
            self._loss.report("COULD_NOT_READ_OFFSET_RANGE", str(error).rstrip("."))
            raise

    def _timed_out(self, reader: RangeReader, error: TimeoutError) -> KafkaError:
        wait, tp = self._config["kafkaConsumer.pollTimeoutMs"], self._task.topic_partition
        return TimeoutError(
            f"Cannot fetch record for offset {reader.next_offset} of {tp} in {wait} milliseconds"
            f" (kafkaConsumer.pollTimeoutMs): {error}"
        )

    # --- records that cannot be decoded ----------------------------------------------------------------------------

    def _convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            converted, bad = self._converter.convert(batch)
        except BadTimestampError as error:
            tp, at = self._task.topic_partition, error.offset
            raise KafkaError(
                f"[KAFKA_MALFORMED_RECORD_TIMESTAMP] the timestamp of the record at offset {at} of {tp.topic} partition"
                f" {tp.partition} is beyond the range of Spark's timestamps; set onBadTimestamp to clamp or null"
            ) from None
        for row in bad:
            self._undecodable(row)
        return converted

    def _undecodable(self, row: dict[str, Any]) -> None:
        tp, offset = self._task.topic_partition, row["offset"]
        reason = f"{row['column']} {row['reason']}"
        if self._config["onCorrupt"] == "fail":
            raise CorruptRecordError(
                f"the {row['column']} at offset {offset} of {tp} {row['reason']};"
                " read bytes (valueFormat=raw), or set onCorrupt to skip or deadletter",
                topic=tp.topic,
                partition=tp.partition,
                offset=offset,
            )
        self.skipped += 1
        key, value = dead_letters.encoded(row.get("key")), dead_letters.encoded(row.get("value"))
        self._add_dead_letter("undecodable", offset, offset + 1, reason, key, value)

    def _skip_corrupt(self, bad: int, end: int, error: CorruptRecordError) -> int:
        """Skip the corrupt batch that contains the offset `bad`. Returns the next offset that can be read.

        Raises CorruptRecordError if `onCorrupt` is `fail`.
        """
        reason = _without_seek(error)
        if self._config["onCorrupt"] == "fail":
            raise CorruptRecordError(
                f"{reason}; set onCorrupt to skip or deadletter to read on after it",
                topic=error.topic,
                partition=error.partition,
                offset=error.offset,
            ) from error
        after = first_readable(lambda start: self._readable(start, end), bad + 1, end)
        self.skipped += after - bad
        self._add_dead_letter("corrupt", bad, after, reason)
        log.warning("offsets %d up to, not including, %d of %s are skipped: %s",
                    bad, after, self._task.topic_partition, reason)  # fmt: skip
        return after

    def _readable(self, start: int, end: int) -> bool:
        """Returns whether the batch that contains the offset `start` is free of errors.

        A batch that is larger than the size limit counts as readable. `end` is the end of the range that is read.
        """
        with self._client.read_range(
            self._task.topic_partition, start, end, columns=["offset"], max_rows=1, on_data_loss="skip"
        ) as reader:
            try:
                next(reader, None)
            except CorruptRecordError:
                return False
            except BatchTooLargeError:
                return True
        return True

    # --- lost records ----------------------------------------------------------------------------------------------

    def _account(self, reader: RangeReader) -> None:
        """Report offsets of the range whose records were deleted, or that are beyond the end of the log.

        The end of the log may have moved back while the range was read, because a broker failed.

        Raises DataLossError if there are such offsets and lost records fail the query.
        """
        for gap in reader.gaps:
            if gap.reason in LOST:
                self.lost += gap.end - gap.start
                self._add_dead_letter("lost", gap.start, gap.end, gap.reason)
                what = f"offsets {gap.start} to {gap.end} of {self._task.topic_partition} are gone ({gap.reason})"
                self._loss.report("COULD_NOT_READ_OFFSET_RANGE", what)

    def _add_dead_letter(
        self, kind: str, start: int, end: int, reason: str, key: str | None = None, value: str | None = None
    ) -> None:
        policy = self._config.on_data_loss if kind == "lost" else self._config["onCorrupt"]
        if policy == "deadletter":
            task = self._task
            self.dead_letters.append(DeadLetter(kind, task.topic, task.partition, start, end, reason, key, value))

    def finish(self, run: tuple[str, ...]) -> None:
        """Write the dead letters of the range to files, and log how many offsets were skipped."""
        if self._config["deadLetterPath"] is not None:
            folder = dead_letters.folder(self._config["deadLetterPath"])
            dead_letters.write(folder, run, self._task, self.dead_letters)
        if self.skipped:
            log.warning("%d offsets of %s could not be decoded", self.skipped, self._task.topic_partition)


def _without_seek(error: KafkaError) -> str:
    """Returns the error's message without the advice to seek, which a query cannot follow."""
    return str(error).partition("; seek to offset")[0]


def _too_large(error: BatchTooLargeError) -> BatchTooLargeError:
    """Returns the same error with another message: it names the option of the source whose value must be increased."""
    return BatchTooLargeError(
        f"the batch of {error.topic_partition} at offset {error.offset} decompresses to more than {error.limit} bytes;"
        " raise kafka.decompressed.batch.max.bytes, whatever onCorrupt is: the batch is not corrupt",
        topic_partition=error.topic_partition,
        offset=error.offset,
        next_offset=error.next_offset,
        limit=error.limit,
    )


def first_readable(readable: Callable[[int], bool], low: int, end: int) -> int:
    """Returns the first offset from `low` on for which `readable` returns True, or `end` if there is none.

    All offsets of a corrupt batch are unreadable, and its header may contain a wrong number of records. So the end of
    the batch is searched: the distance is doubled until an offset is readable, then the interval is halved.
    """
    step, bad = 1, low - 1
    at = low
    while at < end and not readable(at):
        bad, at, step = at, at + step, step * 2
    at = min(at, end)
    while at - bad > 1:
        middle = (at + bad) // 2
        if readable(middle):
            at = middle
        else:
            bad = middle
    return at
