"""Adapts a target to columns that have changed between two starts: new columns, and wider types.

The columns of a start are in `schema.json` of the checkpoint, with those by which the output is partitioned, and its
format. The next start compares its own with them. Files keep what they have: a column that they lack is null, and Spark
reads an `int` as a `bigint` if the reader names its schema. Tables are altered. A change that would make the target
unreadable is an error before any query starts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kconsumer.errors import ConfigError
from kconsumer.spark.pipeline import sinks
from kconsumer.spark.pipeline.jdbc_sink import JdbcSink
from kconsumer.spark.pipeline.settings import PipelineConfig, Sink, comparable, quoted

__all__ = ["Change", "adapt", "changes_between", "columns_of", "find_changes", "is_wider"]

NOTE, COPY, PARTITIONS, PLACES = "schema.json", "schema.json.copy", "partition_by", "places"
WIDENING = (("tinyint", "smallint", "int", "bigint"), ("float", "double"))  # each type holds the values of those before
DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")

Columns = Mapping[str, str]  # name -> Spark's name of the type


@dataclass(frozen=True)
class Change:
    """A column that is new, or has another type than at the last start."""

    name: str
    before: str | None  # None: the column is new
    after: str


def columns_of(frame: Any) -> dict[str, str]:
    """Returns the columns of a DataFrame with their types."""
    return {each.name: each.dataType.simpleString() for each in frame.schema.fields}


def changes_between(before: Columns, after: Columns) -> Iterator[Change]:
    """Yield the columns that are new or have another type. A column that is gone is null from now on."""
    for name, kind in after.items():
        if before.get(name) != kind:
            yield Change(name, before.get(name), kind)


def is_wider(before: str, after: str) -> bool:
    """Returns whether a type holds all values of another one, in every format."""
    narrow, wide = DECIMAL.fullmatch(before), DECIMAL.fullmatch(after)
    if narrow and wide:
        return narrow[2] == wide[2] and int(narrow[1]) <= int(wide[1])
    return any(before in chain and after in chain[chain.index(before) :] for chain in WIDENING)


def find_changes(spark: Any, config: PipelineConfig, written: Mapping[str, Any]) -> dict[str, list[Change]]:
    """Returns the columns that have changed since the last start, by query.

    `written`: name of a query -> the rows that it writes. Raises ConfigError for a type that is not wider than the one
    before, for a name that has changed its case only, for another format in the same place, and for files that would be
    partitioned in another way. Nothing has changed at the first start, or at the first one after a version that stored
    no columns.
    """
    stored = _stored(sinks.Folder(spark, config.run.checkpoint))
    fold = comparable(spark)
    found = {}
    for query in written.keys() & stored.keys():
        before = stored[query]
        _check_output(_sink(config, query), *(stored.get(name, {}).get(query) for name in (PARTITIONS, PLACES)))
        found[query] = list(changes_between(before, columns_of(written[query])))
        names = {fold(name): name for name in before}
        for change in found[query]:
            if change.before is None and fold(change.name) in names:
                raise ConfigError(
                    f"column {names[fold(change.name)]} of {_sink(config, query).place} would be {change.name}, which"
                    " is the same name for Spark; keep the name"
                )
            if change.before is not None and not is_wider(change.before, change.after):
                raise ConfigError(
                    f"column {change.name} of {_sink(config, query).place} was {change.before} and would be"
                    f" {change.after}, which does not hold all its values; keep the type, or write to another place,"
                    " with another checkpoint"
                )
    return found


def adapt(spark: Any, config: PipelineConfig, written: Mapping[str, Any]) -> None:
    """Alter the tables for columns that have changed since the last start, and store the columns of this one.

    Raises ConfigError as `find_changes`, and for a table that cannot be altered.
    """
    for query, changes in find_changes(spark, config, written).items():
        if changes and config.sink.format not in ("parquet", "console"):
            _alter(spark, _sink(config, query), changes)
    columns: dict[str, Any] = {query: columns_of(frame) for query, frame in written.items()}
    outputs = {query: _sink(config, query) for query in written}
    columns[PARTITIONS] = {query: sink.partition_by for query, sink in outputs.items()}
    columns[PLACES] = {query: (sink.place, sink.format) for query, sink in outputs.items()}
    for name in (COPY, NOTE):
        sinks.Folder(spark, config.run.checkpoint).write_text(name, json.dumps(columns))


def _stored(files: sinks.Folder) -> dict[str, Any]:
    """Returns what the last start has stored. If it died while it wrote the file, the copy is complete.

    Raises the error if the file cannot be read, which may pass, or if it is damaged and has no copy.
    """
    try:
        text = files.text(NOTE)
        found: dict[str, Any] = {} if text is None else json.loads(text)
    except Exception as error:  # of JSON, or of Hadoop
        damaged = isinstance(error, ValueError) or "org.apache.hadoop.fs.ChecksumException" in str(error)
        copy = files.text(COPY) if damaged else None
        if copy is None:
            error.add_note(f"{NOTE} in the checkpoint, with the columns of the last start, cannot be read")
            raise
        found = json.loads(copy)
    return found


def _check_output(sink: Sink, before: list[str] | None, place: list[str] | None) -> None:
    """Raise ConfigError if an output would have another format than before, or files that are partitioned in another
    way, as far as that is known.

    Spark cannot read such a folder, or ignores a part of its files.
    """
    if place is not None and place[0] == sink.place and place[1] != sink.format:
        raise ConfigError(
            f"{sink.place} has the format {place[1]} and would get {sink.format}; keep sink.format, or write to another"
            " place, with another checkpoint"
        )
    if sink.format == "parquet" and before is not None and before != list(sink.partition_by):
        raise ConfigError(
            f"{sink.place} is partitioned by {', '.join(before) or 'no column'}; keep partition_by, or write to another"
            " place, with another checkpoint"
        )


def _sink(config: PipelineConfig, query: str) -> Sink:
    return config.sink if query == "rows" else config.aggregate_sink


def _alter(spark: Any, sink: Sink, changes: list[Change]) -> None:
    """Alter a table, as far as it has not been altered: by an earlier start that failed, or by its owner."""
    table = sinks.existing(spark, sink)
    present = None if table is None else columns_of(table)
    for change in changes:
        if present is None or present.get(change.name) != change.before:
            continue
        try:
            if sink.format == "jdbc":
                JdbcSink(spark, sink).alter(change.name, change.after, new=change.before is None)
            else:
                name = sink.table if sink.format == "iceberg" else sinks.delta_table(spark, sink)
                what = "ADD COLUMN" if change.before is None else "ALTER COLUMN"
                kind = change.after if change.before is None else f"TYPE {change.after}"
                spark.sql(f"ALTER TABLE {name} {what} {quoted(change.name)} {kind}")
        except Exception as error:  # of the database, or of Spark
            reason = str(error).strip().splitlines()[0]
            raise ConfigError(f"column {change.name} of {sink.place} cannot be made {change.after}: {reason}") from None
