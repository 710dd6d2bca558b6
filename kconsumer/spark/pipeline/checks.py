"""What is looked at before a pipeline starts: topics, checkpoint, outputs, executors, packages.

Each check is one function that gives findings and changes nothing. What a finding is worth is decided here, what is
done about it by the runner.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from kconsumer import __version__
from kconsumer.errors import ConfigError, KafkaError
from kconsumer.spark import options
from kconsumer.spark.admin import Admin
from kconsumer.spark.pipeline.settings import PipelineConfig
from kconsumer.spark.pipeline.sinks import Folder

__all__ = ["Check", "before_start", "broker", "everything"]

Level = Literal["ok", "warn", "fail"]
# A class that is there when the package for a format is.
PACKAGES = {"delta": "io.delta.sql.DeltaSparkSessionExtension", "iceberg": "org.apache.iceberg.spark.SparkCatalog"}


@dataclass(frozen=True)
class Check:
    """A finding."""

    what: str
    level: Level
    text: str

    def line(self) -> str:
        """For the terminal."""
        return f"{self.level:<5} {self.what:<11} {self.text}"


def broker(config: PipelineConfig) -> Iterator[Check]:
    """Whether the topics can be reached, and how much is in them."""
    try:
        with Admin(options.parse(config.source, "stream")) as admin:
            partitions = admin.partitions()
            begin, end = admin.earliest(partitions), admin.latest(partitions)
    except (KafkaError, ConfigError, OSError) as error:
        yield Check("broker", "fail", str(error))
        return
    if not partitions:
        yield Check("topics", "warn", "no topic fits yet")
    for topic in sorted({tp.topic for tp in partitions}):
        own = [tp for tp in partitions if tp.topic == topic]
        records = sum(end[tp] - begin[tp] for tp in own)
        yield Check("topics", "ok", f"{topic}: {len(own)} partitions, {records:,} offsets")


def checkpoint(config: PipelineConfig, spark: Any) -> Iterator[Check]:
    """Where it will start, and whether the outputs are those of this checkpoint."""
    outputs: list[tuple[str, str, str | None]] = [("rows", "sink.path", config.sink.path)]
    if config.aggregate is not None:
        outputs.append(("windows", "aggregate.path", config.aggregate.path))
    for query, key, path in outputs:
        numbers = batches(spark, f"{config.run.checkpoint}/{query}")
        if numbers:
            text = f"{query}: goes on after micro-batch {max(numbers)}"
            starting = sorted(name for name in config.source if name.lower().startswith("starting"))
            level: Level = "warn" if starting else "ok"
            ignored = f"; source.{starting[0]} = {config.source[starting[0]]!r} has no effect" if starting else ""
            yield Check("checkpoint", level, text + ignored)
            continue
        yield Check("checkpoint", "ok", f"{query}: none yet, starts anew")
        if config.sink.format == "parquet" and path is not None and Folder(spark, path).files():
            text = f"{key} = {path!r} has files, but not of this checkpoint: records may be in it twice"
            yield Check("output", "warn", text)


def batches(spark: Any, path: str) -> list[int]:
    """The micro-batches that a checkpoint knows to be done."""
    names = [path.getName() for path in Folder(spark, f"{path}/commits").matching("*")]
    return [int(name) for name in names if name.isdigit()]


def executors(config: PipelineConfig, spark: Any) -> Iterator[Check]:
    """Whether an executor has this kconsumer, by a task."""

    def probe(_: int) -> str:
        import json
        import platform

        try:
            import kconsumer
        except ImportError as error:
            return json.dumps([None, platform.python_version(), str(error)])
        return json.dumps([kconsumer.__version__, platform.python_version(), platform.node()])

    try:
        found, python, where = json.loads(spark.sparkContext.parallelize([0], 1).map(probe).collect()[0])
    except Exception as error:
        yield Check("executors", "fail", f"no task could run: {str(error).strip().splitlines()[0]}")
        return
    if found is None:
        yield Check(
            "executors",
            "fail",
            f"kconsumer cannot be imported there ({where}); install it for PYSPARK_PYTHON",
        )
    elif found != __version__:
        yield Check("executors", "fail", f"kconsumer {found} on {where}, but {__version__} here; install the same")
    else:
        yield Check("executors", "ok", f"kconsumer {found}, Python {python} on {where}")


def packages(config: PipelineConfig, spark: Any) -> Iterator[Check]:
    """Whether the session has the package of the sink's format."""
    name = PACKAGES.get(config.sink.format)
    if name is None:
        return
    try:
        spark._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
        yield Check("sink", "ok", f"the package for {config.sink.format} is there")
    except Exception:
        yield Check("sink", "fail", f"sink.format = {config.sink.format!r}, but its package is not in the session;"
                                    " name it in spark.jars.packages")  # fmt: skip


Look = Callable[[PipelineConfig, Any], Iterator[Check]]
IN_SESSION: tuple[Look, ...] = (checkpoint, packages, executors)


def before_start(config: PipelineConfig, spark: Any) -> list[Check]:
    """What is looked at on every start; brokers are asked soon enough."""
    return [check for look in IN_SESSION for check in look(config, spark)]


def everything(config: PipelineConfig, spark: Any) -> list[Check]:
    """What a dry run looks at."""
    return [*broker(config), *before_start(config, spark)]
