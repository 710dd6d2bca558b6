"""docs/guides/operating.md and examples/monitoring name metrics, states and log lines that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kconsumer import Consumer
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


@pytest.mark.parametrize(("file", "count"), [("alerts.yml", 6), ("dashboard.json", 8)])
def test_rules_and_panels_name_metrics(file: str, count: int, metrics: set[tuple[str, str]]) -> None:
    """Metrics have the names under which examples/metrics_prometheus.py serves them."""
    text = (MONITORING / file).read_text(encoding="utf-8")
    named = re.findall(r"\bkconsumer_\w+", text)
    served = {re.sub(r"\W", "_", f"kconsumer_{group}_{name}") for group, name in metrics}
    assert (count, set()) == (len(named), set(named) - served)


def test_the_dashboard_is_json() -> None:
    """Each panel has a query, and no two panels have the same place."""
    panels = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))["panels"]
    assert all(target["expr"] for panel in panels for target in panel["targets"])
    assert len(panels) == len({tuple(sorted(panel["gridPos"].items())) for panel in panels})
