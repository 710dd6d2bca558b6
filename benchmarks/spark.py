"""Compares Spark's own Kafka source and kconsumer's on the same topics, in one session.

    python benchmarks/spark.py [--records 5000000] [--rounds 3] [--quick] [--json FILE]

Starts one Kafka and a Spark session of two cores, and prints a table of rows per second and of the ratio. With `--json`
all readings are written to a file. Both sources read the same topic alternately; the best of several rounds counts. The
pyspark that has Spark's own source is needed: `pip install --group spark-parity`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.data import Corpus, compile_sources, load
from support.brokers.kafka import JVM_FULL, Kafka, KafkaCluster
from support.spark.spark_jars import spark_kafka_jars

SOURCES = ("kafka", "kconsumer")
OUT = Path(tempfile.mkdtemp(prefix="kconsumer-bench-spark-"))
Work = Callable[[Any], object]


def write(frame: Any, form: str) -> None:
    """Write all rows to a sink."""
    frame.write.format(form).mode("overwrite").save(*([str(OUT / "parquet")] if form == "parquet" else []))


def total(frame: Any) -> None:
    """Compute the length of all values."""
    frame.selectExpr("sum(length(value))").collect()


# name -> (topic, goal in multiples of Spark's own source, work with the rows)
WORKS: dict[str, tuple[str, float, Work]] = {
    "count()": ("100B", 3.0, lambda frame: frame.count()),
    "sum(length(value))": ("100B", 3.0, total),
    "noop": ("100B", 2.5, lambda frame: write(frame, "noop")),
    "Parquet": ("100B", 1.5, lambda frame: write(frame, "parquet")),
    "noop, 1 KB": ("1KB", 1.5, lambda frame: write(frame, "noop")),
}


def session(socket: bool) -> Any:
    """Create a Spark session of two cores with both sources."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "assignors")])
    from pyspark.sql import SparkSession

    import kconsumer.spark

    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "2g",
        "spark.python.unix.domain.socket.enabled": str(socket).lower(),
        "spark.jars": ",".join(map(str, spark_kafka_jars())),
    }
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    kconsumer.spark.register(spark)
    return spark


def seconds(run: Callable[[], object]) -> float:
    """Return the time that a call takes."""
    before = time.perf_counter()
    run()
    return time.perf_counter() - before


def frame(spark: Any, source: str, kafka: Kafka, topic: str, schema: str = "") -> Any:
    """Return a batch frame over a topic."""
    reader = spark.read.format(source).option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    return (reader.schema(schema) if schema else reader).option("subscribe", topic).load()


def read_all(spark: Any, source: str, kafka: Kafka, topic: str, work: Work) -> None:
    """Plan and run one batch query."""
    work(frame(spark, source, kafka, topic))


def batches(spark: Any, kafka: Kafka, topics: dict[str, tuple[str, int]], rounds: int, only: str) -> dict[str, Any]:
    """Measure Mrow/s of each work by source."""
    readings: dict[str, Any] = {}
    for name, (corpus, goal, work) in WORKS.items():
        if only not in name:
            continue
        topic, records = topics[corpus]
        speeds: dict[str, list[float]] = {source: [] for source in SOURCES}
        for _ in range(rounds):
            for source in SOURCES:
                taken = seconds(partial(read_all, spark, source, kafka, topic, work))
                speeds[source].append(records / taken / 1e6)
        readings[name] = {"goal": goal, **speeds}
        show(name, goal, speeds)
    return readings


def projection(spark: Any, kafka: Kafka, topic: str, records: int, rounds: int) -> dict[str, Any]:
    """Measure Mrow/s of reading all columns, and the offset only, at 1 KB."""
    speeds: dict[str, list[float]] = {"all columns": [], "offset": []}
    for _ in range(rounds):
        for name, schema in (("all columns", ""), ("offset", "offset long")):
            taken = seconds(lambda schema=schema: write(frame(spark, "kconsumer", kafka, topic, schema), "noop"))
            speeds[name].append(records / taken / 1e6)
    show("offset only, 1 KB", 2.0, speeds)
    return {"goal": 2.0, **speeds}


JSON = "id long, amount double, name string, tags array<string>, at timestamp"


def json_topic(kafka: Kafka, records: int) -> str:
    """Fill a topic with documents of about 130 bytes, which have a field that the queries do not read."""
    chance, lines = random.Random(0), []
    for number in range(10_000):
        document = {
            "id": number,
            "amount": round(chance.uniform(0, 1000), 2),
            "name": f"customer {number % 700}",
            "tags": ["new", "web", "north"][: number % 4],
            "at": f"2026-03-{number % 28 + 1:02}T10:{number % 60:02}:00.123Z",
            "trace": f"{chance.getrandbits(64):016x}",
        }
        lines.append(json.dumps(document, separators=(",", ":")))
    file = OUT / "documents"
    file.write_text("\n".join(lines))
    return load(kafka, Corpus("json", records, 130, payloads=str(file)))


def decoding(spark: Any, kafka: Kafka, records: int, rounds: int) -> dict[str, Any]:
    """Measure Mrow/s of three ways to decode JSON: in kconsumer's source, or in Spark over either source."""
    topic = json_topic(kafka, records)
    columns = ["value.id", "value.amount", "value.name", "value.tags", "value.at"]

    def decoded_by_spark(source: str) -> Any:
        text = "cast(value as string)"
        return frame(spark, source, kafka, topic).selectExpr(f"from_json({text}, '{JSON}') AS value").select(*columns)

    def decoded_by_source() -> Any:
        reader = spark.read.format("kconsumer").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        reader = reader.option("subscribe", topic).option("valueFormat", "json").option("valueSchema", JSON)
        return reader.option("columns", "value").load().select(*columns)

    ways: dict[str, Callable[[], Any]] = {
        "from_json over Spark's": partial(decoded_by_spark, "kafka"),
        "from_json over ours": partial(decoded_by_spark, "kconsumer"),
        "valueFormat=json": decoded_by_source,
    }
    speeds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, make in ways.items():
            speeds[way].append(records / seconds(lambda make=make: write(make(), "noop")) / 1e6)
    for way in list(ways)[:2]:
        show(f"JSON: {way}, valueFormat=json", 1.0, {way: speeds[way], "ours": speeds["valueFormat=json"]})
    return {"goal": 1.0, **speeds}


def latency(spark: Any, kafka: Kafka, count: int) -> dict[str, Any]:
    """Measure milliseconds from trigger to commit of micro-batches of ten records."""
    found: dict[str, Any] = {"goal": 1.2}
    topic = kafka.create_topic("bench-latency", 2)
    kafka.produce(topic, [b"x" * 100] * 10 * count)
    for source in SOURCES:
        reader = spark.readStream.format(source).option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        stream = reader.option("maxOffsetsPerTrigger", "10").load().writeStream.format("noop")
        folder = str(OUT / f"checkpoint-{source}")
        query = stream.option("checkpointLocation", folder).trigger(availableNow=True).start()
        query.awaitTermination()
        times = [report["batchDuration"] for report in query.recentProgress if report["numInputRows"]]
        found[source] = times[3:]
    medians = {source: statistics.median(found[source]) for source in SOURCES}
    theirs, ours = (medians[source] for source in SOURCES)
    print(f"| micro-batch, median ms | {theirs:.0f} | {ours:.0f} | {ours / theirs:.2f} | ≤ 1.20 |")
    return found


def show(name: str, goal: float, speeds: dict[str, list[float]]) -> None:
    """Print a row of the table."""
    first, second = (max(values) for values in speeds.values())
    print(f"| {name} | {first:.2f} | {second:.2f} | {second / first:.2f} | ≥ {goal} |", flush=True)


def main() -> None:
    """Run all works and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="200,000 records and one round, only to show that it runs")
    parser.add_argument(
        "--tcp", action="store_true", help="use Spark's default TCP socket to Python in place of a Unix one"
    )
    parser.add_argument("--only", default="", help="run only works whose names contain this")
    parser.add_argument("--json", type=Path, help="write all readings to this file")
    options = parser.parse_args()
    records, rounds = (200_000, 1) if options.quick else (options.records, options.rounds)
    readings: dict[str, Any] = {"machine": platform.platform(), "cpus": os.cpu_count(), "records": records}
    compile_sources()
    spark = session(not options.tcp)
    try:
        with KafkaCluster(jvm=JVM_FULL) as kafka:
            topics = {
                corpus.name: (load(kafka, corpus), corpus.records)
                for corpus in (Corpus("100B", records, 100), Corpus("1KB", records // 2, 1000))
            }
            for source in SOURCES:  # loads classes and warms up the JVM
                frame(spark, source, kafka, topics["1KB"][0]).count()
            print("| what | Spark's, Mrow/s | ours | ratio | goal |\n|---|---:|---:|---:|---:|")
            readings["batches"] = batches(spark, kafka, topics, rounds, options.only)
            if options.only in "json":
                readings["json"] = decoding(spark, kafka, records // 2, rounds)
            if not options.only:
                readings["projection"] = projection(spark, kafka, *topics["1KB"], rounds)
                readings["latency"] = latency(spark, kafka, 5 if options.quick else 30)
    finally:
        spark.stop()
        shutil.rmtree(OUT, ignore_errors=True)
    if options.json:
        options.json.write_text(json.dumps(readings, indent=1) + "\n")


if __name__ == "__main__":
    main()
