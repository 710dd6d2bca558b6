"""Measures what a whole pipeline costs with Spark's own Kafka source and with kconsumer's.

    python benchmarks/spark_pipeline.py [--orders 2000000] [--rounds 3] [--only WAY] [--quick] [--json FILE]

Orders in JSON become Parquet by date and hour, invalid ones become dead letters, and the revenue of each minute and
country is aggregated. Starts one Kafka. Each reading is a new Spark session of two cores, which first runs the pipeline
on a smaller topic without being measured; the ways alternate. The processor time and the memory are those of the JVM
and all Python processes of the session, without the broker.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.data import Corpus, compile_sources, load
from support.brokers.kafka import JVM_FULL, Kafka, KafkaCluster

MB = 1 << 20
TICKS = os.sysconf("SC_CLK_TCK")
INVALID_EVERY = 1000
COUNTRIES = {"DE": 30, "FR": 22, "IN": 18, "JP": 12, "BR": 10, "NG": 8}
OPENS_MS = 1_780_272_000_000
SCHEMA = "order_id long, ordered_at long, country string, item string, cents long"
GOAL = 2.0  # rows per CPU second, in multiples of Spark's own source


# --- the topic --------------------------------------------------------------------------------------------------------


def order_lines(count: int) -> Iterator[str]:
    """Yield orders of about 110 bytes over an hour, the same in each run. Some are not valid."""
    chance, names, weights = random.Random(2026), list(COUNTRIES), list(COUNTRIES.values())
    for number in range(count):
        order = {
            "order_id": number,
            "ordered_at": OPENS_MS + 3_600_000 * number // count,
            "country": chance.choices(names, weights)[0],
            "item": f"sku-{chance.randrange(900):03d}",
            "cents": chance.randrange(199, 25_000),
            "session": f"{chance.getrandbits(64):016x}",
        }
        if number % INVALID_EVERY == 0:
            order["cents"] = "free"
        yield json.dumps(order, separators=(",", ":"))


def fill(kafka: Kafka, name: str, orders: int) -> str:
    """Create a topic with this number of orders."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "orders"
        file.write_text("\n".join(order_lines(min(orders, 200_000))))
        return load(kafka, Corpus(name, orders, 110, payloads=str(file)))


# --- the pipelines, in a process of their own -------------------------------------------------------------------------


def settings(servers: str, topic: str, folder: Path) -> dict[str, Any]:
    """Return the file of the pipeline."""
    return {
        "source": {
            "kafka.bootstrap.servers": servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": 1_000_000,
        },
        "decode": {
            "schema": SCHEMA,
            "required": ["order_id", "country", "cents"],
            "event_time": "timestamp_millis(ordered_at)",
            "metadata": ["kafka_partition", "kafka_offset"],
            "rules": {"price": "cents > 0"},
        },
        "dead_letters": {"path": str(folder / "dead")},
        "sink": {"path": str(folder / "orders"), "partition_by": ["date", "hour"]},
        "aggregate": {
            "window": "1 minute",
            "watermark": "10 seconds",
            "by": ["country"],
            "columns": {"orders": "count(*)", "cents": "sum(cents)"},
            "path": str(folder / "revenue"),
        },
        "run": {"checkpoint": str(folder / "checkpoint"), "name": "orders"},
    }


def session() -> Any:
    """Create a Spark session of two cores with both sources."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "assignors")])
    from pyspark.sql import SparkSession

    import kconsumer.spark
    from support.spark.spark_jars import spark_kafka_jars

    given = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "2g",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.jars": ",".join(map(str, spark_kafka_jars())),
    }
    builder = SparkSession.builder.master("local[2]")
    for key, value in given.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    kconsumer.spark.register(spark)
    return spark


def read_by_spark(spark: Any, config: Any, **_: bool) -> Any:
    """Return a stream of Spark's own source, in place of the pipeline's function that reads by kconsumer."""
    from kconsumer.spark.pipeline.frames import RECORD

    reader = spark.readStream.format("kafka")
    for name, value in config.source.items():
        reader = reader.option(name, value)
    return reader.load().select(*(column.split()[0] for column in RECORD.split(", ")))


def run_pipeline(spark: Any, way: str, servers: str, topic: str) -> dict[str, Any]:
    """Run the pipeline on a topic until its end. Returns how long it took, and what it wrote."""
    from kconsumer.spark.pipeline import frames, parse, run

    if way == "kafka":
        frames.read = read_by_spark
    folder = Path(tempfile.mkdtemp(prefix="kconsumer-pipeline-"))
    try:
        before = time.perf_counter()
        file = settings(servers, topic, folder)
        file["decode"]["parser"] = "kconsumer" if way == "decoding" else "spark"
        outcome = run(parse(file), spark)
        seconds = time.perf_counter() - before
        rows, dead, revenue = (spark.read.parquet(str(folder / each)) for each in ("orders", "dead", "revenue"))
        written = [rows.count(), dead.count(), rows.agg({"cents": "sum"}).first()[0], revenue.count()]
        return {"seconds": seconds, "records": outcome.rows, "invalid": outcome.invalid, "written": written}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def serve(way: str, servers: str, small: str, large: str) -> None:
    """Run the pipeline on the small topic, then, when a line arrives at stdin, on the large one."""
    spark = session()
    run_pipeline(spark, way, servers, small)
    print("ready", flush=True)
    sys.stdin.readline()
    found = run_pipeline(spark, way, servers, large)
    print(json.dumps(found), flush=True)
    sys.stdin.readline()
    spark.stop()


# --- measuring --------------------------------------------------------------------------------------------------------


def processes_below(root: int) -> list[int]:
    """Return the ids of a process and all that it has started."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(folder.name))
    found = [root]
    for pid in found:
        found += parents.get(pid, [])
    return found


def cpu_seconds(root: int) -> dict[str, float]:
    """Return the processor time of a session until now, of its JVM and of its Python processes, with ended ones."""
    spent = {"jvm": 0.0, "python": 0.0}
    for pid in processes_below(root):
        try:
            head, _, tail = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        except OSError:
            continue
        own, ended = sum(map(int, tail.split()[11:13])), sum(map(int, tail.split()[13:15]))
        spent["jvm" if "java" in head else "python"] += own / TICKS
        spent["python"] += ended / TICKS
    return spent


def memory_mb(root: int) -> dict[str, float]:
    """Return the memory of a session at this moment. Pages that processes share count once."""
    used = {"jvm": 0.0, "python": 0.0}
    for pid in processes_below(root):
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        pss = sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        used["jvm" if name == "java" else "python"] += pss * 1024 / MB
    return used


class Peak:
    """The largest memory of a session while a block runs."""

    def __init__(self, root: int) -> None:
        self._root, self._stop = root, threading.Event()
        self.mb = {"jvm": 0.0, "python": 0.0, "all": 0.0}
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._stop.wait(0.25):
            used = memory_mb(self._root)
            for name, value in {**used, "all": sum(used.values())}.items():
                self.mb[name] = max(self.mb[name], value)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def measure(way: str, servers: str, small: str, large: str) -> dict[str, Any]:
    """Take one reading."""
    command = [sys.executable, __file__, "--serve", way, servers, small, large]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"the pipeline with {way} did not start")
        before = cpu_seconds(process.pid)
        with Peak(process.pid) as peak:
            process.stdin.write("go\n")
            process.stdin.flush()
            found = json.loads(process.stdout.readline())
        after = cpu_seconds(process.pid)
        process.stdin.close()
    cpu = {name: after[name] - before[name] for name in before}
    return {**found, "cpu": {**cpu, "all": sum(cpu.values())}, "mb": peak.mb}


WAYS = {
    "kafka": "Spark's own source, `from_json`",
    "kconsumer": "kconsumer, `from_json`",
    "decoding": "kconsumer, `decode.parser`",
}


def show(readings: dict[str, list[dict[str, Any]]]) -> None:
    """Print the table: the median of the readings of each way."""
    print("| source | rows/s | CPU s per million rows | JVM | Python | rows per CPU second | peak memory, MB |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for way, found in readings.items():
        if not found:
            continue
        middle = sorted(found, key=lambda reading: reading["cpu"]["all"])[len(found) // 2]
        millions, cpu = middle["records"] / 1e6, middle["cpu"]
        speed = statistics.median(reading["records"] / reading["seconds"] for reading in found)
        parts = " | ".join(f"{cpu[name] / millions:.2f}" for name in ("all", "jvm", "python"))
        print(
            f"| {WAYS[way]} | {speed:,.0f} | {parts} | {1e6 * millions / cpu['all']:,.0f} | {middle['mb']['all']:.0f} |"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=WAYS, help="measure one way only")
    parser.add_argument("--quick", action="store_true", help="200,000 orders and one round, only to show that it runs")
    parser.add_argument("--json", type=Path, help="write all readings to this file")
    parser.add_argument("--serve", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(*options.serve)
        return
    orders, rounds = (200_000, 1) if options.quick else (options.orders, options.rounds)
    compile_sources()
    machine = {"machine": platform.platform(), "cpus": os.cpu_count(), "load": os.getloadavg()[0], "orders": orders}
    readings: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS if options.only in (None, way)}
    with KafkaCluster(jvm=JVM_FULL) as kafka:
        small, large = fill(kafka, "warm", min(orders, 300_000)), fill(kafka, "orders", orders)
        for _ in range(rounds):
            for way, found in readings.items():
                found.append(measure(way, kafka.bootstrap_servers, small, large))
                print(f"{way}: {found[-1]}", file=sys.stderr, flush=True)
                if options.json:
                    options.json.write_text(json.dumps({**machine, "readings": readings}, indent=1) + "\n")
    show(readings)


if __name__ == "__main__":
    main()
