"""Metrics for Prometheus: python examples/metrics_prometheus.py localhost:9092 my-group my-topic [PORT].

Reads the topic and serves http://127.0.0.1:PORT/metrics. Needs the package prometheus-client.
"""

from __future__ import annotations

import sys
from contextlib import suppress

from prometheus_client import start_http_server

from kconsumer import Consumer
from kconsumer.prometheus import PrometheusReporter


def main(servers: str, group: str, topic: str, port: str = "9404") -> None:
    """Read until Ctrl-C."""
    server, _ = start_http_server(int(port), addr="127.0.0.1")
    print(f"http://127.0.0.1:{server.server_port}/metrics", flush=True)
    options = {"group_id": group, "auto_offset_reset": "earliest"}
    reporter = PrometheusReporter(max_partitions=100)
    with Consumer(topic, bootstrap_servers=servers, metrics_reporters=[reporter], **options) as consumer:
        while True:
            consumer.poll()


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit("usage: metrics_prometheus.py HOST:PORT GROUP TOPIC [PORT]")
    with suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
