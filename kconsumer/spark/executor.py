"""What a task does on an executor: read one range of one partition as Arrow batches in Spark's exact schema.

Connections belong to the worker process and are used again by its next task (`kconsumer.ranges.borrow`). Decides what
happens to records that are gone or cannot be decoded; which range a task has is decided on the driver.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from kconsumer.errors import CorruptRecordError, KafkaError, OffsetOutOfRangeError, TimeoutError
from kconsumer.ranges import EARLIEST, LATEST, RangeClient, RangeReader, borrow
from kconsumer.spark import dead_letters, offsets
from kconsumer.spark.columns import as_map, decode
from kconsumer.spark.dead_letters import DeadLetter
from kconsumer.spark.loss import LossPolicy
from kconsumer.spark.options import SourceConfig
from kconsumer.spark.planning import OffsetRange
from kconsumer.spark.prefetch import Prefetch
from kconsumer.spark.schema import Projection

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Scan", "read"]

log = logging.getLogger(__name__)
# Records of a range are there already. What a broker would wait for is the fetch beyond its end, and the next range of
# the same worker would wait with it: 20 ms of a small task's 26.
FETCH_MAX_WAIT_MS = 3
POINTS = {offsets.EARLIEST: EARLIEST, offsets.LATEST: LATEST}


def read(
    config: SourceConfig, projection: Projection, ranges: Sequence[OffsetRange], run: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """The batches of a task's ranges. `run` says of which query and micro-batch, for dead letters."""
    if not ranges:
        return
    with borrow(**executor_options(config)) as client:

        def batches() -> Generator[pa.RecordBatch, None, None]:
            for item in ranges:
                scan = Scan(config, projection, item, client)
                yield from scan.batches()
                scan.finish(run)

        with closing(Prefetch(batches())) as ahead:
            yield from ahead


def executor_options(config: SourceConfig) -> dict[str, Any]:
    """What clients of executors are made with: the user's options, and ours where the user has none."""
    ours = {
        "default_api_timeout_ms": config["kafkaConsumer.pollTimeoutMs"],
        "max_partition_fetch_bytes": max(config["batchBytes"], 1 << 20),
        "fetch_max_wait_ms": FETCH_MAX_WAIT_MS,
    }
    return {**ours, **config.client_options()}


class Scan:
    """One task's way through its range; iterate over `batches`, then `finish`."""

    def __init__(self, config: SourceConfig, projection: Projection, task: OffsetRange, client: RangeClient) -> None:
        self._config, self._projection, self._task, self._client = config, projection, task, client
        self._decoders = projection.decoders()
        self._loss = LossPolicy(config.fails_on_data_loss)
        self.letters: list[DeadLetter] = []
        self.skipped = 0  # records or offsets left out because they could not be decoded
        self.lost = 0  # offsets that are not in the log any more

    # --- reading ---------------------------------------------------------------------------------------------------

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Arrow batches of exactly the projection's schema."""
        schema = self._projection.arrow_schema()
        names = list(self._projection.columns)
        asked = [*names, *(["offset"] if self._decoders and "offset" not in names else [])]
        start: int = self._task.start
        end: int = self._task.end
        while True:
            reader = self._open(start, end, asked)
            with reader:
                try:
                    for batch in reader:
                        yield self._convert(batch.to_pyarrow(), schema)
                    self._account(reader)
                    return
                except CorruptRecordError as error:
                    end = reader.end_offset
                    self._account(reader)
                    bad, why = reader.next_offset, error
                except OffsetOutOfRangeError as error:
                    self._loss.report("COULD_NOT_READ_OFFSET_RANGE", str(error).rstrip("."))
                    raise
                except TimeoutError as error:
                    raise self._stalled(reader, error) from error
            start = self._pass(bad, end, why)
            if start >= end:
                return

    def _open(self, start: int, end: int, columns: list[str]) -> RangeReader:
        """A reader of the rest of the range."""
        try:
            return self._client.read_range(
                self._task.topic_partition,
                POINTS.get(start, start),
                POINTS.get(end, end),
                columns=columns,
                schema="spark",
                max_rows=self._config["batchRows"],
                max_bytes=self._config["batchBytes"],
                on_data_loss="error" if self._loss.fails else "skip",
            )
        except OffsetOutOfRangeError as error:
            self._loss.report("COULD_NOT_READ_OFFSET_RANGE", str(error).rstrip("."))
            raise

    def _stalled(self, reader: RangeReader, error: TimeoutError) -> KafkaError:
        wait, tp = self._config["kafkaConsumer.pollTimeoutMs"], self._task.topic_partition
        return TimeoutError(
            f"Cannot fetch record for offset {reader.next_offset} of {tp} in {wait} milliseconds"
            f" (kafkaConsumer.pollTimeoutMs): {error}"
        )

    # --- what cannot be decoded ------------------------------------------------------------------------------------

    def _convert(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        projection = self._projection
        if self._decoders:
            batch, bad = decode(batch, self._decoders)
            for row in bad:
                self._undecodable(row)
            if len(batch.schema) > len(schema):
                batch = batch.select(schema.names)
        return as_map(batch, schema) if projection.headers_map and "headers" in projection.columns else batch

    def _undecodable(self, row: dict[str, Any]) -> None:
        tp, offset = self._task.topic_partition, row["offset"]
        reason = f"{row['column']} {row['reason']}"
        if self._config["onCorrupt"] == "fail":
            raise CorruptRecordError(
                f"the {row['column']} at offset {offset} of {tp} {row['reason']};"
                " read bytes (valueFormat=raw), or set onCorrupt",
                topic=tp.topic,
                partition=tp.partition,
                offset=offset,
            )
        self.skipped += 1
        key, value = dead_letters.encoded(row.get("key")), dead_letters.encoded(row.get("value"))
        self._letter("undecodable", offset, offset + 1, reason, key, value)

    def _pass(self, bad: int, end: int, error: CorruptRecordError) -> int:
        """The first offset behind a corrupt batch; raises if that is the policy."""
        if self._config["onCorrupt"] == "fail":
            raise error
        behind = first_readable(lambda start: self._readable(start, end), bad + 1, end)
        self.skipped += behind - bad
        self._letter("corrupt", bad, behind, str(error))
        log.warning("offsets %d to %d of %s are left out: %s", bad, behind, self._task.topic_partition, error)
        return behind

    def _readable(self, start: int, end: int) -> bool:
        with self._client.read_range(
            self._task.topic_partition, start, end, columns=["offset"], max_rows=1, on_data_loss="skip"
        ) as reader:
            try:
                next(reader, None)
            except CorruptRecordError:
                return False
        return True

    # --- what is gone ----------------------------------------------------------------------------------------------

    def _account(self, reader: RangeReader) -> None:
        """Note what the range lacks for other reasons than compaction and transactions."""
        for gap in reader.gaps:
            if gap.reason in ("retention", "missing"):
                self.lost += gap.end - gap.start
                self._letter("lost", gap.start, gap.end, gap.reason)
                what = f"offsets {gap.start} to {gap.end} of {self._task.topic_partition} are gone ({gap.reason})"
                self._loss.report("COULD_NOT_READ_OFFSET_RANGE", what)

    def _letter(
        self, kind: str, start: int, end: int, reason: str, key: str | None = None, value: str | None = None
    ) -> None:
        policy = self._config.on_data_loss if kind == "lost" else self._config["onCorrupt"]
        if policy == "deadletter":
            task = self._task
            self.letters.append(DeadLetter(kind, task.topic, task.partition, start, end, reason, key, value))

    def finish(self, run: tuple[str, ...]) -> None:
        """Write the dead letters."""
        if self._config["deadLetterPath"] is not None:
            dead_letters.write(dead_letters.folder(self._config["deadLetterPath"]), run, self._task, self.letters)
        if self.skipped:
            log.warning("%d offsets of %s could not be decoded", self.skipped, self._task.topic_partition)


def first_readable(readable: Any, low: int, end: int) -> int:
    """The least offset from `low` on from which reading works, `end` if there is none; by doubling, then halving.

    A corrupt batch is in the way of every offset within it, and its own header cannot be trusted to say how many.
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
