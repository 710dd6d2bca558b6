"""Pipelines into tables of PostgreSQL, Delta and Iceberg, with random names, crashes and changed settings: a table has
the newest row of each key, or each row once.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kconsumer.errors import ConfigError
from kconsumer.spark.pipeline import parse, run
from kconsumer.testing import FakeCluster
from support.databases.postgres import Postgres
from support.spark.random_pipelines import BAD, ROUNDS, SEED, counted, crash, document, plain, rows
from support.spark.table_formats import FORMATS

TEXTS = ["a", "B", "é", 'q"', "", " a", "5", "{x", "null", "'", "NaN"]
NEW = "Neü"  # the name of a column that the second start adds
PARTITIONS = 2


class Record(NamedTuple):
    """A record: its place, key and value, and what the key means: the columns of a row, {} if there is none."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    named: dict[str, str]


class Store(NamedTuple):
    """Where tables are: the session that writes them, the settings of a sink, and a function that reads its table."""

    spark: Any
    sink: dict[str, Any]
    read: Callable[[dict[str, Any], list[str]], Iterator[list[Any]]]  # (sink, columns) -> rows


@pytest.fixture(
    params=["jdbc", *(pytest.param(form, marks=[pytest.mark.long, pytest.mark.tables]) for form in FORMATS)]
)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """A database, or a session with the packages of tables."""
    if request.param == "jdbc":
        with Postgres() as postgres:

            def of_database(sink: dict[str, Any], columns: list[str]) -> Iterator[list[Any]]:
                names = ", ".join('"' + column.replace('"', '""') + '"' for column in columns)
                query = f"SELECT json_build_array({names}) FROM {sink['table']}"
                yield from (json.loads(row) for (row,) in postgres.rows(query))

            yield Store(request.getfixturevalue("spark"), {"format": "jdbc", "url": postgres.jdbc_url}, of_database)
        return
    spark = request.getfixturevalue("tables_spark")

    def of_tables(sink: dict[str, Any], columns: list[str]) -> Iterator[list[Any]]:
        path = str(plain(sink.get("path", "")).absolute()).replace("`", "``")
        table = sink.get("table") or f"delta.`{path}`"
        names = ", ".join("`" + column.replace("`", "``") + "`" for column in columns)
        yield from (list(row) for row in spark.sql(f"SELECT {names} FROM {table}").collect())

    yield Store(spark, {"format": request.param}, of_tables)


def records(rng: random.Random, fields: list[str], key: list[str], ends: list[int]) -> Iterator[Record]:
    """Yield random writes and deletes by key, or only deletes and invalid records. The records of a key are in one
    partition. `ends`: the next offsets.
    """
    valid = rng.choice([0, 0.9, 0.9])
    for number in range(40):
        names = {field: rng.choice(TEXTS) for field in key}
        row = {field: rng.choice([f"n{number}", None, ""]) for field in fields} | {"id": number} | names
        value = json.dumps(row).encode() if rng.random() < valid else BAD
        deletes = rng.random() < 0.3
        value = None if deletes else rng.choice([value, value, None])
        partition = sum(str(names).encode()) % PARTITIONS
        written = written_key(rng, names) if deletes and key else None
        yield Record(partition, ends[partition], written, value, names if written is not None else {})
        ends[partition] += 1


def written_key(rng: random.Random, names: dict[str, str]) -> bytes:
    """Returns a key as a JSON object, or, if it has one column, as JSON or text."""
    (text, *more) = names.values()
    forms = [json.dumps(names), *([] if more else [json.dumps(text), text])]
    return rng.choice(forms).encode()


def expected(sent: list[Record], fields: list[str], key: list[str], nulls: list[str]) -> list[str]:
    """Returns the rows that a table must have, as lists in JSON. In the fields `nulls` an empty text is null."""
    found: dict[Any, str | None] = {}
    for record in sent:
        if record.value not in (BAD, None):
            row = json.loads(record.value or "") | {"kafka_partition": record.partition, "kafka_offset": record.offset}
            identity = tuple(row[field] for field in key) or (record.partition, record.offset)
            row |= {field: row[field] or None for field in nulls if field in row}
            found[identity] = json.dumps([row.get(field) for field in fields])
        elif record.named:
            found[tuple(record.named.values())] = None
    return sorted(row for row in found.values() if row is not None)


@pytest.mark.random
@pytest.mark.timeout(300 + 120 * ROUNDS)
def test_the_rows_are_exact(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the columns and folders are named, a table has the newest row of each key, or each row once, though
    drivers die before a transaction and after it, and a column is added. Another key, mode or table is refused.
    """
    outcomes: Counter[str] = Counter()
    with FakeCluster() as cluster:
        for seed in range(SEED, SEED + ROUNDS // 2):
            rng, topic, folder = random.Random(seed), f"t{seed}", tmp_path / str(seed)
            cluster.create_topic(topic, PARTITIONS)
            given, columns = document(rng, folder, cluster.bootstrap_servers, topic)
            if store.sink["format"] == "delta":
                given["sink"] |= store.sink
            else:
                given["sink"] = store.sink | {"table": topic if "url" in store.sink else f"lake.shop.{topic}"}
            with counted(outcomes, seed, given, lambda run=given["run"]: not plain(run["checkpoint"]).exists()):
                if rng.random() < 0.8:
                    given["sink"] |= {
                        "mode": "upsert",
                        "key": rng.sample(columns[1:], rng.randint(1, len(columns) - 1)),
                    }
                check(store, given, columns, rng, monkeypatch, cluster, folder)
    assert outcomes["written"] >= max(1, ROUNDS // 8), outcomes


def check(
    store: Store, given: dict[str, Any], columns: list[str], rng: random.Random, patch: pytest.MonkeyPatch,
    cluster: FakeCluster, folder: Path,
) -> None:  # fmt: skip
    """Write records twice and run a pipeline, with crashes, and compare its table and dead letters."""
    topic, sink, sent, ends = given["source"]["subscribe"], given["sink"], list[Record](), [0] * PARTITIONS
    key, nulls = sink.get("key", []), sink.get("partition_by", []) if sink["format"] == "delta" else []
    for turn in range(2):
        if turn:
            columns.append(NEW)
            given["decode"]["schema"] += f", `{NEW}` string"
        for record in (more := list(records(rng, columns, key, ends))):
            cluster.produce(topic, [record.value], partition=record.partition, key=record.key)
        sent += more
        for _ in range(rng.randint(0, 2)):
            crash(given, store.spark, rng, patch, folder)
        run(parse(given), store.spark)
        names = [*columns, *given["decode"]["metadata"]]
        assert expected(sent, names, key, nulls) == sorted(json.dumps(row) for row in store.read(sink, names))
        letters = [row["value"] for row in rows(given["dead_letters"]["path"])]
        assert Counter(each.value for each in sent if each.value in (BAD, None) and not each.named) == Counter(letters)
    place = "path" if "path" in sink else "table"
    changes: list[dict[str, Any]] = [{place: sink[place] + "_other"}, {"mode": "upsert", "key": ["id"]}]
    for changed in [*changes, {"mode": "append", "key": []}] if key else changes:
        with pytest.raises(ConfigError, match=r"sink\.(path|table|mode|key) was"):
            run(parse(given | {"sink": sink | changed}), store.spark)
