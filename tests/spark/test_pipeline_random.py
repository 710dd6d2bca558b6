"""Pipelines with random names of columns, paths, crashes and changed settings: the table has exactly what it must."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kconsumer.errors import ConfigError
from kconsumer.spark.pipeline import parse, run
from kconsumer.testing import FakeCluster
from support.spark.random_pipelines import BAD, ROUNDS, SEED, counted, crash, document, rows


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
            with counted(outcomes, seed, given, lambda folder=folder: not list(rows(str(folder)))):
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
    written = list(rows(given["sink"]["path"]))
    by = set(by if by is not None else ("date", "hour"))
    expected = [json.loads(value) for value in sent if value != BAD]
    for row in expected:
        row |= {field: None for field in by & row.keys() if row[field] == ""}  # as Spark writes an empty partition
    fields = list(expected[0])
    assert expected == sorted(({field: row[field] for field in fields} for row in written), key=lambda row: row["id"])
    extra = {"event_time", *given["decode"]["metadata"], *by} - set(fields)
    assert {tuple(sorted(extra))} == {tuple(sorted(row.keys() - set(fields))) for row in written}
    letters = [(row["offset"], row["value"]) for row in rows(given["dead_letters"]["path"])]
    assert [(offset, value) for offset, value in enumerate(sent) if value == BAD] == sorted(letters)
