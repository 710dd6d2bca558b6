"""Starts the queries of a pipeline, reports their progress, and stops them cleanly.

There are at most two queries, each with its own checkpoint below `run.checkpoint`: `rows` writes valid rows and dead
letters, `windows` writes the aggregates. `frames.py` builds the rows to write, and `sinks.py` writes them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everyone writes it
from pyspark.sql.streaming.listener import StreamingQueryListener

from kconsumer import __version__
from kconsumer._common.signal_safe_lock import SignalSafeLock
from kconsumer._core.lock import Clock
from kconsumer.errors import ConfigError
from kconsumer.spark import options
from kconsumer.spark.lag import LagListener
from kconsumer.spark.pipeline import checks, frames, sinks
from kconsumer.spark.pipeline.batch_sink import Batch, PipelineError
from kconsumer.spark.pipeline.checkpoint import NOTE, QueryProgress, RunNote, query_progress
from kconsumer.spark.pipeline.pipeline_metrics import exported_metrics
from kconsumer.spark.pipeline.replay_run import Replayed, replay_in
from kconsumer.spark.pipeline.reporting import Reporter, first_line
from kconsumer.spark.pipeline.schema_changes import adapt, find_changes
from kconsumer.spark.pipeline.settings import EVENT_TIME, PipelineConfig, Sink
from kconsumer.spark.pipeline.start_attempts import until_started
from kconsumer.spark.pipeline.status_report import find_status

__all__ = ["Outcome", "PipelineError", "dry_run", "replay", "run", "status"]

log = logging.getLogger(__name__)

# Defaults, which the file may override. Spark's own default for timestamps in Parquet is the deprecated type INT96.
SESSION = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.ui.showConsoleProgress": "false",
}
LAST_REPORT_TIMEOUT_S = 10  # the last report of a query arrives after the query has ended


@dataclass(frozen=True)
class Outcome:
    """The result of a run of a pipeline."""

    rows: int  # records of all micro-batches, including invalid ones
    invalid: int  # invalid records
    batches: int  # finished micro-batches of the query `rows`
    stopped: bool  # by a signal, or by the caller
    findings: list[checks.Check] = field(default_factory=list)


def session(config: PipelineConfig) -> Any:
    """Create a session with the settings of the file.

    With a local master, executors run the Python of this process, unless PYSPARK_PYTHON is set.
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # by spark-submit, whose own arguments may name a cluster
    if config.spark.get("spark.master", "cluster" if submitted else "local").startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(config.run.name)
    for name, value in {**SESSION, **config.spark}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@contextlib.contextmanager
def _session(config: PipelineConfig, given: Any) -> Iterator[Any]:
    if given is not None and not hasattr(given, "_jvm"):
        raise ConfigError(
            "a pipeline needs a classic Spark session, because it renames files and reads checkpoints through the JVM,"
            " which a client of Spark Connect does not have; run the pipeline on the cluster with spark-submit"
        )
    spark = given or session(config)
    try:
        yield spark
    finally:
        if given is None:
            spark.stop()


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


# --- queries --------------------------------------------------------------------------------------


class Writer(ABC):
    """Writes the micro-batches of a query.

    Spark calls this object in a separate thread, at least once for each micro-batch. A call may still be running after
    Spark has stopped the query. After `close` has returned, nothing is written.
    """

    def __init__(self, query: QueryId) -> None:
        self._query, self._lock, self._closed = query, SignalSafeLock(), False

    def __call__(self, frame: Any, number: int) -> None:
        with self._lock:
            if self._closed:
                raise PipelineError(f"query {self._query.name} has ended")
            self.write(frame, Batch(self._query.get(), number, number == self._query.interrupted))

    @abstractmethod
    def write(self, frame: Any, batch: Batch) -> None:
        """Write a micro-batch."""

    def close(self) -> None:
        """Reject further calls, and wait until a running call has ended. Call this after the query was stopped."""
        self._closed = True
        with self._lock:
            pass


class RowsWriter(Writer):
    """Writes decoded records: valid rows, then dead letters if there are any."""

    def __init__(self, spark: Any, config: PipelineConfig, reporter: Reporter, query: QueryId) -> None:
        super().__init__(query)
        self._config, self._reporter = config, reporter
        self._valid = sinks.make(spark, config.sink)
        path = config.dead_letters.path
        sink = Sink("parquet", path, None, (), 0, None, {})
        # Without dead letters, too: those of an earlier attempt of the first micro-batch are deleted.
        self._invalid = sinks.FileSink(spark, sink) if path else None

    def write(self, frame: Any, batch: Batch) -> None:
        """Write valid rows and dead letters, and pass their counts to the reporter."""
        if self._valid.runs_all:
            seen = Observation()
            self._write_valid(frame.observe(seen, *frames.counts()), batch)
            # To write dead letters, Spark reads the records a second time. Few micro-batches have dead letters.
            self._write_dead_letters(frame, seen.get, batch)
            return
        kept = frame.persist()
        try:
            counts = kept.agg(*frames.counts()).first().asDict()
            self._write_valid(kept, batch)
            self._write_dead_letters(kept, counts, batch)
        finally:
            kept.unpersist()

    def _write_valid(self, frame: Any, batch: Batch) -> None:
        rows = frames.valid(frame, self._config.decode, self._config.sink.key)
        self._valid.write(frames.partitioned(rows, self._config.sink, EVENT_TIME), batch)

    def _write_dead_letters(self, frame: Any, counts: dict[str, int], batch: Batch) -> None:
        if self._invalid is not None and counts["invalid"] and self._config.decode.on_invalid == "deadletter":
            self._invalid.write(frames.dead_letters(frame).repartition(1), batch)
        elif self._invalid is not None:
            self._invalid.write_nothing(batch)
        self._reporter.counted(self._query.name, batch.number, int(counts["records"]), int(counts["invalid"]))


class WindowsWriter(Writer):
    """Writes the aggregates of the time windows that a micro-batch completed."""

    def __init__(self, spark: Any, config: PipelineConfig, query: QueryId) -> None:
        super().__init__(query)
        self._sink = config.aggregate_sink
        self._writer = sinks.make(spark, self._sink)

    def write(self, frame: Any, batch: Batch) -> None:
        """Write the rows in one task. They are few but come from many tasks, which would write many small files."""
        self._writer.write(frames.partitioned(frame.repartition(1), self._sink, "window_start"), batch)


class QueryId:
    """The id of a query, which is known only when the query has started.

    Spark may write the first micro-batch earlier, in another thread. So `get` waits for the id.
    """

    def __init__(self, name: str, progress: QueryProgress | None = None) -> None:
        self.name = name
        # The micro-batch that the last run has begun and not finished, -1 if there is none.
        self.interrupted = progress.planned if progress and progress.planned > progress.done else -1
        self._known, self._id = threading.Event(), ""

    def set(self, value: str) -> None:
        """Store the id."""
        self._id = value
        self._known.set()

    def get(self) -> str:
        """Wait until the id is stored. Returns the id. Raises PipelineError if that takes more than 60 s."""
        if not self._known.wait(60):
            raise PipelineError(f"query {self.name} did not start")
        return self._id


def plans(spark: Any, config: PipelineConfig) -> dict[str, Any]:
    """Build the streams of a pipeline. Returns a dict of query name -> stream.

    The queries are `rows`, and `windows` if the file has a section `aggregate`. Raises ConfigError for a wrong
    expression.
    """
    found = {"rows": frames.decoded(frames.read(spark, config, commit=True), config.decode, config.sink.key)}
    if config.aggregate is not None:
        second = frames.decoded(frames.read(spark, config, commit=False, undecoded=False), config.decode)
        found["windows"] = frames.windows(second.where(F.col(frames.REASON).isNull()), config.aggregate)
    return found


def outputs(config: PipelineConfig, streams: dict[str, Any]) -> dict[str, Any]:
    """Returns the rows that each of the streams writes. Raises ConfigError for a wrong column to partition by."""
    rows = frames.valid(streams["rows"], config.decode)
    found = {"rows": frames.partitioned(rows, config.sink, EVENT_TIME)}
    if "windows" in streams:
        found["windows"] = frames.partitioned(streams["windows"], config.aggregate_sink, "window_start")
    return found


def _start(stream: Any, config: PipelineConfig, query: QueryId, write: Callable[[Any, int], None]) -> Any:
    writer = stream.writeStream.queryName(query.name).outputMode("append").foreachBatch(write)
    writer = writer.option("checkpointLocation", f"{config.run.checkpoint}/{query.name.rpartition(' ')[2]}")
    interval = config.run.interval
    writer = writer.trigger(availableNow=True) if interval is None else writer.trigger(processingTime=interval)
    started = writer.start()
    query.set(str(started.id))
    return started


# --- a run ----------------------------------------------------------------------------------------


class Listener(StreamingQueryListener):
    """Passes Spark's reports of the pipeline's queries to their reporters.

    Reports of the query with the name `rows` are also passed to the LagListener `lag`, which commits its offsets.
    """

    def __init__(self, names: dict[str, Reporter], lag: LagListener | None, rows: str) -> None:
        self._names, self._lag, self._rows = names, lag, rows
        self._runs: dict[str, str] = {}

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  Spark's name, as those below
        """Store the name of a query of this pipeline by its run id. Other queries of the session are ignored."""
        if event.name in self._names:
            self._runs[str(event.runId)] = event.name

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802  Spark's name
        """Report a finished micro-batch."""
        name = event.progress.name
        if name in self._names:
            self._names[name].progress(json.loads(event.progress.json))
        if name == self._rows and self._lag is not None:
            self._lag.onQueryProgress(event)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802  Spark's name
        """Do nothing: there are no new records."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802  Spark's name
        """Report the end of a query."""
        name = self._runs.get(str(event.runId))
        if name is not None:
            self._names[name].terminated(str(event.runId))
        if name == self._rows and self._lag is not None:
            self._lag.onQueryTerminated(event)


@contextlib.contextmanager
def _stop_signals(stop: threading.Event) -> Iterator[None]:
    """Handle signals during the block: the first SIGTERM or SIGINT sets `stop`, a second raises KeyboardInterrupt.

    No handlers are installed if this is not the main thread, because Python does not allow it.
    """

    def handle(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        _write(f"{signal.Signals(number).name}: stopping after this micro-batch\n")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(
    config: PipelineConfig,
    given: Any = None,
    *,
    metrics_reporters: Sequence[object] = (),
    stop: threading.Event | None = None,
) -> Outcome:
    """Run a pipeline, as `kconsumer.spark.pipeline.run` describes. `given`: the session, or None to create one.

    Another thread can set `stop` to end the run.
    """
    stop, clock = stop or threading.Event(), Clock()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_stop_signals(stop))
        spark = stack.enter_context(_session(config, given))
        stack.enter_context(_stop_signals(stop))
        metrics = stack.enter_context(exported_metrics(config.run, metrics_reporters, clock))
        reporter = Reporter(_write, config.run.progress_log, clock, metrics.record)
        done = until_started(
            lambda: _attempt(spark, config, reporter, stop), lambda: any(reporter.done.values()),
            config.run.start_timeout, clock.now, stop.wait, _write,
        )  # fmt: skip
        return done or Outcome(0, 0, 0, stopped=True)


def _attempt(spark: Any, config: PipelineConfig, reporter: Reporter, stop: threading.Event) -> Outcome:
    """Check everything and start the queries. Returns when they have ended."""
    findings = checks.before_start(config, spark)
    _report_findings(findings)
    streams = plans(spark, config)
    adapt(spark, config, outputs(config, streams))
    files = sinks.Folder(spark, config.run.checkpoint)
    queries = {name: QueryId(f"{config.run.name} {name}", query_progress(files, name)) for name in streams}
    rows = queries["rows"].name
    listener = Listener({query.name: reporter for query in queries.values()}, _lag(config), rows)
    spark.streams.addListener(listener)
    try:
        with _noted(spark, config, stop):
            return _run(spark, config, reporter, streams, queries, stop, findings)
    finally:
        spark.streams.removeListener(listener)


@contextlib.contextmanager
def _noted(spark: Any, config: PipelineConfig, stop: threading.Event) -> Iterator[None]:
    """Store in the checkpoint that this process runs the pipeline, and afterwards how the run ended."""
    _note(spark, config, "running")
    try:
        yield
    except BaseException as error:
        _note(spark, config, "failed", f"{type(error).__name__}: {error}".splitlines()[0])
        raise
    _note(spark, config, "stopped" if stop.is_set() else "finished")


def _note(spark: Any, config: PipelineConfig, state: str, error: str = "") -> None:
    """Write the file that `--status` reads. A failure is logged and does not end the pipeline."""
    note = RunNote(state, Clock().wall_ms(), socket.gethostname(), os.getpid(), __version__, error)
    try:
        sinks.Folder(spark, config.run.checkpoint).write_text(NOTE, note.to_json())
    except Exception as failure:  # whatever the JVM raises, which may have ended
        log.warning("cannot write %s/%s: %s", config.run.checkpoint, NOTE, failure)


def _run(
    spark: Any,
    config: PipelineConfig,
    reporter: Reporter,
    streams: dict[str, Any],
    queries: dict[str, QueryId],
    stop: threading.Event,
    findings: list[checks.Check],
) -> Outcome:
    writers: dict[str, Writer] = {"rows": RowsWriter(spark, config, reporter, queries["rows"])}
    if "windows" in streams:
        writers["windows"] = WindowsWriter(spark, config, queries["windows"])
    started: list[Any] = []
    try:
        for name, stream in streams.items():
            started.append(_start(stream, config, queries[name], writers[name]))
        while any(query.isActive for query in started) and not stop.wait(0.1):
            _raise_failure(started)
        if stop.is_set():
            _finish_batch(reporter, started, config.run.stop_timeout)
    finally:
        for query in started:
            query.stop()
        for writer in writers.values():
            writer.close()
        runs = {str(query.runId) for query in started}
        reporter.wait(lambda reported: runs <= reported.ended, LAST_REPORT_TIMEOUT_S)
    _raise_failure(started)
    rows = queries["rows"].name
    return Outcome(reporter.rows.get(rows, 0), reporter.invalid, reporter.done.get(rows, 0), stop.is_set(), findings)


def _lag(config: PipelineConfig) -> LagListener | None:
    source = options.parse(config.source, "stream")
    group: str | None = source["commitGroupId"]
    return None if group is None else LagListener(group, **source.client_options())


def _finish_batch(reporter: Reporter, started: list[Any], seconds: float) -> None:
    """Wait until the running micro-batches have finished, at most `seconds`.

    If a query is stopped during a micro-batch, the next start of the pipeline repeats the micro-batch.
    """
    names = [query.name for query in started if query.isActive and query.status["isTriggerActive"]]
    before = dict(reporter.done)
    reporter.wait(lambda reported: all(reported.done.get(name, 0) > before.get(name, 0) for name in names), seconds)


def _raise_failure(started: list[Any]) -> None:
    for query in started:
        error = None if query.isActive else query.exception()
        if error is not None:
            raise PipelineError(f"{query.name} failed: {error}")


def _report_findings(findings: list[checks.Check]) -> None:
    for check in findings:
        if check.level == "warn":
            _write(check.line() + "\n")
    failed = [check for check in findings if check.level == "fail"]
    if failed:
        raise PipelineError("; ".join(f"{check.what}: {check.text}" for check in failed))


def dry_run(config: PipelineConfig, given: Any = None) -> list[checks.Check]:
    """Check a pipeline, as `kconsumer.spark.pipeline.dry_run` describes."""
    with _session(config, given) as spark:
        found = list[checks.Check]()
        try:
            found.extend(checks.everything(config, spark))
            streams = plans(spark, config)
            written = outputs(config, streams)
            find_changes(spark, config, written)
        except Exception as error:  # also of a checkpoint that is damaged or cannot be read
            return [*found, checks.Check("plan", "fail", first_line(error))]
        found.append(_planned("rows", config.sink, written["rows"]))
        if config.dead_letters.path is not None and config.decode.on_invalid == "deadletter":
            invalid = frames.dead_letters(streams["rows"])
            found.append(checks.Check("plan", "ok", f"invalid -> {config.dead_letters.path}: {_columns(invalid)}"))
        if "windows" in written:
            found.append(_planned("windows", config.aggregate_sink, written["windows"]))
    return found


def status(config: PipelineConfig, given: Any = None) -> list[checks.Check]:
    """Say where a pipeline is, as `kconsumer.spark.pipeline.status` describes, if its checkpoint is elsewhere."""
    with _session(config, given) as spark:
        return find_status(config, Clock().wall_ms(), sinks.Folder(spark, config.run.checkpoint))


def replay(config: PipelineConfig, start: str, end: str, given: Any = None) -> Replayed:
    """Read a range of time again, as `kconsumer.spark.pipeline.replay` describes."""
    with _session(config, given) as spark:
        _report_findings([check for found in (checks.outputs, checks.packages) for check in found(config, spark)])
        return replay_in(spark, config, start, end)


def _planned(name: str, sink: Sink, frame: Any) -> checks.Check:
    by = f" by {', '.join(sink.partition_by)}" if sink.partition_by else ""
    return checks.Check("plan", "ok", f"{name} -> {sink.format} {sink.place}{by}: {_columns(frame)}")


def _columns(frame: Any) -> str:
    return ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in frame.schema.fields)
