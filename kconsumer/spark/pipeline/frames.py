"""Turns records into rows: decoded fields or a reason why they are invalid, valid rows, dead letters, windows.

These functions build plans and run nothing. One chain of conditions checks a record; the first condition that holds is
its `reason`. Rows without a reason are valid.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F  # noqa: N812  as everyone writes it

from kconsumer.errors import ConfigError
from kconsumer.spark.pipeline.settings import EVENT_TIME, METADATA, Aggregate, Decode, PipelineConfig, Sink

__all__ = ["dead_letters", "decoded", "partitioned", "read", "valid", "windows"]

RECORD = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"
REASON = "_reason"
CORRUPT = "_corrupt"
_JSON, _RECORD = "_json", "_record"


def read(spark: Any, config: PipelineConfig, *, commit: bool) -> Any:
    """Return the stream of records. `commit` is true for the one stream of a pipeline that commits its offsets."""
    reader = spark.readStream.format("kconsumer").schema(RECORD)
    for name, value in config.source.items():
        if commit or name.lower() != "commitgroupid":
            reader = reader.option(name, value)
    return reader.load()


def decoded(records: Any, decode: Decode) -> Any:
    """Return each record unchanged in `_record`, its fields, metadata, `event_time`, and `_reason` (null: valid)."""
    metadata = (F.col(name.removeprefix("kafka_")).alias(name) for name in METADATA)
    frame = records.select(F.struct(*records.columns).alias(_RECORD), *metadata)
    frame = _fields(frame, decode) if decode.format == "json" else frame.withColumn("value", F.col(f"{_RECORD}.value"))
    try:
        frame = frame.withColumn(EVENT_TIME, F.expr(decode.event_time))
    except Exception as error:
        raise _expression("decode.event_time", error) from None
    if frame.schema[EVENT_TIME].dataType.typeName() != "timestamp":
        raise ConfigError(f"decode.event_time = {decode.event_time!r} is not a timestamp; try timestamp_millis(...)")
    checked = frame.withColumn(REASON, _reason(frame, decode))
    if decode.on_invalid == "fail":
        where = F.concat_ws(" ", F.col(REASON), F.lit("at offset"), "kafka_offset", F.lit("of"), "kafka_topic")
        where = F.concat_ws("-", where, "kafka_partition")
        checked = checked.withColumn(REASON, F.when(F.col(REASON).isNotNull(), F.raise_error(where).cast("string")))
    return checked.drop(_JSON)


def _fields(frame: Any, decode: Decode) -> Any:
    """Add the fields of the JSON object as columns."""
    assert decode.schema is not None
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    text = F.col(f"{_RECORD}.value").cast("string")
    try:
        found = frame.withColumn(_JSON, F.from_json(text, f"{decode.schema}, {CORRUPT} string", options))
    except Exception as error:
        raise _expression("decode.schema", error) from None
    names = [name for name in found.schema[_JSON].dataType.fieldNames() if name != CORRUPT]
    for name in names:
        if name in (*METADATA, EVENT_TIME):
            raise ConfigError(f"decode.schema has {name!r}, which is reserved for the pipeline")
    for name in decode.required:
        if name not in names:
            raise ConfigError(f"decode.required has {name!r}, which is not in decode.schema")
    return found.select("*", *(F.col(f"{_JSON}.`{name}`").alias(name) for name in names))


def _reason(frame: Any, decode: Decode) -> Any:
    """Return an expression for why a record is invalid: the first condition that holds, or null."""
    value = F.col(f"{_RECORD}.value")
    tests: list[tuple[Any, str]] = []
    if decode.format == "json":
        text = value.cast("string")
        tests = [
            (value.isNull(), "no value"),
            (~F.is_valid_utf8(text), "not UTF-8"),
            (F.json_object_keys(text).isNull(), "not a JSON object"),
            (F.col(_JSON).isNull() | F.col(f"{_JSON}.{CORRUPT}").isNotNull(), "a field is not of its type"),
            *((F.col(f"`{name}`").isNull(), f"no {name}") for name in decode.required),
        ]
    for name, rule in decode.rules.items():
        test = ~F.coalesce(F.expr(rule), F.lit(False))
        try:
            frame.select(test)
        except Exception as error:
            raise _expression(f"decode.rules.{name}", error) from None
        tests.append((test, f"rule {name}"))
    tests.append((F.col(EVENT_TIME).isNull(), "no event time"))
    chain: Any = F
    for test, reason in tests:
        chain = chain.when(test, F.lit(reason))
    return chain


def valid(frame: Any, decode: Decode) -> Any:
    """Return the rows without a reason: fields, the configured metadata, `event_time`."""
    hidden = {REASON, _RECORD, *(set(METADATA) - set(decode.metadata))}
    return frame.where(F.col(REASON).isNull()).select(*(f"`{name}`" for name in frame.columns if name not in hidden))


def dead_letters(frame: Any) -> Any:
    """Return the invalid rows: the reason and the unchanged record."""
    return frame.where(F.col(REASON).isNotNull()).select(F.col(REASON).alias("reason"), f"{_RECORD}.*")


def windows(frame: Any, aggregate: Aggregate) -> Any:
    """Aggregate valid rows by window and columns. A window is appended when the watermark has passed its end."""
    timed = frame.withWatermark(EVENT_TIME, aggregate.watermark)
    columns = []
    for name, text in aggregate.columns.items():
        columns.append(F.expr(text).alias(name))
    window = F.window(EVENT_TIME, aggregate.window, aggregate.slide)
    try:
        counted = timed.groupBy(window.alias("_window"), *aggregate.by).agg(*columns)
    except Exception as error:
        raise _expression("aggregate", error) from None
    return counted.select(
        F.col("_window.start").alias("window_start"),
        F.col("_window.end").alias("window_end"),
        *(f"`{name}`" for name in (*aggregate.by, *aggregate.columns)),
    )


def partitioned(frame: Any, sink: Sink, time: str) -> Any:
    """Add the derived columns that the output is partitioned by."""
    derived = {"date": "yyyy-MM-dd", "hour": "HH"}
    for name in sink.partition_by:
        if name in frame.columns:
            continue
        if name not in derived:
            raise ConfigError(f"partition_by has {name!r}; the columns are {', '.join([*derived, *frame.columns])}")
        frame = frame.withColumn(name, F.date_format(time, derived[name]))
    return frame


def _expression(key: str, error: Exception) -> ConfigError:
    """Return an error with Spark's message for an expression, without the stack trace."""
    return ConfigError(f"{key}: {str(error).strip().splitlines()[0]}")
