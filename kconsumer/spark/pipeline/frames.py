"""Builds the Spark plans of a pipeline: decodes records, finds invalid ones, and aggregates rows by time windows.

Nothing runs in here. Each record is tested by a list of conditions for invalid records. The first condition that is
true gives the reason in the column REASON. Rows without a reason are valid.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import functions as F  # noqa: N812  as everyone writes it
from pyspark.sql.types import AtomicType, StructField, StructType

from kconsumer.errors import ConfigError
from kconsumer.spark import options
from kconsumer.spark.pipeline.reporting import first_line
from kconsumer.spark.pipeline.settings import (
    DELETED,
    EVENT_TIME,
    HEADERS,
    INTERNAL,
    METADATA,
    Aggregate,
    Decode,
    PipelineConfig,
    Sink,
    comparable,
    quoted,
)
from kconsumer.spark.schema import TYPES, VALUE_BYTES, VALUE_ERROR, default_projection

__all__ = ["counts", "dead_letters", "decoded", "partitioned", "read", "valid", "windows", "with_columns"]

RECORD = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"
RECORD_NAMES = [column.split()[0] for column in RECORD.split(", ")]
REASON, CORRUPT = f"{INTERNAL}reason", f"{INTERNAL}corrupt"
_JSON, _RECORD, _ERROR, _NO_VALUE, _WINDOW = (
    f"{INTERNAL}{name}" for name in ("json", "record", "error", "no_value", "window")
)


def read(spark: Any, config: PipelineConfig, *, commit: bool, undecoded: bool = True) -> Any:
    """Returns a stream of the source's records. At most one stream of a pipeline may be read with `commit`.

    Without `commit`, the stream ignores the source option commitGroupId. Without `undecoded`, it may lack the values
    before they are decoded, which only dead letters contain.
    """
    reader = with_columns(spark.readStream.format("kconsumer"), config, undecoded=undecoded)
    for name, value in config.source.items():
        if commit or name.lower() != "commitgroupid":
            reader = reader.option(name, value)
    return reader.load()


def with_columns(reader: Any, config: PipelineConfig, *, undecoded: bool = True) -> Any:
    """Returns a reader of the source with the columns that `decoded` needs. `undecoded`: as for `read`.

    Raises ConfigError for a schema that cannot be used, or that the registry does not have.
    """
    record, given = RECORD, config.decode.source_options
    if config.decode.headers:
        record += f", headers {TYPES['headers']}"
    if not config.decode.in_source:
        return reader.schema(record)
    kind = default_projection(options.parse({**config.source, **given}, "any")).value.type
    if kind.kind != "struct":
        raise ConfigError(f"the values are {kind.ddl}, and a pipeline needs records with fields")
    value = f"value {kind.ddl}, {VALUE_ERROR} string"
    reader = reader.schema(record.replace("value binary", f"{value}, {VALUE_BYTES} binary" if undecoded else value, 1))
    return reader.options(**given)


def decoded(records: Any, decode: Decode, key: Sequence[str] = ()) -> Any:
    """Decode a DataFrame of records. Returns a DataFrame with one row per record.

    With `key`, the columns that identify a row, records without a value are not invalid: they have 1 in the column
    DELETED, and the columns of the key, which are read from the key of the record.

    Its columns are the decoded fields (the column `value` unless the format is JSON), the metadata, `event_time`,
    _RECORD and REASON. _RECORD is the unchanged record (without the value, if `records` lacks it). REASON is why the
    record is invalid, or null if it is valid. With `on_invalid = "fail"`, an invalid record fails the query.

    Raises ConfigError if the schema or an expression in the section `decode` is wrong.
    """
    metadata = [F.col(name.removeprefix("kafka_")).alias(name) for name in METADATA]
    metadata += [_header(header).alias(name) for name, header in decode.headers.items()]
    if decode.in_source:
        frame = _decoded_fields(records, decode, metadata)
    else:
        frame = records.select(F.struct(*records.columns).alias(_RECORD), *metadata)
        text = F.col(f"{_RECORD}.value")
        if decode.format == "raw":
            _check_names(records.sparkSession, StructType.fromDDL("value binary"), decode)
        frame = _fields(frame, decode) if decode.format == "json" else frame.withColumn("value", text)
    try:
        frame = frame.withColumn(EVENT_TIME, F.expr(decode.event_time))
    except Exception as error:
        raise _expression("decode.event_time", error) from None
    _check_repeatable("decode.event_time", frame)
    if frame.schema[EVENT_TIME].dataType.typeName() != "timestamp":
        raise ConfigError(f"decode.event_time = {decode.event_time!r} is not a timestamp; try timestamp_millis(...)")
    if key:
        frame = _with_key(frame, decode, key)
    checked = frame.withColumn(REASON, _reason(frame, decode, key))
    if decode.on_invalid == "fail":
        where = F.concat_ws(" ", F.col(REASON), F.lit("at offset"), "kafka_offset", F.lit("of"), "kafka_topic")
        where = F.concat_ws("-", where, "kafka_partition")
        checked = checked.withColumn(REASON, F.when(F.col(REASON).isNotNull(), F.raise_error(where).cast("string")))
    return checked.drop(_JSON, _ERROR, _NO_VALUE)


def _header(name: str) -> Any:
    """Returns the last value of a header as text, or all headers if the name is empty."""
    headers = F.col("headers")
    if not name:
        return headers
    return F.try_element_at(F.filter(headers, lambda each: each["key"] == name), F.lit(-1))["value"].cast("string")


def _decoded_fields(records: Any, decode: Decode, metadata: list[Any]) -> Any:
    """Returns the fields that the source has decoded as columns, with _RECORD and the metadata.

    Two more columns contain why the value could not be decoded, and whether the record has no value.

    Raises ConfigError as `_fields`.
    """
    kind = records.schema["value"].dataType
    _check_names(records.sparkSession, kind, decode)
    undecoded = {name: VALUE_BYTES if name == "value" else name for name in (*RECORD_NAMES, "headers")}
    columns = (F.col(found).alias(name) for name, found in undecoded.items() if found in records.columns)
    error = F.col(VALUE_ERROR)
    no_value = F.col("value").isNull() & error.isNull()  # a value that cannot be decoded is null, too
    fields = (F.col(f"value.{quoted(name)}").alias(name) for name in kind.fieldNames())
    record = F.struct(*columns).alias(_RECORD)
    return records.select(record, *metadata, error.alias(_ERROR), no_value.alias(_NO_VALUE), *fields)


def _fields(frame: Any, decode: Decode) -> Any:
    """Add the fields of the JSON object as columns, and the parsed object as _JSON.

    Raises ConfigError if decode.schema is not valid or has a reserved name, or lacks a field of decode.required.
    """
    assert decode.schema is not None
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    text = F.col(f"{_RECORD}.value").cast("string")
    try:
        found = frame.withColumn(_JSON, F.from_json(text, f"{decode.schema}, {CORRUPT} string", options))
    except Exception as error:
        raise _expression("decode.schema", error) from None
    kind = StructType([each for each in found.schema[_JSON].dataType if each.name != CORRUPT])
    _check_names(frame.sparkSession, kind, decode)
    return found.select("*", *(F.col(f"{_JSON}.{quoted(name)}").alias(name) for name in kind.fieldNames()))


def _check_names(spark: Any, kind: StructType, decode: Decode) -> None:
    """Raise ConfigError if a field has a name that the pipeline uses, if two fields of a struct have one name for
    Spark, or if a required field is not in the schema.
    """
    fold = comparable(spark)
    seen = dict.fromkeys(map(fold, (*METADATA, HEADERS, EVENT_TIME)))
    names = kind.fieldNames()
    for name in (*names, *(name for name in decode.headers if name != HEADERS)):
        if fold(name) in seen or fold(name).startswith(INTERNAL):
            other = seen.get(fold(name))
            why = f"for Spark the same name as {other!r}" if other else "reserved for the pipeline"
            raise ConfigError(f"decode.schema has {name!r}, which is {why}")
        seen[fold(name)] = name
    for name in decode.required:
        if name not in names:
            raise ConfigError(f"decode.required has {name!r}, which is not in decode.schema")

    def check(part: dict[str, Any]) -> dict[str, Any]:
        folded = [fold(each["name"]) for each in part.get("fields", ())]
        if twins := [each["name"] for each in part.get("fields", ()) if folded.count(fold(each["name"])) > 1]:
            raise ConfigError(f"decode.schema has two fields with one name for Spark: {', '.join(twins)}")
        return part

    json.loads(kind.json(), object_hook=check)  # each type in it is an object


def _with_key(frame: Any, decode: Decode, key: Sequence[str]) -> Any:
    """Add the column DELETED, and fill the columns of the key in the rows where it is 1.

    The key of such a record is a JSON object with these columns, or the value of the only column.

    Raises ConfigError if valid rows do not have a column of the key.
    """
    columns = valid_names(frame, decode)
    for name in key:
        if name not in columns:
            raise ConfigError(f"sink.key has {name!r}; the columns are {', '.join(columns)}")
    # Avro's null in a union is a value, and deletes nothing.
    frame = frame.withColumn(DELETED, F.col(f"{_RECORD}.value").isNull().cast("int"))
    fields = [name for name in key if name not in (*METADATA, *decode.headers)]
    if not fields:
        return frame
    text = F.col(f"{_RECORD}.key").cast("string")
    types = {name: frame.schema[name].dataType for name in fields}
    found = F.from_json(text, StructType([StructField(name, kind) for name, kind in types.items()]))
    for name, kind in types.items():
        if not isinstance(kind, AtomicType):
            raise ConfigError(f"sink.key has {name!r} of the type {kind.simpleString()}, which cannot be a key")
        forms = [found[name]]
        if len(fields) == 1:  # `5` and `abc` as they are; in JSON, text is in quotes
            alone = F.from_json(F.concat(F.lit('{"k":'), text, F.lit("}")), StructType([StructField("k", kind)]))["k"]
            # Else it is a frame of Avro or Protobuf, or an object without the column, for example.
            is_text = F.is_valid_utf8(text) & ~text.startswith("\0") & F.json_object_keys(text).isNull()
            forms += [F.when(text.startswith('"'), alone), F.when(is_text, text.try_cast(kind))]
        value = F.when(F.col(DELETED) == 1, F.coalesce(*forms)).otherwise(F.col(quoted(name)))
        frame = frame.withColumn(name, value)
    return frame


def _reason(frame: Any, decode: Decode, key: Sequence[str]) -> Any:
    """Returns a column expression for the reason why a record is invalid. It is null for valid records.

    Raises ConfigError if a rule in the section `decode.rules` is not a valid SQL expression.
    """
    tests: list[tuple[Any, Any]] = []
    if decode.in_source:
        error = F.col(_ERROR)
        tests = [(F.col(_NO_VALUE), "no value"), (error.isNotNull(), F.concat(F.lit("value "), error))]
    elif decode.format == "json":
        value = F.col(f"{_RECORD}.value")
        text = value.cast("string")
        failed = F.col(_JSON).isNull() | F.col(f"{_JSON}.{CORRUPT}").isNotNull()
        # `from_json` also accepts an array. `json_object_keys` parses a second time, so few records may reach it.
        doubtful = failed | ~F.startswith(F.ltrim(text), F.lit("{"))
        tests = [
            (value.isNull(), "no value"),
            (~F.is_valid_utf8(text), "not UTF-8"),
            (doubtful & F.json_object_keys(text).isNull(), "not a JSON object"),
            (failed, "a field is not of its type"),
        ]
    tests += [(F.col(quoted(name)).isNull(), f"no {name}") for name in decode.required]
    for name, rule in decode.rules.items():
        test = ~F.coalesce(F.expr(rule), F.lit(False))
        try:
            tested = frame.select(test)
        except Exception as error:
            raise _expression(f"decode.rules.{name}", error) from None
        _check_repeatable(f"decode.rules.{name}", tested)
        tests.append((test, f"rule {name}"))
    tests.append((F.col(EVENT_TIME).isNull(), "no event time"))
    chain: Any = F
    if key:
        missing = reduce(or_, (F.col(quoted(name)).isNull() for name in key))
        chain = F.when(F.col(DELETED) == 1, F.when(missing, F.lit("no key")))
        tests.append((missing, "no key"))
    for test, reason in tests:
        chain = chain.when(test, F.lit(reason))  # `lit` returns a column unchanged
    return chain


def valid_names(frame: Any, decode: Decode) -> list[str]:
    """Returns the columns of valid rows: the fields, `event_time`, and the metadata that decode.metadata names."""
    hidden = set(METADATA) - set(decode.metadata)
    return [name for name in frame.columns if name not in hidden and not name.startswith(INTERNAL)]


def valid(frame: Any, decode: Decode, key: Sequence[str] = ()) -> Any:
    """Returns the valid rows. With `key`, only the newest row of each key, and the column DELETED, too.

    The newest row is the one with the highest offset. The records of a key are in one partition.
    """
    names = [quoted(name) for name in valid_names(frame, decode)]
    rows = frame.where(F.col(REASON).isNull())
    if not key:
        return rows.select(*names)
    row, place = F.struct(*names, DELETED), F.struct("kafka_offset", "kafka_partition", "kafka_topic")
    newest = rows.groupBy(*map(quoted, key)).agg(F.max_by(row, place).alias(_RECORD))
    return newest.select(f"{_RECORD}.*")


def dead_letters(frame: Any) -> Any:
    """Returns the invalid rows, with the reason and the columns of the unchanged record."""
    return frame.where(F.col(REASON).isNotNull()).select(F.col(REASON).alias("reason"), f"{_RECORD}.*")


def counts() -> tuple[Any, Any]:
    """Returns the aggregates `records` and `invalid`, which count decoded rows."""
    return F.count("*").alias("records"), F.count_if(F.col(REASON).isNotNull()).alias("invalid")


def windows(frame: Any, aggregate: Aggregate) -> Any:
    """Aggregate valid rows by time window and the columns `aggregate.by`. Returns one row for each combination.

    Spark outputs the rows of a window once, when the watermark has passed its end. Raises ConfigError for a wrong
    expression, and for two columns with one name.
    """
    names = ["window_start", "window_end", *aggregate.by, *aggregate.columns]
    if len(set(map(comparable(frame.sparkSession), names))) < len(names):
        raise ConfigError(f"aggregate has two columns with one name: {', '.join(names)}")
    timed = frame.withWatermark(EVENT_TIME, aggregate.watermark)
    columns = [F.expr(text).alias(name) for name, text in aggregate.columns.items()]
    window = F.window(EVENT_TIME, aggregate.window, aggregate.slide)
    try:
        counted = timed.groupBy(window.alias(_WINDOW), *map(quoted, aggregate.by)).agg(*columns)
    except Exception as error:
        raise _expression("aggregate", error) from None
    return counted.select(
        F.col(f"{_WINDOW}.start").alias(names[0]), F.col(f"{_WINDOW}.end").alias(names[1]), *map(quoted, names[2:])
    )


def partitioned(frame: Any, sink: Sink, time: str) -> Any:
    """Add the columns `date` and `hour` if the output is partitioned by them.

    `time` is the name of the column from which they are made. Raises ConfigError if the output is partitioned by
    another column that does not exist, or by the name of a column in another case.
    """
    fold = comparable(frame.sparkSession)
    columns = {fold(name): name for name in frame.columns}
    # `date_format` would take several times as long.
    derived = {"date": F.to_date(time).cast("string"), "hour": F.lpad(F.hour(time).cast("string"), 2, "0")}
    for name in sink.partition_by:
        column = columns.get(fold(name), name)
        if column != name:
            raise ConfigError(f"partition_by has {name!r}, and the rows have a column {column!r}: write the same name")
        if name in frame.columns:
            continue
        if name not in derived:
            raise ConfigError(f"partition_by has {name!r}; the columns are {', '.join([*derived, *frame.columns])}")
        frame = frame.withColumn(name, derived[name])
    return frame


def _check_repeatable(key: str, frame: Any) -> None:
    """Raise ConfigError if an expression may have another value when Spark reads a record again.

    Valid rows and dead letters are two reads, so a record might be in neither of them.
    """
    if not frame._jdf.queryExecution().analyzed().deterministic():
        raise ConfigError(
            f"{key} must have the same value whenever a record is read again; do not use rand() and the like"
        )


def _expression(key: str, error: Exception) -> ConfigError:
    """Returns an error with the key of a wrong expression and the first line of Spark's message."""
    return ConfigError(f"{key}: {first_line(error)}")
