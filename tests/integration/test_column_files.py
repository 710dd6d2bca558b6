"""`kconsumer consume -o FILE`: the file's contents, when the file appears, and what a group commits."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from kconsumer.arrow import COLUMNS
from kconsumer.cli import main
from support.brokers.kafka import Kafka
from support.harnesses.polling import numbered


def rows(path: Path) -> pa.Table:
    """Returns the file as a table in order of offsets."""
    table = parquet.read_table(path) if path.suffix == ".parquet" else pa.ipc.open_file(path).read_all()
    assert list(COLUMNS) == table.column_names
    return table.sort_by([("partition", "ascending"), ("offset", "ascending")])


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_file_of_a_topic(kafka: Kafka, topic_name: str, tmp_path: Path, suffix: str) -> None:
    """The command writes the whole topic up to its end, or a number of records, or none."""
    kafka.create_topic(topic_name, 2)
    for partition in range(2):
        kafka.produce(topic_name, numbered(3000), headers=[("h", b"x")], partition=partition)
    command = ["consume", topic_name, "-b", kafka.bootstrap_servers, "--exit-at-end"]
    path = tmp_path / f"all.{suffix}"
    assert 0 == main([*command, "-o", str(path)])
    table = rows(path)
    assert numbered(3000) * 2 == table["value"].to_pylist()
    assert [{"key": "h", "value": b"x"}] == table["headers"][0].as_py()
    assert 0 == main([*command, "-n", "7", "-o", str(path)])
    assert 7 == rows(path).num_rows, "an older file is replaced"
    assert 0 == main([*command, "--from", "latest", "-o", str(path)])
    assert (0, table.schema) == (rows(path).num_rows, rows(path).schema)
    assert [path] == list(tmp_path.iterdir())


def test_group_commits_what_the_file_holds(kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """Two files of one group have different records; the offsets of a file that failed are not committed."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(50))
    command = ["consume", topic_name, "-b", kafka.bootstrap_servers, "-g", topic_name, "--from", "earliest", "-n", "20"]
    assert 0 == main([*command, "-o", str(tmp_path / "1.parquet")])
    assert {0: 20} == kafka.committed(topic_name, topic_name)
    (tmp_path / "2.parquet").mkdir()
    assert 1 == main([*command, "-o", str(tmp_path / "2.parquet")])
    assert not list(tmp_path.glob("*.part"))
    assert {0: 20} == kafka.committed(topic_name, topic_name)
    assert 0 == main([*command, "-o", str(tmp_path / "3.parquet")])
    assert numbered(20, 20) == rows(tmp_path / "3.parquet")["value"].to_pylist()


def test_usage(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Unknown file formats, missing folders and a missing pyarrow give an error of one line."""
    command = ["consume", "t", "-b", "127.0.0.1:1", "-o"]
    for name, reason in (
        ("x.csv", "does not end in .parquet"),
        ("nowhere/x.arrow", "the folder 'nowhere' does not exist"),
    ):
        assert 2 == main([*command, name])
        assert reason in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert 1 == main([*command, str(tmp_path / "x.arrow")])
    assert "pip install pyarrow" in capsys.readouterr().err
