"""The metrics examples on a consumer that reads: Prometheus over HTTP, and OpenTelemetry."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.brokers.kafka import Kafka
from support.brokers.kafka_admin import wait_until
from support.harnesses.polling import numbered

ROOT = Path(__file__).parents[2]
RECORDS_CONSUMED = ("records-consumed", "records-consumed-by-topic")


@contextmanager
def running(example: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run an example while the block runs, and end it by Ctrl-C; it must print nothing."""
    command = [sys.executable, "-u", str(ROOT / "examples" / example), *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
            assert (0, "") == (process.returncode, err)
        finally:
            process.kill()


@pytest.fixture
def topic(kafka: Kafka, topic_name: str) -> str:
    """A topic with 25 records."""
    kafka.create_topic(topic_name, 1)
    kafka.produce(topic_name, numbered(25), partition=0)
    return topic_name


def test_prometheus(kafka: Kafka, topic: str) -> None:
    """A scrape contains the number of records read, by client and by topic, and the lag of the partition."""
    with running("metrics_prometheus.py", kafka.bootstrap_servers, topic, topic, "0") as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()

        def scraped() -> tuple[str, list[str], list[str]] | None:
            # A scrape during poll() may contain some of the new values, and old ones.
            with urllib.request.urlopen(url, timeout=10) as response:
                text: str = response.read().decode()
            labels = re.findall(r"_records_consumed(?:_by_topic)?_total\{([^}]*)\} 25\.0\n", text)
            lags = re.findall(r"_records_lag\{([^}]*)\} 0\.0\n", text)
            return (text, labels, lags) if len(labels) > 1 and lags else None

        text, labels, (lag,) = wait_until(scraped, 30, "25 records in both counters of a scrape, and no lag")
    assert [False, True] == sorted(f'topic="{topic}"' in found for found in labels)
    assert {'partition="0"', f'topic="{topic}"'} <= set(lag.split(","))
    assert "# TYPE kconsumer_consumer_coordinator_metrics_assigned_partitions gauge\n" in text


def test_opentelemetry(kafka: Kafka, topic: str) -> None:
    """An export contains the number of records read as monotonic counters, of the client and by topic."""
    counters = [f"kconsumer.consumer-fetch-manager-metrics.{name}-total" for name in RECORDS_CONSUMED]
    with running("metrics_opentelemetry.py", kafka.bootstrap_servers, topic, topic) as process:
        assert process.stdout is not None
        text, counted = "", []
        for line in process.stdout:
            text += line
            if not line.startswith("}"):
                continue
            exported, text = json.loads(text), ""
            scopes = [scope for resource in exported["resource_metrics"] for scope in resource["scope_metrics"]]
            found = {metric["name"]: metric["data"] for scope in scopes for metric in scope["metrics"]}
            counted = [found[name] for name in counters if name in found]
            # An export during poll() may contain some of the new values, and old ones.
            if [25.0, 25.0] == [point["value"] for data in counted for point in data["data_points"]]:
                break
    assert [True, True] == [data["is_monotonic"] for data in counted]
    assert [topic] == [point["attributes"]["topic"] for point in counted[1]["data_points"]]
