"""From a topic to a table on Spark, told by one TOML file: `python -m kconsumer.spark.pipeline CONF.toml`, or `run`.

    from kconsumer.spark.pipeline import load, run

    run(load("orders.toml"))

docs/pipeline.md has the keys and what is guaranteed. `settings.py` reads the file, `frames.py` says what becomes of a
record, `sinks.py` how a micro-batch is written exactly once, `checks.py` what is looked at before the start,
`runner.py` starts and stops it all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kconsumer.spark.pipeline.settings import PipelineConfig, load, parse

if TYPE_CHECKING:
    from kconsumer.spark.pipeline.checks import Check
    from kconsumer.spark.pipeline.runner import Outcome

__all__ = ["PipelineConfig", "dry_run", "load", "parse", "run"]


def run(config: PipelineConfig, spark: Any = None) -> Outcome:
    """Run a pipeline until its trigger has done all there is, or it is told to stop (SIGTERM, Ctrl-C).

    With a session of the caller's nothing of it is changed but a listener added for the time, and it is left running.
    """
    from kconsumer.spark.pipeline.runner import run

    return run(config, spark)


def dry_run(config: PipelineConfig, spark: Any = None) -> list[Check]:
    """Look at everything that `run` needs and write nothing; the findings."""
    from kconsumer.spark.pipeline.runner import dry_run

    return dry_run(config, spark)
