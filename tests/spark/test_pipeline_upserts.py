"""Pipelines that keep the newest row of each key, in tables of PostgreSQL, Delta and Iceberg."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.databases.postgres import Postgres
from support.spark import table_formats, upserts
from support.spark.python_path import python_path
from support.spark.table_formats import FORMATS, placed


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_a_database_has_the_newest_rows(spark: Any, tmp_path: Path, seed: int) -> None:
    """Rows are replaced and deleted by key, whatever micro-batches the records are in, and which of them run again."""
    with Postgres() as postgres:
        sink = {"format": "jdbc", "table": "shop", "url": postgres.jdbc_url}

        def read() -> list[upserts.Row]:
            rows = postgres.rows("SELECT id, note, kafka_offset FROM shop")
            return [(name, note, int(offset)) for name, note, offset in rows]

        upserts.check(spark, sink, tmp_path, read, seed)


@pytest.mark.long
@pytest.mark.tables
@pytest.mark.timeout(400)
@pytest.mark.parametrize("form", FORMATS)
def test_a_table_has_the_newest_rows(tmp_path: Path, form: str) -> None:
    """The same for tables of Delta and Iceberg, in a session with their package. The path of a Delta table may be
    relative to the working folder, and have characters that SQL has to quote.
    """
    about = FORMATS[form]
    sink = {"format": form, "partition_by": ["date"], **placed(about["sink"], tmp_path)}
    table = placed(about["tables"], tmp_path)["rows"]
    if form == "delta":
        sink["path"], table = "of `a` 'b'/rows", f"delta.`{tmp_path}/of ``a`` 'b'/rows`"
    query = f"SELECT id, note, kafka_offset FROM {table}"
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1", **placed(about["spark"], tmp_path)}
    given = [json.dumps(table_formats.jars(form)), json.dumps(settings), json.dumps(sink), query, str(tmp_path)]
    environment = {"PYSPARK_PYTHON": sys.executable, **os.environ, "PYTHONPATH": python_path()}
    command = [sys.executable, str(upserts.__file__), *given]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=350, check=False
    )
    assert 0 == done.returncode, done.stderr[:3000] + done.stderr[-3000:]
