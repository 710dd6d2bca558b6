"""Code blocks of docs/spark.md and docs/pipeline.md run as they are printed, in the session of these tests.

`SparkSession.builder.getOrCreate()` returns that session. Only the broker's address, the topic and the folder
`/data` are replaced.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from kconsumer.spark.pipeline import dry_run, load
from support.brokers.kafka import Kafka
from support.harnesses.doc_blocks import BLOCKS, Block, run_python

RECORDS = 6


def blocks(page: str, language: str) -> list[Block]:
    """Returns the blocks of this page in this language."""
    return [block for block in BLOCKS if (page, language, True) == (block.page, block.language, block.runs)]


@pytest.fixture(scope="module")
def orders(kafka: Kafka) -> str:
    """Create the topic that the pages name `orders`. Returns its name, which no other process uses."""
    name = f"orders-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, partitions=2)
    kafka.produce(name, [b'{"id": %d, "amount": 1.5}' % number for number in range(RECORDS)], partition=0)
    return name


@pytest.fixture
def replaced(kafka: Kafka, orders: str, tmp_path: Path) -> dict[str, str]:
    """Returns the texts of blocks to replace, with their replacements."""
    return {
        "localhost:9092": kafka.bootstrap_servers,
        "/data": str(tmp_path),
        '"subscribe", "orders"': f'"subscribe", "{orders}"',
        'subscribe = "orders"': f'subscribe = "{orders}"',
        '"subscribe": "orders"': f'"subscribe": "{orders}"',
    }


PROGRAMS = [*blocks("docs/spark.md", "python"), *blocks("docs/pipeline.md", "python")]


@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: block.name)
def test_python(
    block: Block, spark: Any, replaced: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A block runs without an error; if it writes to a folder, the folder contains every record of the topic. Metrics
    count all of them.
    """
    run_python(block, replaced)
    if "metrics_reporters" in block.text:
        labels = '{client_id="pipeline",query="pipeline rows"}'
        line = f"kconsumer_pipeline_metrics_records_total{labels} {RECORDS:.1f}"
        assert line in (tmp_path / "orders.prom").read_text()
        assert line in capsys.readouterr().out
    if (tmp_path / "orders").exists():
        assert RECORDS == spark.read.parquet(str(tmp_path / "orders")).count()


WHOLE = [block for block in blocks("docs/pipeline.md", "toml") if "[source]" in block.text]  # others show a section


@pytest.mark.parametrize("block", WHOLE, ids=lambda block: block.name)
def test_pipeline(block: Block, spark: Any, replaced: dict[str, str], tmp_path: Path) -> None:
    """The pipeline's file passes every check of a dry run, which plans its queries."""
    text = block.text
    for before, after in replaced.items():
        text = text.replace(before, after)
    (tmp_path / "orders.toml").write_text(text)
    assert [] == [check.line() for check in dry_run(load(tmp_path / "orders.toml"), spark) if check.level == "fail"]
