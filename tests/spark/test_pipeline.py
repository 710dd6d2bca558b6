"""A pipeline in a real session: good rows, dead letters and windows, a batch run again, the dry run."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from kconsumer._core.lock import Clock
from kconsumer.errors import ConfigError
from kconsumer.spark.pipeline import dry_run, parse, replay, run, runner, status
from kconsumer.spark.pipeline.batch_sink import Batch
from kconsumer.spark.pipeline.checkpoint import LocalFiles
from kconsumer.spark.pipeline.replay_run import Replayed
from kconsumer.spark.pipeline.runner import PipelineError
from kconsumer.spark.pipeline.settings import Sink
from kconsumer.spark.pipeline.sinks import Folder, make
from kconsumer.spark.pipeline.status_report import find_status
from support.brokers.kafka import Kafka

GOOD = 300
OPENS_MS = 1_780_272_000_000  # 2026-06-01 00:00 UTC
BAD: dict[bytes | None, str] = {
    b"{": "not a JSON object",
    b"[]": "not a JSON object",
    b"\xff\xfe": "not UTF-8",
    b'{"id": "x", "at": 0, "cents": 1}': "a field is not of its type",
    b'{"at": 0, "cents": 1}': "no id",
    b'{"id": 1, "cents": 1}': "no event time",
    b'{"id": 1, "at": 0, "cents": -1}': "rule price",
    b'{"id": 1, "at": 0}': "rule price",
    None: "no value",
}

# The reasons of the decoder of the source, in place of the first four.
OWN_REASONS = {
    b"{": "value is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    b"[]": "value is [], which is not struct<id:bigint,at:bigint,cents:int>",
    b"\xff\xfe": "value is not UTF-8",
    b'{"id": "x", "at": 0, "cents": 1}': 'value has "x" at id, which is not bigint',
}


def good(number: int) -> bytes:
    """Returns records at intervals of four seconds, for twenty minutes, of which the first ten are before the end of an
    hour.
    """
    at = OPENS_MS + 50 * 60_000 + number * 4_000
    return json.dumps({"id": number, "at": at, "cents": number % 7 + 1, "more": "left out"}).encode()


@pytest.fixture
def document(kafka: Kafka, topic_name: str, tmp_path: Path) -> dict[str, Any]:
    """Returns a pipeline over a topic of three partitions that has valid records and one of each invalid kind."""
    kafka.create_topic(topic_name, 3)
    values: list[bytes | None] = [*map(good, range(GOOD)), *BAD]
    for partition in range(3):
        kafka.produce(topic_name, values[partition::3], partition=partition)
    return {
        "source": {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "subscribe": topic_name,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": 120,
        },
        "decode": {
            "schema": {"id": "long", "at": "long", "cents": "int"},
            "required": ["id"],
            "event_time": "timestamp_millis(at)",
            "rules": {"price": "cents > 0"},
        },
        "dead_letters": {"path": str(tmp_path / "dead")},
        "sink": {"path": str(tmp_path / "rows"), "max_records_per_file": 25},
        "aggregate": {
            "window": "1 minute",
            "watermark": "30 seconds",
            "columns": {"cents": "sum(cents)"},
            "path": str(tmp_path / "windows"),
        },
        "run": {
            "name": topic_name,
            "checkpoint": str(tmp_path / "checkpoint"),
            "progress_log": str(tmp_path / "progress.jsonl"),
            "prometheus_file": str(tmp_path / "metrics.prom"),
        },
    }


def in_one_batch(document: dict[str, Any]) -> None:
    """Let the pipeline read its topic in one micro-batch, without windows."""
    document["source"]["maxOffsetsPerTrigger"] = 1000
    del document["aggregate"]


def read(path: Path) -> list[dict[str, Any]]:
    """Returns the rows of a folder, read without Spark."""
    import pyarrow.dataset as ds

    found: list[dict[str, Any]] = ds.dataset(path, partitioning="hive", format="parquet").to_table().to_pylist()
    return found


def minutes() -> dict[int, int]:
    """Returns the sum of cents by minute since the shop opened."""
    found: Counter[int] = Counter()
    for number in range(GOOD):
        found[50 + number * 4 // 60] += number % 7 + 1
    return dict(found)


def check_outputs(folder: Path, reasons: dict[bytes | None, str] = BAD) -> None:
    """Check that every valid record is one row, every invalid one is one dead letter, and every closed window is
    written once.
    """
    import pyarrow.parquet as pq

    rows = read(folder / "rows")
    assert list(range(GOOD)) == sorted(row["id"] for row in rows)
    hours = Counter((str(row["date"]), row["hour"]) for row in rows)
    assert {("2026-06-01", 0): 150, ("2026-06-01", 1): 150} == hours
    assert 25 >= max(pq.read_metadata(file).num_rows for file in (folder / "rows").rglob("*.parquet"))
    letters = read(folder / "dead")
    assert sorted(reasons.items(), key=str) == sorted(((row["value"], row["reason"]) for row in letters), key=str)
    assert len(BAD) == len({(row["partition"], row["offset"]) for row in letters})
    # The newest record is of minute 69; windows are closed if they end earlier than that by more than the watermark.
    windows = {
        (row["window_start"].timestamp() * 1000 - OPENS_MS) // 60_000: row["cents"] for row in read(folder / "windows")
    }
    assert {minute: cents for minute, cents in minutes().items() if minute < 69} == windows
    assert 19 == len(read(folder / "windows"))


@pytest.mark.parametrize("parser", ["spark", "kconsumer"])
def test_from_topic_to_tables_once(spark: Any, document: dict[str, Any], tmp_path: Path, parser: str) -> None:
    """Rows, dead letters and windows are written once, also when the last batches are run again as after a crash. The
    metrics count the records of the run.
    """
    document["decode"]["parser"] = parser
    reasons = BAD | (OWN_REASONS if parser == "kconsumer" else {})
    config = parse(document)
    outcome = run(config, spark)
    assert (GOOD + len(BAD), len(BAD), False) == (outcome.rows, outcome.invalid, outcome.stopped)
    check_outputs(tmp_path, reasons)
    log = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    assert GOOD + len(BAD) == sum(entry["rows"] for entry in log if entry["query"].endswith(" rows"))
    topic = document["source"]["subscribe"]
    assert 0 == log[-1]["lag"][topic]
    labels, metrics = f'client_id="{topic}",query="{topic} rows"', (tmp_path / "metrics.prom").read_text()
    for name, count in (("records", outcome.rows), ("invalid_records", outcome.invalid), ("batch", outcome.batches)):
        assert f"kconsumer_pipeline_metrics_{name}_total{{{labels}}} {float(count)}\n" in metrics
    assert f'kconsumer_pipeline_metrics_records_lag{{{labels},topic="{topic}"}} 0.0\n' in metrics
    for query in ("rows", "windows"):
        commits = tmp_path / "checkpoint" / query / "commits"
        newest = max(int(path.name) for path in commits.glob("[0-9]*"))
        for path in (commits / str(newest), commits / f".{newest}.crc"):
            path.unlink()
    interrupted = [check.text for check in status(config) if check.what == "rows"]
    assert "and did not finish; the next start runs it again" in interrupted[-1]
    (tmp_path / "rows.staging").mkdir(exist_ok=True)
    again = run(config, spark)
    assert 0 < again.rows < GOOD
    assert ["warn"] * 2 == [check.level for check in again.findings if check.what == "checkpoint"]
    check_outputs(tmp_path, reasons)
    assert [] == list(tmp_path.glob("*.staging/*"))


def test_where_a_pipeline_is(spark: Any, document: dict[str, Any], tmp_path: Path) -> None:
    """After a run, and after one that failed, the status says so; Hadoop reads the same as Python."""
    in_one_batch(document)
    config = parse(document)
    run(config, spark)
    topic = document["source"]["subscribe"]
    found = status(config)
    assert "finished at " in found[0].text
    assert f"ok    lag         {topic}: 0 offsets in 3 partitions" == found[-1].line()
    assert {"ok"} == {check.level for check in found}
    now_ms = Clock().wall_ms()
    checkpoint = tmp_path / "checkpoint"
    local = find_status(config, now_ms, LocalFiles(checkpoint))
    assert local == find_status(config, now_ms, Folder(spark, str(checkpoint)))
    document["decode"]["on_invalid"] = "fail"
    document["run"]["checkpoint"] = str(tmp_path / "second")
    with pytest.raises(PipelineError):
        run(parse(document), spark)
    failed = status(parse(document))[0]
    assert "fail" == failed.level
    assert "PipelineError: " in failed.text
    (tmp_path / "file").touch()
    document["dead_letters"]["path"] = str(tmp_path / "file")
    document["decode"]["on_invalid"] = "deadletter"
    with pytest.raises(PipelineError, match=r"dead_letters.path = '.*' is a file or a root; give a folder"):
        run(parse(document), spark)


def test_a_replay_writes_what_the_table_lacks(
    spark: Any, kafka: Kafka, document: dict[str, Any], tmp_path: Path
) -> None:
    """Rows that were deleted, or were invalid under earlier rules, are written once, those in the range only."""
    in_one_batch(document)
    document["decode"]["rules"]["even"] = "id % 2 = 0"
    config = parse(document)
    with pytest.raises(ConfigError, match="has no finished micro-batch"):
        replay(config, "2026-01-01", "2030-01-01", spark)
    run(config, spark)
    kafka.produce(document["source"]["subscribe"], [good(GOOD)])  # for the next run, which has not begun
    assert list(range(0, GOOD, 2)) == sorted(row["id"] for row in read(tmp_path / "rows"))
    assert Replayed(GOOD + len(BAD), len(BAD) + GOOD // 2, 0) == replay(config, "2026-01-01", "2030-01-01", spark)
    del document["decode"]["rules"]["even"]
    letters = read(tmp_path / "dead")
    for _ in range(2):  # the second time there is nothing to do
        replay(parse(document), "2026-01-01", "2030-01-01", spark)
        assert list(range(GOOD)) == sorted(row["id"] for row in read(tmp_path / "rows"))
    assert letters == read(tmp_path / "dead")
    assert Replayed(0, 0, 0) == replay(parse(document), "2020-01-01", "2020-01-02", spark)
    document["decode"]["metadata"] = ["kafka_offset"]
    with pytest.raises(ConfigError, match=r"add kafka_partition to decode\.metadata"):
        replay(parse(document), "2026-01-01", "2030-01-01", spark)
    with pytest.raises(ConfigError, match="'yesterday' is not a time; write one such as"):
        replay(parse(document), "yesterday", "2030-01-01", spark)


def test_files_of_two_schemas(spark: Any, document: dict[str, Any], tmp_path: Path) -> None:
    """Spark reads files from before and after a change with the new schema; a type that is not wider is found by a dry
    run, and ends a start before it writes.
    """
    sink = make(spark, Sink("parquet", str(tmp_path / "rows"), None, ("date",), 0, None, {}))
    starts = ("cast(id as int) AS id, cast(0.5 as float) AS share", "id + 3000000000 AS id, 0.1d AS share, 'x' AS more")
    for number, columns in enumerate(starts):
        sink.write(spark.range(1).selectExpr(*columns.split(", "), "'2026-06-01' AS date"), Batch("q", number))
    rows = spark.read.schema("id long, share double, more string").parquet(str(tmp_path / "rows")).orderBy("id")
    assert [(0, 0.5, None), (3_000_000_000, 0.1, "x")] == [(row.id, row.share, row.more) for row in rows.collect()]
    Folder(spark, str(tmp_path / "checkpoint")).write_text("schema.json", json.dumps({"rows": {"cents": "string"}}))
    message = "column cents of .* was string and would be int, which does not hold all its values"
    (failed,) = [check for check in dry_run(parse(document), spark) if check.level == "fail"]
    assert re.match(message, failed.text)
    with pytest.raises(ConfigError, match=message):
        run(parse(document), spark)
    assert not (tmp_path / "checkpoint" / "rows").exists()


def test_a_dry_run_writes_nothing(
    spark: Any, document: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dry run prints what it found and planned, or each error by name, and writes nothing."""
    topic = document["source"]["subscribe"]
    lines = [check.line() for check in dry_run(parse(document), spark)]
    assert f"ok    topics      {topic}: 3 partitions, 309 offsets" in lines
    assert any(line.startswith("ok    executors   kconsumer ") for line in lines)
    assert any("rows -> parquet" in line and "by date, hour" in line and "cents int" in line for line in lines)
    assert any("window_start timestamp" in line for line in lines)
    assert [] == list(tmp_path.iterdir())
    document["source"]["subscribe"] = f"{topic}-none"
    document["decode"]["rules"]["price"] = "cent > 0"
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "old.parquet").touch()
    wrong = {check.what: (check.level, check.text) for check in dry_run(parse(document), spark)}
    assert ("fail", "warn", "fail") == tuple(wrong[name][0] for name in ("broker", "output", "plan"))
    assert f"topic {topic}-none" in wrong["broker"][1]
    assert "decode.rules.price" in wrong["plan"][1]
    assert "cents" in wrong["plan"][1]  # Spark names the most similar column
    monkeypatch.setattr(runner, "plans", Mock(side_effect=ValueError))
    assert "ValueError()" == dry_run(parse(document), spark)[-1].text


def test_an_invalid_expression_is_reported_with_its_key(spark: Any, document: dict[str, Any]) -> None:
    """Expressions and fields that Spark cannot read raise an error that contains their key in the file, before any
    query starts.
    """
    for section, key, value in (
        ("decode", "event_time", "nowhere"),
        ("decode", "event_time", "id"),
        ("decode", "schema", "id lonk"),
        ("decode", "required", ["nothing"]),
        ("sink", "partition_by", ["dat"]),
        ("aggregate", "columns", {"n": "sum(nowhere)"}),
        ("aggregate", "by", ["nowhere"]),
    ):
        changed = {**document, section: {**document[section], key: value}}
        with pytest.raises(ConfigError, match="aggregate" if section == "aggregate" else key):
            run(parse(changed), spark)


def test_a_package_that_is_not_there(spark: Any, document: dict[str, Any], tmp_path: Path) -> None:
    """A format whose package is missing raises an error before any query starts."""
    document["sink"] = {"format": "delta", "path": str(tmp_path / "delta")}
    with pytest.raises(PipelineError, match=r"sink\.format = 'delta', but its package is not in the session"):
        run(parse(document), spark)


def test_an_invalid_row_can_fail_the_pipeline(spark: Any, document: dict[str, Any], tmp_path: Path) -> None:
    """With on_invalid=fail the error contains the reason and the place, and no row of that batch is published."""
    document["decode"]["on_invalid"] = "fail"
    in_one_batch(document)
    with pytest.raises(PipelineError, match=r"at offset \d+ of"):
        run(parse(document), spark)
    assert [] == list((tmp_path / "rows").rglob("*.parquet"))


def test_raw_records_from_now_on(spark: Any, kafka: Kafka, document: dict[str, Any], tmp_path: Path) -> None:
    """Without a format values stay bytes. From `latest`, the first run reads no record and the next one reads those
    written since.
    """
    topic = document["source"]["subscribe"]
    document["source"]["startingOffsets"] = "latest"
    document["decode"] = {"format": "raw", "metadata": ["kafka_key"], "rules": {"short": "length(value) < 3"}}
    document["sink"]["partition_by"] = []
    del document["aggregate"]
    config = parse(document)
    assert 0 == run(config, spark).rows
    kafka.produce(topic, [b"a", b"long", None, b"\xff"], keys=[b"k"] * 4, partition=0)
    outcome = run(config, spark)
    assert (4, 2) == (outcome.rows, outcome.invalid)
    rows = [(row["kafka_key"], row["value"]) for row in read(tmp_path / "rows")]
    assert [(b"k", b"a"), (b"k", b"\xff")] == sorted(rows)
    assert {b"long", None} == {row["value"] for row in read(tmp_path / "dead")}
