"""Prints the rows of tables, which are read in a Spark session of their own.

    python spark_rows.py JARS SETTINGS QUERIES       # JSON: paths, settings of the session, and SQL by name

Prints a JSON object: name -> rows as lists.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from support.spark.python_path import python_path


def read_tables(jars: list[str], settings: dict[str, str], queries: dict[str, str]) -> dict[str, list[tuple[Any, ...]]]:
    """Run the queries in another process. Returns the rows of each."""
    command = [sys.executable, str(Path(__file__)), *map(json.dumps, (jars, settings, queries))]
    environment = {**os.environ, "PYTHONPATH": python_path(), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert 0 == done.returncode, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    return {name: [tuple(row) for row in rows] for name, rows in found.items()}


def main() -> None:
    """Run the queries and print their rows."""
    jars, settings, queries = map(json.loads, sys.argv[1:])
    builder = SparkSession.builder.master("local[2]").config("spark.jars", ",".join(jars))
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    rows = {name: [list(row) for row in spark.sql(query).collect()] for name, query in queries.items()}
    spark.stop()
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
