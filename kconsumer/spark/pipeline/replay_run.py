"""Reads a range of time again and writes the valid rows that the table lacks: `--replay FROM TO`.

It is for records that were invalid under earlier rules, that were skipped, or whose rows were deleted. A row is in the
table if one with its partition and offset is. Only offsets that the pipeline has passed are read, so a running pipeline
does not write the same rows. Windows and dead letters are not written.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812  as everyone writes it

from kconsumer.errors import ConfigError
from kconsumer.spark import options
from kconsumer.spark.admin import Admin
from kconsumer.spark.offsets import LATEST, Named, Timestamp, as_document, to_json
from kconsumer.spark.pipeline import frames, sinks
from kconsumer.spark.pipeline.batch_sink import Batch
from kconsumer.spark.pipeline.checkpoint import query_progress
from kconsumer.spark.pipeline.schema_changes import find_changes
from kconsumer.spark.pipeline.settings import EVENT_TIME, PipelineConfig
from kconsumer.types import TopicPartition

__all__ = ["Replayed", "parse_time", "replay_in"]

Offsets = Mapping[TopicPartition, int]
PLACE = ("kafka_topic", "kafka_partition", "kafka_offset")  # the columns by which a row is recognized
# Options of the source that say where it reads, or that only a stream has: a replay has its own.
REPLACED = ("subscribe", "subscribepattern", "assign", "starting", "ending", "commitgroupid")


@dataclass(frozen=True)
class Replayed:
    """The result of a replay."""

    records: int  # that were read
    invalid: int  # of these, under the present rules
    written: int  # rows that were not in the table


def parse_time(text: str) -> int:
    """Returns a time as ms since 1970. Times without a zone are UTC. Raises ConfigError for text that is no time."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{text!r} is not a time; write one such as 2026-05-01 or 2026-05-01T12:00:00+02:00"
        ) from None
    return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)


def replay_in(spark: Any, config: PipelineConfig, start: str, end: str) -> Replayed:
    """Replay the records with timestamps in [`start`, `end`), two times in ISO 8601. Returns what was done.

    It may be run again, also after a crash: rows that are in the table by then are not written again. Raises
    ConfigError if the times or the settings do not allow a replay.
    """
    limits = parse_time(start), parse_time(end)
    if limits[0] >= limits[1]:
        raise ConfigError(f"the replay ends at {end}, which is not after its start at {start}")
    begins, ends = _range(spark, config, *limits)
    if not begins:
        return Replayed(0, 0, 0)
    place = _place(config, begins)
    seen = Observation()
    frame = frames.decoded(_records(spark, config, begins, ends), config.decode).observe(seen, *frames.counts())
    rows = frames.partitioned(frames.valid(frame, config.decode), config.sink, EVENT_TIME)
    find_changes(spark, config, {"rows": rows})  # which the next start of the pipeline must make
    existing = sinks.existing(spark, config.sink)
    if existing is not None:
        rows = rows.join(existing.where(_within(begins, ends, place)).select(*place), [*place], "left_anti")
    missing = rows.persist()
    try:
        written = missing.count()
        if written:
            sinks.make(spark, config.sink).write(missing, Batch(f"replay-{uuid.uuid4()}", 0))
    finally:
        missing.unpersist()
    return Replayed(int(seen.get["records"]), int(seen.get["invalid"]), written)


def _range(spark: Any, config: PipelineConfig, start_ms: int, end_ms: int) -> tuple[Offsets, Offsets]:
    """Returns the first offset to read and the end in each partition that has records to read.

    A range ends at latest where the last finished micro-batch of the pipeline ends.
    """
    progress = query_progress(sinks.Folder(spark, config.run.checkpoint), "rows")
    if progress is None or not progress.done_ends:
        raise ConfigError(f"{config.run.checkpoint} has no finished micro-batch: run the pipeline before a replay")
    with Admin(options.parse(config.source, "stream")) as admin:
        partitions = admin.partitions() & progress.done_ends.keys()
        begins, ends = (admin.resolve(Timestamp(ms), partitions, starting=False) for ms in (start_ms, end_ms))
        newest = admin.resolve(Named(LATEST), partitions)
    ends = {tp: min(end, newest[tp], progress.done_ends[tp]) for tp, end in ends.items()}
    filled = [tp for tp in sorted(partitions) if begins[tp] < ends[tp]]
    return {tp: begins[tp] for tp in filled}, {tp: ends[tp] for tp in filled}


def _place(config: PipelineConfig, begins: Offsets) -> list[str]:
    """Returns the columns by which a row is recognized. Raises ConfigError if the table does not have them."""
    if config.sink.mode == "upsert":
        raise ConfigError("a replay would overwrite newer rows, which sink.mode = 'upsert' keeps; it is for 'append'")
    if config.sink.format == "console":
        raise ConfigError("a replay needs a table, and sink.format = 'console' keeps none")
    needed = PLACE if len({tp.topic for tp in begins}) > 1 else PLACE[1:]
    missing = [name for name in needed if name not in config.decode.metadata]
    if missing:
        raise ConfigError(
            f"a replay recognizes rows by {', '.join(needed)}; add {', '.join(missing)} to decode.metadata"
        )
    return [name for name in PLACE if name in config.decode.metadata]


def _records(spark: Any, config: PipelineConfig, begins: Offsets, ends: Offsets) -> Any:
    """Returns a DataFrame of the records in a range of each partition."""
    reader = frames.with_columns(spark.read.format("kconsumer"), config)
    for name, value in config.source.items():
        if not name.lower().startswith(REPLACED):
            reader = reader.option(name, value)
    assigned = {topic: [int(number) for number in numbers] for topic, numbers in as_document(begins).items()}
    reader = reader.option("assign", json.dumps(assigned))
    return reader.option("startingOffsets", to_json(begins)).option("endingOffsets", to_json(ends)).load()


def _within(begins: Offsets, ends: Offsets, place: list[str]) -> Any:
    """Returns a condition on the columns `place` that is true in the ranges. With it, Spark skips files."""
    conditions = []
    for tp, begin in begins.items():
        inside = (F.col("kafka_partition") == tp.partition) & F.col("kafka_offset").between(begin, ends[tp] - 1)
        conditions.append(inside & (F.col("kafka_topic") == tp.topic) if "kafka_topic" in place else inside)
    return reduce(or_, conditions)
