"""Pipelines into tables of Delta and Iceberg, with their own packages in the session.

The packages are those for Spark 4.1, the newest version for which both exist: `tox -e spark-tables`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kconsumer.spark.pipeline import parse, run
from support.brokers.kafka import Kafka
from support.spark.table_formats import FORMATS, placed

RECORDS, MORE = 500, 100
OPENS_MS = 1_780_272_000_000  # 2026-06-01 00:00 UTC
WATERMARK_S = 10
HALF = "get_json_object(to_json(struct(*)), '$.half')"  # null if the table does not have the column


def written(kafka: Kafka, topic: str, folder: Path, form: str) -> dict[str, Any]:
    """Create a topic with records. Returns the document of a pipeline that reads them into tables of a format."""
    kafka.create_topic(topic, 2)
    values: list[bytes | None] = [value(number).encode() for number in range(RECORDS)]
    for partition in range(2):
        kafka.produce(topic, values[partition::2], partition=partition)
    about = FORMATS[form]
    tables = placed(about["tables"], folder)
    return {
        "pipeline": {
            "source": {
                "kafka.bootstrap.servers": kafka.bootstrap_servers,
                "subscribe": topic,
                "startingOffsets": "earliest",
            },
            "decode": {"schema": "id int, at long", "event_time": "timestamp_millis(at)"},
            "dead_letters": {"path": str(folder / "dead")},
            "sink": {"format": form, "partition_by": ["date"], **placed(about["sink"], folder)},
            "aggregate": {
                "window": "1 minute", "watermark": f"{WATERMARK_S} seconds", "columns": {"rows": "count(*)"},
                **placed(about["windows"], folder),
            },
            "run": {"name": topic, "checkpoint": str(folder / "checkpoint")},
        },
        "read": {
            "table": f"SELECT id, date, {HALF} FROM {tables['rows']} ORDER BY id",
            "types": f"SELECT DISTINCT typeof(id) FROM {tables['rows']}",
            "windows": f"SELECT unix_millis(window_start), `rows` FROM {tables['windows']} ORDER BY 1",
        },
        "widening": [placed({"": text}, folder)[""] for text in about["widening"]],
    }  # fmt: skip


@pytest.mark.long
@pytest.mark.tables
@pytest.mark.timeout(400)
@pytest.mark.parametrize("form", FORMATS)
def test_rows_are_in_the_table_once(
    tables_spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path, form: str
) -> None:
    """The rows and windows of a micro-batch that is run again, because the driver died before it recorded the end of
    it, are in the tables once. The next run continues after them, with a wider type and a new column.
    """
    document = written(kafka, topic_name, tmp_path, form)
    first, again, last = runs(tables_spark, kafka, document)
    assert (RECORDS, RECORDS, MORE) == (first["rows"], again["rows"], last["rows"])
    # Before pyspark 4.2, windows that have ended are written by the next run.
    for found, rows, before in ((first, RECORDS, 0), (again, RECORDS, 0), (last, RECORDS + MORE, RECORDS)):
        assert list(range(rows)) == [number for number, *_ in found["table"]]
        assert None not in {date for _, date, _ in found["table"]}
        halves = [None] * RECORDS + [f"{number}.5" for number in range(RECORDS, rows)]
        assert halves[:rows] == [half for *_, half in found["table"]]
        assert [["int" if rows == RECORDS else "bigint"]] == found["types"]
        ended = (before - 1 - WATERMARK_S) // 60
        assert [[OPENS_MS + minute * 60_000, 60] for minute in range(ended)] == found["windows"]


@pytest.mark.long
@pytest.mark.tables
@pytest.mark.timeout(400)
def test_snapshots_that_have_expired(tables_spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """The rows of the first micro-batch, which is run again, are in an Iceberg table once, although its snapshot has
    expired: the table was rewritten since.
    """
    document = written(kafka, topic_name, tmp_path, "iceberg")
    pipeline = document["pipeline"]
    pipeline["decode"]["metadata"] = ["kafka_partition", "kafka_offset"]
    del pipeline["aggregate"], document["read"]["windows"]  # windows have no place in a topic by which they are found
    document["meanwhile"] = [
        "CALL lake.system.rewrite_data_files(table => 'shop.rows', options => map('rewrite-all', 'true'))",
        "CALL lake.system.expire_snapshots('shop.rows', TIMESTAMP '2100-01-01 00:00:00', 1)",
    ]
    document["read"]["snapshots"] = "SELECT count(*) FROM lake.shop.rows.snapshots"
    first, again, last = runs(tables_spark, kafka, document)
    assert [[1]] == first["snapshots"] == again["snapshots"], "the rows are not written again"
    for found, rows in ((first, RECORDS), (again, RECORDS), (last, RECORDS + MORE)):
        assert list(range(rows)) == [number for number, *_ in found["table"]]


def value(number: int) -> str:
    """Returns an order. The event times of two orders are a second apart."""
    return json.dumps({"id": number, "at": OPENS_MS + number * 1000, "half": number + 0.5})


def forget_last(checkpoint: Path) -> None:
    """Undo the last micro-batch of each query, as if the driver had died before it noted its end."""
    for commits in checkpoint.glob("*/commits"):
        newest = max(int(path.name) for path in commits.glob("[0-9]*"))
        for path in (commits / str(newest), commits / f".{newest}.crc"):
            path.unlink()


def runs(spark: Any, kafka: Kafka, document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Run a pipeline, forget that its last micro-batch was done, execute the statements of `meanwhile`, run it again,
    and once more with other records, a wider type and a new column. Yields what the queries of `read` find each time.
    """
    given = document["pipeline"]
    for table in ("lake.shop.rows", "lake.shop.windows"):
        spark.sql(f"DROP TABLE IF EXISTS {table} PURGE")
    for number in range(3):
        if number == 1:
            forget_last(Path(given["run"]["checkpoint"]))
        if number == 2:
            kafka.produce(
                given["source"]["subscribe"], [value(each).encode() for each in range(RECORDS, RECORDS + MORE)]
            )
            given["decode"]["schema"] = "id long, at long, half double"
        for statement in ([], document.get("meanwhile", []), document["widening"])[number]:
            spark.sql(statement)
        found = {"rows": run(parse(given), spark).rows}
        yield found | {name: list(map(list, spark.sql(query).collect())) for name, query in document["read"].items()}
