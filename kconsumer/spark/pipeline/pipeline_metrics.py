"""Metrics of a pipeline, in the form of a consumer's, so that the same reporters export them.

The section `run` of the file names what exports them: an endpoint or a file for Prometheus, or OpenTelemetry. Programs
pass reporters of their own. `PipelineMetrics` receives each finished micro-batch from `reporting.py`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kconsumer._core.lock import Clock
from kconsumer.metrics.registry import Metrics, Row, Sensor, Stat
from kconsumer.metrics.reporters import Reporters
from kconsumer.spark.pipeline.settings import Run
from kconsumer.types import MetricName

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from kconsumer.spark.pipeline.reporting import BatchReport

__all__ = ["GROUP", "PipelineMetrics", "exported_metrics", "require_exporters"]

log = logging.getLogger(__name__)

GROUP = "pipeline-metrics"
RECORDS: tuple[Row, ...] = (
    ("records-rate", Stat.RATE, "Records of finished micro-batches per second"),
    ("records-total", Stat.TOTAL, "Records of finished micro-batches"),
)
INVALID: tuple[Row, ...] = (("invalid-records-total", Stat.TOTAL, "Invalid records, which are the dead letters"),)
BATCHES: tuple[Row, ...] = (
    ("batch-duration-avg", Stat.AVG, "Mean duration of a micro-batch, ms"),
    ("batch-duration-max", Stat.MAX, "Longest duration of a micro-batch, ms"),
    ("batch-duration-total", Stat.TOTAL, "Duration of all micro-batches, ms"),
    ("batch-total", Stat.COUNT, "Finished micro-batches"),
)
LAG = "records-lag", "Offsets that the topic had beyond the last micro-batch when it began"
LAST_BATCH = "last-batch-seconds-ago", "Time since a micro-batch finished, s; -1: none has"


@dataclass
class _Query:
    """The metrics of one query."""

    records: Sensor
    invalid: Sensor
    batches: Sensor
    last_batch: float | None = None  # when a micro-batch finished, ms
    lags: Mapping[str, int] = field(default_factory=dict)  # by topic


class PipelineMetrics:
    """The metrics of a pipeline, by query. `name` is the value of the tag `client-id`.

    `written` is called after each micro-batch, when all metrics have their new values.
    """

    def __init__(
        self, name: str, reporters: Sequence[object], clock: Clock, written: Sequence[Callable[[], object]] = ()
    ) -> None:
        self._clock, self._written = clock, written
        self._metrics = Metrics(tags=(("client-id", name),))
        self._metrics.report_to(Reporters(reporters, clock.now))
        self._queries: dict[str, _Query] = {}

    def record(self, report: BatchReport) -> None:
        """Add a finished micro-batch."""
        query = self._queries.get(report.query) or self._add_query(report.query)
        now = query.last_batch = self._clock.now()
        query.records.record(report.rows, now)
        query.invalid.record(report.invalid, now)
        query.batches.record(report.seconds * 1000, now)
        known, query.lags = query.lags, report.lag
        for topic in report.lag.keys() - known.keys():
            self._add_lag(report.query, query, topic)
        for topic in known.keys() - report.lag.keys():
            self._metrics.remove(self._lag_name(report.query, topic))
        for write in self._written:
            write()

    def close(self) -> None:
        """Close the reporters, which then export nothing more."""
        self._metrics.close()

    def _add_query(self, name: str) -> _Query:
        tag = ("query", name)
        records, invalid, batches = (self._metrics.sensor(GROUP, rows, tag) for rows in (RECORDS, INVALID, BATCHES))
        query = _Query(records, invalid, batches)
        last = self._metrics.name(LAST_BATCH[0], GROUP, LAST_BATCH[1], tag)
        self._metrics.seconds_since(last, lambda: query.last_batch)
        self._queries[name] = query
        return query

    def _add_lag(self, name: str, query: _Query, topic: str) -> None:
        self._metrics.gauge(self._lag_name(name, topic), lambda now: float(query.lags.get(topic, 0)))

    def _lag_name(self, query: str, topic: str) -> MetricName:
        return self._metrics.name(LAG[0], GROUP, LAG[1], ("query", query), ("topic", topic))


# --- exporters -----------------------------------------------------------------------------------------------------


def require_exporters(run: Run) -> None:
    """Import the packages that the section `run` needs. Raises ImportError for one that is missing."""
    if run.prometheus or run.prometheus_file:
        import kconsumer.prometheus
    if run.opentelemetry:
        import kconsumer.opentelemetry  # noqa: F401  the import is the check


@contextlib.contextmanager
def exported_metrics(run: Run, given: Sequence[object], clock: Clock) -> Iterator[PipelineMetrics]:
    """Export metrics during the block, as the section `run` says, and through the reporters `given`.

    Raises OSError if the address for Prometheus is in use.
    """
    reporters, written = list(given), []
    with contextlib.ExitStack() as stack:
        if run.prometheus or run.prometheus_file:
            from prometheus_client import CollectorRegistry

            from kconsumer.prometheus import PrometheusReporter

            registry = CollectorRegistry()
            reporters.append(PrometheusReporter(registry))
            if run.prometheus:
                stack.enter_context(_endpoint(run.prometheus, registry))
            if run.prometheus_file:
                written.append(lambda path=run.prometheus_file: _write_file(path, registry))
        if run.opentelemetry:
            from kconsumer.opentelemetry import OpenTelemetryReporter

            reporters.append(OpenTelemetryReporter())
        yield stack.enter_context(contextlib.closing(PipelineMetrics(run.name, reporters, clock, written)))


@contextlib.contextmanager
def _endpoint(address: str, registry: CollectorRegistry) -> Iterator[None]:
    """Serve a registry at an address such as `127.0.0.1:9404` during the block."""
    from prometheus_client import start_http_server

    host, _, port = address.rpartition(":")
    server, thread = start_http_server(int(port), host, registry)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _write_file(path: str, registry: CollectorRegistry) -> None:
    """Replace the file with the metrics. A failure is logged and does not end the pipeline."""
    from prometheus_client import write_to_textfile

    try:
        write_to_textfile(path, registry)
    except OSError as error:
        log.warning("cannot write to %s: %s", path, error)
