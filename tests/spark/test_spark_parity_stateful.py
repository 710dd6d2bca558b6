"""Joins, windows and repeated micro-batches of Spark's own Kafka source and of ours have the same results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.brokers.kafka import Kafka
from support.harnesses.polling import numbered
from support.spark.spark_parity import OURS, THEIRS, plain

T0 = 1_700_000_000_000
ROUNDS, PER_ROUND = 3, 40
Build = Callable[[Callable[[str], Any]], Any]  # (topic -> DataFrame that reads it) -> DataFrame of the query


def run(spark: Any, source: str, servers: str, build: Build, folder: Path) -> list[Any]:
    """Run a query from its checkpoint to the end of its topics. Returns the watermark of each micro-batch."""

    def read(topic: str) -> Any:
        options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
        return spark.readStream.format(source).options(**options, maxOffsetsPerTrigger="25").load()

    writer = build(read).writeStream.format("parquet").option("path", str(folder / source / "out"))
    query = writer.option("checkpointLocation", str(folder / source / "checkpoint")).trigger(availableNow=True).start()
    try:
        query.awaitTermination(120)
    finally:
        query.stop()
    return [(report["batchId"], report["eventTime"].get("watermark")) for report in query.recentProgress]


def check_same(spark: Any, kafka: Kafka, write: Callable[[int], None], build: Build, folder: Path) -> list[Any]:
    """Run a query of both sources after each of several rounds of records, and compare. Returns the rows."""
    found: dict[str, list[Any]] = {}
    for number in range(ROUNDS):
        write(number)
        marks = [run(spark, source, kafka.bootstrap_servers, build, folder) for source in (THEIRS, OURS)]
        assert marks[0] == marks[1]
    for source in (THEIRS, OURS):
        found[source] = sorted(map(plain, spark.read.parquet(str(folder / source / "out")).collect()))
    assert found[THEIRS] == found[OURS]
    return found[OURS]


@pytest.mark.parity
@pytest.mark.long
def test_streams_that_are_joined(spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """An outer join of two streams returns the same pairs, and the same rows without one, after equal watermarks."""
    names = [f"{topic_name}-{side}" for side in ("left", "right")]
    for name in names:
        kafka.create_topic(name, 2)

    def write(number: int) -> None:
        rows = range(number * PER_ROUND, (number + 1) * PER_ROUND)
        for every, name in ((1, names[0]), (3, names[1])):
            for partition in range(2):
                chosen = [row for row in rows if row % every == 0 and row % 2 == partition]
                stamps = [T0 + row * 1000 + every * 100 for row in chosen]
                kafka.produce(name, [b"%d" % row for row in chosen], partition=partition, timestamps=stamps)

    def build(read: Callable[[str], Any]) -> Any:
        left, right = (
            read(name)
            .selectExpr(f"value AS {side}", f"timestamp AS {side}_at")
            .withWatermark(f"{side}_at", "2 seconds")
            for side, name in zip("lr", names, strict=True)
        )
        near = "l = r AND r_at BETWEEN l_at AND l_at + INTERVAL 5 SECONDS"
        return left.join(right, _expr(near), "left_outer").select("l", "l_at", "r", "r_at")

    rows = check_same(spark, kafka, write, build, tmp_path)
    assert 10 < len([row for row in rows if row[2][0]]) < len(rows)


def _expr(text: str) -> Any:
    from pyspark.sql.functions import expr

    return expr(text)


@pytest.mark.parity
@pytest.mark.long
def test_windows_over_idle_partitions(spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """Partitions without new records, or without any, hold back neither the watermark nor windows, as in Spark's own
    source.
    """
    kafka.create_topic(topic_name, 3)

    def write(number: int) -> None:
        stamps = [T0 + (number * PER_ROUND + row) * 1000 for row in range(PER_ROUND)]
        kafka.produce(topic_name, numbered(PER_ROUND), partition=number % 2, timestamps=stamps)

    def build(read: Callable[[str], Any]) -> Any:
        rows = read(topic_name).withWatermark("timestamp", "5 seconds")
        counts = rows.groupBy(_window(), "partition").count()
        return counts.select("window.start", "partition", "count")

    rows = check_same(spark, kafka, write, build, tmp_path)
    assert {("x", 0), ("x", 1)} == {row[1] for row in rows}


def _window() -> Any:
    from pyspark.sql.functions import window

    return window("timestamp", "10 seconds")


@pytest.mark.parity
@pytest.mark.long
def test_a_batch_that_is_tried_again(spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """A function of foreachBatch that fails is called again with the same number and the same rows."""
    kafka.create_topic(topic_name, 2)
    for partition in range(2):
        kafka.produce(topic_name, numbered(30), partition=partition)
    seen: dict[str, list[Any]] = {THEIRS: [], OURS: []}
    for source, calls in seen.items():
        options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic_name}
        options |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
        for fails in (True, True, False):

            def write(rows: Any, number: int, calls: list[Any] = calls, fails: bool = fails) -> None:
                calls.append((number, sorted((row.partition, row.offset, row.value) for row in rows.collect())))
                if fails and number == 1:
                    raise RuntimeError("not yet")

            frame = spark.readStream.format(source).options(**options).load()
            writer = frame.writeStream.foreachBatch(write).trigger(availableNow=True)
            query = writer.option("checkpointLocation", str(tmp_path / source)).start()
            if fails:
                with pytest.raises(Exception, match="not yet"):
                    query.awaitTermination(120)
            else:
                query.awaitTermination(120)
    assert seen[THEIRS] == seen[OURS]
    assert [0, 1, 1, 1, 2] == [number for number, _ in seen[OURS]]
    assert seen[OURS][1] == seen[OURS][2] == seen[OURS][3]
