"""Metrics for Prometheus: python examples/metrics_prometheus.py localhost:9092 my-group my-topic [PORT].

Reads the topic and serves http://127.0.0.1:PORT/metrics in the text format, with the standard library alone. A reporter
keeps the consumer's metrics, and the server's threads read their values for each request.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from kconsumer import Consumer, Metric, MetricName, MetricsReporter

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def prometheus_text(metrics: Mapping[MetricName, float]) -> str:
    """Return the metrics in the text format: `kconsumer_<group>_<name>{<tags>} <value>`, grouped by name."""
    families: dict[str, list[tuple[MetricName, float]]] = {}
    for metric, value in metrics.items():
        families.setdefault(_word(f"kconsumer_{metric.group}_{metric.name}"), []).append((metric, value))
    lines = []
    for family, rows in sorted(families.items()):
        description = rows[0][0].description.replace("\\", r"\\").replace("\n", r"\n")
        lines.append(f"# HELP {family} {description}")
        lines.append(f"# TYPE {family} {'counter' if family.endswith('_total') else 'gauge'}")
        lines += [f"{family}{_labels(metric)} {_number(value)}" for metric, value in rows]
    return "".join(line + "\n" for line in lines)


def _word(text: str) -> str:
    """Return the text, with each character that is not a letter or a digit replaced by an underscore."""
    return re.sub(r"\W", "_", text, flags=re.ASCII)


def _labels(metric: MetricName) -> str:
    escaped = {"\\": r"\\", '"': r"\"", "\n": r"\n"}
    labels = [f'{_word(key)}="{"".join(escaped.get(c, c) for c in str(value))}"' for key, value in metric.tags]
    return f"{{{','.join(labels)}}}" if labels else ""


def _number(value: float) -> str:
    """Return a number in Prometheus' text format, which writes NaN and infinity in another way than Python."""
    return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(str(value), str(float(value)))


class Latest(MetricsReporter):
    """Keeps the current metrics."""

    def __init__(self) -> None:
        self._metrics: dict[MetricName, Metric] = {}

    def init(self, metrics: Sequence[Metric]) -> None:
        """Add the metrics of a new consumer."""
        self._metrics.update((metric.name, metric) for metric in metrics)

    def metric_change(self, metric: Metric) -> None:
        """Add a metric, such as one of a new partition or connection."""
        self._metrics[metric.name] = metric

    def metric_removal(self, metric: Metric) -> None:
        """Remove a metric."""
        del self._metrics[metric.name]

    def values(self) -> dict[MetricName, float]:
        """Return the present values."""
        return {name: metric.value() for name, metric in list(self._metrics.items())}


class Page(ThreadingHTTPServer):
    """Serves the metrics of a reporter."""

    daemon_threads = True

    def __init__(self, port: int, reporter: Latest) -> None:
        self.reporter = reporter
        super().__init__(("127.0.0.1", port), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    server: Page

    def do_GET(self) -> None:
        """Respond with the metrics, whatever the path."""
        body = prometheus_text(self.server.reporter.values()).encode()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log no requests."""


def main(servers: str, group: str, topic: str, port: str = "9404") -> None:
    """Read until Ctrl-C."""
    reporter = Latest()
    page = Page(int(port), reporter)
    print(f"http://127.0.0.1:{page.server_port}/metrics", flush=True)
    with Consumer(
        topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", metrics_reporters=[reporter]
    ) as consumer:
        while True:
            consumer.poll()


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit("usage: metrics_prometheus.py HOST:PORT GROUP TOPIC [PORT]")
    with suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
