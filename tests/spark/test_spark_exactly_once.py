"""Tables of Delta, Iceberg and PostgreSQL have every row once, however often a pipeline into them is killed.

`tox -e spark-exactly-once` kills each pipeline 20 times, on the newest Spark that has packages for all three.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.brokers.kafka import KafkaCluster
from support.databases.postgres import Postgres
from support.spark import table_formats
from support.spark.killed_pipeline import KilledPipeline
from support.spark.spark_jars import postgres_driver
from support.spark.spark_rows import read_tables

KILLS = int(os.environ.get("KCONSUMER_SPARK_KILLS", "20"))
SEED = int(os.environ.get("KCONSUMER_SPARK_SEED", "0")) or random.randrange(1, 10_000)
WINDOWS = os.environ.get("KCONSUMER_SPARK_WINDOWS", "yes") == "yes"  # a second query takes as long as the first
PARTITIONS = 3
BEGIN_MS = 1_780_272_000_000  # 2026-06-01 00:00 UTC
STEP_MS = 100  # event time between two records
WINDOW_MS = 60_000
WATERMARK_MS = 300_000
SESSION = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}
Row = tuple[Any, ...]


class Load:
    """Writes numbered orders to a topic in turn to its partitions, and remembers what the tables must contain.

    Every 100th record is not JSON.
    """

    def __init__(self, kafka: KafkaCluster, topic: str) -> None:
        self._kafka, self._topic, self._count = kafka, topic, 0
        self.rows: set[Row] = set()  # (partition, offset, id)
        self.bad: set[Row] = set()  # (partition, offset)

    def write(self, count: int) -> None:
        """Write records, and wait until they are acknowledged."""
        values: dict[int, list[bytes]] = defaultdict(list)
        for number in range(self._count, self._count + count):
            partition, offset = number % PARTITIONS, number // PARTITIONS
            good = bool(number % 100)
            values[partition].append(b'{"id": %d, "at": %d}' % (number, self.at(number)) if good else b"bad")
            if good:
                self.rows.add((partition, offset, number))
            else:
                self.bad.add((partition, offset))
        self._count += count
        for partition, written in values.items():
            self._kafka.produce(self._topic, written, partition=partition)

    def close_windows(self) -> None:
        """Write a record of a later day to each partition. It ends all windows but its own, which has no end."""
        at = BEGIN_MS + 10 * 86_400_000
        for partition in range(PARTITIONS):
            number = self._count + partition
            offset = self._kafka.end_offsets(self._topic)[partition]
            self._kafka.produce(self._topic, [b'{"id": %d, "at": %d}' % (number, at)], partition=partition)
            self.rows.add((partition, offset, number))

    def check_topic(self) -> None:
        """Check that the producer wrote each record once, at the offset that is expected."""
        ends = Counter(partition for partition, *_ in (*self.rows, *self.bad))
        assert ends == self._kafka.end_offsets(self._topic)

    @staticmethod
    def at(number: int) -> int:
        """Returns the event time of a record in ms."""
        return BEGIN_MS + number * STEP_MS

    def windows(self) -> set[Row]:
        """Returns (start in ms, number of rows, sum of ids) of each window that has ended."""
        numbers = defaultdict(list)
        for _, _, number in self.rows:
            if number < self._count:
                at = self.at(number)
                numbers[at - at % WINDOW_MS].append(number)
        return {(start, len(ids), sum(ids)) for start, ids in numbers.items()}


@dataclass(frozen=True)
class Target:
    """A pipeline's output: the lines of its file, and how to read the tables `rows` and `windows`."""

    sink: dict[str, Any]
    windows: dict[str, str]
    spark: dict[str, str]
    read: Callable[[], tuple[list[Row], list[Row]]]  # (partition, offset, id), (start in ms, rows, sum of ids)
    crash: Callable[[], None] | None = None  # of the database


ROWS = "SELECT kafka_partition, kafka_offset, id FROM {}"


@contextmanager
def postgresql(folder: Path) -> Iterator[Target]:
    """A PostgreSQL server."""
    jars = ",".join(map(str, postgres_driver()))
    start = "(extract(epoch FROM window_start) * 1000)::bigint"
    with Postgres() as server:

        def read() -> tuple[list[Row], list[Row]]:
            windows = f'SELECT {start}, "rows", ids FROM windows'
            rows, found = server.rows(ROWS.format("orders")), server.rows(windows) if WINDOWS else []
            return [tuple(map(int, row)) for row in rows], [tuple(map(int, row)) for row in found]

        sink = {"format": "jdbc", "table": "orders", "url": server.jdbc_url}
        yield Target(sink, {"table": "windows"}, {"spark.jars": jars}, read, server.restart)


@contextmanager
def table(form: str, folder: Path) -> Iterator[Target]:
    """A table of Delta or Iceberg in a folder."""
    about, jars = table_formats.FORMATS[form], table_formats.jars(form)
    tables = table_formats.placed(about["tables"], folder)
    settings = table_formats.placed(about["spark"], folder)
    windows = f"SELECT unix_millis(window_start), `rows`, ids FROM {tables['windows']}"

    def read() -> tuple[list[Row], list[Row]]:
        queries = {"rows": ROWS.format(tables["rows"]), **({"windows": windows} if WINDOWS else {})}
        found = read_tables(jars, {**SESSION, **settings}, queries)
        return found["rows"], found.get("windows", [])

    sink = {"format": form, "partition_by": ["date"], **table_formats.placed(about["sink"], folder)}
    placed = table_formats.placed(about["windows"], folder)
    yield Target(sink, placed, {"spark.jars": ",".join(jars), **settings}, read)


@contextmanager
def target_of(form: str, folder: Path) -> Iterator[Target]:
    """The target with this name."""
    with postgresql(folder) if form == "postgresql" else table(form, folder) as target:
        yield target


def document(servers: str, topic: str, folder: Path, target: Target) -> dict[str, dict[str, Any]]:
    """Returns the sections of the pipeline's file."""
    aggregate = {
        "columns": {"rows": "count(*)", "ids": "sum(id)"},
        "window": f"{WINDOW_MS // 1000} seconds",
        "watermark": f"{WATERMARK_MS // 1000} seconds",
        **target.windows,
    }
    return {
        "source": {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"},
        "decode": {"schema": "id long, at long", "required": ["id"], "event_time": "timestamp_millis(at)"},
        "dead_letters": {"path": f"{folder}/dead"},
        "sink": target.sink,
        **({"aggregate": aggregate} if WINDOWS else {}),
        "run": {"name": "killed", "checkpoint": f"{folder}/checkpoint", "trigger": "100 milliseconds"},
        # A task whose worker is killed runs again; by default, a local master fails the query.
        "spark": {"spark.master": "local[2,4]", **SESSION, **target.spark},
    }


def as_toml(sections: dict[str, dict[str, Any]]) -> str:
    """Returns the text of a file with these sections. Texts, numbers and lists are the same in JSON and TOML."""
    lines = []
    for section, values in sections.items():
        lines.append(f"[{section}]")
        lines += [f'"{key}" = {json.dumps(value)}' for key, value in values.items() if not isinstance(value, dict)]
        for key, value in values.items():
            if isinstance(value, dict):
                lines += [f"[{section}.{key}]", *(f'"{name}" = {json.dumps(text)}' for name, text in value.items())]
    return "\n".join(lines)


def dead_letters(folder: Path) -> list[Row]:
    """Returns (partition, offset) of all dead letters."""
    import pyarrow.dataset as ds

    found = ds.dataset(folder / "dead", format="parquet").to_table(columns=["partition", "offset"])
    return [tuple(row.values()) for row in found.to_pylist()]


def differences(what: str, expected: set[Row], found: list[Row]) -> str:
    """Returns what is lost, repeated or wrong, and prints the figures."""
    times = Counter(found)
    lost, foreign = sorted(expected - times.keys()), sorted(times.keys() - expected)
    repeated = sorted(row for row, count in times.items() if count > 1)
    print(f"{what}: {len(found)} found, {len(lost)} lost, {len(repeated)} repeated, {len(foreign)} wrong")
    return (
        f"{what}: lost {lost[:9]}, repeated {repeated[:9]}, wrong {foreign[:9]}" if lost or repeated or foreign else ""
    )


@pytest.mark.long
@pytest.mark.tables
@pytest.mark.timeout(1200 + 300 * KILLS)
@pytest.mark.parametrize("form", ["postgresql", "delta", "iceberg"])
def test_every_row_is_there_once(topic_name: str, tmp_path: Path, form: str) -> None:
    """Rows, dead letters and windows are exactly those of the topic after kills of drivers and Python workers at random
    moments, a restart of the broker, and a crash of the database.
    """
    print(f"\n{form}: KCONSUMER_SPARK_SEED={SEED}")
    with KafkaCluster() as kafka, target_of(form, tmp_path) as target:
        kafka.create_topic(topic_name, PARTITIONS)
        load = Load(kafka, topic_name)
        (tmp_path / "pipeline.toml").write_text(
            as_toml(document(kafka.bootstrap_servers, topic_name, tmp_path, target))
        )
        pipeline = KilledPipeline(tmp_path, load.write, SEED)
        run_with_kills(pipeline, kafka, target)
        # Before pyspark 4.2, a run with available_now writes windows that have ended with the records of the next run.
        for _ in range(2):
            load.close_windows()
            pipeline.finish()
        load.check_topic()
        rows, windows = target.read()
        batches = {query: pipeline.newest(query, "commits") + 1 for query in ("rows", "windows")}
        print(f"{form}: {pipeline.figures}; micro-batches: {batches}")
        found = [
            differences("rows", load.rows, rows),
            differences("windows", load.windows() if WINDOWS else set(), windows),
            differences("dead letters", load.bad, dead_letters(tmp_path)),
        ]
        assert [] == [text for text in found if text]
        assert batches["rows"] > KILLS // 4


def run_with_kills(pipeline: KilledPipeline, kafka: KafkaCluster, target: Target) -> None:
    """Kill the driver KILLS times. The database crashes after the first time, and the broker restarts in the middle."""
    if target.crash is not None:
        pipeline.round()
        pipeline.survive(target.crash)
    restart: Callable[[], None] | None = kafka.nodes[0].restart
    for _ in range(3 * KILLS):
        killed = pipeline.figures.drivers.total()
        if killed == KILLS:
            return
        if killed >= KILLS // 2 and restart is not None:
            pipeline.round(restart)
            restart = None
        else:
            pipeline.round()
    raise AssertionError(f"runs end by themselves: {pipeline.output()}")
