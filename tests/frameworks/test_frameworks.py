"""The programs of docs/guides/frameworks.md, with the frameworks themselves and a real broker: tox -e frameworks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.brokers.kafka import KafkaCluster
from support.harnesses.doc_blocks import BLOCKS, Block, run_python

PAGE = "docs/guides/frameworks.md"
ON_PAGE = [block for block in BLOCKS if block.page == PAGE]
PROGRAMS = [block for block in ON_PAGE if block.language == "python"]
RECORDS = 12
DEADLINE_S = 90


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A broker with the topic of docs/start.md, and with the same records in a topic of three partitions."""
    with KafkaCluster() as kafka:
        values = [json.dumps({"number": number}).encode() for number in range(RECORDS)]
        kafka.create_topic("orders", partitions=1)
        kafka.produce("orders", values)
        kafka.create_topic("spread", partitions=3)
        for partition in range(3):
            kafka.produce("spread", values[partition::3], partition=partition)
        yield kafka.bootstrap_servers


def program(name: str) -> Block:
    """Returns the program of the page that imports a framework."""
    [found] = [block for block in PROGRAMS if f"import {name}" in block.text]
    return found


def output(text: str, folder: Path) -> str:
    """Run a program from a file, as users do. Returns what it prints."""
    file = folder / "program.py"
    file.write_text(text, encoding="utf-8")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert 0 == done.returncode, done.stderr
    return done.stdout


@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: block.name)
def test_programs(block: Block, servers: str, tmp_path: Path) -> None:
    """A program prints what the page shows, also on several partitions."""
    text = block.text.replace("localhost:9092", servers)
    shown = ON_PAGE[ON_PAGE.index(block) + 1].text
    assert shown.strip() == output(text, tmp_path).strip()
    spread = output(text.replace('"orders"', '"spread"'), tmp_path)
    assert shown.split()[-1] == spread.split()[-1]


def test_a_task_of_dask_that_runs_again(servers: str) -> None:
    """A range has the same rows each time, and all ranges have each record once."""
    names = run_python(program("dask"), {"localhost:9092": servers})
    tasks = names["ranges"]("spread")
    frames = [names["read"](task) for task in tasks]
    assert list(range(RECORDS)) == sorted(number for frame in frames for number in frame.number)
    assert [True] * len(tasks) == [frame.equals(names["read"](task)) for task, frame in zip(tasks, frames, strict=True)]


def test_bytewax_after_a_failure(servers: str) -> None:
    """A partition that is built with a snapshot continues with the record after it."""
    names = run_python(program("bytewax"), {"localhost:9092": servers})
    source = names["TopicSource"]("orders", ends=True)

    def read(resume_state: int | None, count: int) -> tuple[list[int], Any]:
        partition = source.build_part("orders", "0", resume_state)
        offsets: list[int] = []
        while len(offsets) < count:
            offsets += [record.offset for record in partition.next_batch()]
        state = partition.snapshot()
        if count == RECORDS or resume_state:
            with pytest.raises(StopIteration):
                partition.next_batch()
        partition.close()
        return offsets, state

    assert (list(range(RECORDS)), RECORDS) == read(None, RECORDS)
    assert (list(range(5, RECORDS)), RECORDS) == read(5, RECORDS - 5)
    assert ["0", "1", "2"] == names["TopicSource"]("spread").list_parts()


def test_the_page_has_a_program_of_each_kind() -> None:
    """No program is left out."""
    assert 2 == len(PROGRAMS)
