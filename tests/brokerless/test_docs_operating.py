"""docs/guides/operating.md and examples/monitoring name metrics, states and log lines that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kconsumer import Consumer
from kconsumer.prometheus import PrometheusReporter
from kconsumer.testing import FakeCluster
from kconsumer.types import PartitionCondition

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guides" / "operating.md").read_text(encoding="utf-8")
MONITORING = ROOT / "examples" / "monitoring"


@pytest.fixture(scope="module")
def metrics() -> Iterator[set[tuple[str, str]]]:
    """The groups and names of the metrics of a consumer that has read a topic."""
    with FakeCluster() as cluster:
        cluster.create_topic("orders")
        cluster.produce("orders", ["a"])
        options = {"group_id": "g", "auto_offset_reset": "earliest"}
        with Consumer("orders", bootstrap_servers=cluster.bootstrap_servers, **options) as consumer:
            assert consumer.poll(timeout=20)
            yield {(metric.group, metric.name) for metric in consumer.metrics()}


def first_column(heading: str) -> list[str]:
    """Returns what the table under a heading has in backticks in its first column."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `([\w-]+)` \|", section, re.MULTILINE)


def test_the_metrics_to_watch_exist(metrics: set[tuple[str, str]]) -> None:
    """Each row of the table is a metric."""
    rows = first_column("Watch")
    assert len(rows) > 5
    assert set() == set(rows) - {name for _, name in metrics}


def test_the_table_of_states_is_complete() -> None:
    """Each state of a partition has its row, in the order of the enum."""
    assert [state.value for state in PartitionCondition] == first_column("A consumer that reads nothing")


@pytest.mark.parametrize(("file", "count"), [("alerts.yml", 8), ("dashboard.json", 8)])
def test_rules_and_panels_name_metrics(file: str, count: int, metrics: set[tuple[str, str]]) -> None:
    """Metrics have the names under which `kconsumer.prometheus` exports them."""
    text = (MONITORING / file).read_text(encoding="utf-8")
    named = re.findall(r"\bkconsumer_\w+", text)
    served = {re.sub(r"\W", "_", f"kconsumer_{group}_{name}") for group, name in metrics}
    assert (count, set()) == (len(named), set(named) - served)


def exported(text: str) -> dict[str, set[str]]:
    """Returns the names of all series of a scrape, each with its labels."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.mark.parametrize("file", ["alerts.yml", "dashboard.json"])
def test_rules_and_panels_name_series_that_are_exported(file: str) -> None:
    """Each query names series that PrometheusReporter exports for a consumer that reads, and labels that they have."""
    registry = CollectorRegistry()
    reporter = PrometheusReporter(registry, max_partitions=10)
    with FakeCluster() as cluster:
        cluster.create_topic("orders")
        cluster.produce("orders", ["a"])
        options = {"group_id": "g", "auto_offset_reset": "earliest", "metrics_reporters": [reporter]}
        with Consumer("orders", bootstrap_servers=cluster.bootstrap_servers, **options) as consumer:
            assert consumer.poll(timeout=20)
            consumer.commit()
            consumer.poll(timeout=0)
            series = exported(generate_latest(registry).decode())
    text = (MONITORING / file).read_text(encoding="utf-8")
    queries = [query for query in re.split(r'"expr":|expr:|\n', text) if "kconsumer_" in query]
    assert len(queries) > 4
    for query in queries:
        names = re.findall(r"\bkconsumer_\w+", query)
        assert set() == set(names) - set(series)
        grouped = [part.split(",") for part in re.findall(r"\bby \(([^)]*)\)", query)]
        filtered = re.findall(r"[{,]\s*(\w+)\s*=~?", query)
        labels = {label.strip() for part in grouped for label in part} | set(filtered)
        assert labels <= {"instance"}.union(*(series[name] for name in names))  # Prometheus adds `instance`


def test_the_dashboard_is_json() -> None:
    """Each panel has a query, and no two panels have the same place."""
    panels = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))["panels"]
    assert all(target["expr"] for panel in panels for target in panel["targets"])
    assert len(panels) == len({tuple(sorted(panel["gridPos"].items())) for panel in panels})
