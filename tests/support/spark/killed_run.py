"""Runs a pipeline in a session of its own, and dies at one of its steps: for tests of what is left behind.

    python killed_run.py DOCUMENT SETTINGS STEP          # JSON: the pipeline, settings of the session; a number

The steps are those before a file is renamed, after all of them are, before a transaction begins, and before a table is
created and after it. A test that dies in its own process passes another end to `die_at`.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kconsumer.spark.pipeline import sinks
from kconsumer.spark.pipeline.jdbc_sink import JdbcSink
from kconsumer.spark.pipeline.reporting import Reporter
from support.spark.python_path import python_path


def die_at(step: int, end: Callable[[], None], change: Callable[[Any, str, Any], None] = setattr) -> None:
    """Call `end` at a step of the pipelines that run from now on. `change` replaces a method or a function."""
    steps = itertools.count()

    def dying(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if next(steps) == step:
                end()
            return method(*arguments)

        return call

    methods = ((sinks.Folder, "move"), (Reporter, "counted"), (JdbcSink, "_copy"), (sinks.DeltaSink, "_append"),
               (sinks.IcebergSink, "write"), (sinks.IcebergSink, "_create"), (sinks, "comparable"))  # fmt: skip
    for owner, name in methods:  # a merge calls the last one between the creation of a table and its statement
        change(owner, name, dying(getattr(owner, name)))


def run_and_kill(document: dict[str, Any], settings: dict[str, str], step: int, output: Path) -> None:
    """Run a pipeline in processes of their own, all of which are killed at a step, unless it has fewer."""
    command = [sys.executable, __file__, json.dumps(document), json.dumps(settings), str(step)]
    environment = {**os.environ, "PYTHONPATH": python_path(), "PYSPARK_PYTHON": sys.executable}
    with output.open("wb") as log:
        done = subprocess.run(
            command, env=environment, stdout=log, stderr=log, timeout=200, check=False, start_new_session=True
        )
    text = output.read_text()
    assert done.returncode in (0, -signal.SIGKILL) or "kconsumer.errors.ConfigError" in text, text[-3000:]


def main() -> None:
    """Run the pipeline."""
    from pyspark.sql import SparkSession

    import kconsumer.spark
    from kconsumer.spark.pipeline import parse, run

    document, settings, step = map(json.loads, sys.argv[1:])
    die_at(step, lambda: os.killpg(0, signal.SIGKILL))
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    kconsumer.spark.register(spark)
    run(parse(document), spark)
    spark.stop()


if __name__ == "__main__":
    main()
