"""`kconsumer consume -o FILE`: the file's contents, when the file appears, and what a group commits."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from pyarrow import parquet

from kconsumer import ConsumerRecord
from kconsumer.arrow import COLUMNS
from kconsumer.cli import files, main
from kconsumer.cli.files import ColumnFile
from support.brokers.kafka import Kafka
from support.harnesses.polling import numbered
from support.registry.server import registry_server
from support.registry.values import OLD, avro


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


def test_runs_with_one_file_exclude_each_other(kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """While a run writes a file, another one fails and commits nothing. What a killed run has left is no obstacle."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(20))
    path = tmp_path / "x.parquet"
    command = ["consume", topic_name, "-b", kafka.bootstrap_servers, "-g", topic_name, "--from", "earliest", "-n", "10"]
    with ColumnFile(path):
        assert 1 == main([*command, "-o", str(path)])
        assert {} == kafka.committed(topic_name, topic_name)
    path.unlink()
    path.with_name("x.parquet.part").write_bytes(b"of a run that was killed")
    assert 0 == main([*command, "-o", str(path)])
    assert {0: 10} == kafka.committed(topic_name, topic_name)
    assert 1 == main([*command, "-o", str(path)])
    assert {0: 10} == kafka.committed(topic_name, topic_name)
    assert numbered(10) == rows(path)["value"].to_pylist(), "with a group no file is replaced"
    assert [path] == list(tmp_path.iterdir())


def test_decoded_columns(kafka: Kafka, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Values are columns of the types that the deserializer returns; what does not decode fails, or is counted."""
    kafka.create_topic(topic_name)
    values = [b'{"a": 1}', None, b'{"a": 2, "b": [1.5]}', b"no JSON", b'{"a": null}']
    kafka.produce(topic_name, values)
    path = tmp_path / "x.parquet"
    command = ["consume", topic_name, "-b", kafka.bootstrap_servers, "--exit-at-end", "-o", str(path)]
    options = ["-X", "value_deserializer=json", "-X", "key_deserializer=str"]
    assert 1 == main([*command, *options])
    assert not path.exists()
    assert 0 == main([*command, *options, "--skip-undecodable"])
    assert "1 records could not be decoded" in capsys.readouterr().err
    table = rows(path)
    assert {"a": 2, "b": [1.5]} == table["value"].to_pylist()[2]
    assert [1, None, 2, None] == [value and value["a"] for value in table["value"].to_pylist()]
    assert pa.timestamp("ms", "UTC") == table.schema.field("timestamp").type
    assert [0, 1, 2, 4] == table["offset"].to_pylist()


def test_values_of_a_registry(
    kafka: Kafka, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """-s value=avro with -r decodes values, for lines and for files; a registry that does not respond skips nothing."""
    kafka.create_topic(topic_name)
    with registry_server() as address, SchemaRegistryClient({"url": address}) as client:
        kafka.produce(topic_name, [avro(client, OLD, {"number": 7}, topic_name), b"nothing"])
        command = ["consume", topic_name, "-b", kafka.bootstrap_servers, "--exit-at-end", "-s", "value=avro"]
        assert 0 == main([*command, "-r", address, "--skip-undecodable"])
        assert '{"number": 7}\n' == capsys.readouterr().out
        path = tmp_path / "x.parquet"
        assert 0 == main([*command, "-r", address, "-r", "timeout=5", "--skip-undecodable", "-o", str(path)])
        assert [{"number": 7}] == rows(path)["value"].to_pylist()
    assert 1 == main([*command, "-r", address, "-r", "max.retries=0", "--skip-undecodable"])


def test_values_without_a_common_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoded values of several types, or fields that appear after rows were written, are an error and no file."""
    monkeypatch.setattr(files, "ROW_GROUP_ROWS", 1)
    path = tmp_path / "x.parquet"

    def write(*values: object) -> None:
        with ColumnFile(path) as file:
            for value in values:
                file.write_records([ConsumerRecord("t", 0, 0, value=value)], ["value"])

    for values in (({"a": 1}, {"a": "x"}), ({"a": 1}, {"b": 1}), (1, "x")):
        with pytest.raises(files.WriteError, match="cannot write"):
            write(*values)
        assert [] == list(tmp_path.iterdir())
    write({"a": 1}, None, {"a": None})
    assert [{"a": 1}, None, {"a": None}] == rows(path)["value"].to_pylist()


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
