"""Pipelines with random names of columns, paths, crashes and changed settings: the table has exactly what it must."""

from __future__ import annotations

import contextlib
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from kconsumer.errors import ConfigError
from kconsumer.spark.pipeline import parse, run
from kconsumer.spark.pipeline.runner import PipelineError
from kconsumer.testing import FakeCluster
from support.databases.postgres import Postgres
from support.spark.killed_run import die_at, run_and_kill
from support.spark.spark_jars import postgres_driver
from support.spark.spark_settings import session_settings

SEED = int(os.environ.get("KCONSUMER_PIPELINE_SEED", "1"))
ROUNDS = int(os.environ.get("KCONSUMER_PIPELINE_ROUNDS", "4"))  # the long form: 60
KILLS = ROUNDS > 4  # each takes a session of its own
USED = ["kafka_offset", "event_time", "date", "hour", "_reason", "_record", "_json", "_error", "_no_value", "_corrupt",
        "_kconsumer_json", "value", "valueError", "window_start"]  # fmt: skip
ODD = ["", " ", "select", "Order", "null", "s", "t", "a.b", "a b", "Ü", "u\u0308", "ß", "SS", "L" * 200]
LETTERS = "ab_.-` =/%#[]{}*?\\'\"$:;,()é☃"
BAD = b'{"id": "x"}'


class CrashError(Exception):
    """In place of the death of a driver."""


def name(rng: random.Random) -> str:
    """Returns a name of a column: one that the pipeline or SQL uses, perhaps in another case, or any characters."""
    if rng.random() < 0.6:
        return rng.choice([str.upper, str.title, str])(rng.choice([*USED, *ODD]))
    return rng.choice(["_", ".", "c", "C"]) + "".join(rng.choices(LETTERS, k=rng.randint(0, 4)))


def folder_name(rng: random.Random) -> str:
    """Returns a name of a folder. Hadoop does not allow all characters in one."""
    return rng.choice(["_", ".", "r"]) + "".join(rng.choices(LETTERS.translate({ord("/"): None, ord(":"): None}), k=4))


def crash(given: dict[str, Any], spark: Any, rng: random.Random, patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Run a pipeline that may end at one of its steps: by an exception, or, in the long form, often by SIGKILL of all
    its processes.
    """
    step = rng.randint(0, 8)
    if KILLS and rng.random() < 0.5:
        jars = ",".join(map(str, postgres_driver()))
        run_and_kill(given, session_settings() | {"spark.jars": jars}, step, folder.parent / "output")
        return

    def end() -> None:
        raise CrashError

    with patch.context() as patched:
        die_at(step, end, patched.setattr)
        with contextlib.suppress(PipelineError):
            run(parse(given), spark)


def rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of all files below a folder with the text of their partitions, as the files and folders have
    them.
    """
    import pyarrow.parquet as pq

    for file in folder.rglob("*.parquet"):
        parts = [part.split("=", 1) for part in file.relative_to(folder).parts[:-1]]
        named = {unquote(key): None if text == "__HIVE_DEFAULT_PARTITION__" else unquote(text) for key, text in parts}
        for row in pq.ParquetFile(file).read().to_pylist():
            yield row | named


def document(rng: random.Random, folder: Path, servers: str, topic: str) -> tuple[dict[str, Any], list[str]]:
    """Returns a random pipeline that reads a topic in several micro-batches, and the fields of its records."""
    fields = ["id", *dict.fromkeys(name(rng) for _ in range(rng.randint(1, 3)))]
    quoted = {field: "`" + field.replace("`", "``") + "`" for field in fields}
    sink: dict[str, Any] = {"path": str(folder / folder_name(rng))}
    if rng.random() < 0.7:
        sink["partition_by"] = rng.sample([*fields[1:], "date"], rng.randint(0, 2))
    given = {
        "source": {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest",
                   "maxOffsetsPerTrigger": 15},
        "decode": {"schema": "`id` long, " + ", ".join(f"{quoted[field]} string" for field in fields[1:]),
                   "metadata": rng.choice([[], ["kafka_partition", "kafka_offset"]]),
                   "parser": rng.choice(["spark", "kconsumer"])},
        "dead_letters": {"path": str(folder / f"dead{folder_name(rng)}")},
        "sink": sink,
        "run": {"checkpoint": str(folder / f"checkpoint{folder_name(rng)}"), "start_timeout": 300},
    }  # fmt: skip
    return given, fields


@contextlib.contextmanager
def counted(outcomes: Counter[str], seed: int, given: object, nothing_written: Callable[[], bool]) -> Iterator[None]:
    """Count how the pipeline of the block ended. If it is refused, nothing may have been written."""
    try:
        yield
    except ConfigError as error:
        assert nothing_written(), (seed, given)
        outcomes[str(error)] += 1
    except BaseException:
        print("seed", seed, given)
        raise
    else:
        outcomes["written"] += 1


def values(rng: random.Random, fields: list[str]) -> list[bytes]:
    """Returns the values of records, of which every tenth is invalid."""
    texts = ["x", "a/b", "", "ä", "..", "*", None]
    made = [{"id": number} | {field: rng.choice(texts) for field in fields} for number in range(30)]
    return [BAD if row["id"] % 10 == 9 else json.dumps(row).encode() for row in made]


@pytest.mark.random
@pytest.mark.timeout(200 + 30 * ROUNDS)
def test_the_table_is_exact(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the columns and folders are named, every valid record is one row with its fields, or nothing is written.
    Drivers die between any two renames, in the long form by SIGKILL; settings change between two starts; invalid
    records become valid.
    """
    outcomes: Counter[str] = Counter()
    with FakeCluster() as cluster:
        for seed in range(SEED, SEED + ROUNDS):
            rng, topic, folder = random.Random(seed), f"t{seed}", tmp_path / str(seed)
            cluster.create_topic(topic)
            given, columns = document(rng, folder, cluster.bootstrap_servers, topic)
            with counted(outcomes, seed, given, lambda: not list(rows(folder))):  # noqa: B023
                parse(given)
                sent = values(rng, columns[1:])
                cluster.produce(topic, sent)
                check(spark, given, sent, rng, monkeypatch, folder)
    assert outcomes["written"] >= ROUNDS // 4, outcomes


def check(
    spark: Any, given: dict[str, Any], sent: list[bytes], rng: random.Random, patch: pytest.MonkeyPatch, folder: Path
) -> None:
    """Run a pipeline with crashes, and then to its end, and compare what it has written."""
    by = given["sink"].get("partition_by")
    for _ in range(rng.randint(0, 2)):
        crash(given, spark, rng, patch, folder)
        if by is not None and rng.random() < 0.5:
            given["sink"]["partition_by"] = by[1:] if by else ["date"]
            with pytest.raises(ConfigError, match="partition"):
                run(parse(given), spark)
            given["sink"]["partition_by"] = by
        if rng.random() < 0.3:
            given["decode"]["schema"] = given["decode"]["schema"].replace("`id` long", "`id` string")
            with pytest.raises(ConfigError, match="column id"):
                run(parse(given), spark)
            given["decode"]["schema"] = given["decode"]["schema"].replace("`id` string", "`id` long")
    found = run(parse(given), spark).findings
    assert [] == [each.text for each in found if each.what == "output"]
    written = list(rows(Path(given["sink"]["path"])))
    by = set(by if by is not None else ("date", "hour"))
    expected = [json.loads(value) for value in sent if value != BAD]
    for row in expected:
        row |= {field: None for field in by & row.keys() if row[field] == ""}  # as Spark writes an empty partition
    fields = list(expected[0])
    assert expected == sorted(({field: row[field] for field in fields} for row in written), key=lambda row: row["id"])
    extra = {"event_time", *given["decode"]["metadata"], *by} - set(fields)
    assert {tuple(sorted(extra))} == {tuple(sorted(row.keys() - set(fields))) for row in written}
    letters = [(row["offset"], row["value"]) for row in rows(Path(given["dead_letters"]["path"]))]
    assert [(offset, value) for offset, value in enumerate(sent) if value == BAD] == sorted(letters)


Keyed = tuple[int, dict[str, str], bytes | None]  # partition, key ({}: none) and value of a record


def keyed(rng: random.Random, fields: list[str], key: list[str]) -> Iterator[Keyed]:
    """Yield random writes and deletes by key. The records of a key are in one partition."""
    for number in range(40):
        names = {field: rng.choice(["a", "B", "é", 'q"', "", " a"]) for field in key}
        row = {field: rng.choice([f"n{number}", None]) for field in fields} | {"id": number} | names
        value = json.dumps(row).encode() if rng.random() < 0.9 else BAD
        partition = sum(str(names).encode()) % 2
        yield (partition, names, None) if rng.random() < 0.3 else (partition, {}, rng.choice([value, value, None]))


def newest(sent: list[Keyed], fields: list[str], key: list[str]) -> list[str]:
    """Returns the rows, as lists in JSON, that a table must have after these records."""
    rows: dict[tuple[str, ...], str | None] = {}
    for _, names, value in sent:
        if value not in (BAD, None):
            row = json.loads(value or "")
            rows[tuple(row[field] for field in key)] = json.dumps([row[field] for field in fields])
        elif names:
            rows[tuple(names.values())] = None
    return sorted(row for row in rows.values() if row is not None)


@pytest.mark.random
@pytest.mark.timeout(200 + 30 * ROUNDS)
def test_the_newest_rows_are_exact(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for a table of a database that has the newest row of each key: drivers die before a transaction and
    after it, and another key, mode or table is refused.
    """
    outcomes: Counter[str] = Counter()
    with FakeCluster() as cluster, Postgres() as postgres:
        for seed in range(SEED, SEED + ROUNDS // 2):
            rng, topic, folder = random.Random(seed), f"t{seed}", tmp_path / str(seed)
            cluster.create_topic(topic, 2)
            given, columns = document(rng, folder, cluster.bootstrap_servers, topic)
            given["sink"] = {"format": "jdbc", "url": postgres.jdbc_url, "table": topic, "mode": "upsert"}
            with counted(outcomes, seed, given, lambda: not Path(given["run"]["checkpoint"]).exists()):  # noqa: B023
                given["sink"]["key"] = rng.sample(columns[1:], rng.randint(1, len(columns) - 1))
                check_newest(spark, given, columns, rng, monkeypatch, cluster, postgres, folder)
    assert outcomes["written"] >= max(1, ROUNDS // 8), outcomes


def check_newest(
    spark: Any, given: dict[str, Any], columns: list[str], rng: random.Random, patch: pytest.MonkeyPatch,
    cluster: FakeCluster, postgres: Postgres, folder: Path,
) -> None:  # fmt: skip
    """Write records twice and run a pipeline, with crashes, and compare its table and dead letters."""
    topic, key, sent = given["source"]["subscribe"], given["sink"]["key"], list[Keyed]()
    names = ", ".join('"' + column.replace('"', '""') + '"' for column in columns)
    for _ in range(2):
        for partition, named, value in (more := list(keyed(rng, columns, key))):
            cluster.produce(topic, [value], partition=partition, key=json.dumps(named).encode() if named else None)
        sent += more
        for _ in range(rng.randint(0, 2)):
            crash(given, spark, rng, patch, folder)
        run(parse(given), spark)
        written = postgres.rows(f"SELECT json_build_array({names}) FROM {topic}")
        assert newest(sent, columns, key) == sorted(json.dumps(json.loads(row)) for (row,) in written)
        letters = [row["value"] for row in rows(Path(given["dead_letters"]["path"]))]
        assert Counter(value for _, named, value in sent if value in (BAD, None) and not named) == Counter(letters)
    for name, value in (("mode", "append"), ("key", ["id"]), ("table", "other")):
        changed = given | {"sink": given["sink"] | {name: value} | ({"key": []} if name == "mode" else {})}
        with pytest.raises(ConfigError, match=f"sink.{name} was"):
            run(parse(changed), spark)
