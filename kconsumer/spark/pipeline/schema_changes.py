"""Adapts a target to columns that have changed between two starts: new columns, and wider types.

The columns of a start are in `schema.json` of the checkpoint, with the settings on which it depends what a table has:
its place, its format, its key. The next start compares its own with them. Files keep what they have: a column that they
lack is null, and Spark reads an `int` as a `bigint` if the reader names its schema. Tables are altered. A change that
would lose or repeat rows, or make the target unreadable, is an error before any query starts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kconsumer.errors import ConfigError
from kconsumer.spark.pipeline import sinks
from kconsumer.spark.pipeline.checkpoint import QueryProgress, query_progress
from kconsumer.spark.pipeline.jdbc_sink import JdbcSink
from kconsumer.spark.pipeline.reporting import first_line
from kconsumer.spark.pipeline.settings import PipelineConfig, Sink, comparable, quoted

__all__ = ["Change", "adapt", "changes_between", "columns_of", "find_changes", "is_wider"]

NOTE, COPY, SETTINGS = "schema.json", "schema.json.copy", "settings"
BETWEEN_BATCHES = "dead_letters.path"  # the setting that may change if no micro-batch was interrupted
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
    before, for a name that has changed its case only, and for a setting that must stay as it is. Nothing has changed at
    the first start, or at the first one after a version that stored no columns.
    """
    files = sinks.Folder(spark, config.run.checkpoint)
    stored = _stored(spark, files)
    fold = comparable(spark)
    found = {}
    for query in written.keys() & stored.keys():
        before = stored[query]
        settings = stored.get(SETTINGS, {}).get(query, {})
        _check_settings(settings, _settings(spark, config, query), query_progress(files, query))
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
    files = sinks.Folder(spark, config.run.checkpoint)
    columns = _stored(spark, files)  # also of a query that does not run this time
    settings = columns.get(SETTINGS, {}) | {query: _settings(spark, config, query) for query in written}
    columns |= {query: columns_of(frame) for query, frame in written.items()} | {SETTINGS: settings}
    for name in (COPY, NOTE):
        files.write_text(name, json.dumps(columns))


def _stored(spark: Any, files: sinks.Folder) -> dict[str, Any]:
    """Returns what the last start has stored. If it died while it wrote the file, the copy is complete.

    Raises ConfigError if both are damaged, and the error of the file system if one cannot be read, which may pass.
    """
    for name in (NOTE, COPY):
        try:
            text = files.text(name)
            if text is None and name == NOTE:
                return {}
            found = json.loads(text or "")
            if isinstance(found, dict):
                return _upgraded(spark, found)
        except Exception as error:  # of JSON, or of Hadoop
            if not isinstance(error, ValueError) and "org.apache.hadoop.fs.ChecksumException" not in str(error):
                error.add_note(f"{name} in the checkpoint, with the columns of the last start, cannot be read")
                raise
    raise ConfigError(
        f"{NOTE} in run.checkpoint, with the columns and settings of the last start, is damaged, and so is its copy;"
        " delete both, if the settings have not changed since, and start again"
    )


def _upgraded(spark: Any, stored: dict[str, Any]) -> dict[str, Any]:
    """Convert what a version stored that had a place and a partitioning in place of settings."""
    settings, places = stored.setdefault(SETTINGS, {}), stored.pop("places", {})
    for query, columns in stored.pop("partition_by", {}).items():
        section = _section(query)
        place, kind = places.get(query, (None, None))
        found = {f"{section}.partition_by": columns}
        if place is not None:
            name, value = ("path", _root(spark, place)) if kind in ("parquet", "delta") else ("table", place)
            found |= {"sink.format": kind, f"{section}.{name}": value}
        settings.setdefault(query, found)
    return stored


def _settings(spark: Any, config: PipelineConfig, query: str) -> dict[str, Any]:
    """Returns the settings of a query that must stay as they are, in JSON."""
    sink, section = _sink(config, query), _section(query)
    found: dict[str, Any] = {"sink.format": sink.format, "sink.mode": sink.mode, "sink.key": sorted(sink.key)}
    if sink.path is not None:
        found[f"{section}.path"] = _root(spark, sink.path)
    if sink.table is not None:
        found[f"{section}.table"] = sink.table
    if sink.format == "parquet":  # Spark cannot read a folder that is partitioned in two ways
        found[f"{section}.partition_by"] = list(sink.partition_by)
    if query == "rows":
        found[BETWEEN_BATCHES] = config.dead_letters.path and _root(spark, config.dead_letters.path)
    elif config.aggregate is not None:  # Spark's state has the windows and values of before
        for name in ("window", "slide", "by", "columns"):
            found[f"aggregate.{name}"] = getattr(config.aggregate, name)
    return dict(json.loads(json.dumps(found)))


def _root(spark: Any, path: str) -> str:
    return str(sinks.Folder(spark, path).root)


def _check_settings(before: Mapping[str, Any], after: Mapping[str, Any], progress: QueryProgress | None) -> None:
    """Raise ConfigError if a setting has changed with which the rows of earlier micro-batches were written.

    Any may change as long as there is no micro-batch.
    """
    for name, value in before.items() if progress else ():
        if name not in after or value == after[name]:
            continue
        if name != BETWEEN_BATCHES:
            what = "what earlier micro-batches have written does not change with it; keep it, or use another place and"
            what += " another run.checkpoint"
        elif progress and progress.planned > progress.done:
            what = f"micro-batch {progress.planned} was interrupted and may have files there; first run it as before"
        else:
            continue
        raise ConfigError(f"{name} was {value!r} and would be {after[name]!r}, but {what}")


def _section(query: str) -> str:
    return "sink" if query == "rows" else "aggregate"


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
            reason = first_line(error)
            raise ConfigError(f"column {change.name} of {sink.place} cannot be made {change.after}: {reason}") from None
