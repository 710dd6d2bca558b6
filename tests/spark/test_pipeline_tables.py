"""Pipelines into tables of Delta and Iceberg, with their own packages in the session.

The packages are those for Spark 4.1, the newest version for which both exist: `tox -e spark-tables`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.brokers.kafka import Kafka
from support.spark import spark_tables, table_formats
from support.spark.python_path import python_path
from support.spark.table_formats import FORMATS, placed

RECORDS, MORE = 500, 100
OPENS_MS = 1_780_272_000_000  # 2026-06-01 00:00 UTC
WATERMARK_S = 10
SMALL = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
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
        "spark": {**SMALL, **placed(about["spark"], folder)},
        "read": {
            "table": f"SELECT id, date, {HALF} FROM {tables['rows']} ORDER BY id",
            "types": f"SELECT DISTINCT typeof(id) FROM {tables['rows']}",
            "windows": f"SELECT unix_millis(window_start), `rows` FROM {tables['windows']} ORDER BY 1",
        },
        "more": {"topic": topic, "values": [value(number) for number in range(RECORDS, RECORDS + MORE)]},
        "changed": {
            "schema": "id long, at long, half double",
            "before": [placed({"": text}, folder)[""] for text in about["widening"]],
        },
    }  # fmt: skip


@pytest.mark.long
@pytest.mark.tables
@pytest.mark.timeout(400)
@pytest.mark.parametrize("form", FORMATS)
def test_rows_are_in_the_table_once(kafka: Kafka, topic_name: str, tmp_path: Path, form: str) -> None:
    """The rows and windows of a micro-batch that is run again, because the driver died before it recorded the end of
    it, are in the tables once. The next run continues after them, with a wider type and a new column.
    """
    document = written(kafka, topic_name, tmp_path, form)
    first, again, last = run(table_formats.jars(form), document)
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
def test_snapshots_that_have_expired(kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """The rows of the first micro-batch, which is run again, are in an Iceberg table once, although its snapshot has
    expired: the table was rewritten since.
    """
    document = written(kafka, topic_name, tmp_path, "iceberg")
    pipeline = document["pipeline"]
    pipeline["decode"]["metadata"] = ["kafka_partition", "kafka_offset"]
    del pipeline["aggregate"], document["read"]["windows"]  # windows have no place in a topic by which they are found
    document["spark"]["spark.sql.extensions"] = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    document["meanwhile"] = [
        "CALL lake.system.rewrite_data_files(table => 'shop.rows', options => map('rewrite-all', 'true'))",
        "CALL lake.system.expire_snapshots('shop.rows', TIMESTAMP '2100-01-01 00:00:00', 1)",
    ]
    document["read"]["snapshots"] = "SELECT count(*) FROM lake.shop.rows.snapshots"
    first, again, last = run(table_formats.jars("iceberg"), document)
    assert [[1]] == first["snapshots"] == again["snapshots"], "the rows are not written again"
    for found, rows in ((first, RECORDS), (again, RECORDS), (last, RECORDS + MORE)):
        assert list(range(rows)) == [number for number, *_ in found["table"]]


def value(number: int) -> str:
    """Returns an order. The event times of two orders are a second apart."""
    return json.dumps({"id": number, "at": OPENS_MS + number * 1000, "half": number + 0.5})


def run(jars: list[str], document: dict[str, Any]) -> Any:
    """Run the script. Returns the results of its runs."""
    environment = {"PYSPARK_PYTHON": sys.executable, **os.environ, "PYTHONPATH": python_path()}
    command = [sys.executable, str(spark_tables.__file__), json.dumps(jars), json.dumps(document)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert 0 == done.returncode, done.stderr[:3000] + done.stderr[-1000:]
    return json.loads(done.stdout.splitlines()[-1])
