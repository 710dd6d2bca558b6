"""Upserts into a table: random writes and deletes by key, in several micro-batches, of which some run again.

    python upserts.py JARS SETTINGS SINK QUERY FOLDER    # JSON: paths, settings of the session, [sink] of the pipeline

Prints the seeds that it has tried. `QUERY` selects the columns `id`, `note` and `kafka_offset` of the table.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kconsumer.spark.pipeline import parse, run
from kconsumer.testing import FakeCluster

RECORDS, PARTITIONS = 60, 2
Row = tuple[str, str | None, int]  # of the table: id, note and offset


def records(rng: random.Random) -> list[tuple[int, bytes, bytes | None]]:
    """Returns partition, key and value of random records. A key is JSON or text, and always in the same partition."""
    made = []
    for number in range(RECORDS):
        key = rng.choice(["a", 'q"', "é", "5", "{x"])
        row = json.dumps({"id": key, "note": f"n{number}"}).encode()
        raw = [json.dumps({"id": key}), json.dumps(key), key if key != "{x" else json.dumps(key)]
        partition = sum(key.encode()) % PARTITIONS
        made.append((partition, rng.choice(raw).encode(), None if rng.random() < 0.3 else row))
    return made


def expected(sent: Iterable[tuple[int, bytes, bytes | None]]) -> list[Row]:
    """Returns the newest row of each key that is not deleted."""
    rows: dict[str, Row | None] = {}
    offsets = [0] * PARTITIONS
    for partition, key, value in sent:
        text = key.decode()
        read = json.loads(text) if text[0] == '"' or text.startswith('{"') else text
        name = read["id"] if isinstance(read, dict) else read
        rows[name] = None if value is None else (name, json.loads(value)["note"], offsets[partition])
        offsets[partition] += 1
    return sorted(row for row in rows.values() if row is not None)


def forget_last(checkpoint: Path) -> None:
    """Undo the end of the last micro-batch, so that it runs again."""
    commits = checkpoint / "rows" / "commits"
    newest = max(int(path.name) for path in commits.glob("[0-9]*"))
    for path in (commits / str(newest), commits / f".{newest}.crc"):
        path.unlink()


def check(spark: Any, sink: dict[str, Any], folder: Path, read: Callable[[], list[Row]], seed: int) -> None:
    """Run a pipeline into the table of `sink`, and check after each start that it has the newest rows."""
    rng, topic = random.Random(seed), f"t{seed}"
    with FakeCluster() as cluster:
        cluster.create_topic(topic, PARTITIONS)
        config = parse(
            {
                "source": {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic,
                           "startingOffsets": "earliest", "maxOffsetsPerTrigger": rng.choice([15, 1000])},
                "decode": {"schema": "id string, note string", "metadata": ["kafka_offset"], "required": ["note"],
                           "parser": rng.choice(["spark", "kconsumer"])},
                "dead_letters": {"path": str(folder / "dead")},
                "sink": {"mode": "upsert", "key": ["id"], **sink},
                "run": {"checkpoint": str(folder / "checkpoint")},
            }
        )  # fmt: skip
        sent: list[tuple[int, bytes, bytes | None]] = []
        for _ in range(2):
            for partition, key, value in (more := records(rng)):
                cluster.produce(topic, [value], partition=partition, key=key)
            sent += more
            for again in (True, False):
                assert 0 == run(config, spark).invalid
                assert expected(sent) == sorted(read()), seed
                if again:
                    forget_last(folder / "checkpoint")
        cluster.produce(topic, [None], key=None)
        assert 1 == run(config, spark).invalid, "a delete without a key is a dead letter"


def main() -> None:
    """Run the check in a session with the package of a format."""
    import kconsumer.spark
    from support.spark.spark_tables import session

    jars, settings, sink, query, folder = sys.argv[1:]
    spark = session(json.loads(jars), json.loads(settings))
    kconsumer.spark.register(spark)
    try:
        check(spark, json.loads(sink), Path(folder), lambda: list(map(tuple, spark.sql(query).collect())), 1)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
