"""The process of a pipeline is killed or stopped at any moment; the files contain every record once."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from support.brokers import processes
from support.brokers.kafka import Kafka
from support.brokers.kafka_admin import wait_until
from support.databases.postgres import Postgres
from support.spark.spark_jars import postgres_driver

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("KCONSUMER_SPARK_KILLS", "1"))  # the long form: 20
RECORDS = 1500 + 300 * KILLS
PER_BATCH = 150
FILE = """
[source]
kafka.bootstrap.servers = "{servers}"
subscribe = "{topic}"
startingOffsets = "earliest"
maxOffsetsPerTrigger = {per_batch}

[decode]
schema = "{schema}"
required = ["id"]
metadata = []

[dead_letters]
path = "{folder}/dead"

[sink]
{sink}

[run]
name = "killed"
checkpoint = "{folder}/checkpoint"

[spark]
master = "local[2]"
ui.enabled = false
driver.host = "127.0.0.1"
driver.extraJavaOptions = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""


def commits(folder: Path) -> int:
    """Returns the number of completed micro-batches."""
    return len(list((folder / "checkpoint" / "rows" / "commits").glob("[0-9]*")))


def pipeline(folder: Path) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    """Start the command as leader of its own session; at the end all its processes are killed."""
    paths = [str(ROOT), str(ROOT / "assignors")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-m", "kconsumer.spark.pipeline", str(folder / "killed.toml")]
    return processes.running_session(command, environment, folder / "output")


def run_some(folder: Path, more: int) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    """Start the command and wait until it has completed a few micro-batches."""

    @contextlib.contextmanager
    def running():  # type: ignore[no-untyped-def]
        before = commits(folder)
        with pipeline(folder) as process:
            wait_until(lambda: commits(folder) >= before + more or process.poll() is not None, 150, "micro-batches")
            assert process.poll() is None, (folder / "output").read_text()[-3000:]
            yield process

    return running()


def run_with_kills(
    kafka: Kafka,
    topic_name: str,
    folder: Path,
    sink: str,
    settings: str = "",
    restart: Callable[[], None] = lambda: None,
) -> None:
    """Kill a pipeline `KILLS` times, stop it once, and let it read to the end. All dead letters are there once.

    The last run has a wider type and a new column, and finds what other versions have left in the checkpoint. `restart`
    is called while it runs, before the kill in the middle.
    """
    kafka.create_topic(topic_name, 3)
    values = [b'{"id": %d, "half": %d.5}' % (number, number) if number % 100 else b"bad" for number in range(RECORDS)]
    for partition in range(3):
        kafka.produce(topic_name, values[partition::3], partition=partition)

    def describe(schema: str) -> None:
        text = FILE.format(
            servers=kafka.bootstrap_servers, topic=topic_name, folder=folder, per_batch=PER_BATCH, sink=sink,
            schema=schema,
        )  # fmt: skip
        (folder / "killed.toml").write_text(text + settings)

    describe("id int")
    for number in range(KILLS):
        with run_some(folder, 1) as process, contextlib.suppress(subprocess.TimeoutExpired):
            if number == KILLS // 2:
                restart()
            process.wait(random.uniform(0.0, 0.8))
    with run_some(folder, 1) as process:
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(60), (folder / "output").read_text()[-3000:]
    offsets = len(list((folder / "checkpoint" / "rows" / "offsets").glob("[0-9]*")))
    assert 0 <= offsets - commits(folder) <= 1
    assert commits(folder) < RECORDS // PER_BATCH, "there was nothing left to continue with"
    note = folder / "checkpoint" / "run.json"
    assert "stopped" == json.loads(note.read_text())["state"]
    note.write_text(json.dumps({**json.loads(note.read_text()), "key of a later version": 1}))
    describe("id long, half double")
    with pipeline(folder) as process:
        assert 0 == process.wait(200), (folder / "output").read_text()[-3000:]
    import pyarrow.dataset as ds

    letters = ds.dataset(folder / "dead", format="parquet").to_table(columns=["partition", "offset"]).to_pylist()
    assert RECORDS // 100 == len(letters) == len({tuple(letter.values()) for letter in letters})


def check_once(rows: Iterable[tuple[int, float | None]]) -> None:
    """Check that every valid record is a row once, and that the new column is null in the rows of earlier runs only."""
    found = list(rows)
    assert [number for number in range(RECORDS) if number % 100] == sorted(number for number, _ in found)
    assert {None, 0.5} == {None if half is None else half - number for number, half in found}


@pytest.mark.kills
@pytest.mark.timeout(400 + 150 * KILLS)
def test_it_continues_after_kill_and_stop(kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """After SIGKILL no record is lost or repeated. SIGTERM ends the command with exit code 0 after a whole batch. The
    last run, with a wider type and a new column, reads to the end.
    """
    run_with_kills(kafka, topic_name, tmp_path, f'path = "{tmp_path}/rows"\npartition_by = ["date"]')
    import pyarrow as pa
    import pyarrow.dataset as ds

    both = pa.schema({"id": pa.int64(), "half": pa.float64()})
    table = ds.dataset(tmp_path / "rows", format="parquet", schema=both).to_table()
    check_once(zip(table["id"].to_pylist(), table["half"].to_pylist(), strict=True))


@pytest.mark.long
@pytest.mark.kills
@pytest.mark.timeout(400 + 150 * KILLS)
def test_a_database_has_every_row_once(kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """After SIGKILL of the pipeline, and a crash of the database, every record is a row of its table once."""
    jars = ",".join(str(jar) for jar in postgres_driver())
    with Postgres() as postgres:
        sink = f'format = "jdbc"\ntable = "orders"\nurl = "{postgres.jdbc_url}"'
        run_with_kills(kafka, topic_name, tmp_path, sink, f'jars = "{jars}"\n', postgres.restart)
        rows = postgres.rows("SELECT id, coalesce(half::text, 'null') FROM orders")
        check_once((int(number), None if half == "null" else float(half)) for number, half in rows)
        assert [("kconsumer_progress",), ("orders",)] == postgres.rows(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
        )
