"""Checks before a pipeline starts: topics, checkpoint, outputs, executors, packages.

Each check is one function that yields findings and changes nothing. The runner prints findings of the level `warn`, and
does not start a pipeline with a finding of the level `fail`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kconsumer import __version__
from kconsumer.errors import ConfigError, KafkaError
from kconsumer.spark import options
from kconsumer.spark.admin import Admin
from kconsumer.spark.pipeline.jdbc_sink import driver_class
from kconsumer.spark.pipeline.pipeline_metrics import require_exporters
from kconsumer.spark.pipeline.reporting import first_line
from kconsumer.spark.pipeline.settings import PipelineConfig, check_places, places
from kconsumer.spark.pipeline.sinks import Folder
from kconsumer.types import TopicPartition

__all__ = ["Check", "before_start", "broker", "everything", "log_bounds"]

Offsets = Mapping[TopicPartition, int]
Level = Literal["ok", "warn", "fail"]
# A class of each package, whose presence shows that the package is loaded.
PACKAGES = {"delta": "io.delta.sql.DeltaSparkSessionExtension", "iceberg": "org.apache.iceberg.spark.SparkCatalog"}


@dataclass(frozen=True)
class Check:
    """A finding: the result of a check, good or bad."""

    what: str  # what was checked, such as broker
    level: Level
    text: str

    def line(self) -> str:
        """Returns the finding as a line for the terminal."""
        return f"{self.level:<5} {self.what:<11} {self.text}"


def log_bounds(source: Mapping[str, str]) -> tuple[Offsets, Offsets] | Check:
    """Request the first and last offsets of the partitions of a source. Returns a finding if that fails."""
    try:
        with Admin(options.parse(source, "stream")) as admin:
            partitions = admin.partitions()
            return admin.earliest(partitions), admin.latest(partitions)
    except (KafkaError, ConfigError, OSError) as error:
        return Check("broker", "fail", str(error))


def broker(config: PipelineConfig) -> Iterator[Check]:
    """Check that the topics can be reached, and report their numbers of partitions and offsets."""
    bounds = log_bounds(config.source)
    if isinstance(bounds, Check):
        yield bounds
        return
    begin, end = bounds
    if not end:
        yield Check("topics", "warn", "no topic matches yet")
    for topic in sorted({tp.topic for tp in end}):
        own = [tp for tp in end if tp.topic == topic]
        records = sum(end[tp] - begin[tp] for tp in own)
        yield Check("topics", "ok", f"{topic}: {len(own)} partitions, {records:,} offsets")


def checkpoint(config: PipelineConfig, spark: Any) -> Iterator[Check]:
    """Report where the queries start. Warn of ignored starting options, and of output files of another checkpoint."""
    written: list[tuple[str, str, str | None]] = [("rows", "sink.path", config.sink.path)]
    if config.aggregate is not None:
        written.append(("windows", "aggregate.path", config.aggregate.path))
    for query, key, path in written:
        files = Folder(spark, config.run.checkpoint)
        numbers = [int(name) for name in files.times(f"{query}/commits") if name.isdigit()]
        if numbers:
            text = f"{query}: continues after micro-batch {max(numbers)}"
            starting = sorted(name for name in config.source if name.lower().startswith("starting"))
            level: Level = "warn" if starting else "ok"
            ignored = f"; source.{starting[0]} = {config.source[starting[0]]!r} has no effect" if starting else ""
            yield Check("checkpoint", level, text + ignored)
            continue
        yield Check("checkpoint", "ok", f"{query}: no checkpoint yet, starts from source.startingOffsets")
        if config.sink.format == "parquet" and path is not None and holds_files(spark, path, files, query):
            text = f"{key} = {path!r} has files from another checkpoint: records may be repeated in it"
            yield Check("output", "warn", text)


def holds_files(spark: Any, path: str, files: Folder, query: str) -> bool:
    """Returns True if `path` is a folder with data files of another query than `query` of the checkpoint `files`."""
    own = str(json.loads(files.text(f"{query}/metadata") or "{}").get("id", "/"))  # no name has a slash
    folder = Folder(spark, path)
    return not folder.is_file() and not all(name.rpartition("/")[2].startswith(own) for name in folder.files())


def executors(config: PipelineConfig, spark: Any) -> Iterator[Check]:
    """Run a task to check that an executor has this version of kconsumer."""

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
        yield Check("executors", "fail", f"no task could run: {first_line(error)}")
        return
    if found is None:
        text = f"kconsumer cannot be imported on an executor ({where}); install it for PYSPARK_PYTHON"
        yield Check("executors", "fail", text)
    elif found != __version__:
        text = f"kconsumer {found} on {where}, but {__version__} on the driver; install the same version"
        yield Check("executors", "fail", text)
    else:
        yield Check("executors", "ok", f"kconsumer {found}, Python {python} on {where}")


def packages(config: PipelineConfig, spark: Any) -> Iterator[Check]:
    """Check that the session has the package of the sink's format, if the format needs one."""
    name = driver_class(config.sink) if config.sink.format == "jdbc" else PACKAGES.get(config.sink.format)
    if name is None:
        return
    try:
        spark._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
        yield Check("sink", "ok", f"the package for {config.sink.format} is loaded")
    except Exception:
        yield Check("sink", "fail", f"sink.format = {config.sink.format!r}, but its package is not in the session;"
                                    " add it to spark.jars.packages")  # fmt: skip


def outputs(config: PipelineConfig, spark: Any) -> Iterator[Check]:
    """Check that no folder is a file, and that none is inside another one, in whatever form they are written.

    Readers of an output would also read files of the run that are in it.
    """
    folders = {key: Folder(spark, path) for key, path in places(config).items()}
    for key, folder in folders.items():
        if folder.is_file(or_root=key != "run.checkpoint"):  # which has no staging folder next to it
            text = f"{key} = {places(config)[key]!r} is a file or a root; give a folder, which may be missing"
            yield Check("output", "fail", text)
    roots = {key: str(folder.root) for key, folder in folders.items()}
    files = {"run.progress_log": config.run.progress_log, "run.prometheus_file": config.run.prometheus_file}
    local = {key: f"file:{os.path.abspath(path)}" for key, path in files.items() if path}
    try:
        check_places(roots)
        check_places({key: root for key, root in roots.items() if key != "run.checkpoint"} | local)
    except ConfigError as error:
        yield Check("output", "fail", str(error))


def exporters(config: PipelineConfig, spark: Any) -> Iterator[Check]:
    """Check that the packages that export the metrics are installed."""
    try:
        require_exporters(config.run)
    except ImportError as error:
        yield Check("metrics", "fail", str(error))


SessionCheck = Callable[[PipelineConfig, Any], Iterator[Check]]
IN_SESSION: tuple[SessionCheck, ...] = (outputs, checkpoint, packages, exporters, executors)


def before_start(config: PipelineConfig, spark: Any) -> list[Check]:
    """Run the checks that are made at every start. Returns their findings.

    Brokers are not checked, because the query contacts them anyway.
    """
    return [found for check in IN_SESSION for found in check(config, spark)]


def everything(config: PipelineConfig, spark: Any) -> Iterator[Check]:
    """Run all checks, for a dry run. Yields their findings."""
    yield from broker(config)
    for check in IN_SESSION:
        yield from check(config, spark)
