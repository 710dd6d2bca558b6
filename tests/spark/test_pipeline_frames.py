"""Records and settings with which a pipeline might lose rows: they are written, are dead letters, or are refused."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from kconsumer.errors import ConfigError
from kconsumer.spark.pipeline import checks, dry_run, frames, parse, run
from kconsumer.spark.pipeline.reporting import Reporter
from kconsumer.spark.pipeline.runner import PipelineError
from kconsumer.spark.pipeline.settings import DELETED
from kconsumer.testing import FakeCluster

SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "string"}]}'
DECODED = (
    "key binary, value struct<id: string>, valueError string, valueBytes binary, topic string, partition int,"
    " offset long, timestamp timestamp, headers array<struct<key: string, value: binary>>"
)


def document(folder: Path, **changes: Any) -> dict[str, Any]:
    """Returns a pipeline over a topic `t`. `section__key=value` changes it."""
    given: dict[str, Any] = {
        "source": {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "startingOffsets": "earliest"},
        "decode": {"schema": "id long"},
        "dead_letters": {"path": str(folder / "dead")},
        "sink": {"path": str(folder / "rows"), "partition_by": []},
        "run": {"checkpoint": str(folder / "checkpoint")},
    }
    for name, value in changes.items():
        section, _, key = name.partition("__")
        given[section][key] = value
    return given


def test_what_deletes_a_row(spark: Any, tmp_path: Path) -> None:
    """Only a record without a value deletes the row of its key; a null of Avro is an invalid value. A column of the key
    that is a header of the record is read from the header.
    """
    upsert = {"format": "delta", "path": str(tmp_path / "t"), "mode": "upsert", "key": ["id", "tenant"]}
    avro = {"decode__format": "avro", "decode__schema": SCHEMA, "decode__headers": {"tenant": "tenant"}}
    config = parse({**document(tmp_path, **avro), "sink": upsert})
    headers = [("tenant", b"x")]
    values: list[tuple[Any, bytes | None]] = [(("a",), b"\x02\x02a"), (None, b"\0"), (None, None)]
    rows = [
        (b'{"id": "a"}', value, None, raw, "t", 0, offset, datetime(2026, 1, 1), headers)
        for offset, (value, raw) in enumerate(values)
    ]
    found = frames.decoded(spark.createDataFrame(rows, DECODED), config.decode, config.sink.key).orderBy("kafka_offset")
    expected = [("a", "x", 0, None), (None, "x", 0, "no value"), ("a", "x", 1, None)]
    assert expected == [tuple(row) for row in found.select("id", "tenant", DELETED, frames.REASON).collect()]


def test_keys_that_are_no_text(spark: Any, tmp_path: Path) -> None:
    """A delete whose key is neither text nor JSON is an invalid record, and not the delete of another key."""
    upsert = {"format": "delta", "path": str(tmp_path / "t"), "mode": "upsert", "key": ["id"]}
    config = parse({**document(tmp_path, decode__schema="id string"), "sink": upsert})
    keys = [b"\0\0\0\0\7\x02a", b"\xff", b'{"payload": {"id": "a"}}', b"a", b'"a"', b'{"id": "a"}', None]
    rows = [(key, None, "t", 0, offset, datetime(2026, 1, 1)) for offset, key in enumerate(keys)]
    found = frames.decoded(spark.createDataFrame(rows, frames.RECORD), config.decode, config.sink.key)
    expected = [(None, "no key")] * 3 + [("a", None)] * 3 + [(None, "no key")]
    assert expected == [tuple(row) for row in found.orderBy("kafka_offset").select("id", frames.REASON).collect()]


@pytest.mark.parametrize(
    ("key", "value"), [("rules", {"half": "rand() < 0.5"}), ("event_time", "timestamp_seconds(rand() * 10)")]
)
def test_random_expressions(spark: Any, tmp_path: Path, key: str, value: object) -> None:
    """An expression that is not the same when a record is read again is refused: the record could be neither valid nor
    invalid.
    """
    config = parse(document(tmp_path, **{f"decode__{key}": value}))
    with pytest.raises(ConfigError, match=f"{key}.* must have the same value"):
        frames.decoded(spark.createDataFrame([], frames.RECORD), config.decode)


@pytest.mark.parametrize("parser", ["spark", "kconsumer"])
@pytest.mark.parametrize(
    "kind", ["struct<a: int, A: int>", "array<map<string, struct<`é`: int, b: int, `É`: struct<c: int>>>>"]
)
def test_inner_fields_with_one_name(spark: Any, tmp_path: Path, parser: str, kind: str) -> None:
    """Two fields of an inner struct whose names differ in case only are refused before anything is written."""
    config = parse(document(tmp_path, decode__schema=f"x {kind}", decode__parser=parser))
    with pytest.raises(ConfigError, match=r"two fields with one name for Spark: (a, A|é, É)$"):
        run(config, spark)
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize(
    ("path", "words"), [("s3://b/rows", 'No FileSystem for scheme "s3"'), ("rows:1", "URI: rows:1")]
)
def test_paths_that_hadoop_refuses(spark: Any, tmp_path: Path, path: str, words: str) -> None:
    """A path that Hadoop does not accept, or for which it has no file system, is an error of the file's settings."""
    config = parse(document(tmp_path, sink__path=path))
    with pytest.raises(ConfigError, match=f"{path}.*{words}"):
        run(config, spark)


def test_one_folder_in_another(spark: Any, tmp_path: Path) -> None:
    """Folders that are inside one another are found in whatever form they are written, and files in an output, too."""

    def found(**changes: str) -> list[str]:
        return [check.text for check in checks.outputs(parse(document(tmp_path, **changes)), spark)]

    inside = f"{tmp_path}/./other/../rows/dead"
    assert "dead_letters.path" in found(dead_letters__path=inside)[0]
    assert "sink.path" in found(sink__path=f"file://{tmp_path}/dead/rows")[0]
    assert "run.progress_log" in found(run__progress_log=f"{tmp_path}/rows/log")[0]
    assert [] == found(run__progress_log=f"{tmp_path}/checkpoint/log", sink__path=f"{tmp_path}//rows/")


def test_settings_that_change(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dead letters of an interrupted micro-batch are deleted if the next start drops invalid records. Another place of
    the rows is refused before anything is written, also if a start has died while it stored the settings, and so is
    one of the dead letters of an interrupted micro-batch.
    """
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.produce("t", [b'{"id": 1}', b"bad"])
        given = document(tmp_path, **{"source__kafka.bootstrap.servers": cluster.bootstrap_servers})

        def refused(words: str, **changes: Any) -> None:
            changed = parse(given | {section: given[section] | keys for section, keys in changes.items()})
            with pytest.raises(ConfigError, match=words):
                run(changed, spark)
            assert words in dry_run(changed, spark)[-1].text
            assert not (tmp_path / "other").exists()

        with monkeypatch.context() as patch:
            patch.setattr(Reporter, "counted", None)
            with pytest.raises(PipelineError):
                run(parse(given), spark)
        assert 1 == len(list((tmp_path / "dead").glob("*.parquet")))
        other = {"path": str(tmp_path / "other")}
        refused("micro-batch 0 was interrupted", dead_letters=other)
        given["decode"]["on_invalid"] = "drop"
        assert 2 == run(parse(given), spark).rows
        assert [[], [1]] == [[row.id for row in read(spark, tmp_path / name)] for name in ("dead", "rows")]
        refused("sink.path was 'file:", sink=other)
        (tmp_path / "checkpoint" / "schema.json").write_text("{")
        refused("sink.partition_by was", sink={"partition_by": ["date"]})
        (tmp_path / "checkpoint" / "schema.json.copy").unlink()
        refused("schema.json in run.checkpoint, with the columns", sink=other)
        (tmp_path / "checkpoint" / "schema.json").unlink()
        given |= {"dead_letters": other, "sink": given["sink"] | {"path": f"file://{tmp_path}/./rows/"}}
        cluster.produce("t", [b'{"id": 2}'])
        assert 1 == run(parse(given), spark).rows
        assert [1, 2] == sorted(row.id for row in read(spark, tmp_path / "rows"))


def read(spark: Any, folder: Path) -> Any:
    """Returns the rows of a folder."""
    return spark.read.schema("id long").parquet(str(folder)).collect()
