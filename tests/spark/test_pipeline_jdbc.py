"""Pipelines into tables of PostgreSQL: each micro-batch is there once, whatever fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kconsumer.errors import ConfigError
from kconsumer.spark.pipeline import dry_run, parse, replay, run
from kconsumer.spark.pipeline.batch_sink import Batch
from kconsumer.spark.pipeline.jdbc_sink import JdbcSink
from kconsumer.spark.pipeline.schema_changes import adapt
from kconsumer.spark.pipeline.settings import Sink
from kconsumer.spark.pipeline.sinks import make
from support.brokers.kafka import Kafka
from support.databases.postgres import Postgres

RECORDS = 300
OPENS_MS = 1_780_272_000_000  # 2026-06-01 00:00 UTC


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A server for all tests here."""
    with Postgres() as server:
        yield server


@pytest.fixture
def sink(postgres: Postgres) -> Sink:
    """Returns settings of a sink whose table does not exist yet."""
    postgres.rows("DROP TABLE IF EXISTS shop; DROP TABLE IF EXISTS windows; DROP TABLE IF EXISTS kconsumer_progress")
    return Sink("jdbc", None, "shop", (), 0, None, {}, postgres.jdbc_url)


def tables(postgres: Postgres) -> list[str]:
    """Returns the names of all tables."""
    return [name for (name,) in postgres.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")]


def test_from_a_topic_to_tables(spark: Any, kafka: Kafka, topic_name: str, postgres: Postgres, sink: Sink,
                                tmp_path: Path) -> None:  # fmt: skip
    """Rows and windows are in their tables once, also when the last micro-batches run again as after a crash, and a
    replay adds what was deleted.
    """
    kafka.create_topic(topic_name, 2)
    values: list[bytes | None] = [b'{"id": %d, "at": %d}' % (n, OPENS_MS + n * 1000) for n in range(RECORDS)]
    for partition in range(2):
        kafka.produce(topic_name, values[partition::2], partition=partition)
    document = {
        "source": {
            "kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic_name,
            "startingOffsets": "earliest", "maxOffsetsPerTrigger": 100,
        },
        "decode": {"schema": "id long, at long", "event_time": "timestamp_millis(at)"},
        "dead_letters": {"path": str(tmp_path / "dead")},
        "sink": {"format": "jdbc", "table": "shop", "url": sink.url},
        "aggregate": {
            "window": "1 minute", "watermark": "10 seconds", "columns": {"rows": "count(*)"}, "table": "windows",
        },
        "run": {"name": topic_name, "checkpoint": str(tmp_path / "checkpoint")},
    }  # fmt: skip
    config = parse(document)
    assert [] == [check for check in dry_run(config, spark) if check.level == "fail"]
    run(config, spark)
    for query in ("rows", "windows"):
        commits = tmp_path / "checkpoint" / query / "commits"
        newest = max(int(path.name) for path in commits.glob("[0-9]*"))
        for path in (commits / str(newest), commits / f".{newest}.crc"):
            path.unlink()
    run(config, spark)
    expected = [(str(number),) for number in range(RECORDS)]
    assert expected == postgres.rows("SELECT id FROM shop ORDER BY id")
    assert ["60"] * 4 == [rows for (rows,) in postgres.rows('SELECT "rows" FROM windows ORDER BY window_start')]
    postgres.rows("DELETE FROM shop WHERE id >= 250")
    assert 50 == replay(config, "2020-01-01", "2030-01-01", spark).written
    assert 0 == replay(config, "2020-01-01", "2030-01-01", spark).written
    assert expected == postgres.rows("SELECT id FROM shop ORDER BY id")
    assert ["kconsumer_progress", "shop", "windows"] == tables(postgres)


def test_a_micro_batch_is_written_once(spark: Any, postgres: Postgres, sink: Sink) -> None:
    """A micro-batch that is repeated, by this driver or another one, adds nothing. Each query has its own numbers."""
    first, second = spark.range(5).toDF("id"), spark.range(5, 8).toDF("id")
    for frame, batch in ((first, Batch("q", 0)), (first, Batch("q", 0)), (second, Batch("q", 1))):
        make(spark, sink).write(frame, batch)
        JdbcSink(spark, sink).write(frame, batch)
    assert ["8"] == [count for (count,) in postgres.rows("SELECT count(*) FROM shop")]
    JdbcSink(spark, sink).write(second, Batch("other", 0))
    assert ["11"] == [count for (count,) in postgres.rows("SELECT count(*) FROM shop")]


def test_a_part_of_a_micro_batch_is_never_seen(spark: Any, postgres: Postgres, sink: Sink) -> None:
    """If a task fails, or the driver dies before the transaction, the target has none of the rows."""
    from pyspark.sql import functions as F  # noqa: N812  as everyone writes it

    bad = spark.range(0, 100, 1, 2).select(
        F.when(F.col("id") == 99, F.raise_error(F.lit("no"))).otherwise("x").alias("v")
    )
    with pytest.raises(Exception, match="no"):
        JdbcSink(spark, sink).write(bad, Batch("q", 0))
    assert [("0",)] == postgres.rows("SELECT count(*) FROM shop")
    postgres.rows("CREATE TABLE kconsumer_stage_q_0badcafe (v text)")  # of a driver that died
    JdbcSink(spark, sink).write(spark.range(3).select(F.lit("x").alias("v")), Batch("q", 0))
    assert [("3",)] == postgres.rows("SELECT count(*) FROM shop")
    assert ["kconsumer_progress", "shop"] == tables(postgres)


def test_a_table_of_ones_own(spark: Any, postgres: Postgres, sink: Sink) -> None:
    """A table that exists keeps its types and its other columns."""
    postgres.rows("CREATE TABLE shop (key serial, id integer, at timestamptz DEFAULT now(), note jsonb)")
    frame = spark.range(2).selectExpr("id", "'{\"a\": 1}' AS note")
    wider = Sink("jdbc", None, "public.shop", (), 0, 1, {}, f"{sink.url}&stringtype=unspecified")
    JdbcSink(spark, wider).write(frame, Batch("q", 0))
    assert [("1", "0", '{"a": 1}'), ("2", "1", '{"a": 1}')] == postgres.rows(
        "SELECT key, id, note FROM shop ORDER BY 1"
    )


def test_columns_that_change_between_two_starts(spark: Any, postgres: Postgres, sink: Sink, tmp_path: Path) -> None:
    """A new column is added, and null in older rows; a wider type replaces the narrower one, unless the owner of the
    table has given it another one. A column that is gone is null in new rows.
    """
    document = pipeline_document(sink, tmp_path)
    starts = (
        spark.range(1).selectExpr(
            "cast(id as int) AS id", "cast(1 as float) AS share", "cast(nullif(1, 0) as smallint) AS own"
        ),
        spark.range(1).selectExpr(
            "id + 3000000000 AS id", "cast(0.1 as double) AS share", "1 AS own", "'é' AS `a note`"
        ),
        spark.range(1).selectExpr("id", "cast(0.2 as double) AS share"),
    )
    for number, frame in enumerate(starts):
        for _ in range(2):  # the second time as after a crash
            adapt(spark, parse(document), {"rows": frame})
        JdbcSink(spark, sink).write(frame, Batch("q", number))
        if number == 0:
            postgres.rows("ALTER TABLE shop ALTER COLUMN own TYPE numeric(20)")
    assert [("3000000000", "0.1", "1", "é"), ("0", "0.2", "", "null"), ("0", "1", "1", "null")] == postgres.rows(
        "SELECT id, share, own, coalesce(\"a note\", 'null') FROM shop ORDER BY share"
    )
    types = "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'shop' ORDER BY 1"
    assert [("a note", "text"), ("id", "bigint"), ("own", "numeric"), ("share", "double precision")] == postgres.rows(
        types
    )
    with pytest.raises(ConfigError, match="column id of shop was bigint and would be string, which does not hold"):
        adapt(spark, parse(document), {"rows": spark.range(1).selectExpr("cast(id as string) AS id")})


def pipeline_document(sink: Sink, folder: Path) -> dict[str, Any]:
    """Returns a pipeline into this sink, whose brokers cannot be reached."""
    return {
        "source": {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "kafka.default.api.timeout.ms": "100",
                   "fetchOffset.numRetries": "1"},
        "decode": {"schema": "id long"},
        "dead_letters": {"path": str(folder / "dead")},
        "sink": {"format": "jdbc", "table": "shop", "url": sink.url},
        "run": {"checkpoint": str(folder / "checkpoint")},
    }  # fmt: skip


def test_what_is_missing_is_named(spark: Any, sink: Sink, tmp_path: Path) -> None:
    """A driver that the session lacks, and a password that cannot be read, are named."""
    document = pipeline_document(sink, tmp_path)
    document["sink"]["url"] = "jdbc:mariadb://localhost/shop"
    failed = [check.text for check in dry_run(parse(document), spark) if check.what == "sink"]
    assert ["sink.format = 'jdbc', but its package is not in the session; add it to spark.jars.packages"] == failed
    hidden = Sink("jdbc", None, "shop", (), 0, None, {"password": "env:NO_SUCH_VARIABLE"}, sink.url)
    with pytest.raises(ConfigError, match=r"sink\.options\.password: the environment has no variable NO_SUCH_VARIABLE"):
        JdbcSink(spark, hidden)
