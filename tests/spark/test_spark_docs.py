"""Code blocks of docs/spark.md and docs/pipeline.md run as they are printed, in the session of these tests.

`SparkSession.builder.getOrCreate()` returns that session. Only the broker's address and the folder `/data` are
replaced.
"""

from __future__ import annotations

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
def orders(kafka: Kafka) -> None:
    """Create the topic that the pages name."""
    kafka.create_topic("orders", partitions=2)
    kafka.produce("orders", [b'{"id": %d, "amount": 1.5}' % number for number in range(RECORDS)], partition=0)


@pytest.fixture
def replaced(kafka: Kafka, tmp_path: Path) -> dict[str, str]:
    """Returns the texts of blocks to replace, with their replacements."""
    return {"localhost:9092": kafka.bootstrap_servers, "/data": str(tmp_path)}


@pytest.mark.parametrize("block", blocks("docs/spark.md", "python"), ids=lambda block: block.name)
def test_python(block: Block, spark: Any, orders: None, replaced: dict[str, str], tmp_path: Path) -> None:
    """A block runs without an error; if it writes to a folder, the folder contains every record of the topic."""
    run_python(block, replaced)
    if (tmp_path / "orders").exists():
        assert RECORDS == spark.read.parquet(str(tmp_path / "orders")).count()


WHOLE = [block for block in blocks("docs/pipeline.md", "toml") if "[source]" in block.text]  # others show a section


@pytest.mark.parametrize("block", WHOLE, ids=lambda block: block.name)
def test_pipeline(block: Block, spark: Any, orders: None, replaced: dict[str, str], tmp_path: Path) -> None:
    """The pipeline's file passes every check of a dry run, which plans its queries."""
    text = block.text
    for before, after in replaced.items():
        text = text.replace(before, after)
    (tmp_path / "orders.toml").write_text(text)
    assert [] == [check.line() for check in dry_run(load(tmp_path / "orders.toml"), spark) if check.level == "fail"]
