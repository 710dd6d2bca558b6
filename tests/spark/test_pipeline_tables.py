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


@pytest.mark.long
@pytest.mark.tables
@pytest.mark.timeout(400)
@pytest.mark.parametrize("form", FORMATS)
def test_rows_are_in_the_table_once(kafka: Kafka, topic_name: str, tmp_path: Path, form: str) -> None:
    """The rows and windows of a micro-batch that is run again, because the driver died before it recorded the end of
    it, are in the tables once. The next run continues after them, with a wider type and a new column.
    """
    kafka.create_topic(topic_name, 2)
    values: list[bytes | None] = [value(number).encode() for number in range(RECORDS)]
    for partition in range(2):
        kafka.produce(topic_name, values[partition::2], partition=partition)
    about = FORMATS[form]
    tables = placed(about["tables"], tmp_path)
    document = {
        "pipeline": {
            "source": {
                "kafka.bootstrap.servers": kafka.bootstrap_servers,
                "subscribe": topic_name,
                "startingOffsets": "earliest",
            },
            "decode": {"schema": "id int, at long", "event_time": "timestamp_millis(at)"},
            "dead_letters": {"path": str(tmp_path / "dead")},
            "sink": {"format": form, "partition_by": ["date"], **placed(about["sink"], tmp_path)},
            "aggregate": {
                "window": "1 minute", "watermark": f"{WATERMARK_S} seconds", "columns": {"rows": "count(*)"},
                **placed(about["windows"], tmp_path),
            },
            "run": {"name": topic_name, "checkpoint": str(tmp_path / "checkpoint")},
        },
        "spark": {**SMALL, **placed(about["spark"], tmp_path)},
        "read": {
            "table": f"SELECT id, date, {HALF} FROM {tables['rows']} ORDER BY id",
            "types": f"SELECT DISTINCT typeof(id) FROM {tables['rows']}",
            "windows": f"SELECT unix_millis(window_start), `rows` FROM {tables['windows']} ORDER BY 1",
        },
        "more": {"topic": topic_name, "values": [value(number) for number in range(RECORDS, RECORDS + MORE)]},
        "changed": {
            "schema": "id long, at long, half double",
            "before": [placed({"": text}, tmp_path)[""] for text in about["widening"]],
        },
    }  # fmt: skip
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
