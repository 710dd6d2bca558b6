"""Streams Kafka topics to files or a table with Spark. A TOML file describes the pipeline.

It is run with `python -m kconsumer.spark.pipeline CONF.toml`, or in Python:

    from kconsumer.spark.pipeline import load, run

    run(load("orders.toml"))

docs/pipeline.md lists the keys of the file and the guarantees. `settings.py` reads the file, `frames.py` turns records
into rows, `sinks.py` writes a micro-batch exactly once, `checks.py` checks everything before the start, `runner.py`
starts and stops the queries, `pipeline_metrics.py` exports metrics, `status_report.py` says where a pipeline is,
`replay_run.py` reads a range of time again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kconsumer.spark.pipeline.settings import PipelineConfig, load, parse

if TYPE_CHECKING:
    from kconsumer.spark.pipeline.checks import Check
    from kconsumer.spark.pipeline.replay_run import Replayed
    from kconsumer.spark.pipeline.runner import Outcome

__all__ = ["PipelineConfig", "dry_run", "load", "parse", "replay", "run", "status"]


def run(config: PipelineConfig, spark: Any = None, *, metrics_reporters: Sequence[object] = ()) -> Outcome:
    """Run a pipeline until SIGTERM or Ctrl-C, or until everything is read if the trigger is `available_now`.

    Without `spark`, a session is created, and stopped at the end. A session that the caller passes is not stopped. The
    run adds a listener to it and removes it at the end. `metrics_reporters` receive the metrics of the pipeline, as a
    consumer's reporters do: a PrometheusReporter, for example. Raises ConfigError for a wrong expression, and
    PipelineError if the pipeline fails.
    """
    from kconsumer.spark.pipeline.runner import run

    return run(config, spark, metrics_reporters=metrics_reporters)


def dry_run(config: PipelineConfig, spark: Any = None) -> list[Check]:
    """Check everything that `run` needs, without writing anything. Returns the findings, which include errors."""
    from kconsumer.spark.pipeline.runner import dry_run

    return dry_run(config, spark)


def replay(config: PipelineConfig, start: str, end: str, spark: Any = None) -> Replayed:
    """Read the records with timestamps in [`start`, `end`) again, and write the valid rows that the table lacks.

    `start` and `end` are times in ISO 8601, in UTC if they have no zone. Only offsets that the pipeline has passed are
    read, so it may run at the same time. Windows and dead letters are not written. Returns the numbers of records.
    Raises ConfigError if the times or the settings do not allow a replay.
    """
    from kconsumer.spark.pipeline.runner import replay

    return replay(config, start, end, spark)


def status(config: PipelineConfig, spark: Any = None) -> list[Check]:
    """Say where a pipeline is, running or not: its process, its micro-batches, its lag, and what is wrong.

    Reads the checkpoint, and requests offsets from the brokers; nothing is written. Without `spark`, a session is
    created only if the checkpoint is not in a folder of this machine. Returns findings, which include errors.
    """
    from kconsumer.spark.pipeline.checkpoint import LocalFiles, local_folder

    folder = local_folder(config.run.checkpoint)
    if folder is None:
        from kconsumer.spark.pipeline.runner import status

        return status(config, spark)
    from kconsumer._core.lock import Clock
    from kconsumer.spark.pipeline.status_report import find_status

    return find_status(config, Clock().wall_ms(), LocalFiles(folder))
